"""The whole job: every line's fate, the rows, what does not change them, what may not be found in the output."""

import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from beam_jobs.arrow_files import read_table
from beam_jobs.bot_rules import BotRules
from beam_jobs.build import BuildConfig, build
from beam_jobs.ingest import IngestConfig, ingest
from schemas import storage
from schemas.day import EXPOSURES, QUERIES
from schemas.log_row import REJECT, SIMULATED_APPLICATION
from schemas.stage import StageResult
from tests.beam_jobs.reference_ingest import is_any_bot_agent, reference_ingest
from tests.beam_jobs.ubi_lines import BROWSER, CRAWLER, event, random_log, search

TWO_PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
LENIENT = IngestConfig(max_unreadable_share=1.0)


def write_log(folder, lines, name="log.ndjson"):
    path = folder / name
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


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
        search("b", "later text", "ben", time="2026-09-01T10:00:01Z"),  # search_repeated
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
        b"",  # unreadable_not_json
        b'{"query_id": "a"',  # unreadable_not_json
        b'{"qid": "a", "user_query": "x"}',  # unreadable_no_query_id
        search("k", 5),  # unreadable_field
        event("a", "click", "D1", "third"),  # unreadable_field
    ]
    result = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "store"), config=LENIENT)
    ledger = result.manifest.outcome.ledger
    assert ledger.total == len(lines) == 176
    assert ledger.lines == {
        "day_search": 49, "day_impression": 1, "day_click": 2, "repeat": 1, "other_action": 1, "document_missing": 1,
        "search_repeated": 1, "search_unknown": 1, "bot_user_agent": 3, "bot_behaviour": 61,
        "bot_unsure": 45, "query_empty": 2,
        "action_line": 2, "unreadable_not_utf8": 1, "unreadable_not_json": 2,
        "unreadable_no_query_id": 1, "unreadable_field": 2,
    }  # fmt: skip
    # ann and ben; the third search is nobody's
    assert queries_of(result) == {
        "angle bracket": (2, 3), "saw": (1, 44), "free porn videos": (1, 1), "http://spam.example/buy": (1, 1),
    }  # fmt: skip
    assert exposures_of(result) == {("angle bracket", "D1", 1): (1, 1), ("angle bracket", "D1", 2): (0, 1)}
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
    starts = [whole.index(start) for start in (b"\xff", b'\n\n{"query_id": "a"\n', b'{"query_id": "a"\n', b'{"qid"')]
    assert rejects["offset"].to_pylist()[:4] == [starts[0], starts[1] + 1, starts[2], starts[3]]
    assert read_rows(result, "queries").schema.equals(QUERIES, check_metadata=True)
    assert read_rows(result, "exposures").schema.equals(EXPOSURES, check_metadata=True)


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_fates_match_a_line_by_line_reference(tmp_path, seed):
    lines = random_log(seed)
    result = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "store"), config=LENIENT)
    fates, queries, exposures = reference_ingest(lines, BotRules())
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


def test_the_same_lines_give_the_same_digest_however_they_are_cut_named_packed_and_ordered(tmp_path, monkeypatch):
    lines = [line for line in random_log(7) if line]  # with CRLF an empty line is another line than without
    whole = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "a"), config=LENIENT)
    monkeypatch.setattr("beam_jobs.read_lines.RANGE_BYTES", 3_000)  # many ranges, with lines across their borders
    recut = ingest([_recut(tmp_path / "recut", lines, 1)], store=str(tmp_path / "b"), config=LENIENT)
    assert recut.manifest.outcome.ledger == whole.manifest.outcome.ledger
    assert recut.manifest.outcome.logical_digest == whole.manifest.outcome.logical_digest
    assert recut.manifest.outcome.counts == whole.manifest.outcome.counts


def test_another_person_key_changes_the_hashes_and_not_the_digest(tmp_path):
    log = write_log(tmp_path, random_log(3))
    one, two = (ingest([log], store=str(tmp_path / name), config=LENIENT) for name in "ab")
    assert one.manifest.digest != two.manifest.digest
    assert one.manifest.outcome.logical_digest == two.manifest.outcome.logical_digest
    assert read_rows(one, "queries")["people"] != read_rows(two, "queries")["people"]


def test_the_digest_changes_with_one_line(tmp_path):
    lines = [search("a", "angle bracket"), event("a", "click", "D1")]
    before = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "a"), config=LENIENT)
    lines[1] = event("a", "click", "D2")
    after = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "b"), config=LENIENT)
    assert before.manifest.outcome.logical_digest != after.manifest.outcome.logical_digest


def test_a_renamed_log_is_reused_and_a_changed_setting_is_not(tmp_path):
    log = write_log(tmp_path, random_log(1))
    store = str(tmp_path / "store")
    first = ingest([log], store=store, config=LENIENT)
    renamed = write_log(tmp_path, random_log(1), "other-name.ndjson")
    assert ingest([renamed], store=store, config=LENIENT).reused
    assert first.folder == ingest([renamed], store=store, config=LENIENT).folder
    stricter = IngestConfig(max_unreadable_share=1.0, bots=BotRules(searches_per_hour=5))
    assert not ingest([log], store=store, config=stricter).reused


def test_no_client_id_user_agent_or_rejected_text_is_anywhere_in_the_output(tmp_path):
    lines = [
        search("a", "angle bracket", "client-4711"),
        event("a", "click", "D1", 1, "client-4711"),
        b'{"query_id": "b", "user_query": "secret-rejected-text',
        search("c", "drill", "client-4712", agent=CRAWLER),
    ]
    store = tmp_path / "store"
    ingest([write_log(tmp_path, lines)], store=str(store), config=LENIENT)
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


def test_simulated_lines_label_the_day(tmp_path):
    lines = [search("a", "angle bracket"), search("b", "drill", application=SIMULATED_APPLICATION)]
    labelled = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "a"), config=LENIENT)
    assert labelled.manifest.outcome.labels == {"simulated": True}
    unlabelled = ingest([write_log(tmp_path, lines[:1])], store=str(tmp_path / "b"), config=LENIENT)
    assert unlabelled.manifest.outcome.labels == {}


def test_only_final_names_are_in_the_output(tmp_path):
    result = ingest([write_log(tmp_path, random_log(2))], store=str(tmp_path / "store"), config=LENIENT)
    names = storage.list_files(result.data)
    assert all(re.fullmatch(r"(queries|exposures|rejects)-\d{5}\.arrow", name) for name in names)
    assert [file.path for file in result.manifest.files] == [f"{result.manifest.attempt}/{name}" for name in names]
    assert [path.name for path in Path(result.data).iterdir() if path.is_dir()] == []


def test_a_log_in_which_every_line_is_dropped_gives_a_day_without_rows(tmp_path):
    lines = [event("a", "hover", "D1"), event("b", "click", "D1"), b'{"index": {}}']
    result = ingest([write_log(tmp_path, lines)], store=str(tmp_path / "store"), config=LENIENT)
    assert result.manifest.outcome.ledger.lines["search_unknown"] == 1
    assert result.manifest.outcome.counts["queries"] == 0


def test_bulk_action_lines_alone_give_a_day_without_rows(tmp_path):
    result = ingest([write_log(tmp_path, [b'{"index": {}}'] * 3)], store=str(tmp_path / "store"), config=LENIENT)
    assert result.manifest.outcome.ledger.to_json() == {"total": 3, "lines": {"action_line": 3}}


def test_progress_goes_from_no_byte_read_to_all_of_the_day_written(tmp_path, monkeypatch):
    monkeypatch.setattr("beam_jobs.progress.NOTE_SECONDS", 0.0)
    log = write_log(tmp_path, random_log(5))
    told = []
    tell = lambda *step: told.append(step)  # noqa: E731
    ingest([log], store=str(tmp_path / "store"), config=LENIENT, progress=tell)
    assert told[0] == ("reading the log (bytes)", 0, storage.size_bytes(log))
    assert told[-1][0] == "writing the day (buckets)"
    assert 0 < told[-1][1] <= told[-1][2] == 4


def test_bundles_that_run_twice_count_once_and_leave_no_files(tmp_path):
    log = write_log(tmp_path, random_log(6))
    once = ingest([log], store=str(tmp_path / "a"), config=LENIENT)
    twice = ingest([log], store=str(tmp_path / "b"), config=LENIENT, beam_options=["--direct_runner_bundle_repeat=1"])
    assert twice.manifest.outcome.ledger == once.manifest.outcome.ledger
    assert twice.manifest.outcome.logical_digest == once.manifest.outcome.logical_digest
    assert storage.list_files(twice.data) == storage.list_files(once.data)


@pytest.mark.engine
def test_two_processes_give_the_same_day_and_print_nothing(tmp_path, capfd):
    lines = random_log(11)
    log = write_log(tmp_path, lines)
    told = []
    tell = lambda *step: told.append(step)  # noqa: E731
    alone = ingest([log], store=str(tmp_path / "a"), config=LENIENT)
    together = ingest([log], store=str(tmp_path / "b"), config=LENIENT, beam_options=TWO_PROCESSES, progress=tell)
    assert together.manifest.outcome.ledger == alone.manifest.outcome.ledger
    assert together.manifest.outcome.logical_digest == alone.manifest.outcome.logical_digest
    assert capfd.readouterr() == ("", "")
    assert told[-1][1] > 0  # word came from the workers


def test_the_real_log_adds_up_and_matches_the_reference(tmp_path, real_data):
    logs = str(real_data / "homedepot_log" / "*.gz")
    result = ingest([logs], store=str(tmp_path / "store"), config=IngestConfig())
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


@pytest.mark.engine
def test_the_real_log_gives_the_same_shards_rearranged_and_in_two_processes(tmp_path, real_data):
    """Renamed, cut anew, compressed otherwise and shuffled; both jobs on one process and on two."""
    folder = real_data / "homedepot_log"
    lines = [
        line for file in sorted(folder.glob("*.gz")) for line in gzip.decompress(file.read_bytes()).split(b"\n")[:-1]
    ]
    one = ingest([str(folder)], store=str(tmp_path / "a"), config=IngestConfig())
    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    two = ingest(
        [_recut(tmp_path / "recut", lines, 2)], store=str(tmp_path / "b"), config=IngestConfig(), beam_options=processes
    )
    assert two.manifest.outcome.logical_digest == one.manifest.outcome.logical_digest
    assert two.manifest.outcome.ledger == one.manifest.outcome.ledger

    documents = str(real_data / "homedepot" / "documents.tsv")
    shards = build([one.folder], documents, store=str(tmp_path / "a"), config=BuildConfig())
    again = build([two.folder], documents, store=str(tmp_path / "b"), config=BuildConfig(), beam_options=processes)
    assert again.manifest.outcome.logical_digest == shards.manifest.outcome.logical_digest
    assert again.manifest.outcome.ledger == shards.manifest.outcome.ledger


def test_the_bulk_sample_adds_up(tmp_path, real_data):
    result = ingest([str(real_data / "ubi_sample")], store=str(tmp_path / "store"), config=IngestConfig())
    ledger = result.manifest.outcome.ledger
    assert ledger.total == 7842 == sum(ledger.lines.values())
    assert ledger.lines["action_line"] == 3921
    assert ledger.lines["day_search"] + ledger.lines["search_repeated"] > 470
