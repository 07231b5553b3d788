"""The whole job: every line's fate, the rows, what does not change them, what may not be found in the output."""

import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.engine.arrow_files import read_table
from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log, ingest_request
from clicktower.schemas import storage
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.search_log import EXPOSURES, QUERIES, REJECT, SIMULATED_APPLICATION
from clicktower.schemas.stage import StageResult
from tests.beam_jobs.build.day_folders import read_pairs
from tests.beam_jobs.ingest.reference_ingest import is_any_bot_agent, reference_ingest
from tests.beam_jobs.sources.ubi_lines import BROWSER, CRAWLER, event, random_log, search

TWO_PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
LENIENT = IngestConfig(max_unreadable_share=1.0)
# With CRLF an empty line is another line than without: the log that is cut anew has none.
LOGS = {seed: [line for line in random_log(seed) if line or seed != 2] for seed in range(4)}
# What is private in them: clients, a text that is rejected, and who their programs say they are.
PRIVATE_LINES = [
    search("a", "angle bracket", "client-4711"),
    event("a", "click", "D1", 1, "client-4711"),
    b'{"query_id": "b", "user_query": "secret-rejected-text',
    search("c", "drill", "client-4712", agent=CRAWLER),
]


class Day(NamedTuple):
    """A log that was ingested, what was told of it on the way, and the result."""

    log: str
    told: list[tuple]
    result: StageResult


def write_log(folder, lines, name="log.ndjson"):
    path = folder / name
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def _ingest(folder, lines, store="store", config=LENIENT) -> Day:
    folder.mkdir(exist_ok=True)
    log, told = write_log(folder, lines), []
    result = ingest_log([log], store=str(folder / store), config=config, progress=lambda *step: told.append(step))
    return Day(log, told, result)


@pytest.fixture(scope="module")
def days(tmp_path_factory):
    """LOGS by their seeds, each ingested into a store of its own; to be read."""
    folder = tmp_path_factory.mktemp("days")
    return {seed: _ingest(folder / str(seed), lines) for seed, lines in LOGS.items()}


@pytest.fixture(scope="module")
def private_day(tmp_path_factory):
    """PRIVATE_LINES, ingested; to be read."""
    return _ingest(tmp_path_factory.mktemp("private"), PRIVATE_LINES)


@pytest.fixture(scope="module")
def recut_day(tmp_path_factory):
    """The log of seed 2, cut, named, packed and ordered otherwise, in a store of its own; to be read."""
    folder = tmp_path_factory.mktemp("recut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "clicktower.beam_jobs.sources.read_lines.RANGE_BYTES", 3_000
        )  # many ranges, with lines across their borders
        return ingest_log([_recut(folder / "recut", LOGS[2], 1)], store=str(folder / "store"), config=LENIENT)


@pytest.fixture(scope="module")
def real_day(tmp_path_factory, real_data):
    """The product log, ingested; to be read."""
    folder = tmp_path_factory.mktemp("real")
    return ingest_log([str(real_data / "homedepot_log" / "*.gz")], store=str(folder / "store"), config=IngestConfig())


def read_rows(result: StageResult, kind: str) -> pa.Table:
    """All rows of a kind of file, bucket after bucket."""
    names = [name for name in storage.list_files(result.data) if name.startswith(f"{kind}-")]
    tables = []
    for name in names:
        with storage.open_read(storage.join(result.data, name)) as file:
            tables.append(pa.ipc.open_file(file).read_all())
    return pa.concat_tables(tables)


def queries_of(result):
    rows = read_rows(result, "queries").to_pylist()
    return {row["query"]: (len(row["people"]), row["searches"]) for row in rows}


def exposures_of(result):
    rows = read_rows(result, "exposures").to_pylist()
    return {(r["query"], r["document_id"], r["position"]): (r["impressions"], r["clicks"]) for r in rows}


def rejects_of(result):
    names = [name for name in storage.list_files(result.data) if name.startswith("rejects-")]
    rejects = pa.concat_tables([REJECT.empty_table(), *(read_table(storage.join(result.data, name)) for name in names)])
    return rejects.sort_by([("file", "ascending"), ("offset", "ascending")])


def test_every_fate_of_a_hand_worked_log(tmp_path):
    lines = [
        search("a", "Angle  Bracket", "ann"),  # day_search
        event("a", "impression", "D1", 1, "ann"),  # day_impression
        event("a", "click", "D1", 1, None),  # day_click; its client is the search's
        event("a", "click", "D1", 1, None),  # repeat
        event("a", "hover", "D1", 1, "ann"),  # other_action
        event("a", "click", None, 1, "ann"),  # document_missing
        search("b", "angle bracket", "ben"),  # day_search
        search("b", "Angle bracket", "ben", time="2026-09-01T10:00:01Z"),  # search_repeated
        event("b", "click", "D1", 2, "ben"),  # day_click, another position
        search("c", "angle bracket", None),  # day_search, by nobody
        event("z", "click", "D1"),  # search_unknown
        search("d", "drill", "dan", agent=CRAWLER),  # bot_user_agent
        event("d", "click", "D2", 1, "dan"),  # bot_user_agent
        search("e", "drill", "dan"),  # bot_user_agent: the client named itself once
        *[search(f"f{n}", "drill", "fay", time=f"2026-09-02T05:{n:02d}:30Z") for n in range(60)],  # 60 bot_behaviour
        event("f0", "impression", "D2", 1, None),  # bot_behaviour
        *[search(f"g{n}", "saw", "gus", time=f"2026-09-02T05:{n:02d}:30Z") for n in range(44)],  # 44 day_search
        *[search(f"u{n}", "saw", "una", time=f"2026-09-02T05:{n:02d}:31Z") for n in range(45)],  # 45 bot_unsure
        search("h", " ?! ", "hal"),  # query_empty
        event("h", "impression", "D3", 1, "hal"),  # query_empty
        search("i", "Free PORN videos", "ida"),  # day_search: adult and spam queries wait for build
        search("j", "http://spam.example/buy", "joe"),  # day_search
        b'{"index": {"_index": "ubi_queries"}}',  # action_line
        b'{"index": {"_index": "ubi_queries"}}',  # action_line: it carries no data, so it repeats none
        b"\xff\xfe",  # unreadable_not_utf8
        b"",  # blank_line
        b'{"query_id": "a"',  # unreadable_not_json
        b'{"qid": "a", "user_query": "x"}',  # unreadable_no_query_id
        search("k", [5]),  # unreadable_field
        search("l", None),  # unreadable_no_query
        search("l", "drill", time="yesterday"),  # unreadable_time
        search("l", "drill", time=1500),  # unreadable_year
        event("a", "click", "D1", "third", "ann"),  # day_click, at an unknown position
    ]
    result = ingest_log([write_log(tmp_path, lines)], store=str(tmp_path / "store"), config=LENIENT)
    ledger = result.manifest.outcome.ledger
    assert ledger.total == len(lines) == 179
    assert ledger.lines == {
        "day_search": 49, "day_impression": 1, "day_click": 3, "repeat": 1, "other_action": 1, "document_missing": 1,
        "search_repeated": 1, "search_unknown": 1, "bot_user_agent": 3, "bot_behaviour": 61,
        "bot_unsure": 45, "query_empty": 2,
        "action_line": 2, "blank_line": 1, "unreadable_not_utf8": 1, "unreadable_not_json": 1,
        "unreadable_no_query_id": 1, "unreadable_field": 1, "unreadable_no_query": 1, "unreadable_time": 1,
        "unreadable_year": 1,
    }  # fmt: skip
    assert result.manifest.outcome.metrics["wrong_values"] == {
        "user_query: a list": 1, "event_attributes.position.ordinal: text": 1, "timestamp: text": 1,
    }  # fmt: skip
    # ann and ben; the third search is nobody's
    assert queries_of(result) == {
        "angle bracket": (2, 3), "saw": (1, 44), "free porn videos": (1, 1), "http://spam.example/buy": (1, 1),
    }  # fmt: skip
    shown = {
        ("angle bracket", "D1", 1): (1, 1),
        ("angle bracket", "D1", 2): (0, 1),
        ("angle bracket", "D1", -1): (0, 1),
    }
    assert exposures_of(result) == shown
    # ann, ben, gus, hal, ida, joe
    assert result.manifest.outcome.counts["people"] == 6
    assert result.manifest.outcome.metrics["bots"] == {
        "user_agent": {"clients": 1, "lines": 3},
        "pace": {"clients": 1, "lines": 61},
        "unsure_pace": {"clients": 1, "lines": 45},
    }
    rejects = rejects_of(result)
    assert rejects.schema.equals(REJECT)
    whole = b"".join(line + b"\n" for line in lines)
    starts = [whole.index(start) for start in (b"\xff", b'{"query_id": "a"\n', b'{"qid"')]
    assert rejects["offset"].to_pylist()[:3] == starts
    assert read_rows(result, "queries").schema.equals(QUERIES, check_metadata=True)
    assert read_rows(result, "exposures").schema.equals(EXPOSURES, check_metadata=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", LOGS)
def test_rows_and_fates_match_a_line_by_line_reference(days, seed):
    result = days[seed].result
    fates, queries, exposures = reference_ingest(LOGS[seed], BotRules())
    assert Counter(result.manifest.outcome.ledger.lines) == fates
    assert queries_of(result) == queries
    assert exposures_of(result) == exposures


def _recut(folder, lines, seed):
    """The same lines under other names, in another order, in other pieces, some compressed, some with CRLF ends."""
    rng = random.Random(seed)
    lines = lines.copy()
    rng.shuffle(lines)
    folder.mkdir()
    for number in range(5):
        part, name = lines[number::5], f"{rng.randrange(10**6)}-{number}.ndjson"
        end = b"\r\n" if number == 1 else b"\n"
        data = end.join(part) + (b"" if number == 0 and part[-1] else end)  # the first file lacks its last line end
        if number % 2:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data[:999]) + gzip.compress(data[999:]))
        else:
            (folder / name).write_bytes(data)
    return str(folder)


def test_the_same_lines_give_the_same_digest_however_they_are_cut_named_packed_and_ordered(days, recut_day):
    recut, whole = recut_day.manifest.outcome, days[2].result.manifest.outcome
    assert recut.ledger == whole.ledger
    assert recut.logical_digest == whole.logical_digest
    assert recut.counts == whole.counts


def test_another_person_key_changes_the_hashes_and_not_the_digest(days, recut_day):
    one, two = days[2].result, recut_day  # each store made a key of its own
    keys = [result.manifest.request.inputs["person_key"] for result in (one, two)]
    assert keys[0] != keys[1]
    assert ingest_request([storage.fingerprint(days[2].log)], keys[0], LENIENT).digest == one.manifest.digest
    assert ingest_request([storage.fingerprint(days[2].log)], keys[1], LENIENT).digest != one.manifest.digest
    assert one.manifest.outcome.logical_digest == two.manifest.outcome.logical_digest
    hashes = [{hash_ for row in read_rows(result, "queries")["people"].to_pylist() for hash_ in row}
              for result in (one, two)]  # fmt: skip
    assert len(hashes[0]) == len(hashes[1]) > 0
    assert not hashes[0] & hashes[1]


@pytest.mark.slow
def test_the_digest_changes_with_one_line(private_day, tmp_path):
    after = _ingest(tmp_path, [*PRIVATE_LINES[:1], event("a", "click", "D2", 1, "client-4711"), *PRIVATE_LINES[2:]])
    before, after = private_day.result.manifest.outcome, after.result.manifest.outcome
    assert before.ledger == after.ledger
    assert before.logical_digest != after.logical_digest


def test_a_renamed_log_is_reused_and_a_changed_setting_is_not(days, tmp_path):
    first = days[1].result
    renamed = write_log(tmp_path, LOGS[1], "other-name.ndjson")
    again = ingest_log([renamed], store=str(Path(first.folder).parents[1]), config=LENIENT)
    assert (again.reused, again.folder) == (True, first.folder)
    stricter = IngestConfig(max_unreadable_share=1.0, bots=BotRules(searches_per_hour=5))
    key = first.manifest.request.inputs["person_key"]
    assert ingest_request([storage.fingerprint(renamed)], key, LENIENT).digest == first.manifest.digest
    assert ingest_request([storage.fingerprint(renamed)], key, stricter).digest != first.manifest.digest


def test_no_client_id_user_agent_or_rejected_text_is_anywhere_in_the_output(private_day):
    store = Path(private_day.result.folder).parents[1]
    found = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    key = json.loads(found.pop(store / "private" / "person-key.json"))["key"]
    assert len(found) >= 4
    for path, content in found.items():
        for private in (
            b"client-471",
            b"secret-rejected",
            BROWSER.encode(),
            CRAWLER.encode(),
            b"Firefox",
            key.encode(),
        ):
            assert private not in content, path.name
        assert bytes.fromhex(key) not in content


def test_simulated_lines_label_the_day(private_day, tmp_path):
    lines = [search("a", "angle bracket"), search("b", "drill", application=SIMULATED_APPLICATION)]
    assert _ingest(tmp_path, lines).result.manifest.outcome.labels == {"simulated": True}
    assert private_day.result.manifest.outcome.labels == {}


def test_only_final_names_are_in_the_output(days):
    result = days[2].result
    names = storage.list_files(result.data)
    assert all(re.fullmatch(r"(queries|exposures|rejects)-\d{5}\.arrow|lines\.arrow", name) for name in names)
    assert [file.path for file in result.manifest.files] == [f"{result.manifest.attempt}/{name}" for name in names]
    assert [path.name for path in Path(result.data).iterdir() if path.is_dir()] == []


def test_a_log_in_which_every_line_is_dropped_gives_a_day_without_rows(tmp_path):
    lines = [event("a", "hover", "D1"), event("b", "click", "D1"), b'{"index": {}}']
    result = ingest_log([write_log(tmp_path, lines)], store=str(tmp_path / "store"), config=LENIENT)
    assert result.manifest.outcome.ledger.lines["search_unknown"] == 1
    assert result.manifest.outcome.counts["queries"] == 0


@pytest.mark.slow
def test_bulk_action_lines_alone_give_a_day_without_rows(tmp_path):
    result = ingest_log([write_log(tmp_path, [b'{"index": {}}'] * 3)], store=str(tmp_path / "store"), config=LENIENT)
    assert result.manifest.outcome.ledger == Ledger(total=3, lines={"action_line": 3})


def test_progress_goes_from_no_byte_read_to_all_of_the_day_written(days):
    told = days[0].told
    assert told[0] == ("reading the log (bytes)", 0, storage.size_bytes(days[0].log))
    assert told[-1][0] == "writing the day (buckets)"
    assert 0 < told[-1][1] <= told[-1][2] == 4


@pytest.mark.slow
def test_bundles_that_run_twice_count_once_leave_no_files_and_print_nothing(days, tmp_path, capfd):
    capfd.readouterr()
    once = days[0].result
    repeated = ["--direct_runner_bundle_repeat=1"]
    twice = ingest_log([days[0].log], store=str(tmp_path), config=LENIENT, beam_options=repeated)
    assert twice.manifest.outcome.ledger == once.manifest.outcome.ledger
    assert twice.manifest.outcome.logical_digest == once.manifest.outcome.logical_digest
    assert storage.list_files(twice.data) == storage.list_files(once.data)
    assert capfd.readouterr() == ("", "")


@pytest.mark.engine
def test_two_processes_give_the_same_day_and_print_nothing(days, tmp_path, capfd):
    alone, told = days[3].result, []
    capfd.readouterr()
    tell = lambda *step: told.append(step)  # noqa: E731
    together = ingest_log([days[3].log], store=str(tmp_path), config=LENIENT, beam_options=TWO_PROCESSES, progress=tell)
    assert together.manifest.outcome.ledger == alone.manifest.outcome.ledger
    assert together.manifest.outcome.logical_digest == alone.manifest.outcome.logical_digest
    assert capfd.readouterr() == ("", "")
    assert told[-1][1] > 0  # word came from the workers


@pytest.mark.rehearsal
def test_the_real_log_adds_up_and_matches_the_reference(real_day, real_data):
    result = real_day
    lines = [
        line
        for file in sorted((real_data / "homedepot_log").glob("*.gz"))
        for line in gzip.decompress(file.read_bytes()).split(b"\n")[:-1]
    ]
    ledger = result.manifest.outcome.ledger
    assert ledger.total == len(lines) == sum(ledger.lines.values()) == 541_918
    fates, queries, exposures = reference_ingest(lines, BotRules(), is_any_bot_agent)
    assert Counter(ledger.lines) == fates
    assert queries_of(result) == queries
    assert exposures_of(result) == exposures


@pytest.mark.slow
def test_the_ledger_of_the_product_log_adds_up_to_every_line(real_day, tmp_path, real_data):
    result = build_shards(
        [real_day.folder],
        f"{real_data}/homedepot/documents.tsv",
        store=str(tmp_path / "store"),
        config=BuildConfig(),
        judged_queries=f"{real_data}/homedepot/queries.dev.tsv",
    )
    outcome = result.manifest.outcome
    assert outcome.ledger.total == sum(outcome.ledger.lines.values()) == 541_918
    pairs = read_pairs(result)
    assert len(pairs) == outcome.counts["train_pairs"] + outcome.counts["dev_pairs"]
    assert all(not set(row["negatives"]) & set(row["excluded"]) for row in pairs)
    splits = {}
    for row in pairs:
        splits.setdefault(row["query"], set()).add(row["split"])
    assert all(len(split) == 1 for split in splits.values())


@pytest.mark.engine
def test_the_real_log_gives_the_same_shards_rearranged_and_in_two_processes(real_day, tmp_path, real_data):
    """Renamed, cut anew, compressed otherwise and shuffled; both jobs on one process and on two."""
    folder = real_data / "homedepot_log"
    lines = [
        line for file in sorted(folder.glob("*.gz")) for line in gzip.decompress(file.read_bytes()).split(b"\n")[:-1]
    ]
    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    two = ingest_log(
        [_recut(tmp_path / "recut", lines, 2)], store=str(tmp_path / "b"), config=IngestConfig(), beam_options=processes
    )
    assert two.manifest.outcome.logical_digest == real_day.manifest.outcome.logical_digest
    assert two.manifest.outcome.ledger == real_day.manifest.outcome.ledger

    documents = str(real_data / "homedepot" / "documents.tsv")
    shards = build_shards([real_day.folder], documents, store=str(tmp_path / "a"), config=BuildConfig())
    again = build_shards(
        [two.folder], documents, store=str(tmp_path / "b"), config=BuildConfig(), beam_options=processes
    )
    assert again.manifest.outcome.logical_digest == shards.manifest.outcome.logical_digest
    assert again.manifest.outcome.ledger == shards.manifest.outcome.ledger
