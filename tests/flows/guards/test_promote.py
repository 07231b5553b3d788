"""Promotion as a pure function: hand-made evaluations, each rule on its own, and an interval by another way."""

from dataclasses import replace

import numpy as np
import pytest

from clicktower.flows.config.guard_rules import PromotionRules
from clicktower.flows.guards.compare_models import Evaluation, decide, decide_first, decide_same_model
from clicktower.schemas.errors import UsageError
from clicktower.schemas.release import Release

RULES = PromotionRules(min_slice_queries=10, num_resamples=2_000)
LENGTHS = ("query length", ["1 word", "2 words"])


def evaluation(values, *, bm25=None, parts=None, **others) -> Evaluation:
    values = [float(value) for value in values]
    name, names = LENGTHS
    return Evaluation(
        values={"ndcg@10": values, "ndcg@1": [0.5] * len(values)},
        bm25={"ndcg@10": [float(v) for v in bm25] if bm25 is not None else [0.5] * len(values)},
        slices={name: (names, parts if parts is not None else [n % 2 for n in range(len(values))])},
        protocol={"qrels": "same"},
        **others,
    )


def spread(mean: float, count: int = 100, by: float = 0.1) -> np.ndarray:
    """Values around a mean, the same pattern of them every time."""
    return mean + by * np.linspace(-1, 1, count)


def test_better_by_as_much_on_every_query_is_promoted():
    decision = decide(evaluation(spread(0.80)), evaluation(spread(0.81)), RULES)
    assert decision.promote
    assert decision.reason == (
        "NDCG@10 0.810 against 0.800 of the live model over 100 queries: +0.010 [+0.010, +0.010]; no slice is worse"
        " than its limit, so it goes live."
    )


def test_the_interval_is_that_of_paired_differences_as_the_normal_law_has_it():
    rng = np.random.default_rng(1)
    live, gained = rng.uniform(0, 1, 2_000), rng.normal(0.004, 0.05, 2_000)
    figures = decide(evaluation(live), evaluation(live + gained), RULES).figures
    half = 1.96 * gained.std() / np.sqrt(2_000)  # of the differences: the two systems share the queries' variation
    assert figures["difference"]["low"] == pytest.approx(gained.mean() - half, abs=0.0003)
    assert figures["difference"]["high"] == pytest.approx(gained.mean() + half, abs=0.0003)


def test_a_gain_that_may_be_chance_is_kept_and_says_so():
    live = evaluation(spread(0.80))
    candidate = evaluation(spread(0.80) + 0.001 + 0.05 * np.resize([1, -1], 100))
    decision = decide(live, candidate, RULES)
    assert not decision.promote
    assert decision.figures["difference"]["mean"] == pytest.approx(0.001)
    assert decision.reason.endswith("the interval is not above zero, so the live model stays.")


def test_a_worse_one_is_called_worse():
    output = decide(evaluation(spread(0.8)), evaluation(spread(0.7)), RULES).reason
    assert output.endswith("-0.100 [-0.100, -0.100]; it is worse, so the live model stays.")


def test_a_negative_min_gain_takes_what_is_not_much_worse():
    live, candidate = evaluation(spread(0.80)), evaluation(spread(0.797))
    assert not decide(live, candidate, RULES).promote
    assert decide(live, candidate, replace(RULES, min_gain=-0.005)).promote
    unsure = evaluation(spread(0.797) + 0.05 * np.resize([1, -1], 100))
    output = decide(live, unsure, replace(RULES, min_gain=-0.002)).reason
    assert "the interval is not above -0.002" in output


def test_a_slice_that_falls_too_far_keeps_the_candidate_though_it_is_better_overall():
    gained = np.where(np.arange(100) < 20, -0.03, 0.05)
    parts = [0 if n < 20 else 1 for n in range(100)]
    live = evaluation(spread(0.8), parts=parts)
    candidate = evaluation(spread(0.8) + gained, parts=parts)
    decision = decide(live, candidate, RULES)
    assert not decision.promote
    assert decision.reason.endswith(
        "but “1 word” (query length, 20 queries) falls by 0.030, more than its limit of 0.020, so the live model stays."
    )
    assert decide(live, candidate, replace(RULES, slice_limits={"1 word": 0.031})).promote
    assert not decide(live, candidate, replace(RULES, max_slice_drop=0.5, slice_limits={"1 word": 0.029})).promote


def test_a_small_slice_is_shown_and_decides_nothing():
    gained = np.where(np.arange(100) < 9, -0.5, 0.1)
    parts = [0 if n < 9 else 1 for n in range(100)]
    decision = decide(evaluation(spread(0.5), parts=parts), evaluation(spread(0.5) + gained, parts=parts), RULES)
    assert decision.promote
    small = decision.figures["slices"][0]
    assert (small["part"], small["n"], small["decides"], small["worse"]) == ("1 word", 9, False, False)
    assert small["difference"] == pytest.approx(-0.5)


def test_a_query_in_no_part_counts_in_no_slice():
    rows = decide(evaluation(spread(0.8), parts=[None] * 100), evaluation(spread(0.9)), RULES).figures["slices"]
    assert [row["n"] for row in rows] == [50, 50], "the candidate's slices are taken"
    nothing = evaluation(spread(0.9), parts=[None] * 100)
    assert decide(evaluation(spread(0.8)), nothing, RULES).figures["slices"] == []


def test_too_few_queries_cannot_tell():
    decision = decide(evaluation(spread(0.1, 19)), evaluation(spread(0.9, 19)), RULES)
    assert not decision.promote
    assert "fewer than 20 queries cannot tell" in decision.reason


def test_a_measure_that_the_evaluations_lack_is_named():
    live = evaluation(spread(0.8))
    with pytest.raises(UsageError, match=r"mrr@10 is not among ndcg@10, ndcg@1"):
        decide(live, live, replace(RULES, measure="mrr@10"))


def test_a_first_release_that_has_to_beat_bm25_is_kept_unless_it_does():
    rules = replace(RULES, first="above bm25")
    assert decide_first(evaluation(spread(0.6)), rules).promote
    below = decide_first(evaluation(spread(0.4)), rules)
    assert not below.promote
    assert "0.400 against 0.500 of BM25" in below.reason
    assert not decide_first(None, rules).promote


def test_the_live_model_on_new_documents_goes_live_without_a_question():
    def release(documents: int) -> Release:
        return Release(digest="r", text_contract={}, num_documents=documents, dimensions=96, index={}, evaluation={},
                       inputs={"model": "m"})  # fmt: skip

    decision = decide_same_model(release(100), release(120))
    assert decision.promote
    assert "120 documents instead of 100" in decision.reason


def test_judgments_from_clicks_are_named_in_the_reason():
    decision = decide(evaluation(spread(0.8)), evaluation(spread(0.9), click_derived=True), RULES)
    assert "over 100 queries judged by clicks" in decision.reason
    assert decision.figures["click_derived"]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"rule": "sometimes"}, "rule"),
        ({"first": "no"}, "first"),
        ({"min_gain": 1.0}, "min_gain"),
        ({"max_slice_drop": -0.1}, "max_slice_drop"),
        ({"slice_limits": {"1 word": -1}}, "slice_limits"),
        ({"slice_limits": {"9 words": 0.1}}, "slice_limits names 9 words; the slices are 1 word, 2 words"),
        ({"confidence": 1.0}, "confidence"),
        ({"min_slice_queries": 0}, "min_slice_queries"),
        ({"min_queries": 0}, "min_queries"),
        ({"num_resamples": 0}, "num_resamples"),
    ],
)
def test_rules_that_mean_nothing_are_refused(fields, found):
    with pytest.raises(ValueError, match=found):
        PromotionRules(**fields)
