import numpy as np
import pytest

from clicktower.training.analysis.traces import trace
from clicktower.training.evaluation.evaluate_labelled_stage import ATTENDED, MOST, examples
from clicktower.training.trainer.labelled_shards import LabelledRows
from tests.training.analysis.small_models import small_model

TEXTS = ["steel hose", "garden hose", "angle bracket", "a shelf"]


def rows(labels) -> LabelledRows:
    first = np.arange(len(labels)) % len(TEXTS)
    return LabelledRows(texts=TEXTS, sides=(first, (first + 1) % len(TEXTS)), labels=np.array(labels))


def test_the_surest_rows_right_or_wrong_and_the_least_sure_come_first():
    # Rows 2 and 3 are wrong, at 0.83 and 0.63; from the least sure on the rows are 1, 3, 2, 0.
    first = np.array([0.92, 0.39, 0.83, 0.37])
    found = examples(np.stack([first, 1 - first], axis=1), rows([0, 1, 1, 0]), ("no", "yes"), None)
    assert [row["probability"] for row in found["surest_right"]] == pytest.approx([0.92, 0.61])
    assert [row["probability"] for row in found["surest_wrong"]] == pytest.approx([0.83, 0.63])
    assert [row["probability"] for row in found["least_sure"]] == pytest.approx([0.61, 0.63, 0.83, 0.92])
    row = found["surest_wrong"][0]
    assert (row["texts"], row["label"], row["said"]) == (["angle bracket", "a shelf"], "yes", "no")
    assert row["of_label"] == pytest.approx(0.17)
    assert "attention" not in row


def test_at_most_ten_rows_are_kept_the_earlier_of_equal_ones_and_of_the_first_the_attention():
    model = small_model("self_attentive", tie_towers=True)
    found = examples(np.tile([0.4, 0.6], (30, 1)), rows([0] * 30), ("no", "yes"), model)
    for kind in ("surest_wrong", "least_sure"):
        assert [row["texts"][0] for row in found[kind]] == [TEXTS[at % len(TEXTS)] for at in range(MOST)]
        assert [("attention" in row) for row in found[kind]] == [at < ATTENDED for at in range(MOST)]
    first, second = found["least_sure"][0]["attention"]
    assert (first["words"], second["words"]) == (["steel", "hose"], ["garden", "hose"])
    np.testing.assert_array_equal(np.float32(first["hops"]), trace(model, TEXTS[0], "query").attention)
