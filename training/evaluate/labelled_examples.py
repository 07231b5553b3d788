"""Held-out rows that say most about a classifier: where it was surest and wrong, and where it was least sure.

Their texts are the user's own labelled data, which the shards hold as they were given.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from training.analysis.traces import trace
from training.labelled.labelled_shards import LabelledRows
from training.models.model import Model

MOST = 10  # rows of each kind
ATTENDED = 3  # of them, those whose attention is kept: a picture for each text


def examples(
    probability_QC: np.ndarray, rows: LabelledRows, classes: Sequence[str], attentive: Model | None
) -> dict[str, list[dict[str, Any]]]:
    """`surest_wrong` and `least_sure`, at most MOST rows each, the most telling first; of equal ones the earlier.

    A row: texts, label, said, probability (of what was said), of_label (the probability of the label). attentive: a
    self-attentive model, whose attention on the first rows' texts is told too: words, hops [hops][words].
    """
    said, sure = probability_QC.argmax(axis=1), probability_QC.max(axis=1)
    wrong = np.flatnonzero(said != rows.labels)
    chosen = {
        "surest_wrong": wrong[np.argsort(-sure[wrong], kind="stable")][:MOST],
        "least_sure": np.argsort(sure, kind="stable")[:MOST],
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for kind, places in chosen.items():
        found[kind] = []
        for number, row in enumerate(places.tolist()):
            texts = [rows.texts[side[row]] for side in rows.sides]
            told = {
                "texts": texts,
                "label": classes[rows.labels[row]],
                "said": classes[said[row]],
                "probability": float(sure[row]),
                "of_label": float(probability_QC[row, rows.labels[row]]),
            }
            if attentive and number < ATTENDED:
                told["attention"] = [_attention(attentive, text) for text in texts]
            found[kind].append(told)
    return found


def _attention(model: Model, text: str) -> dict[str, Any]:
    read = trace(model, text, "query")
    assert read.attention is not None
    return {"words": list(read.words), "hops": read.attention.tolist()}
