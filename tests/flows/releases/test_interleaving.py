"""Team draft and the preference of clicks: fair to equal rankings, and for the better one of two."""

import gzip
import json
from collections import Counter
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from clicktower.flows.cli import run
from clicktower.flows.releases.interleaving import interleaved_search, preference, team_draft
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.errors import StageError, UsageError
from tests.flows.releases.catalogue import CONFIG
from tests.trained_model import trained_stage

RANKINGS = st.permutations("abcdefgh").flatmap(lambda ids: st.integers(0, 8).map(lambda n: ids[:n]))


@given(first=RANKINGS, second=RANKINGS, k=st.integers(1, 12), key=st.text(max_size=5))
def test_a_draft_takes_turns_and_keeps_each_order(first, second, k, key):
    drafted = team_draft([first, second], k, key)
    ids = [id for id, _ in drafted]
    assert len(ids) == len(set(ids)) == min(k, len({*first, *second}))
    for team, ranking in enumerate((first, second)):
        added = [id for id, of_team in drafted if of_team == team]
        assert added == sorted(added, key=ranking.index)
        for at, (id, of_team) in enumerate(drafted):  # nothing better of its own was left out
            if of_team == team:
                assert set(ranking[: ranking.index(id)]) <= set(ids[:at])
    balance = 0
    for at, (_, team) in enumerate(drafted):
        before = set(ids[:at])
        if set(first) - before and set(second) - before:
            assert balance == 0 or team == (balance > 0), "who is behind adds next"
        balance += 1 - 2 * team
    assert drafted == team_draft([first, second], k, key)


def test_a_draft_by_hand():
    """Radlinski et al.: both want a first; whoever loses the coin adds its next best."""
    for key in map(str, range(20)):
        drafted = team_draft(["abc", "adb"], 4, key)
        winner = drafted[0][1]
        assert drafted[0] == ("a", winner)
        assert drafted[1] == ("bd"[1 - winner], 1 - winner)
    coins = Counter(team_draft(["ab", "cd"], 1, str(key))[0][1] for key in range(1000))
    assert 430 < coins[0] < 570  # four and a half standard deviations


def simulate(rankings, relevant, click, num_queries: int) -> list[dict[str, str]]:
    """Clicks of people who look at four hits, from first to last, and click each with a probability."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(num_queries):
        for rank, (id, team) in enumerate(team_draft(rankings, 4, str(number))):
            if rng.random() < click(rank, id in relevant):
                rows.append({"query_id": str(number), "release": ("live", "rival")[team]})
    return rows


def write(path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize("rankings", [["abcdef", "fedcba"], ["fedcba", "abcdef"]])
def test_clicks_that_see_only_the_place_prefer_neither_and_clicks_on_what_is_good_the_better(tmp_path, rankings):
    by_place = simulate(rankings, "ab", lambda rank, _: 0.8 / (1 + rank), 4000)
    fair = preference(write(tmp_path / "fair.jsonl", by_place))
    assert fair.low < 0 < fair.high
    assert fair.p > 0.01
    by_worth = simulate(rankings, "ab", lambda rank, is_good: (0.6 if is_good else 0.1) / (1 + rank), 4000)
    judged = preference(write(tmp_path / "judged.jsonl", by_worth))
    assert judged.releases[0] == ("live" if rankings[0] == "abcdef" else "rival")
    assert judged.low > 0.1
    assert judged.p < 0.001


def test_a_preference_by_hand_from_every_format(tmp_path):
    clicks = [("1", "a"), ("1", "a"), ("1", "b"), ("2", "b"), ("3", "a"), ("3", "b"), ("4", "b"), ("5", "b")]
    rows = [{"query_id": query, "release": release} for query, release in clicks]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "clicks.parquet")
    pa.csv.write_csv(table, tmp_path / "clicks.csv")
    pa.csv.write_csv(table, tmp_path / "clicks.tsv", pa.csv.WriteOptions(delimiter="\t"))
    found = preference(write(tmp_path / "clicks.jsonl", rows))
    assert (found.releases, found.wins, found.ties, found.lead) == (("b", "a"), (3, 1), 1, pytest.approx(0.4))
    assert found.p == pytest.approx(10 / 16, abs=0.03)  # of four fair coins, three or more alike
    assert found.low < 0.4 < found.high
    for name in ("clicks.parquet", "clicks.csv", "clicks.tsv"):
        assert preference(str(tmp_path / name)) == found


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ('{"query_id": "1", "release": "a"}\n', StageError, "on hits of 1 releases, not of two"),
        ('{"query_id": "1", "version": "a"}\n', UsageError, "no clicks with query_id and release"),
        ('{"query_id": "1", "release": null}\n', StageError, r"of 0 releases, not of two \(1 more are on hits"),
        ('{"query_id": " ", "release": "a"}\n', UsageError, "names no query"),
        ('{"query_id": null, "release": "a"}\n', UsageError, "names no query"),
        ('{"release": "a"}\n', UsageError, "no clicks with query_id and release"),
        ('{"query_id": "1", "release": "a"}\n[]\n', UsageError, "no clicks with query_id and release"),
        ("7\n", UsageError, "no clicks with query_id and release"),
        ("", UsageError, "no clicks with query_id and release"),
        ('{"query_id": ["1"], "release": "a"}\n', UsageError, "no clicks with query_id and release"),
        ("not JSON", UsageError, "no clicks with query_id and release"),
    ],
)
def test_a_file_without_two_releases_is_refused(tmp_path, text, error, problem):
    (tmp_path / "clicks.jsonl").write_text(text)
    with pytest.raises(error, match=problem):
        preference(str(tmp_path / "clicks.jsonl"))


NOT_INTERLEAVED = [{"query_id": "9", "release": None}, {"query_id": None, "release": "None"}, {"query_id": "1"}]


@pytest.mark.parametrize("name", ["clicks.jsonl", "clicks.parquet", "clicks.csv", "clicks.tsv"])
def test_a_click_on_a_hit_that_was_not_interleaved_is_left_out_and_counted(tmp_path, name, capsys):
    rows = [{"query_id": query, "release": release} for query, release in ("1a", "2b", "3b", "4b", "4a")]
    path, all_rows = str(tmp_path / name), [*NOT_INTERLEAVED[:1], *rows, *NOT_INTERLEAVED[1:]]
    if name.endswith("jsonl"):
        write(tmp_path / name, all_rows)
    elif name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(all_rows), path)
    else:
        options = pa.csv.WriteOptions(delimiter="," if name.endswith("csv") else "\t")
        pa.csv.write_csv(pa.Table.from_pylist(all_rows), path, options)
    found = preference(path)
    assert (found.releases, found.wins, found.ties, found.not_interleaved) == (("b", "a"), (2, 1), 1, 3)
    assert asdict(found) == asdict(preference(write(tmp_path / "rows.jsonl", rows))) | {"not_interleaved": 3}
    assert run(["preference", path]) == 0
    assert "left out: 3 clicks on hits that were not interleaved" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        preference(str(tmp_path / "clicks.jsonl"))


@pytest.fixture(scope="module")
def releases(model, documents, tmp_path_factory) -> tuple[str, str, str]:
    """(a URI, the digest of its live release, that of a candidate of another model)."""
    to = str(tmp_path_factory.mktemp("two"))
    other = trained_stage(str(tmp_path_factory.mktemp("other") / "store"), seed=2)
    live = publish(model, documents=documents, to=to, config=CONFIG)
    candidate = publish(other, documents=documents, to=to, config=CONFIG, candidate=True)
    return to, live.release.digest, candidate.release.digest


def test_the_hits_of_two_releases_are_those_that_each_finds(releases):
    uri, *digests = releases
    opened = [OpenRelease(uri, digest=digest) for digest in digests]
    hits = interleaved_search(*opened, "query 7", "steel angle", 10)
    assert [hit.rank for hit in hits] == list(range(1, 11))
    assert {hit.release for hit in hits} == set(digests)
    alone = {each.release.digest: {hit.id: hit for hit in each.search("steel angle", 10)} for each in opened}
    for hit in hits:
        of_release = alone[hit.release][hit.id]
        assert (hit.title, hit.score) == (of_release.title, of_release.score)


def test_the_service_interleaves_where_a_query_id_asks_for_it(releases, published):
    uri, live, candidate = releases
    body = {"query": "steel angle", "k": 6}
    with TestClient(make_app(ServeConfig(release=uri, against=candidate)), "http://127.0.0.1") as client:
        mixed = client.post("/v1/search", json=body | {"interleave": "q1"}).json()["hits"]
        assert {hit["release"] for hit in mixed} == {live, candidate}
        assert client.post("/v1/search", json=body | {"interleave": "q1"}).json()["hits"] == mixed
        lists = {
            json.dumps(client.post("/v1/search", json=body | {"interleave": f"q{i}"}).json()["hits"]) for i in range(9)
        }
        assert len(lists) > 1
        plain = client.post("/v1/search", json=body).json()["hits"]
        assert {hit["release"] for hit in plain} == {None}
    with TestClient(make_app(ServeConfig(release=published.uri)), "http://127.0.0.1") as client:
        refused = client.post("/v1/search", json=body | {"interleave": "q1"})
        assert (refused.status_code, "--against" in refused.text) == (422, True)


def test_a_release_that_is_not_kept_is_refused(releases):
    assert run(["serve", "--release", releases[0], "--port", "0", "--against", "nothing"]) == 2
    for digest in ("nothing", "../releases"):
        with pytest.raises(UsageError, match="is kept at"):
            make_app(ServeConfig(release=releases[0], against=digest))


def test_the_command_shows_the_preference(tmp_path, capsys):
    rows = simulate(["abcdef", "fedcba"], "ab", lambda rank, is_good: 0.6 if is_good else 0.1, 300)
    clicks = write(tmp_path / "clicks.jsonl", rows)
    assert run(["preference", clicks]) == 0
    shown = capsys.readouterr().out
    assert "neither" in shown
    assert "lead of live: +" in shown
    assert run(["preference", clicks, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["releases"] == ["live", "rival"]


@pytest.mark.parametrize("name", ["clicks.jsonl", "clicks.NDJSON", "clicks.csv", "clicks.tsv.gz"])
def test_ids_are_what_the_file_says_and_not_what_they_are_worth(tmp_path, name):
    """Four queries prefer b and one a; read as numbers, truth values or times, some of them are one."""
    ids = [("007", "a"), ("7", "b"), ("True", "b"), ("true", "b"), ("2026-09-01T00:00:00Z", "b")]
    if "csv" in name or "tsv" in name:
        between = "," if "csv" in name else "\t"
        text = "".join(f"{query}{between}{release}\r\n" for query, release in [("query_id", "release"), *ids])
    else:
        text = "".join(json.dumps({"query_id": query, "release": release}) + "\r\n" for query, release in ids)
        text = text.replace('"7"', "7.0").replace('"true"', "true")  # a number and a truth value of JSON
    content = b"\xef\xbb\xbf" + text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = preference(str(tmp_path / name))
    assert (found.releases, found.wins, found.ties) == (("b", "a"), (4, 1), 0)


def test_long_numbers_of_releases_stay_apart(tmp_path):
    rows = [f'{{"query_id": {query}, "release": {release}}}\n' for query, release in
            ((2**64 + 1, 10**20), (2**64 + 2, 10**20), (2**64 + 3, 10**20 + 1))]  # fmt: skip
    (tmp_path / "clicks.jsonl").write_text("".join(rows))
    found = preference(str(tmp_path / "clicks.jsonl"))
    assert (found.releases, found.wins) == ((str(10**20), str(10**20 + 1)), (2, 1))
