"""A candidate beside the live release, by the figures of both.

Two models are compared on the same queries, judgments and documents, under one protocol: the decision is about the
models, even if the documents have changed since the live release was made (the live model is then evaluated again).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clicktower.flows.config.guard_rules import PromotionRules
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError, UsageError
from clicktower.schemas.judgments import are_click_derived
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.release import PER_QUERY, Decision, Release
from clicktower.schemas.stage import StageResult
from clicktower.training.evaluation.row import EvaluateConfig
from clicktower.training.ranking.ndcg import bootstrap_interval, measure_name

# A slice's parts in order, and the index of each query's part, or None (evaluate_stage.slices).
Parts = tuple[Sequence[str], Sequence[int | None]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One model's values for every query. `protocol`: everything else that determines them."""

    values: Mapping[str, Sequence[float]]  # measure -> a value for each query
    bm25: Mapping[str, Sequence[float]]
    slices: Mapping[str, Parts]
    protocol: Mapping[str, Any]
    click_derived: bool = False


def decide_by_figures(
    live: Release | None,
    live_folder: str | None,
    candidate: Release,
    candidate_folder: str,
    rules: PromotionRules,
    measure: Callable[..., StageResult] | None,
    *,
    previous: str | None,
) -> Decision:
    """The decision about a candidate that the rules do not settle alone (promotion.decision_rule)."""
    if live and candidate.digest == previous:
        return _keep_live("It was live before, and was rolled back or replaced: only a person makes it live again")
    if live and live.inputs["model"] == candidate.inputs["model"]:
        return decide_same_model(live, candidate)
    of_candidate = release_evaluation(candidate, candidate_folder)
    if live is None or live_folder is None:
        return decide_first(of_candidate, rules)
    uncompared = ", so the two models cannot be compared"
    if of_candidate is None:
        return _keep_live("The release carries no evaluation" + uncompared)
    of_live = release_evaluation(live, live_folder)
    if of_live is None or of_live.protocol != of_candidate.protocol:
        if measure is None:
            return _keep_live("The live model was measured on other judgments or documents, or not at all" + uncompared)
        try:
            of_live = evaluate_live(live_folder, candidate, measure)
        except (UsageError, TransientError):
            raise
        except StageError as error:
            return _keep_live(f"The live model could not be measured anew ({error.problem}){uncompared}")
    return decide(of_live, of_candidate, rules)


def _keep_live(why: str) -> Decision:
    return Decision(promote=False, reason=f"{why}. What is live stays.", figures={"case": "not measured"})


def decide_same_model(live: Release, candidate: Release) -> Decision:
    """The decision when both releases have the same model: only documents or settings changed."""
    was, now = live.num_documents, candidate.num_documents
    changed = f"{now:,} documents instead of {was:,}" if now != was else f"{now:,} documents, as before"
    return Decision(
        promote=True,
        reason=f"The model is the one that is live ({changed}): only documents or settings changed, so it goes live.",
        figures={"case": "same model", "documents": {"live": was, "candidate": now}},
    )


def decide_first(candidate: Evaluation | None, rules: PromotionRules) -> Decision:
    """The decision when nothing is live yet and the first release has to be better than BM25.

    Raises UsageError if the evaluation lacks the measure.
    """
    if candidate is None:
        return Decision(promote=False, reason="Nothing is live yet, and the first release has to be better than BM25; "
                        "it was not measured, so it is kept.", figures={"case": "not measured"})  # fmt: skip
    figures = {"case": "first", **_difference(candidate.bm25, candidate.values, candidate, rules)}
    text = f"Nothing was live yet; {_gain_sentence(figures, 'BM25')}"
    if refused := _insufficiency(figures, rules):
        return Decision(promote=False, reason=f"{text}; {refused}, so the release is kept.", figures=figures)
    return Decision(promote=True, reason=f"{text}, so the first release goes live.", figures=figures)


def decide(live: Evaluation, candidate: Evaluation, rules: PromotionRules) -> Decision:
    """The decision by the rules: the paired interval of the gain is above `min_gain`, and no slice is worse than its
    limit. The two are of one protocol. Raises UsageError if they lack the measure.
    """
    figures = {
        "case": "compared",
        **_difference(live.values, candidate.values, candidate, rules),
        "slices": _slices(live, candidate, rules),
    }
    text = _gain_sentence(figures, "the live model")
    if refused := _insufficiency(figures, rules):
        return Decision(promote=False, reason=f"{text}; {refused}, so the live model stays.", figures=figures)
    if worse := [row for row in figures["slices"] if row["worse"]]:
        parts = " and ".join(
            f"“{row['part']}” ({row['slice']}, {row['n']:,} queries) falls by {-row['difference']:.3f}, "
            f"more than its limit of {row['limit']:.3f}"
            for row in worse
        )
        return Decision(promote=False, reason=f"{text}; but {parts}, so the live model stays.", figures=figures)
    judged = "no slice is worse than its limit, so it goes live"
    return Decision(promote=True, reason=f"{text}; {judged}.", figures=figures)


def _difference(
    before: Mapping[str, Sequence[float]],
    after: Mapping[str, Sequence[float]],
    candidate: Evaluation,
    rules: PromotionRules,
) -> dict[str, Any]:
    """The two means on the chosen measure, and the paired interval of the gain."""
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
    """Every part of every slice that has queries: its size, the two means, its limit, and whether it decides."""
    live_Q = _chosen(live.values, rules)
    gained_Q = _chosen(candidate.values, rules) - live_Q
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
        raise UsageError(
            f"The release cannot be compared with the live one: the measure {rules.measure} is not among"
            f" {', '.join(values)}.",
            "Correct the rules of the promotion.",
        )
    return np.asarray(values[rules.measure], np.float64)


def _insufficiency(figures: Mapping[str, Any], rules: PromotionRules) -> str:
    """The reason why the figures do not suffice, or an empty string."""
    if figures["n"] < rules.min_queries:
        return f"fewer than {rules.min_queries:,} queries cannot tell"
    if figures["difference"]["low"] > rules.min_gain:
        return ""
    if figures["difference"]["high"] < 0:
        return "it is worse"
    return f"the interval is not above {rules.min_gain:g}" if rules.min_gain else "the interval is not above zero"


def _gain_sentence(figures: Mapping[str, Any], name: str) -> str:
    d = figures["difference"]
    judged = " judged by clicks" if figures["click_derived"] else ""
    return (
        f"{measure_name(figures['measure'])} {figures['candidate']:.3f} against {figures['live']:.3f} of {name} over "
        f"{figures['n']:,} queries{judged}: {d['mean']:+.3f} [{d['low']:+.3f}, {d['high']:+.3f}]"
    )


def release_evaluation(release: Release, folder: str) -> Evaluation | None:
    """The evaluation in a release, or None without one, or without slices."""
    if not release.evaluated:
        return None
    try:
        return _evaluation(folder, release.evaluated["inputs"], release.evaluated["config"])
    except FileNotFoundError:
        return None


def evaluate_live(live_folder: str, candidate: Release, measure: Callable[..., StageResult]) -> Evaluation:
    """The live model's values on today's judgments. Raises StageError, or UsageError for other judgments."""
    settings = dict(candidate.evaluated["config"])
    evaluation = measure(live_folder, config=EvaluateConfig(**settings))
    request = evaluation.manifest.request
    live = _evaluation(evaluation.data, request.inputs, request.config)
    theirs = _protocol(candidate.evaluated["inputs"], candidate.evaluated["config"])
    if live is None or live.protocol != theirs:
        raise UsageError(
            "The documents, queries or judgments are not those of the candidate's evaluation, so the live model could"
            " not be compared with it.",
            "Give the files that `evaluate` was given, or evaluate the candidate again.",
        )
    return live


def _evaluation(folder: str, inputs: Any, config: Any) -> Evaluation | None:
    value = from_bytes(storage.read_bytes(storage.join(folder, PER_QUERY)))
    if "slices" not in value:  # an evaluation that predates slices
        return None
    return Evaluation(
        values=value["systems"]["model"],
        bm25=value["systems"]["bm25"],
        slices={name: (slice_of["parts"], slice_of["of_query"]) for name, slice_of in value["slices"].items()},
        protocol=_protocol(inputs, config),
        click_derived=are_click_derived(value["query_ids"]),
    )


def _protocol(inputs: Any, config: Any) -> dict[str, Any]:
    """Everything that determines its values except the model, as JSON."""
    return json.loads(json.dumps({"inputs": {k: v for k, v in inputs.items() if k != "model"}, "config": dict(config)}))
