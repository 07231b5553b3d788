"""`check_log` on logs with known numbers, against `ingest` and `build` themselves, and on real data."""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.checking.check_log import check_log
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.sources.mapping import Columns, Mapping
from clicktower.flows.simulation.simulation_config import SimulationConfig
from clicktower.flows.simulation.write_simulation import simulate
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.ledger import Ledger
from tests.beam_jobs.sources.ubi_lines import CRAWLER, event, search


def write(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def codes(checked):
    return {finding.code: finding.level for finding in checked.findings}


def small_log(num_searches=40):
    """Searches of 20 clients over 4 queries, three impressions and a click each, a day apart."""
    lines = []
    for number in range(num_searches):
        client, query = f"c{number % 20}", f"lamp {number % 4}"
        time = f"2026-09-{1 + number % 28:02d}T10:00:00Z"
        lines.append(search(f"q{number}", query, client, time))
        lines += [event(f"q{number}", "impression", f"D{p}", p, client, time) for p in (1, 2, 3)]
        lines.append(event(f"q{number}", "click", "D1", 1, client, time))
    return lines


def test_a_good_log_has_nothing_wrong_and_its_numbers_are_right(tmp_path):
    checked = check_log([write(tmp_path / "log", small_log())])
    facts = checked.facts
    assert (checked.can_be_ingested, checked.findings) == (True, ())
    assert (facts["format"], facts["sample"]["is_whole"]) == ("ubi", True)
    assert facts["lines"] == {"search": 40, "impression": 120, "click": 40}
    assert facts["ledger"] == {"total": 200, "lines": {"day_search": 40, "day_impression": 120, "day_click": 40}}
    assert facts["joins"] == {"total": 160, "events": 160, "joined": 160, "share": 1.0}
    assert facts["clients"] == {"lines_with": 200, "distinct": 20, "largest_lines": 10, "searches_each": 2.0}
    assert facts["times"]["first"] == "2026-09-01T10:00:00Z"
    assert facts["times"]["dates"] == 28
    # 40 searches, query n % 4 of client n % 20: each query is of the 5 clients with that remainder.
    assert {row["k"]: (row["queries"], row["clicks"]) for row in facts["kept"]} == {
        0: (4, 40), 1: (4, 40), 2: (4, 40), 3: (4, 40), 5: (4, 40), 10: (0, 0), 20: (0, 0),
    }  # fmt: skip
    # Each clicked its only document twice.
    assert facts["kept_at_pair_k"] == [{"pair_k": k, "clicks": 40, "pairs": 4} for k in (1, 2, 3, 5)]
    fields = {field["name"]: field["share"] for field in facts["fields"]}
    assert (fields["query_id"], fields["user_query"], fields["action_name"]) == (1.0, 0.2, 0.8)


@pytest.mark.slow
def test_check_counts_what_ingest_and_build_count(tmp_path):
    """The same simulated log through the jobs themselves: every fate, and what every k keeps."""
    simulate(str(tmp_path / "shop"), config=SimulationConfig(num_searches=2_000, seed=5, searches_per_bot=120))
    log, documents = str(tmp_path / "shop/log"), str(tmp_path / "shop/documents.tsv")
    facts = check_log([log], documents=documents, k=3).facts
    store, of_few = str(tmp_path / "store"), BuildConfig(k=3, pair_k=2)
    day = ingest_log([log], store=store, config=IngestConfig(pair_people=True))
    shards, without_few = (
        build_shards([day.folder], documents=documents, store=store, config=config)
        for config in (BuildConfig(k=3), of_few)
    )
    assert Ledger(**facts["ledger"]) == day.manifest.outcome.ledger
    assert facts["ledger"]["lines"]["bot_behaviour"] > 0
    counts = shards.manifest.outcome.ledger.lines
    kept = next(row for row in facts["kept"] if row["k"] == 3)
    assert kept["clicks"] == counts["click_train"] + counts["click_dev"] > 0
    num_pairs = shards.manifest.outcome.counts["train_pairs"] + shards.manifest.outcome.counts["dev_pairs"]
    assert kept["pairs"] == num_pairs
    counts = without_few.manifest.outcome.ledger.lines
    kept_of_few = next(row for row in facts["kept_at_pair_k"] if row["pair_k"] == 2)
    assert kept["clicks"] > kept_of_few["clicks"] == counts["click_train"] + counts["click_dev"] > 0
    assert facts["documents"]["num_documents"] == shards.manifest.outcome.counts["documents"]
    assert facts["simulated_lines"] > 0


@pytest.mark.slow
def test_a_sample_is_bounded_and_reads_stretches_of_several_files(tmp_path):
    begin = datetime(2026, 9, 1, tzinfo=UTC)
    for name in ("a", "b", "c"):
        lines = []
        for number in range(7_000):
            time = (begin + timedelta(seconds=number * 30)).strftime("%Y-%m-%dT%H:%M:%SZ")
            query_id, client = f"{name}{number}", f"{name}{number % 900}"
            lines.append(search(query_id, f"lamp {number % 50}", client, time))
            lines += [event(query_id, "impression", f"D{p}", p, client, time) for p in (1, 2, 3)]
        write(tmp_path / f"{name}.log", lines)
    checked = check_log([str(tmp_path)], sample_lines=40_000)
    facts = checked.facts
    sample = facts["sample"]
    assert not sample["is_whole"]
    assert sample["places"] == 2
    assert 40_000 <= sample["lines"] <= 60_000 < 84_000
    assert sample["share_of_log"] == pytest.approx(sample["lines"] / 84_000, rel=0.02)
    assert facts["estimate"]["lines"] == pytest.approx(84_000, rel=0.02)
    assert facts["joins"]["share"] > 0.999
    assert checked.findings[0].code == "no_clicks"
    assert "few_join" not in codes(checked)
    # 50 queries of 900 clients each in either file: known to all k in the whole sample.
    assert facts["kept"][-1]["queries"] == 50


def _moved_to(unit, lines):
    for line in lines:
        value = json.loads(line)
        value["timestamp"] = unit(datetime.fromisoformat(value["timestamp"]).timestamp())
        yield json.dumps(value).encode()


@pytest.mark.parametrize("unit", [int, lambda seconds: int(seconds * 1000), lambda seconds: int(seconds * 10**6)])
def test_numeric_times_are_read_in_their_unit_and_told_if_the_mapping_says_another(tmp_path, unit):
    log = write(tmp_path / "log", _moved_to(unit, small_log()))
    checked = check_log([log])
    assert "time_unit" not in codes(checked)
    assert (
        checked.facts["times"]["first"][:13]
        == check_log([write(tmp_path / "iso", small_log())]).facts["times"]["first"][:13]
    )
    columns = Columns(query_id="query_id", query="user_query", document_id="event_attributes.object.object_id",
                      time="timestamp", event="action_name")  # fmt: skip
    checked = check_log([log], log_format="jsonl", mapping=Mapping(columns=columns, time_format="epoch_ns"))
    assert {code: level for code, level in codes(checked).items() if code in ("time_unit", "unreadable")} == {
        "time_unit": "look", "unreadable": "fails",
    }  # fmt: skip
    (finding,) = [finding for finding in checked.findings if finding.code == "unreadable"]
    assert "before 1990 or after 2099" in finding.problem
    assert "time_format" in finding.fix


def test_days_without_hours_query_ids_of_several_searches_and_odd_values_are_told(tmp_path):
    lines = [search("1", text, f"c{number}", "2026-09-01") for number, text in enumerate(["drill", "saw", "lamp"])]
    lines += [event("1", "click", "D1", "first", "c0", "2026-09-01"), event("1", "click", "D1", 1, None, "2026-09-01")]
    checked = check_log([write(tmp_path / "log", lines)])
    found = {finding.code: finding.problem for finding in checked.findings}
    assert "several searches: 1." in found["shared_query_ids"]
    assert "are dropped: 1." in found["shared_query_ids"]
    assert "event_attributes.position.ordinal: text (1)" in found["wrong_values"]
    assert "All times are midnight" in found["days_without_hours"]
    assert checked.can_be_ingested


def test_qid_for_query_id_fails_and_a_mapping_that_reads_it_is_proposed(tmp_path):
    path = write(tmp_path / "log", [line.replace(b'"query_id"', b'"qid"') for line in small_log()])
    checked = check_log([path])
    assert codes(checked) == {"unreadable": "fails", "near_miss": "look"}
    assert 'query_id = "qid"' in checked.facts["proposed_mapping"]
    assert checked.facts["proposed_format"] == "jsonl"


@pytest.fixture(scope="module")
def codes_of_good(tmp_path_factory):
    """What is found in a log with nothing wrong."""
    return codes(check_log([write(tmp_path_factory.mktemp("good") / "log", small_log(280))]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda line: line | {"client_id": "c1"}, "busy_client"),
        (lambda line: line | {"client_id": None}, "clients_missing"),
        (lambda line: line | {"client_id": line["query_id"]}, "fleeting_clients"),
        (lambda line: line | {"timestamp": None}, "times_missing"),
        (lambda line: {name: value for name, value in line.items() if name != "user_query"}, "unreadable"),
        (lambda line: line | ({"query_id": "x" + line["query_id"]} if "action_name" in line else {}), "few_join"),
        (lambda line: line | ({"action_name": "impression"} if "action_name" in line else {}), "no_clicks"),
        (lambda line: line | ({"action_name": "ItemClick"} if line.get("action_name") == "click" else {}),
         "event_names"),
        (lambda line: line | ({"user_query": f"lamp {line['query_id']}"} if "user_query" in line else {}),
         "nothing_at_k"),
        (lambda line: line | {"query_attributes": {"user_agent": CRAWLER}}, "no_pairs"),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_told_and_is_not_where_it_does_not(tmp_path, codes_of_good, change, code):
    changed = [json.dumps(change(json.loads(line))).encode() for line in small_log(280)]
    checked = check_log([write(tmp_path / "log", changed)])
    assert code in codes(checked)
    assert code not in codes_of_good
    assert all(finding.fix and finding.problem for finding in checked.findings)


def test_one_busy_client_and_lines_written_twice(tmp_path):
    rare = [search(f"r{number}", f"rare {number}", f"d{number}") for number in range(30)]
    busy = [search(f"b{number}", "health", "monitor") for number in range(300)]
    checked = check_log([write(tmp_path / "log", [*rare, *busy, *busy[:100]])])
    found = {finding.code: finding.problem for finding in checked.findings}
    assert found["busy_client"].startswith("A single client has 400 of 430 searches and events (93.0%)")
    assert checked.facts["ledger"]["lines"]["repeat"] == 100
    assert "health" not in str(checked)


def test_of_how_many_events_few_find_their_search_is_told(tmp_path):
    carrying = [event(f"a{n}", "impression", "D1", 1, f"c{n}", user_query="lamp") for n in range(50)]
    lost = [event(f"b{n}", "click", "D1", 1, f"c{n}") for n in range(27)]
    found = [line for n in range(3) for line in (search(f"d{n}", "lamp", f"c{n}"), event(f"d{n}", "click", "D1"))]
    checked = check_log([write(tmp_path / "log", [*carrying, *lost, *found])])
    assert checked.facts["joins"] == {"total": 80, "events": 30, "joined": 3, "share": 0.1}
    (finding,) = [found for found in checked.findings if found.code == "few_join"]
    assert finding.problem.startswith("Of 80 impressions and clicks 30 carry no query and need their search; only 3 of")


def test_names_that_only_the_log_knows_are_counted_in_the_facts(tmp_path):
    keys = [
        b'{"query": "lamp", "sku": "D1", "maria": 1, "query_attributes": {"a@b.example": 1, "user_agent": "x"}}'
    ] * 9
    facts = check_log([write(tmp_path / "log", keys)], log_format="jsonl", mapping=_named("query", "sku")).facts
    assert {field["name"] for field in facts["fields"]} == {"query", "sku", "query_attributes.user_agent"}
    assert facts["fields_not_shown"] == 2
    text = [b"query,url,maria lopez", *[b"lamp,D1,c%d" % number for number in range(9)]]
    mapping = replace(_named("query", "maria"), delimiter=",")
    checked = check_log([write(tmp_path / "log.csv", text)], log_format="delimited", mapping=mapping)
    assert "lopez" not in str(checked)
    assert "'query', 'url' and 1 that is not shown" in checked.findings[0].problem


def _named(query, document):
    return Mapping(columns=Columns(query=query, document_id=document))


def test_clicks_on_documents_that_are_not_in_the_file_are_told(tmp_path):
    (tmp_path / "documents.tsv").write_text("".join(f"{n}\tlamp\n" for n in range(5)))
    path = write(tmp_path / "log", small_log())
    checked = check_log([path], documents=str(tmp_path / "documents.tsv"))
    (finding,) = [found for found in checked.findings if found.code == "documents_unknown"]
    assert "Only 0 of 40 clicks (0.0%)" in finding.problem
    (tmp_path / "documents.tsv").write_text("D1\tlamp\nD2\t!!\nD3\t\n")
    checked = check_log([path], documents=str(tmp_path / "documents.tsv"))
    assert checked.facts["documents"] == {
        "num_documents": 3, "clicks": 40, "clicks_titled": 40,
    }  # fmt: skip
    with pytest.raises(UsageError):
        check_log([path], documents=str(tmp_path / "nowhere.tsv"))


def test_documents_whose_ids_repeat_are_refused_as_by_build(tmp_path):
    (tmp_path / "documents.tsv").write_text("D1\tlamp\nD2\tbulb\n" * 2)
    path = write(tmp_path / "log", small_log())
    with pytest.raises(StageError, match="ids occur more than once"):
        check_log([path], documents=str(tmp_path / "documents.tsv"))


def test_what_is_wrong_with_documents_is_found(tmp_path):
    path, documents = write(tmp_path / "log", small_log()), tmp_path / "documents.tsv"
    lines = [b"D1\tlamp", b"D2\tTom &amp; Jerry", b"D3\t6&#39; pipe", b"D 4\tAT&T; \xef\xbf\xbd"]
    lines += [b"D5\tcaf\xe9", b"\ta"]
    documents.write_bytes(b"\n".join([*lines, *(b"E%d\tR&D" % number for number in range(200))]))
    checked = check_log([path], documents=str(documents))
    found = {finding.code: finding for finding in checked.findings}
    assert {code: finding.level for code, finding in found.items()} == {
        "documents_unreadable": "note", "documents_without_id": "note", "documents_spaced_ids": "note",
        "documents_entities": "look", "documents_broken_letters": "look",
    }  # fmt: skip
    assert found["documents_unreadable"].problem.endswith("skipped: documents.tsv:5.")
    assert found["documents_without_id"].problem.endswith("1 row without an id, skipped: documents.tsv:6.")
    assert found["documents_entities"].problem.startswith("2 titles hold HTML")
    assert found["documents_broken_letters"].problem.startswith("1 titles hold the mark U+FFFD")
    assert checked.facts["documents"]["num_documents"] == 204
    documents.write_bytes(b"\n".join([*lines, *[b"no tab"] * 9]))
    with pytest.raises(StageError, match="11 of the 15 rows"):
        check_log([path], documents=str(documents))


def test_damage_and_other_forms_fail_with_a_reason(tmp_path):
    whole = gzip.compress(b"\n".join(small_log()))
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    assert codes(check_log([str(tmp_path / "cut.gz")]))["damaged"] == "fails"
    (tmp_path / "log.zip").write_bytes(b"PK\x03\x04" + bytes(100))
    checked = check_log([str(tmp_path / "log.zip")])
    assert "zip" in checked.findings[0].problem
    (tmp_path / "packed.gz").write_bytes(gzip.compress(b""))
    for empty in (write(tmp_path / "empty", []), str(tmp_path / "packed.gz")):
        (finding,) = check_log([empty]).findings
        assert "is empty" in finding.problem, "as ingest says"
    other = write(tmp_path / "other", [b"no names", b"of columns"])
    assert codes(check_log([other]))["unknown_form"] == "fails"
    csv = write(tmp_path / "clicks.csv", [b"user,query,sku", *[b"c%d,lamp,D1" % number for number in range(9)]])
    assert codes(check_log([csv], log_format="ubi"))["unreadable"] == "fails"
    assert codes(check_log([csv]))["needs_mapping"] == "fails"
    with pytest.raises(UsageError):
        check_log([str(tmp_path / "nowhere")])
    with pytest.raises(UsageError):
        check_log([csv], log_format="nonsense")


def test_a_mapping_that_names_a_missing_column_would_fail(tmp_path):
    csv = write(tmp_path / "clicks.csv", [b"user,query,sku", *[b"c%d,lamp,D1" % number for number in range(9)]])
    mapping = Mapping(columns=Columns(client_id="user", query="query", document_id="sku"), delimiter=",")
    assert check_log([csv], mapping=mapping).can_be_ingested
    wrong = replace(mapping, columns=replace(mapping.columns, document_id="skuu"))
    checked = check_log([csv], log_format="delimited", mapping=wrong)
    assert not checked.can_be_ingested
    assert "'skuu'" in checked.findings[0].problem


@pytest.mark.slow
def test_a_real_log_is_told_in_full(real_data):
    checked = check_log(
        [str(real_data / "homedepot_log")], documents=str(real_data / "homedepot/documents.tsv"), sample_lines=600_000
    )
    facts = checked.facts
    assert checked.can_be_ingested
    assert (facts["sample"]["lines"], facts["sample"]["is_whole"]) == (541_918, True)
    # The ledger of a whole ingest, before the later bot rules (benchmarks/results/real_log.json).
    ledger = facts["ledger"]["lines"]
    assert (ledger["repeat"], ledger["search_unknown"], ledger["bot_user_agent"]) == (10_610, 80, 4_012)
    assert {reason: count for reason, count in ledger.items() if reason.startswith("unreadable")} == {
        "unreadable_not_utf8": 1, "unreadable_not_json": 201, "unreadable_no_query_id": 98, "unreadable_no_query": 12,
        "unreadable_time": 108,
    }  # fmt: skip
    assert (ledger["blank_line"], ledger["search_ambiguous"], facts["shared_query_ids"]) == (1, 43, 5)
    assert facts["documents"]["clicks_titled"] / facts["documents"]["clicks"] > 0.999


@pytest.mark.slow
def test_a_bulk_file_and_orcas_are_known(real_data):
    bulk = check_log([str(real_data / "ubi_sample")])
    assert bulk.facts["looks_like"] == "UBI, JSON lines"
    assert bulk.facts["ledger"]["lines"]["action_line"] == 3_921
    orcas = check_log([str(real_data / "homedepot/clicks.orcas.tsv")], log_format="orcas", k=0)
    assert (orcas.facts["format"], orcas.facts["lines"]["click"]) == ("orcas", 35_421)
    assert "clients_missing" in codes(orcas)
