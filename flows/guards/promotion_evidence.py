"""What a promotion is decided by: the values that a candidate carries, and the live model's on the same judgments.

A release holds its model and what was measured of it. Where the live one was measured on other judgments, documents or
settings than the candidate, its model is evaluated anew on today's: an ordinary evaluation in the store, so it is
reused where it was made before, and anybody can make it by hand (`clicktower evaluate --model release ...`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.guards.promote import Evaluation, decide, decide_first, decide_same_model
from flows.guards.promotion_rules import PromotionRules
from flows.set_fields import with_fields
from schemas import storage
from schemas.errors import StageError, TransientError, UsageError
from schemas.judgments import are_click_derived
from schemas.release import PER_QUERY, Decide, Decision, Release, read_pointer
from schemas.stage import Progress, silent

_UNCOMPARED = ", so the two models cannot be compared"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgments:
    """What the candidate was judged by, as paths or URIs, and the store that evaluations go to."""

    documents: str
    queries: str
    qrels: str
    store: str
    frequencies: str | None = None


def asked(
    rules: Sequence[str],
    to: str,
    evaluation: str | None,
    documents: str,
    queries: str | None,
    qrels: str | None,
    frequencies: str | None,
    store: str | None,
    progress: Progress = silent,
) -> Decide:
    """What `publish --if-better` asks for. Raises UsageError for options that do not go together."""
    if evaluation is None:
        raise UsageError(asked="the release was to go live if it is better", found="there is no evaluation of it",
                         do="give the folder that `evaluate` printed with --evaluation")  # fmt: skip
    given = [queries, qrels, store]
    if any(given) and not all(given):
        raise UsageError(asked="the live model was to be measured anew", found="not all that it takes was given",
                         do="give --queries, --qrels and --into together, or none of them")  # fmt: skip
    judgments = None
    if queries and qrels and store:
        judgments = Judgments(documents=documents, queries=queries, qrels=qrels, store=store, frequencies=frequencies)
    pointer = read_pointer(to)
    previous = pointer.previous if pointer else None
    return decide_by(with_fields(PromotionRules(), rules), judgments, progress, previous=previous)


def decide_by(
    rules: PromotionRules, judgments: Judgments | None, progress: Progress = silent, *, previous: str | None = None
) -> Decide:
    """What `publish` asks about a candidate. Without judgments the live model is not measured anew.

    previous: the digest of the release that was live before; it was rolled back, or replaced by a better one, and does
    not come back because a run is repeated.
    """

    def decided(live: Release | None, live_folder: str | None, candidate: Release, candidate_folder: str) -> Decision:
        if rules.rule != "better":
            return _by_rule(rules.rule)
        if live and candidate.digest == previous:
            return _kept("It was live before, and was rolled back or replaced: only a person makes it live again")
        if live and live.inputs["model"] == candidate.inputs["model"]:
            return decide_same_model(live, candidate)
        of_candidate = of_release(candidate, candidate_folder)
        if live is None or live_folder is None:
            return _checked(lambda: decide_first(of_candidate, rules))
        if of_candidate is None:
            return _kept("The release carries no evaluation" + _UNCOMPARED)
        of_live = of_release(live, live_folder)
        if of_live is None or of_live.protocol != of_candidate.protocol:
            if judgments is None:
                return _kept("The live model was measured on other judgments or documents, or not at all" + _UNCOMPARED)
            try:
                of_live = _anew(live_folder, candidate, judgments, progress)
            except (UsageError, TransientError):
                raise
            except StageError as error:
                return _kept(f"The live model could not be measured anew ({error.found}){_UNCOMPARED}")
        return _checked(lambda: decide(of_live, of_candidate, rules))

    return decided


def of_release(release: Release, folder: str) -> Evaluation | None:
    """The values that a release carries, or None where it carries none, or none with the slices."""
    if not release.evaluated:
        return None
    try:
        value = json.loads(storage.read_bytes(storage.join(folder, PER_QUERY)))
    except FileNotFoundError:
        return None
    return _evaluation(value, release.evaluated["inputs"], release.evaluated["config"])


def _anew(live_folder: str, candidate: Release, judgments: Judgments, progress: Progress) -> Evaluation:
    """The live model's values on today's judgments. Raises StageError, or UsageError for other judgments."""
    from training.ranking.evaluate_stage import EvaluateConfig, evaluate  # torch takes seconds to import

    settings = dict(candidate.evaluated["config"])
    made = evaluate(
        live_folder, documents=judgments.documents, queries=judgments.queries, qrels=judgments.qrels,
        store=judgments.store, frequencies=judgments.frequencies, progress=progress,
        config=EvaluateConfig(**settings | {"cutoffs": tuple(settings["cutoffs"])}),
    )  # fmt: skip
    value = json.loads(storage.read_bytes(storage.join(made.data, PER_QUERY)))
    request = made.manifest.request
    live = _evaluation(value, request.inputs, request.config)
    theirs = _protocol(candidate.evaluated["inputs"], candidate.evaluated["config"])
    if live is None or live.protocol != theirs:
        raise UsageError(
            asked="the live model was to be measured as the candidate was",
            found="the documents, queries or judgments given are not those of the candidate's evaluation",
            follows="the two could not be compared",
            do="give the files that `evaluate` was given, or evaluate the candidate again",
        )
    return live


def _evaluation(value: dict[str, Any], inputs: Any, config: Any) -> Evaluation | None:
    if "slices" not in value:  # of an evaluation before there were slices
        return None
    return Evaluation(
        query_ids=value["query_ids"],
        values=value["systems"]["model"],
        bm25=value["systems"]["bm25"],
        slices={name: (found["parts"], found["of_query"]) for name, found in value["slices"].items()},
        protocol=_protocol(inputs, config),
        click_derived=are_click_derived(value["query_ids"]),
    )


def _protocol(inputs: Any, config: Any) -> dict[str, Any]:
    """All that decides the values of a model, beside the model, as JSON has it."""
    return json.loads(json.dumps({"inputs": {k: v for k, v in inputs.items() if k != "model"}, "config": dict(config)}))


def _by_rule(rule: str) -> Decision:
    if rule == "always":
        return Decision(promote=True, reason="The rule is that every release goes live.", figures={"case": "always"})
    reason = "The rule is that no release goes live by itself: make it live by hand once somebody looked at it."
    return Decision(promote=False, reason=reason, figures={"case": "never"})


def _kept(why: str) -> Decision:
    return Decision(promote=False, reason=f"{why}. What is live stays.", figures={"case": "not measured"})


def _checked(decision: Any) -> Decision:
    """A decision; rules that do not fit the evaluation are the user's to mend."""
    try:
        return decision()
    except ValueError as error:
        raise UsageError(
            asked="the release was to be compared with the live one", found=str(error),
            follows="what is live stays as it is", do="mend the rules of the promotion",
        ) from None  # fmt: skip
