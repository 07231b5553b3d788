import json

import numpy as np
import pyarrow as pa
import pytest

from clicktower.beam_jobs.engine.beam_stage import Tally
from clicktower.beam_jobs.ingest.days import day_files, open_window, read_day_file
from clicktower.beam_jobs.judgments.judge_clicks import (
    GRADE_SHARES,
    JudgmentsConfig,
    gated_cells,
    measure,
    merge_samples,
    query_id,
    sample_of,
)
from clicktower.beam_jobs.judgments.judgments_job import require_impressions
from clicktower.beam_jobs.judgments.judgments_stage import derive_judgments
from clicktower.schemas import storage
from clicktower.schemas.content_filters import ADULT_ENGLISH, shipped_list
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import are_click_derived, read_qrels, read_queries, read_run
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.section import changed
from tests.beam_jobs.build.day_folders import make_day
from tests.beam_jobs.judgments.clicked_cells import drawn_day
from tests.beam_jobs.judgments.test_trained_days import built_from

TWO_MULTI = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
PEOPLE = [1, 2, 3, 4, 5, 6]
PROPENSITIES = np.array([1, 0.6, 0.35, 0.2])
LEVELS = (0.02, 0.08, 0.25, 0.8)
ATTRACTIVENESS = np.random.default_rng(5).choice(LEVELS, (40, 6))


@pytest.fixture(scope="module")
def log():
    """Two days' worth of searches: the engine shows bad documents first, as no raw share of clicks can tell."""
    return [drawn_day(seed, PROPENSITIES, ATTRACTIVENESS, searches=150, order_noise=0.15) for seed in (1, 2)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store that tests judge into; what was judged before is reused."""
    return str(tmp_path_factory.mktemp("judged") / "store")


@pytest.fixture(scope="module")
def days(store, log):
    """The log as two days; to be read."""
    return _days(store, log)


def _days(store, log):
    return [make_day(store, *day, logs=[f"log-{number}"]) for number, day in enumerate(log)]


@pytest.fixture(scope="module")
def judged(store, days):
    """The judgments of both; to be read."""
    return derive_judgments(days, store=store, config=JudgmentsConfig())


def files(result):
    metrics = result.manifest.outcome.metrics
    return {name: storage.join(result.data, path) for name, path in metrics["files"].items()}


def true_order(grades: dict[str, dict[str, float]], texts: dict[str, str]) -> float:
    """Of two documents of a query with different attractiveness: how often the better has the better value."""
    right = total = 0.0
    for identity, of_query in grades.items():
        true = ATTRACTIVENESS[int(texts[identity].split()[1])]
        for one, value in of_query.items():
            for other, other_value in of_query.items():
                if true[int(one[1:])] > true[int(other[1:])]:
                    total += 1
                    right += 1 if value > other_value else 0.5 if value == other_value else 0
    return right / total


@pytest.mark.slow
def test_judgments_order_documents_where_raw_shares_of_clicks_mislead(judged, log):
    at = files(judged)
    queries, qrels = read_queries(at["queries"]), read_qrels(at["qrels"])
    assert list(queries) == list(qrels)
    assert {grade for of_query in qrels.values() for grade in of_query.values()} == {0, 1, 2, 3}
    counts = judged.manifest.outcome.counts
    assert (counts["queries"], counts["judgments"]) == (len(qrels), sum(map(len, qrels.values())))

    sums: dict[tuple[str, str], list[int]] = {}
    for _, shown in log:
        for text, document, _, impressions, clicks in shown:
            of = sums.setdefault((text, document), [0, 0])
            of[0], of[1] = of[0] + impressions, of[1] + clicks
    shares = {pair: clicks / impressions for pair, (impressions, clicks) in sums.items()}
    typical = sum(share**2 for share in shares.values()) / sum(shares.values())
    raw = {
        q: {d: float(np.searchsorted(GRADE_SHARES, shares[queries[q], d] / typical)) for d in of}
        for q, of in qrels.items()
    }
    assert true_order(qrels, queries) > 0.93
    assert true_order(raw, queries) < 0.9


def test_the_workbench_gets_the_same_queries_and_grades(judged):
    at = files(judged)
    texts, qrels = read_queries(at["queries"]), read_qrels(at["qrels"])
    assert sorted(read_queries(at["query_set"]).values()) == sorted(texts.values())
    listed, ids = read_qrels(at["judgment_list"]), read_queries(at["judgment_list"])
    assert {ids[query]: grades for query, grades in listed.items()} == {texts[q]: qrels[q] for q in qrels}
    assert are_click_derived(listed)
    ratings = json.loads(storage.read_bytes(at["judgment_list"]))
    assert ratings["type"] == "IMPORT_JUDGMENT"
    assert all(isinstance(row["rating"], str) for entry in ratings["judgmentRatings"] for row in entry["ratings"])


def test_the_ranking_that_was_shown_is_a_run_over_the_judged_queries(judged, log):
    queries, run = read_queries(files(judged)["queries"]), read_run(files(judged)["logged"])
    assert list(run) == list(queries)
    assert judged.manifest.outcome.counts["logged_results"] == sum(map(len, run.values()))
    sums: dict[tuple[str, str], tuple[int, float]] = {}
    for _, shown in log:
        for text, document, rank, impressions, clicks in shown:
            seen, exposure = sums.get((text, document), (0, 0.0))
            shown_at_rank = max(impressions, clicks)
            sums[text, document] = (seen + shown_at_rank, exposure + shown_at_rank / np.log2(rank + 2))
    for identity, scores in run.items():
        of_query = {
            d: exposure for (text, d), (seen, exposure) in sums.items() if text == queries[identity] and seen >= 10
        }
        assert sorted(scores, key=lambda d: (-scores[d], d)) == sorted(of_query, key=lambda d: (-of_query[d], d))
        assert max(scores.values()) == -1  # places, and no exposure
    assert true_order(run, queries) < 0.3  # this engine shows the worst first


def test_propensities_are_told_and_near_the_truth(judged):
    output = json.loads(storage.read_bytes(files(judged)["propensities"]))
    assert output["propensities"] == judged.manifest.outcome.metrics["propensities"]
    assert output["click_model"] == "pbm"
    assert output["labels"]["judgments"] == "click-derived"
    for row, true in zip(output["propensities"], PROPENSITIES, strict=True):
        assert row["propensity"] == pytest.approx(true, rel=max(4 * row["relative_error"], 1e-6))


def test_every_impression_and_click_has_a_fate(judged, log):
    fates = judged.manifest.outcome.metrics["fates"]
    rows = [row for _, shown in log for row in shown]
    assert sum(fates["impressions"].values()) == sum(impressions for *_, impressions, _ in rows)
    assert sum(fates["clicks"].values()) == sum(clicks for *_, clicks in rows)


@pytest.mark.slow
def test_judgments_are_labelled_and_the_label_survives_a_copy(tmp_path, log):
    day = make_day(tmp_path / "store", *log[0], labels={"simulated": True})
    result = derive_judgments([day], store=str(tmp_path / "store"), config=JudgmentsConfig())
    assert result.manifest.outcome.labels == {
        "simulated": True,
        "judgments": "click-derived",
        "click_model": "pbm",
        "exposure_corrected": True,
    }
    (tmp_path / "copy.txt").write_bytes(storage.read_bytes(files(result)["qrels"])[:400].rsplit(b"\n", 1)[0])
    assert are_click_derived(read_qrels(str(tmp_path / "copy.txt")))
    assert not are_click_derived(["q1", "17"])


@pytest.mark.slow
def test_what_fewer_than_k_people_typed_is_nowhere(tmp_path, log):
    queries, shown = log[0]
    # Five people over two days type one; four, twice each, the other.
    queries = [*queries, ("order 7781 of jane", [1, 2, 3], 400), ("five people know", [1, 2, 3], 400)]
    again = [("order 7781 of jane", [2, 3, 4], 400), ("five people know", [3, 4, 5], 400)]
    private = [
        (text, f"d{document}", rank, 100, round(100 * PROPENSITIES[rank - 1] * alpha))
        for text in ("order 7781 of jane", "five people know")
        for document, alpha in enumerate(LEVELS)
        for rank in (1, 2)
    ]
    store = str(tmp_path / "store")
    days = [make_day(store, queries, [*shown, *private], logs=["a"]), make_day(store, again, private, logs=["b"])]
    result = derive_judgments(days, store=store, config=JudgmentsConfig(k=5))
    texts = read_queries(files(result)["queries"])
    assert texts[query_id("five people know", "clicktower")] == "five people know"
    for name in storage.list_files(result.folder):
        content = storage.read_bytes(storage.join(result.folder, name))
        assert b"jane" not in content, name
        assert query_id("order 7781 of jane", "clicktower").encode() not in content, name
    assert storage.list_folders(result.folder) == [result.manifest.attempt]  # no scratch is left


@pytest.mark.slow
def test_the_cut_of_days_changes_nothing(tmp_path, judged, log):
    people = {text: of for text, of, _ in log[0][0]}
    queries = [(text, people[text], searches * 2) for text, _, searches in log[0][0]]
    day = make_day(tmp_path / "one", queries, [*log[0][1], *log[1][1]])
    together = derive_judgments([day], store=str(tmp_path / "one"), config=JudgmentsConfig())
    assert together.manifest.outcome.logical_digest == judged.manifest.outcome.logical_digest


@pytest.mark.engine
def test_the_number_of_workers_changes_nothing(tmp_path, days, judged):
    multi = derive_judgments(days, store=str(tmp_path / "multi"), config=JudgmentsConfig(), beam_options=TWO_MULTI)
    assert multi.manifest.outcome.logical_digest == judged.manifest.outcome.logical_digest
    for name in ("queries", "qrels", "logged"):
        assert storage.read_bytes(files(multi)[name]) == storage.read_bytes(files(judged)[name])


@pytest.mark.slow
def test_the_same_request_is_reused_and_another_setting_is_another_folder(store, days, judged):
    again = derive_judgments(days[::-1], store=store, config=JudgmentsConfig())
    assert (judged.reused, again.reused, again.folder) == (False, True, judged.folder)
    assert not damaged_files(judged.folder, judged.manifest.files, hashes=True)
    other = derive_judgments(days, store=store, config=JudgmentsConfig(min_impressions=100))
    assert other.folder != judged.folder
    assert other.manifest.outcome.counts["judgments"] < judged.manifest.outcome.counts["judgments"]


def test_a_minimum_of_impressions_is_kept(store, days, log):
    result = derive_judgments(days, store=store, config=JudgmentsConfig(min_impressions=100))
    texts, qrels = read_queries(files(result)["queries"]), read_qrels(files(result)["qrels"])
    seen: dict[tuple[str, str], int] = {}
    for _, shown in log:
        for text, document, _, impressions, _ in shown:
            seen[text, document] = seen.get((text, document), 0) + impressions
    assert min(seen[texts[q], d] for q, of in qrels.items() for d in of) >= 100
    assert min(seen.values()) < 100


@pytest.mark.slow
def test_where_ranks_never_vary_it_says_so_and_a_plain_share_can_be_asked_for(tmp_path):
    queries = [("a", PEOPLE, 100), ("b", PEOPLE, 100)]
    shown = [(q, f"d{d}", d, 100, clicks) for q in "ab" for d, clicks in ((1, 60), (2, 20), (3, 2))]
    store = str(tmp_path / "store")
    day = make_day(store, queries, shown)
    with pytest.raises(StageError, match=r"0 pairs of query and document .* were shown at more than one") as error:
        derive_judgments([day], store=store, config=JudgmentsConfig())
    assert "click_model=ctr" in error.value.fix
    assert storage.list_files(storage.join(store, "judgments")) == []
    result = derive_judgments([day], store=store, config=JudgmentsConfig(click_model="ctr"))
    assert result.manifest.outcome.labels["exposure_corrected"] is False
    grades = read_qrels(files(result)["qrels"])[query_id("a", "clicktower")]
    assert grades["d1"] > grades["d2"] > grades["d3"]


@pytest.mark.slow
def test_ranks_that_are_too_little_known_are_left_out_and_named(tmp_path, log):
    # One document of one query at rank 30, once clicked.
    queries, shown = log[0]
    day = make_day(tmp_path / "store", queries, [*shown, ("query 000", "d0", 30, 20, 1)])
    metrics = derive_judgments([day], store=str(tmp_path / "store"), config=JudgmentsConfig()).manifest.outcome.metrics
    assert metrics["unmeasured_ranks"] == [30]
    assert [row["rank"] for row in metrics["propensities"]] == [1, 2, 3, 4]
    assert metrics["fates"]["impressions"]["rank_unmeasured"] == 20


@pytest.mark.parametrize(
    ("queries", "shown", "found"),
    [
        ([("a", PEOPLE, 9)], [("a", "d", 1, 0, 9)], "9 clicks and not one impression"),
        ([("a", PEOPLE, 9)], [("a", "d", 1, 9, 0)], "no click in 9 impressions"),
        ([("a", PEOPLE, 9)], [("a", "d", 1, 9, 3), ("a", "e", 2, 0, 3)], "3 of 6 clicks lack"),
        ([("a", [1, 2], 9)], [("a", "d", 1, 9, 3)], "0 of 1 queries passed k = 5"),
        ([("a", PEOPLE, 9)], [("a", "d", -1, 9, 3)], "9 without a rank"),
        ([("a", PEOPLE, 9)], [("a", "d", 1, 90, 30)], "1 ranks occur"),
    ],
)
def test_a_log_that_judges_nothing_is_refused_with_the_reason(tmp_path, queries, shown, found):
    """By the functions that the job calls; what its graph makes of such an error, the log without anything tells."""
    with pytest.raises(StageError, match=found):
        _measure(make_day(tmp_path, queries, shown))


def _measure(day: str) -> None:
    """What the job does until the ranks are measured."""
    opened, config = open_window([day]).ingests, JudgmentsConfig()
    queries, exposures = (
        pa.concat_tables([read_day_file(uri) for uri in day_files(opened, kind)]) for kind in ("queries", "exposures")
    )
    terms = shipped_list(ADULT_ENGLISH).terms
    cells, counts = gated_cells(queries, exposures, k=config.k, max_rank=config.max_rank, adult_terms=terms)
    require_impressions(Tally(counts=counts), config)
    measure(merge_samples([sample_of(cells)], config.sample_cells), config)


def test_a_log_without_anything_is_refused_and_leaves_nothing(tmp_path):
    store = str(tmp_path / "store")
    with pytest.raises(StageError, match="no click in 0 impressions"):
        derive_judgments([make_day(store, [], [])], store=store, config=JudgmentsConfig())
    assert storage.list_files(storage.join(store, "judgments")) == []


def test_days_that_are_not_there_are_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no finished ingest"):
        derive_judgments([str(tmp_path)], store=str(tmp_path), config=JudgmentsConfig())


@pytest.mark.parametrize("wrong", [{"k": -1}, {"grade_shares": (0.5, 0.2)}, {"grade_shares": ()}])
def test_settings_out_of_range_are_usage_errors(wrong):
    with pytest.raises(UsageError):
        changed(JudgmentsConfig(), wrong)


@pytest.mark.slow
def test_days_that_a_model_was_trained_on_are_refused(tmp_path, log):
    store = str(tmp_path / "store")
    days = _days(store, log)
    built = built_from(store, *open_window([days[0]]).ingests)
    with pytest.raises(StageError, match=r"was made from"):
        derive_judgments(days, store=store, config=JudgmentsConfig(), trained_on=built)
    queries, shown = log[1]
    same_log = make_day(store, queries[1:], [row for row in shown if row[0] != "query 000"], logs=["log-0"])
    with pytest.raises(StageError, match="was made from a log file of"):
        derive_judgments([same_log], store=store, config=JudgmentsConfig(), trained_on=built)
    assert derive_judgments([days[1]], store=store, config=JudgmentsConfig(), trained_on=built).manifest
    with pytest.raises(UsageError, match="output of ingest"):
        derive_judgments([days[1]], store=store, config=JudgmentsConfig(), trained_on=days[0])
