"""The sentences about a comparison are right in every case, and the marks follow the corrected p."""

import math

import pytest

from clicktower.flows.report.blocks import visible
from clicktower.flows.report.comparison_page import (
    answer,
    best,
    cautions,
    comparison_headline,
    legend,
    mark,
    measurement_blocks,
    side,
    signed,
    to_bm25,
    verdict,
    without_figures,
)
from tests.training.evaluation.sample_comparison import sample_comparison, without


def with_p(comparison: dict, name: str, p_holm: float, mean: float | None = None) -> dict:
    """The comparison with another p, and another difference to BM25's 0.851, for one row at NDCG@10."""
    row = next(row for row in comparison["rows"] if row["name"] == name)
    difference = row["to_against"]["ndcg@10"]
    difference["p_holm"] = p_holm
    if mean is not None:
        row["values"]["ndcg@10"] |= {"mean": 0.851 + mean, "low": 0.839 + mean, "high": 0.863 + mean}
        difference |= {"mean": mean, "low": mean - 0.004, "high": mean + 0.004}
    return comparison


def test_the_best_row_is_told_with_its_lead_and_its_p():
    output = answer(sample_comparison())
    # 0.851 + 0.017 = 0.868, ± 0.012; the difference ± 0.004
    assert output.startswith(
        "Highest NDCG@10: Hybrid: LSTM, 96 cells, n = 4 with BM25, 0.868 (0.856 to 0.880) over 1,229 queries."
        " That is +0.017 over BM25 (95% interval +0.013 to +0.021), and chance does not explain it: p = 0.0017 after"
        " Holm's correction."
    )
    # Beside the best: p below 0.05 for Doc2Vec and random order (below), four LSTMs and the one with gates (above).
    assert output.endswith("against BM25: 5 above it beyond chance, 2 below it beyond chance, 7 not significant.")
    assert verdict(sample_comparison()) == "better"


def test_a_lead_that_chance_may_explain_is_no_victory():
    comparison = with_p(sample_comparison("bm25", "lstm-96"), "lstm-96", 0.0500001)
    output = answer(comparison)
    assert "these queries cannot tell the two apart: p = 0.0500 after Holm's correction." in output
    assert verdict(comparison) == "open"


def test_where_nothing_is_above_the_chosen_row_that_is_the_answer():
    comparison = sample_comparison("doc2vec", "ulm", "bm25")
    output = answer(comparison)
    assert output == (
        "No row is above BM25: NDCG@10 0.851 (0.839 to 0.863) over 1,229 queries. Other rows: 1 below it beyond"
        " chance, 1 not significant."
    )
    assert verdict(comparison) == "open"
    assert verdict(sample_comparison("doc2vec", "bm25")) == "worse"


def test_a_row_level_with_the_chosen_one_is_not_above_it():
    comparison = with_p(sample_comparison("bm25", "lstm-96"), "lstm-96", 1.0, mean=0.0)
    comparison["rows"].reverse()  # whichever comes first
    assert best(comparison)["name"] == "bm25"
    assert answer(comparison).startswith("No row is above BM25: NDCG@10 0.851 (0.839 to 0.863) over 1,229 queries.")


def test_one_row_has_nothing_to_be_compared_with():
    output = answer(sample_comparison("bm25"))
    assert output.startswith("The only row that was measured is BM25: NDCG@10 0.851 (0.839 to 0.863)")
    assert output.endswith("There is nothing to compare it with.")
    assert verdict(sample_comparison("bm25")) == "unknown"


def test_where_no_row_is_done_no_figure_is_told():
    comparison = sample_comparison("skip-thought", "plsa-500")
    assert answer(comparison) == "No row could be measured: there is nothing to compare."
    assert comparison_headline({"metrics": comparison}) == "0 of 2 rows measured"
    assert verdict(comparison) == "unknown"
    assert legend(comparison) == ""


def test_a_chosen_row_that_failed_leaves_no_word_about_chance():
    comparison = without(sample_comparison("bm25", "lstm-32", "lstm-96"), "bm25")
    output = answer(comparison)
    assert output.startswith("Highest NDCG@10: LSTM, 96 cells, n = 4, 0.858 (0.846 to 0.870)")
    assert output.endswith("Nothing is said about chance: there is no figure of BM25 to test them against.")
    assert verdict(comparison) == "unknown"


@pytest.mark.parametrize(
    ("p_holm", "mean", "marked", "on"),
    [(0.0009, 0.1, "***", "above"), (0.001, 0.1, "**", "above"), (0.0099, -0.1, "**", "below"),
     (0.01, -0.1, "*", "below"), (0.0499, 0.1, "*", "above"), (0.05, 0.1, "≈", "alike"), (1.0, -0.1, "≈", "alike")],
)  # fmt: skip
def test_marks_follow_the_corrected_p_alone(p_holm, mean, marked, on):
    difference = {"mean": mean, "low": mean - 1, "high": mean + 1, "p": 0.0001, "p_holm": p_holm}
    assert (mark(difference), side(difference)) == (marked, on)


def test_nothing_tested_has_no_mark():
    assert (mark(None), side(None)) == ("", "")


def test_the_difference_to_bm25_is_of_the_means():
    comparison = sample_comparison()
    rows = {row["name"]: row for row in comparison["rows"]}
    assert math.isclose(to_bm25(comparison, rows["lstm-96"], "ndcg@1"), 1.8 * 0.007)
    assert to_bm25(comparison, rows["plsa-500"]) is None
    assert to_bm25(without(comparison, "bm25"), rows["lstm-96"]) is None


def test_rows_without_figures_are_told_with_their_reason():
    empty, failed = without_figures(sample_comparison())
    assert empty == "Skip-Thought is empty: no run of its vectors was given (--run skip-thought=FILE)."
    assert failed.startswith("PLSA, 500 topics failed: MemoryError")


def test_a_best_row_that_finds_less_is_not_told_without_that():
    comparison = sample_comparison("bm25", "lstm-96")
    assert not [caution for caution in cautions(comparison) if "finds them" in caution]
    lstm = comparison["rows"][1]["to_against"]
    lstm["collection_recall@10"] |= {"mean": -0.06, "low": -0.07, "high": -0.05}
    lstm["collection_mrr@100"] |= {"mean": -0.5, "p_holm": 0.2}  # not beyond chance, so not told
    assert cautions(comparison)[0] == (
        "LSTM, 96 cells, n = 4 orders given documents better than it finds them: where every document may be found, it"
        " is below BM25 beyond chance at Recall@10, all documents."
    )


def test_warnings_come_as_sentences_and_luck_is_told_of_several_rows():
    assert cautions(sample_comparison("bm25")) == ["3 queries have no word: they have no results and count 0."]
    warned = sample_comparison("bm25") | {"warnings": ["towers were trained with one seed"]}
    assert cautions(warned) == ["Towers were trained with one seed."]
    assert "partly by luck" in cautions(sample_comparison("bm25", "lstm-32", "lstm-96"))[-1]


def how(comparison: dict) -> str:
    return " ".join(item for block in measurement_blocks(comparison) for item in block.items)  # type: ignore[attr-defined]


def test_how_it_was_measured_says_how_much_of_the_judgments_can_tell_anything():
    for part in ("1,229 queries, of which 392 cannot tell rankings apart", "2^grade - 1", "95%",
                 "Ties: as trec_eval: scores as 32-bit floats, then descending document id.",
                 "Unjudged: an unjudged document takes its place"):  # fmt: skip
        assert part in how(sample_comparison())
    assert "Gain: the grade." in how(sample_comparison() | {"gain": "linear"})
    # The name of a quantity keeps its form.
    assert how(sample_comparison() | {"rules": {"p": "two-sided"}}).endswith(" p: two-sided.")


def test_a_rounded_zero_has_no_sign():
    assert [signed(x) for x in (0.0004, -0.0004, 0.0005001, -0.0061, 10.000)] == [
        "0.000", "0.000", "+0.001", "-0.006", "+10.000"]  # fmt: skip


def test_what_acts_without_being_seen_is_made_visible():
    assert visible("a\x1b[31m\u202eb\x00\ud800\u2028c") == "a�[31m�b���c"
    assert visible("نیم\u200cفاصله") == "نیم\u200cفاصله"  # a joiner that Persian is written with
