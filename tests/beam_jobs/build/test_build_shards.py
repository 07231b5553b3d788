import json

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.build.click_shards import held_out
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.section import changed
from tests.beam_jobs.build.day_folders import make_day, read_catalogue, read_pairs, read_pool, write_documents
from tests.beam_jobs.sources.ubi_lines import CRAWLER, event, search

TITLES = {
    "d1": "Angle Bracket",
    "d2": "angle  BRACKET",  # the same title as d1, once normalised
    "d3": "Wood Screw",
    "d4": "Deck Paint",
    "d5": "Shower Tap",
    "d6": "Garden Hose",
    "d7": "Door Mat",
}
TWO_MULTI = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")


def _salt_holding_out(dev: list[str], train: list[str], share: float) -> str:
    """A salt under which exactly `dev` of these queries are held out."""
    for number in range(100_000):
        salt = f"salt-{number}"
        if held_out([*dev, *train], salt=salt, share=share).tolist() == [True] * len(dev) + [False] * len(train):
            return salt
    raise AssertionError


# Two days, k = 3. People of "angle": {1, 2} and {2, 3}, together 3. Of "rare": {1, 2} and {2}, together 2.
DAY_1 = {
    "queries": [
        ("angle", [1, 2], 3),
        ("rare secret", [1, 2], 2),
        ("screw", [4, 5, 6], 3),
        ("judged one", [1, 2, 3], 3),
    ],
    "shown": [
        ("angle", "d1", 1, 3, 2),
        ("angle", "d3", 2, 3, 0),
        ("angle", "gone", 3, 2, 1),
        ("rare secret", "d4", 1, 2, 2),
        ("screw", "d3", 1, 3, 3),
        ("judged one", "d5", 1, 3, 1),
    ],
}
DAY_2 = {
    "queries": [("angle", [2, 3], 2), ("rare secret", [2], 1), ("judged one", [4], 1)],
    "shown": [("angle", "d2", 1, 2, 1), ("angle", "d4", 2, 2, 1), ("rare secret", "gone", 1, 1, 1)],
}


def _window(folder):
    """Two days in a store, and what else `build` is asked with."""
    store = folder / "store"
    days = [
        make_day(store, **DAY_1, logs=["a"], repeats=5, labels={"simulated": True}),
        make_day(store, **DAY_2, logs=["b"], repeats=1),
    ]
    (folder / "judged.tsv").write_text("q1\tJudged  ONE\nq2\tnever asked\n")
    return {
        "days": days,
        "documents": write_documents(folder / "documents.tsv", TITLES),
        "store": str(store),
        "judged_queries": str(folder / "judged.tsv"),
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A window whose store all tests build into: its days stay as they are, and what was built before is reused."""
    return _window(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def built_shards(shared):
    """What is built of it; to be read."""
    return build_shards(**shared, config=_config())


@pytest.fixture
def window(tmp_path):
    """A window of the test's own, whose days it may change."""
    return _window(tmp_path)


def _config(**changes):
    salt = _salt_holding_out(["screw"], ["angle"], 0.3)
    return BuildConfig(**({"k": 3, "num_negatives": 2, "dev_share": 0.3, "split_salt": salt} | changes))


@pytest.mark.slow
def test_pairs_and_fates_of_a_window_worked_by_hand(built_shards):
    # angle: d1 twice and d2 once have one title: 3 clicks; d4 once. The click on "gone" has no title.
    pairs = [(row["query"], row["clicked"], row["clicks"], row["split"]) for row in read_pairs(built_shards)]
    assert pairs == [
        ("angle", "angle bracket", 3, "train"),
        ("angle", "deck paint", 1, "train"),
        ("screw", "wood screw", 3, "dev"),
    ]
    # query_judged: searches 3 + 1, impressions 3, click 1. query_below_k: "rare secret": 2 + 1 searches, 2 + 1
    # impressions, 2 + 1 clicks. document_unknown: "gone" for angle: 2 impressions, 1 click. search: angle 3 + 2,
    # screw 3. impression: angle 3 + 3 + 2 + 2, screw 3. click_train: 2 + 1 + 1. click_dev: 3. repeat: 5 + 1, of ingest.
    ledger = built_shards.manifest.outcome.ledger
    assert {fate: lines for fate, lines in ledger.lines.items() if lines} == {
        "repeat": 6,
        "query_judged": 8,
        "query_below_k": 9,
        "document_unknown": 3,
        "search": 8,
        "impression": 13,
        "click_train": 4,
        "click_dev": 3,
    }
    assert ledger.total == 6 + 8 + 9 + 3 + 8 + 13 + 4 + 3
    assert built_shards.manifest.outcome.labels == {"simulated": True}


def test_what_the_gate_costs_is_told_for_every_k(built_shards):
    metrics = built_shards.manifest.outcome.metrics
    # People: angle 3, rare secret 2, screw 3. Pairs: 2, 1, 1; clicks on titled documents: 4, 2, 3. Judged: not counted.
    left = {row["k"]: (row["queries"], row["clicks"], row["pairs"]) for row in metrics["left_at_k"]}
    assert left[0] == left[1] == left[2] == (3, 9, 4)
    assert left[3] == (2, 7, 3)
    assert left[5] == left[20] == (0, 0, 0)
    assert metrics["privacy_gate"] == "k = 3 keeps 7 of 9 clicks (3 of 4 pairs; 2 of 3 queries)"


def test_catalogue_and_folders_are_as_the_contract_says(built_shards):
    catalogue = read_catalogue(built_shards)
    assert [(entry["name"], entry["pairs"], entry["queries"], entry["clicks"]) for entry in catalogue["shards"]] == [
        ("dev-00000", 1, 1, 3),
        ("train-00000", 2, 1, 4),
    ]
    assert catalogue["pool"]["documents"] == 6
    assert (catalogue["k"], catalogue["num_negatives"], catalogue["table_rows"]) == (3, 2, 65_536)
    assert catalogue["labels"] == {"simulated": True}
    tables = ("exclusions", "pairs", "texts", "words")
    names = [f"{folder}/{table}.arrow" for folder in ("dev-00000", "train-00000") for table in tables]
    assert storage.list_files(built_shards.data) == sorted(
        ["catalogue.json", *names, "pool/pool.arrow", "pool/texts.arrow", "pool/words.arrow"]
    )
    assert not damaged_files(built_shards.folder, built_shards.manifest.files, hashes=True)


def test_negatives_are_never_clicked_for_the_query_by_id_or_by_title(built_shards):
    # "rare secret" is behind the gate but its clicks would count; angle's clicks on d1, d2 (one title) and d4 are out.
    for row in read_pairs(built_shards):
        clicked = {"angle": {"angle bracket", "deck paint"}, "screw": {"wood screw"}}[row["query"]]
        assert set(row["excluded"]) == clicked
        assert len(set(row["negatives"])) == 2
        assert not clicked & set(row["negatives"])
        assert row["sampling_probability"] == 1 / (6 - len(clicked))
        assert row["weight"] == row["clicks"]


def test_no_query_below_k_is_anywhere_in_the_output(built_shards):
    for path in storage.list_files(built_shards.folder):
        content = storage.read_bytes(storage.join(built_shards.folder, path))
        for private in (b"rare", b"secret", b"judged one"):
            assert private not in content, path
    assert b"angle" in storage.read_bytes(storage.join(built_shards.data, "train-00000/texts.arrow"))


@pytest.mark.slow
def test_the_order_and_the_cut_of_days_do_not_show(shared, built_shards, tmp_path):
    one_day = make_day(
        tmp_path / "other",
        [("judged one", [1, 2, 3, 4], 4), ("screw", [4, 5, 6], 3), ("rare secret", [1, 2], 3), ("angle", [1, 2, 3], 5)],
        list(reversed(DAY_1["shown"] + DAY_2["shown"])),
    )
    reversed_days = build_shards(**(shared | {"days": shared["days"][::-1]}), config=_config())
    one = build_shards(**(shared | {"days": [one_day], "store": str(tmp_path / "other")}), config=_config())
    assert reversed_days.reused
    assert one.manifest.digest != built_shards.manifest.digest
    assert one.manifest.outcome.logical_digest == built_shards.manifest.outcome.logical_digest
    assert read_pairs(one) == read_pairs(built_shards)


@pytest.mark.slow
def test_shards_follow_from_the_number_of_pairs_and_hold_the_same_rows(shared):
    whole = build_shards(**shared, config=_config(k=2))
    cut = build_shards(**shared, config=_config(k=2, pairs_per_shard=1))
    assert len(read_catalogue(cut)["shards"]) > len(read_catalogue(whole)["shards"])
    assert cut.manifest.outcome.logical_digest == whole.manifest.outcome.logical_digest
    strip = [{k: v for k, v in row.items() if k != "shard"} for row in read_pairs(whole)]
    assert [{k: v for k, v in row.items() if k != "shard"} for row in read_pairs(cut)] == strip
    shards_of_query = {}
    for row in read_pairs(cut):
        shards_of_query.setdefault(row["query"], set()).add(row["shard"])
    assert all(len(shards) == 1 for shards in shards_of_query.values())


def test_a_store_stands_for_all_its_days_and_the_same_request_is_reused(shared, built_shards):
    from_store = build_shards(**(shared | {"days": [shared["store"]]}), config=_config())
    again = build_shards(**shared, config=_config())
    assert not built_shards.reused
    assert (from_store.reused, from_store.folder) == (again.reused, again.folder) == (True, built_shards.folder)


@pytest.mark.slow
def test_another_seed_moves_negatives_and_nothing_else(shared, built_shards):
    one, other = built_shards, build_shards(**shared, config=_config(seed=1))
    strip = ("negatives",)
    rows = [[{k: v for k, v in row.items() if k not in strip} for row in read_pairs(result)] for result in (one, other)]
    assert rows[0] == rows[1]
    assert read_pool(one) == read_pool(other)
    assert one.manifest.outcome.logical_digest != other.manifest.outcome.logical_digest


@pytest.mark.engine
def test_two_processes_make_the_same_rows_as_one(shared, built_shards, tmp_path):
    one = built_shards
    two = build_shards(**(shared | {"store": str(tmp_path / "two")}), config=_config(), beam_options=TWO_MULTI)
    assert two.manifest.outcome.logical_digest == one.manifest.outcome.logical_digest
    assert two.manifest.outcome.ledger == one.manifest.outcome.ledger
    assert read_pairs(two) == read_pairs(one)


@pytest.mark.engine
def test_an_error_in_a_worker_process_arrives_as_what_it_is(window):
    with pytest.raises(StageError, match="0 are left, none of them for training"):
        build_shards(**window, config=_config(k=4), beam_options=TWO_MULTI)


@pytest.mark.slow
def test_nothing_behind_the_gate_says_what_k_would_leave_and_keeps_nothing(window):
    with pytest.raises(StageError) as caught:
        build_shards(**window, config=_config(k=4))
    # Nobody's query has 4 people: angle 3, rare secret 2, screw 3.
    assert "0 of 3 queries passed k = 4. Of 4 pairs 0 are left" in str(caught.value)
    assert "3 at k = 3" in str(caught.value)
    assert "Lower `build --k`" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not [name for name in storage.list_files(window["store"]) if name.startswith("build/")]


@pytest.mark.slow
def test_a_log_without_people_keeps_nothing_unless_no_gate_is_asked_for(shared, tmp_path):
    published = {"queries": [("angle", [], 0)], "shown": [("angle", "d3", 1, 0, 3)]}
    day = make_day(tmp_path / "published", **published, logs=["c"], labels={"no_people": True})
    of_it = shared | {"days": [day], "store": str(tmp_path / "published")}
    with pytest.raises(StageError, match=r"No line with a client id asks for a query that has pairs \(1\)"):
        build_shards(**of_it, config=_config(k=1))
    result = build_shards(**of_it, config=_config(k=0))
    assert [(row["query"], row["clicked"], row["clicks"]) for row in read_pairs(result)] == [("angle", "wood screw", 3)]


@pytest.mark.slow
def test_ids_that_match_no_document_are_named_as_the_cause(shared, tmp_path):
    documents = write_documents(tmp_path / "others.tsv", {f"x{i}": f"title {i}" for i in range(9)})
    # Clicked: d1, gone, d4, d3, d5 on the first day, d2 on the second.
    with pytest.raises(StageError, match="None of the 6 clicked document ids is among"):
        build_shards(**(shared | {"documents": documents}), config=_config())


@pytest.mark.slow
def test_rows_that_are_no_documents_are_skipped_and_named(shared, built_shards, tmp_path):
    rows = [json.dumps({"id": document_id, "title": title}) for document_id, title in TITLES.items()]
    rows[2:2] = ['{"id": null, "title": "a"}', '{"id": "x", "title": ["a"]}', '{"title": "b"}']
    (tmp_path / "documents.jsonl").write_text("\n".join(rows))
    found = build_shards(**(shared | {"documents": str(tmp_path / "documents.jsonl")}), config=_config())
    outcome, without = found.manifest.outcome, built_shards.manifest.outcome
    assert outcome.logical_digest == without.logical_digest
    assert outcome.counts == dict(without.counts) | {"documents_skipped": 3}
    assert outcome.metrics["skipped_rows"] == [
        "The documents have 2 rows without an id, skipped: documents.jsonl:3, documents.jsonl:5",
        "The documents have 1 row with a title that is not text, skipped: documents.jsonl:4",
    ]
    assert "skipped_rows" not in without.metrics
    (tmp_path / "documents.jsonl").write_text("\n".join([*rows[:4], *rows[2:4]]))
    with pytest.raises(StageError, match=r"4 of the 6 rows of .* are no documents"):
        build_shards(**(shared | {"documents": str(tmp_path / "documents.jsonl")}), config=_config())


@pytest.mark.slow
def test_a_pool_that_is_too_small_is_an_error(shared):
    # Six distinct titles, two of them clicked for angle: four are left.
    build_shards(**shared, config=_config(num_negatives=4))
    with pytest.raises(StageError, match="fewer than 5 unclicked documents in the pool of 6"):
        build_shards(**shared, config=_config(num_negatives=5))


@pytest.mark.slow
def test_adult_and_spam_queries_end_in_build_and_another_list_decides_and_names_the_result(window, tmp_path):
    day = make_day(
        window["store"],
        [("free porn videos", [1, 2, 3], 3), ("www.win.example now", [1, 2, 3], 4), ("screw", [7, 8, 9], 3)],
        [("free porn videos", "d1", 1, 3, 2), ("www.win.example now", "d4", 1, 1, 1), ("screw", "gone", 1, 0, 1)],
        logs=["c"],
    )
    window |= {"days": [*window["days"], day]}
    shipped = build_shards(**window, config=_config())
    lines = shipped.manifest.outcome.ledger.lines
    assert (lines["query_adult"], lines["query_spam"]) == (3 + 3 + 2, 4 + 1 + 1)
    assert {row["query"] for row in read_pairs(shipped)} == {"angle", "screw"}

    own = tmp_path / "list.txt"
    own.write_text("# version: 1\njudged ONE\nscrew\n")
    mine = build_shards(**window, config=_config(adult_list=str(own)))
    lines = mine.manifest.outcome.ledger.lines
    # "judged one", 3 + 1 searches, 3 impressions and a click, is adult before it is judged; "screw", 9 and 4 lines.
    assert lines["query_adult"] == 8 + 13
    assert "query_judged" not in mine.manifest.outcome.ledger.lines
    assert {row["query"] for row in read_pairs(mine)} == {"angle", "free porn videos"}
    assert mine.manifest.digest != shipped.manifest.digest
    own.rename(tmp_path / "renamed.txt")
    assert build_shards(**window, config=_config(adult_list=str(tmp_path / "renamed.txt"))).reused
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(StageError, match="no term"):
        build_shards(**window, config=_config(adult_list=str(tmp_path / "empty.txt")))


def test_days_under_different_person_keys_are_not_united(window, tmp_path):
    other = make_day(window["store"], **DAY_2, logs=["c"], person_key="key-2")
    with pytest.raises(StageError, match="2 different keys"):
        build_shards(**(window | {"days": [window["days"][0], other]}), config=_config())


@pytest.mark.slow
def test_days_that_share_a_log_file_are_not_united(window):
    other = make_day(window["store"], **DAY_2, logs=["z", "a"])
    with pytest.raises(StageError, match=r"come from the same log file .fingerprint a., whose"):
        build_shards(**(window | {"days": [window["store"]]}), config=_config())
    assert not build_shards(**(window | {"days": [other]}), config=_config(k=2, dev_share=0)).reused


def test_a_truncated_day_is_noticed(window):
    folder = window["days"][0]
    name = next(name for name in storage.list_files(folder) if name.endswith("queries-00000.arrow"))
    storage.write_atomic(storage.join(folder, name), b"cut")
    with pytest.raises(StageError, match=r"queries-00000\.arrow has 3 bytes"):
        build_shards(**window, config=_config())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"days": []}, "There is no finished ingest"),
        ({"days": ["/nowhere"]}, "There is no finished ingest"),
        ({"documents": "/nowhere/documents.tsv"}, "(?i)no such file"),
        ({"judged_queries": "/nowhere/queries.tsv"}, "There is no file /nowhere"),
    ],
)
def test_inputs_that_are_not_there_are_usage_errors(shared, change, message):
    with pytest.raises(UsageError, match=message):
        build_shards(**(shared | change), config=_config())


@pytest.mark.parametrize(
    "wrong",
    [{"k": -1}, {"k": 33}, {"num_negatives": 0}, {"dev_share": 1.0}, {"table_rows": 0}, {"split_salt": "s" * 65}],
)
def test_a_config_out_of_range_is_refused(wrong):
    with pytest.raises(UsageError, match=f"The field {next(iter(wrong))} is .*: it must "):
        changed(BuildConfig(), wrong)


@pytest.mark.slow
def test_a_store_behind_another_file_system_holds_the_same_shards(shared, built_shards):
    store = "memory://remote/store"
    days = [make_day(store, **DAY_1, logs=["a"], repeats=5), make_day(store, **DAY_2, logs=["b"], repeats=1)]
    remote = build_shards(**(shared | {"days": days, "store": store}), config=_config())
    assert remote.manifest.outcome.logical_digest == built_shards.manifest.outcome.logical_digest
    assert storage.list_files(remote.data) == storage.list_files(built_shards.data)
    assert not damaged_files(remote.folder, remote.manifest.files, hashes=True)


def test_a_store_that_cannot_be_written_is_a_stage_error(shared, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StageError, match=r"(?i)No file can be written below"):
        build_shards(**(shared | {"store": str(tmp_path / "file" / "store")}), config=_config())


@pytest.mark.slow
def test_a_log_of_bots_alone_is_told_as_that_and_no_lower_k_is_advised(shared, tmp_path):
    lines = [search(f"q{n}", "angle", f"c{n}", agent=CRAWLER) for n in range(9)]
    lines += [event(f"q{n}", "click", "d1", 1, f"c{n}") for n in range(9)]
    (tmp_path / "log.ndjson").write_bytes(b"\n".join(lines))
    day = ingest_log([str(tmp_path / "log.ndjson")], store=str(tmp_path / "bots"), config=IngestConfig())
    with pytest.raises(StageError, match=r"18 lines these were lost: 18 bot by .* see which rule") as caught:
        build_shards(**shared | {"days": [day.folder], "store": str(tmp_path / "bots")}, config=_config(k=5))
    assert "Lower" not in str(caught.value)


@pytest.mark.slow
def test_days_without_any_search_or_click_are_an_error_that_says_so(window):
    day = make_day(window["store"], [], [], logs=["empty"])
    with pytest.raises(StageError, match="No click of these days gives a pair"):
        build_shards(**(window | {"days": [day]}), config=_config())
    day = make_day(window["store"], [("angle", [1, 2, 3], 3)], [("angle", "d1", 1, 3, 0)], logs=["no clicks"])
    with pytest.raises(StageError, match="No click of these days gives a pair"):
        build_shards(**(window | {"days": [day]}), config=_config())


@pytest.mark.slow
def test_every_spelling_of_a_judged_query_is_kept_aside_and_those_of_others_are_on_one_side(window, tmp_path):
    spellings = ["deck paint", "paint deck", "deck-paint", "deck/paint?", "d\u0435ck p\u1d00int", "deck\u034f paint"]
    others = {
        "led bulb": ["led bulb", "bulb led", "led_bulb"],
        "oak 5": ["oak 5", "5, oak"],
        "deck": ["deck", "\u13a0eck"],
    }
    asked = [*spellings, *(spelling for of_one in others.values() for spelling in of_one)]
    store = tmp_path / "other"
    day = make_day(
        store,
        queries=[(query, [1, 2, 3], 3) for query in asked],
        shown=[(query, "d4", 1, 3, 1) for query in asked],
        logs=["c"],
    )
    (tmp_path / "judged.tsv").write_bytes(b"\xef\xbb\xbfq1\tDeck  Paint\r\n")
    built = build_shards(**window | {"days": [day], "store": str(store)}, config=_config(dev_share=0.5))
    rows = read_pairs(built)
    assert sorted({row["query"] for row in rows}) == sorted(spelling for each in others.values() for spelling in each)
    assert built.manifest.outcome.ledger.lines["query_judged"] == len(spellings) * (3 + 3 + 1)
    for of_one in others.values():
        assert len({row["split"] for row in rows if row["query"] in of_one}) == 1
