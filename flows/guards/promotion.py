"""The decision whether a candidate's model replaces the live one. Two models are compared by compare_models."""

from collections.abc import Callable
from functools import partial

from clicktower.flows.config.guard_rules import PromotionRules
from clicktower.flows.config.toml_file import Assignments, with_fields
from clicktower.schemas.errors import UsageError
from clicktower.schemas.release import Decide, Decision, Release, read_pointer
from clicktower.schemas.stage import Progress, StageResult, silent
from clicktower.training.evaluation.evaluate_stage import evaluate

# (a model, the `config` of an evaluation) -> its evaluation on the judgments of the candidate's.
Measure = Callable[..., StageResult]


def decide_if_better(
    rules: Assignments,
    to: str,
    evaluation: str | None,
    documents: str,
    queries: str | None,
    qrels: str | None,
    frequencies: str | None,
    store: str | None,
    progress: Progress = silent,
    *,
    adult_list: str | None = None,
) -> Decide:
    """The decision function of `publish --if-better`. Raises UsageError for options that do not go together."""
    if evaluation is None:
        raise UsageError(
            "There is no evaluation of the release by which it could go live.",
            "Give the folder that `evaluate` printed with --evaluation.",
        )
    files = [queries, qrels, store]
    if any(files) and not all(files):
        raise UsageError(
            "The live model can be measured anew only with all of its files.",
            "Give --queries, --qrels and --into together, or none of them.",
        )
    measure = None
    if queries and qrels and store:
        measure = partial(
            evaluate, documents=documents, queries=queries, qrels=qrels, adult_list=adult_list, store=store,
            frequencies=frequencies, progress=progress,
        )  # fmt: skip
    pointer = read_pointer(to)
    previous = pointer.previous if pointer else None
    return decision_rule(with_fields(PromotionRules(), rules), measure, previous=previous)


def decision_rule(rules: PromotionRules, measure: Measure | None, *, previous: str | None = None) -> Decide:
    """The decision function for `publish`. Without `measure` the live model is not evaluated again.

    A release holds its model and its evaluation. If the live one was evaluated on other judgments, documents or
    settings than the candidate, its model is evaluated again on today's: an ordinary evaluation in the store, reused if
    it exists, and reproducible by hand (`clicktower evaluate --model release ...`).

    previous: the digest of the release that was live before; it was rolled back or replaced by a better one, and must
    not return because a run is repeated.
    """

    def decide_once(
        live: Release | None, live_folder: str | None, candidate: Release, candidate_folder: str
    ) -> Decision:
        if rules.rule == "always":
            reason = "The rule is that every release goes live."
            return Decision(promote=True, reason=reason, figures={"case": "always"})
        if rules.rule == "never":
            reason = "The rule is that no release goes live by itself: make it live by hand once somebody looked at it."
            return Decision(promote=False, reason=reason, figures={"case": "never"})
        if live is None and rules.first == "always":
            reason = "Nothing was live yet, so the first release goes live."
            return Decision(promote=True, reason=reason, figures={"case": "first"})
        from clicktower.flows.guards.compare_models import decide_by_figures

        return decide_by_figures(live, live_folder, candidate, candidate_folder, rules, measure, previous=previous)

    return decide_once
