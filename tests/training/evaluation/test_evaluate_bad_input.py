"""Bad input of an evaluation: a clear error and no output, or a stated rule; never a silent number."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.manifest import Outcome, OutputFile, Request
from clicktower.schemas.removal import Claims, remove_outputs
from clicktower.schemas.stage import run_stage
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from clicktower.training.model import model_folder
from clicktower.training.model.model import Model, write_model
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.model.recipe import recipe as named_recipe
from tests.recipes import varied
from tests.trained_model import TABLE_ROWS, trained_stage

CONFIG = EvaluateConfig(num_resamples=50, top_k=10)
GIVEN = {
    "documents": "d1\tsteel angle bracket\nd2\tgarden hose\nd3\tangle grinder\n",
    "queries": "q1\tangle bracket\nq2\those\n",
    "qrels": "q1 0 d1 3\nq1 0 d3 1\nq2 0 d2 2\nq2 0 d1 0\n",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")))


@pytest.fixture
def evaluated(model, tmp_path):
    """Evaluates GIVEN with some files' text changed."""

    def run(config: EvaluateConfig = CONFIG, of: str = model, **changed: str):
        files = {}
        for name, text in (GIVEN | changed).items():
            files[name] = str(tmp_path / f"{name}.tsv")
            Path(files[name]).write_text(text, encoding="utf-8")
        return evaluate(of, **files, store=str(tmp_path / "evaluated"), config=config).manifest.outcome

    return run


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"queries": "other\those\n"}, "None of the query ids of the 2 judged"),
        ({"queries": "q1\t \nq2\t\n"}, "None of the 2 judged queries has a word:"),
        ({"documents": "other\those\n"}, "None of the 4 judged documents is among the"),
        ({"documents": GIVEN["documents"] + "d1\tagain\n"}, r"1 ids occur more than once in .* \(d1\)"),
        ({"qrels": GIVEN["qrels"] + "q2 0 d3 51\n"}, "A grade of 51 has a gain of 2.grade"),
        ({"qrels": GIVEN["qrels"] + "q2 0 d3 1024\n"}, "A grade of 1,024 has a gain of 2.grade"),
        ({"qrels": GIVEN["qrels"] + f"q2 0 d3 {10**30}\n"}, "Line 5 of .* has no grade as its last field"),
        ({"qrels": GIVEN["qrels"] + "click-derived-1 0 d3 1\n"}, "1 of the 3 queries of .* are derived from clicks"),
    ],
)
def test_files_that_would_give_wrong_numbers_are_refused_and_leave_nothing(evaluated, tmp_path, changed, found):
    with pytest.raises(StageError, match=found):
        evaluated(**changed)
    assert not list(tmp_path.glob("evaluated/**/*.json"))


def test_pairs_of_several_grades_are_told(evaluated):
    output = evaluated(qrels=GIVEN["qrels"] + "q1 0 d1 2\n")
    assert output.counts["judgments_of_several_grades"] == 1
    assert "1 judged pairs were given different grades: the lower median counts" in output.metrics["warnings"]


def test_a_model_whose_embeddings_are_not_finite_is_refused(evaluated, tmp_path):
    recipe = varied(named_recipe("lstm-96"), cells=8)

    def produce(folder: str) -> Outcome:
        layout = layout_of(recipe, TABLE_ROWS)
        towers = {name: initial_parameters(layout, name) * np.float32(np.nan) for name in recipe.objective.towers}
        write_model(folder, Model.of(layout, towers))
        return Outcome()

    request = Request(stage="train", stage_version=1, config={"nan": True}, inputs={})
    diverged = run_stage(str(tmp_path / "store"), request, produce).folder
    with pytest.raises(StageError, match="not finite"):
        evaluated(of=diverged)
    assert not list(tmp_path.glob("evaluated/evaluate/**/*.json"))


def test_a_high_grade_is_welcome_where_the_gain_is_the_grade(evaluated):
    metrics = evaluated(replace(CONFIG, gain="linear"), qrels=GIVEN["qrels"] + "q2 0 d3 1024\n").metrics
    # q2 "hose": BM25 finds d2 (2) first; d3 (1024) and d1 (0) tie, d3 before d1 by descending id.
    # DCG@3 = 2 + 1024/log2(3) = 648.0722; best 1024 + 2/log2(3) = 1025.2619; 0.632104. q1: d1 (3), d3 (1): 1.
    assert metrics["systems"]["bm25"]["ndcg@3"]["mean"] == pytest.approx((0.632104 + 1) / 2, abs=1e-5)


def test_negative_grades_gain_nothing_and_are_not_relevant(evaluated):
    negative = evaluated(qrels=GIVEN["qrels"].replace("d1 0", "d1 -1000000")).metrics
    zero = evaluated().metrics
    assert negative["systems"] == zero["systems"]


def test_a_collection_of_one_document_is_measured(evaluated):
    metrics = evaluated(
        replace(CONFIG, top_k=100), documents="d1\tangle bracket\n", queries="q\tangle\n", qrels="q 0 d1 2\n"
    ).metrics
    assert metrics["n"] == 1
    assert metrics["n_informative"] == 0
    for system in metrics["systems"].values():
        for interval in system.values():
            assert interval == {"mean": 1.0, "low": 1.0, "high": 1.0}  # there is one order of one document
    assert any("1 queries have judgments of one single grade" in warning for warning in metrics["warnings"])


def test_a_query_all_of_whose_judged_documents_are_unknown_counts_zero_and_is_told(evaluated):
    outcome = evaluated(queries=GIVEN["queries"] + "q3\tgrinder\n", qrels=GIVEN["qrels"] + "q3 0 gone 3\n")
    assert outcome.metrics["n"] == 3
    assert outcome.metrics["n_informative"] == 2
    # q1 and q2 are ordered perfectly by their words; q3 cannot be.
    assert outcome.metrics["systems"]["bm25"]["ndcg@10"]["mean"] == pytest.approx(2 / 3)
    assert outcome.counts["judgments_of_unknown_documents"] == 1
    assert any("1 judgments are of unknown documents" in warning for warning in outcome.metrics["warnings"])


@pytest.mark.parametrize("query", ["  ", "\u200b"])
def test_a_query_without_a_word_counts_zero_and_is_told(evaluated, query):
    metrics = evaluated(queries=f"q1\tangle bracket\nq2\t{query}\n").metrics
    assert metrics["systems"]["bm25"]["ndcg@10"]["mean"] == pytest.approx(1 / 2)
    assert any("1 queries have no word" in warning for warning in metrics["warnings"])


@pytest.mark.parametrize("moment", ["its bytes are compared", "the evaluation claims it"])
def test_a_model_that_is_removed_before_an_evaluation_claims_it_is_no_damage(evaluated, tmp_path, monkeypatch, moment):
    model, compare = trained_stage(str(tmp_path / "store")), model_folder.damaged_files

    def as_it_goes(folder: str, files: Sequence[OutputFile], *, hashes: bool) -> list[str]:
        if moment == "its bytes are compared":
            remove_outputs([model], lambda: Claims([]))
        wrong = compare(folder, files, hashes=hashes)
        remove_outputs([model], lambda: Claims([]))
        return wrong

    monkeypatch.setattr(model_folder, "damaged_files", as_it_goes)
    with pytest.raises(TransientError, match=r"was removed as this stage began \(`clicktower prune`\)"):
        evaluated(of=model)
