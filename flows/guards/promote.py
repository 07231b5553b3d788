"""Whether a candidate's model replaces the live one: pure functions of evaluations, which move nothing.

Two models are compared on the same queries, judgments and documents, under one protocol: what is decided is about the
models, also where the documents changed since the live release was made (flows.guards.promotion_evidence measures it
anew).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flows.guards.promotion_rules import PromotionRules
from schemas.release import Decision, Release
from training.ranking.significance import bootstrap_interval
from training.wording import measure_name

# A slice's parts in their order, and the part of each query as a number among them, or None (slices).
Parts = tuple[Sequence[str], Sequence[int | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One model's values for every query. `protocol`: all that decides them beside the model."""

    query_ids: Sequence[str]
    values: Mapping[str, Sequence[float]]  # measure -> a value for each query
    bm25: Mapping[str, Sequence[float]]
    slices: Mapping[str, Parts]
    protocol: Mapping[str, Any]
    click_derived: bool = False


def decide_first(candidate: Evaluation | None, rules: PromotionRules) -> Decision:
    """Nothing is live yet. Raises ValueError where the measure is not among those of the evaluation."""
    if rules.first == "always":
        return Decision(promote=True, reason="Nothing was live yet, so the first release goes live.",
                        figures={"case": "first"})  # fmt: skip
    if candidate is None:
        return Decision(promote=False, reason="Nothing is live yet, and the first release has to be better than BM25; "
                        "it was not measured, so it is kept.", figures={"case": "not measured"})  # fmt: skip
    figures = {"case": "first", **_difference(candidate.bm25, candidate.values, candidate, rules)}
    told = f"Nothing was live yet; {_told(figures, 'BM25')}"
    if refused := _refused(figures, rules):
        return Decision(promote=False, reason=f"{told}; {refused}, so the release is kept.", figures=figures)
    return Decision(promote=True, reason=f"{told}, so the first release goes live.", figures=figures)


def decide_same_model(live: Release, candidate: Release) -> Decision:
    """Both serve one model, so there is nothing to compare: documents or settings changed, as every night."""
    was, now = live.num_documents, candidate.num_documents
    changed = f"{now:,} documents instead of {was:,}" if now != was else f"{now:,} documents, as before"
    return Decision(
        promote=True,
        reason=f"The model is the one that is live ({changed}): only documents or settings changed, so it goes live.",
        figures={"case": "same model", "documents": {"live": was, "candidate": now}},
    )


def decide(live: Evaluation, candidate: Evaluation, rules: PromotionRules) -> Decision:
    """Better on the measure, with the paired interval of the gain above `min_gain`, and no slice worse than its limit.

    Raises ValueError where the two were not measured on the same queries under the same protocol, or where the measure
    is not among those of the evaluations.
    """
    if list(live.query_ids) != list(candidate.query_ids) or live.protocol != candidate.protocol:
        raise ValueError("the two evaluations are of other queries, judgments, documents or settings")
    figures = {
        "case": "compared",
        **_difference(live.values, candidate.values, candidate, rules),
        "slices": _slices(live, candidate, rules),
    }
    told = _told(figures, "the live model")
    if refused := _refused(figures, rules):
        return Decision(promote=False, reason=f"{told}; {refused}, so the live model stays.", figures=figures)
    if worse := [row for row in figures["slices"] if row["worse"]]:
        parts = " and ".join(
            f"“{row['part']}” ({row['slice']}, {row['n']:,} queries) falls by {-row['difference']:.3f}, "
            f"more than its limit of {row['limit']:.3f}"
            for row in worse
        )
        return Decision(promote=False, reason=f"{told}; but {parts}, so the live model stays.", figures=figures)
    judged = "no slice is worse than its limit, so it goes live"
    return Decision(promote=True, reason=f"{told}; {judged}.", figures=figures)


def _difference(
    before: Mapping[str, Sequence[float]],
    after: Mapping[str, Sequence[float]],
    candidate: Evaluation,
    rules: PromotionRules,
) -> dict[str, Any]:
    """Means of the two on the chosen measure, and the paired interval of what is gained."""
    before_Q, after_Q = _chosen(before, rules), _chosen(after, rules)
    gained_Q = after_Q - before_Q
    low, high = bootstrap_interval(
        gained_Q, confidence=rules.confidence, num_resamples=rules.num_resamples, seed=rules.seed
    )
    return {
        "measure": rules.measure,
        "n": len(gained_Q),
        "live": float(before_Q.mean()),
        "candidate": float(after_Q.mean()),
        "difference": {"mean": float(gained_Q.mean()), "low": float(low[0]), "high": float(high[0])},
        "confidence": rules.confidence,
        "min_gain": rules.min_gain,
        "click_derived": candidate.click_derived,
    }


def _slices(live: Evaluation, candidate: Evaluation, rules: PromotionRules) -> list[dict[str, Any]]:
    """Every part of every slice that has a query: its size, the two means, its limit, and whether it decides."""
    gained_Q = _chosen(candidate.values, rules) - _chosen(live.values, rules)
    live_Q = _chosen(live.values, rules)
    rows = []
    for name, (parts, of_query) in candidate.slices.items():
        part_Q = np.array([-1 if part is None else part for part in of_query])
        for number, part in enumerate(parts):
            inside = part_Q == number
            if not (size := int(inside.sum())):
                continue
            drop = float(gained_Q[inside].mean())
            limit = rules.slice_limits.get(part, rules.max_slice_drop)
            decides = size >= rules.min_slice_queries
            rows.append({
                "slice": name, "part": part, "n": size, "live": float(live_Q[inside].mean()),
                "candidate": float(live_Q[inside].mean()) + drop, "difference": drop, "limit": limit,
                "decides": decides, "worse": decides and -drop > limit,
            })  # fmt: skip
    return rows


def _chosen(values: Mapping[str, Sequence[float]], rules: PromotionRules) -> np.ndarray:
    if rules.measure not in values:
        raise ValueError(f"the measure {rules.measure} is not among {', '.join(values)}")
    return np.asarray(values[rules.measure], np.float64)


def _refused(figures: Mapping[str, Any], rules: PromotionRules) -> str:
    """Why the figures are not enough, or nothing."""
    if figures["n"] < rules.min_queries:
        return f"fewer than {rules.min_queries:,} queries cannot tell"
    if figures["difference"]["low"] > rules.min_gain:
        return ""
    if figures["difference"]["high"] < 0:
        return "it is worse"
    return f"the interval is not above {rules.min_gain:g}" if rules.min_gain else "the interval is not above zero"


def _told(figures: Mapping[str, Any], other: str) -> str:
    d = figures["difference"]
    judged = " judged by clicks" if figures["click_derived"] else ""
    return (
        f"{measure_name(figures['measure'])} {figures['candidate']:.3f} against {figures['live']:.3f} of {other} over "
        f"{figures['n']:,} queries{judged}: {d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
    )
