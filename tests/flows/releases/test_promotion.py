"""Promotion on real releases: what each carries, the live model measured anew, and what keeps a candidate."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from clicktower.flows.config.guard_rules import PARTS, PromotionRules
from clicktower.flows.guards.compare_models import release_evaluation
from clicktower.flows.guards.promotion import Measure, decide_if_better, decision_rule
from clicktower.flows.releases.kept_releases import rollback
from clicktower.flows.releases.publish import Published, publish
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import TransientError, UsageError
from clicktower.schemas.release import read_decision, read_pointer
from clicktower.schemas.stage import open_result
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from tests.flows.releases.catalogue import CONFIG
from tests.trained_model import trained_stage

QUICK = EvaluateConfig(num_resamples=100, num_examples=0)
RULES = PromotionRules(num_resamples=200, min_slice_queries=10, min_queries=5)
# What lets any measured candidate through, so that the test is about what was measured.
LENIENT = replace(RULES, min_gain=-0.99, max_slice_drop=1.0)


class Shop:
    """A catalogue with judgments, and two models."""

    def __init__(self, folder: Path, documents: str, models: list[str]) -> None:
        self.folder, self.models, self.store = folder, models, str(folder / "store")
        catalogue = read_documents(documents)
        self.documents = self.write("documents.tsv", [f"{i}\t{t}" for i, t in pairs(catalogue)])
        self.fewer = self.write("fewer.tsv", [f"{i}\t{t}" for i, t in pairs(catalogue)[:-20]])
        judged = pairs(catalogue)[:40]
        self.queries = self.write("queries.tsv", [f"q{n}\t{title}" for n, (_, title) in enumerate(judged)])
        others = [pairs(catalogue)[n + 1][0] for n in range(40)]
        grades = [f"q{n} 0 {i} 2\nq{n} 0 {others[n]} 0" for n, (i, _) in enumerate(judged)]
        self.qrels = self.write("qrels.txt", grades)
        self.other_qrels = self.write("other_qrels.txt", grades[:30])

    def write(self, name: str, lines: list[str]) -> str:
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    def measure(self, documents: str, qrels: str | None = None) -> Measure:
        files = {"documents": documents, "queries": self.queries, "qrels": qrels or self.qrels}
        return partial(evaluate, **files, store=self.store)

    def evaluated(self, model: str, documents: str, qrels: str | None = None, frequencies: str | None = None):
        return evaluate(model, documents=documents, queries=self.queries, qrels=qrels or self.qrels, store=self.store,
                        config=QUICK, frequencies=frequencies)  # fmt: skip

    def published(self, to: str, number: int, documents: str, *, evaluation: str | None = "", **options) -> Published:
        if evaluation == "":
            evaluation = self.evaluated(self.models[number], documents).folder
        return publish(self.models[number], documents=documents, to=to, config=CONFIG, evaluation=evaluation, **options)

    def evaluations(self) -> int:
        return len(list(Path(self.store, "evaluate").iterdir()))


def pairs(catalogue) -> list[tuple[str, str]]:
    return list(zip(catalogue.ids, catalogue.titles, strict=True))


@pytest.fixture(scope="module")
def shop(tmp_path_factory, model, documents) -> Shop:
    folder = tmp_path_factory.mktemp("shop")
    return Shop(folder, documents, [model, trained_stage(str(folder / "store"), seed=2)])


def mean(evaluation) -> float:
    return evaluation.manifest.outcome.metrics["systems"]["model"]["ndcg@10"]["mean"]


def test_the_same_documents_and_judgments_need_no_new_evaluation(shop, tmp_path):
    to = str(tmp_path / "release")
    first = shop.published(to, 0, shop.documents, decide=decision_rule(RULES, None))
    assert first.is_live
    assert first.decision.figures["case"] == "first"
    second_evaluated = shop.evaluated(shop.models[1], shop.documents)
    before = shop.evaluations()
    second = shop.published(to, 1, shop.documents, decide=decision_rule(LENIENT, None))
    assert second.decision.figures["case"] == "compared"
    assert second.decision.figures["live"] == pytest.approx(mean(shop.evaluated(shop.models[0], shop.documents)))
    assert second.decision.figures["candidate"] == pytest.approx(mean(second_evaluated))
    assert shop.evaluations() == before
    assert {row["slice"] for row in second.decision.figures["slices"]} == {"query length", "spelling"}


def test_where_documents_changed_the_live_model_is_measured_on_todays(shop, tmp_path):
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents)
    candidate = shop.published(to, 1, shop.fewer, decide=decision_rule(LENIENT, shop.measure(shop.fewer)))
    by_hand = shop.evaluated(shop.models[0], shop.fewer)
    assert by_hand.reused, "it is an ordinary evaluation of the model, by the same digest"
    assert candidate.decision.figures["live"] == pytest.approx(mean(by_hand))
    assert candidate.decision.promote
    assert candidate.is_live


def test_a_live_release_without_values_is_measured_too(shop, tmp_path):
    to = str(tmp_path / "release")
    live = shop.published(to, 0, shop.documents, evaluation=None)
    assert release_evaluation(live.release, live.folder) is None
    unmeasured = shop.published(to, 1, shop.documents, decide=decision_rule(RULES, None))
    assert not unmeasured.decision.promote
    assert "so the two models cannot be compared. What is live stays." in unmeasured.decision.reason
    measured = shop.published(to, 1, shop.documents, decide=decision_rule(RULES, shop.measure(shop.documents)))
    assert measured.decision.figures["case"] == "compared"


def test_a_kept_candidate_leaves_the_pointer_and_its_reason(shop, tmp_path):
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents)
    before = read_pointer(to)
    strict = replace(RULES, min_gain=0.9)
    candidate = shop.published(to, 1, shop.documents, decide=decision_rule(strict, None))
    assert not candidate.is_live
    assert read_pointer(to) == before
    assert read_decision(to, candidate.release.digest) == candidate.decision
    again = shop.published(to, 1, shop.documents, decide=decision_rule(strict, None))
    assert again.reused
    assert again.decision == candidate.decision


def test_the_live_model_over_other_documents_goes_live_at_once(shop, tmp_path):
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents)
    refreshed = shop.published(to, 0, shop.fewer, decide=decision_rule(RULES, None))
    assert refreshed.is_live
    assert refreshed.decision.figures["case"] == "same model"


def test_a_run_that_is_repeated_does_not_undo_a_rollback(shop, tmp_path):
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents)
    shop.published(to, 1, shop.documents, decide=decision_rule(LENIENT, None))
    before = rollback(to).pointer
    evaluation = shop.evaluated(shop.models[1], shop.documents).folder
    decide = decide_if_better(
        ["min_gain=-0.99", "max_slice_drop=1"], to, evaluation, shop.documents, None, None, None, None
    )
    again = shop.published(to, 1, shop.documents, decide=decide)
    assert not again.is_live
    assert "It was live before, and was rolled back" in again.decision.reason
    assert read_pointer(to) == before


def test_the_live_model_is_measured_anew_by_the_candidates_own_list_of_adult_terms(shop, tmp_path):
    to, terms = str(tmp_path / "release"), tmp_path / "terms.txt"
    terms.write_text("angle\n")
    shop.published(to, 0, shop.fewer)
    files = {"documents": shop.documents, "queries": shop.queries, "qrels": shop.qrels, "adult_list": str(terms)}
    evaluation = evaluate(shop.models[1], **files, store=shop.store, config=QUICK).folder
    decide = decide_if_better(
        ["min_gain=-0.99", "max_slice_drop=1"], to, evaluation, shop.documents, shop.queries, shop.qrels, None,
        shop.store, adult_list=str(terms),
    )  # fmt: skip
    made = shop.published(to, 1, shop.documents, evaluation=evaluation, decide=decide)
    assert made.decision.figures["case"] == "compared"


def test_other_judgments_than_the_candidates_are_refused(shop, tmp_path):
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents, evaluation=None)
    before = read_pointer(to)
    others = shop.measure(shop.documents, shop.other_qrels)
    with pytest.raises(UsageError, match="not those of the candidate's evaluation"):
        shop.published(to, 1, shop.documents, decide=decision_rule(RULES, others))
    assert read_pointer(to) == before


def test_a_live_model_that_cannot_be_read_stays_and_the_reason_says_so(shop, tmp_path):
    to = str(tmp_path / "release")
    live = shop.published(to, 0, shop.documents, evaluation=None)
    weights = Path(live.folder, "model/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    decide = decision_rule(RULES, shop.measure(shop.fewer))
    candidate = shop.published(to, 1, shop.fewer, decide=decide)
    assert not candidate.decision.promote
    assert "other bytes than were written" in candidate.decision.reason


def test_a_disk_that_fails_meanwhile_decides_nothing(shop, tmp_path):
    """A run that is tried again may find it mended: no decision is recorded."""
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents, evaluation=None)
    before = read_pointer(to)
    of_candidate = shop.evaluated(shop.models[1], shop.documents).folder

    def failing(*_, **__):
        raise TransientError("The disk is full.", "Make room.")

    decide = decision_rule(RULES, failing)
    with pytest.raises(TransientError):
        shop.published(to, 1, shop.documents, evaluation=of_candidate, decide=decide)
    assert read_pointer(to) == before
    assert [read_decision(to, folder.name) for folder in Path(to, "releases").iterdir()] == [None, None]


def test_the_rules_always_and_never(shop, tmp_path):
    to = str(tmp_path / "release")
    never = shop.published(to, 0, shop.documents, decide=decision_rule(replace(RULES, rule="never"), None))
    assert read_pointer(to) is None
    assert not never.is_live
    assert shop.published(to, 0, shop.documents, decide=decision_rule(replace(RULES, rule="always"), None)).is_live


def test_rules_that_do_not_fit_the_evaluation_are_the_users_to_mend(shop, tmp_path):
    to = str(tmp_path / "release")
    shop.published(to, 0, shop.documents)
    with pytest.raises(UsageError, match="ndcg@5 is not among ndcg@1"):
        shop.published(to, 1, shop.documents, decide=decision_rule(replace(RULES, measure="ndcg@5"), None))


def test_an_evaluation_of_what_is_live_is_that_of_the_model_it_serves(shop, tmp_path):
    to = str(tmp_path / "release")
    live = shop.published(to, 0, shop.documents)
    of_model = shop.evaluated(shop.models[0], shop.documents)
    assert shop.evaluated(to, shop.documents).manifest.digest == of_model.manifest.digest
    assert shop.evaluated(live.folder, shop.documents).reused
    Path(of_model.folder, "manifest.json").unlink()
    anew = shop.evaluated(live.folder, shop.documents)
    assert not anew.reused
    assert mean(anew) == mean(of_model)
    assert anew.manifest.outcome.labels == of_model.manifest.outcome.labels


def test_with_frequencies_head_and_tail_are_slices_too(shop):
    counts = shop.write("frequencies.tsv", [f"q{n}\t{1000 if n == 0 else 1}" for n in range(40)])
    made = shop.evaluated(shop.models[0], shop.documents, frequencies=counts)
    slices = json.loads(Path(made.data, "per_query.json").read_text())["slices"]
    assert [part for of_slice in slices.values() for part in of_slice["parts"]] == list(PARTS)
    parts, of_query = slices["frequency"]["parts"], slices["frequency"]["of_query"]
    texts = {
        line.partition("\t")[2] for line in Path(shop.queries).read_text().splitlines()
    }  # of equal text: one query
    assert [parts[part] for part in of_query] == ["head"] + ["tail"] * (len(texts) - 1)
    assert open_result(made.folder).manifest.request.inputs["frequencies"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("to", None, "d", None, None, None, None), "There is no evaluation of the release by which"),
        (("to", "e", "d", "q", None, None, "store"), "live model can be measured anew only with all"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, found):
    with pytest.raises(UsageError, match=found):
        decide_if_better([], *options)
