"""Golden texts, which a client in another language must reproduce, from the text to the vector.

golden.jsonl has one JSON object per line:

    {"text", "words": [...], "trigram_ids": [[ids of the first word], ...], "vector": [...]}

The vector is the query tower's, as searches compare it: by cosine of length 1. The texts are those of the text contract
(many scripts, signs, widths), titles of the release, and one text of many words. None is a query that a person typed.
The query tower's ONNX graph is checked against the same vectors before a release includes it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.text_contract import golden_cases, words
from training.data.text_batch import WordRows
from training.models.ensemble import Ensemble
from training.models.model import Model
from training.ranking.embedding import search_vectors

NUM_TITLES = 50
NUM_LONG_WORDS = 60
TOLERANCE = 1e-5  # of a component of a vector of length about 1, between two ways to compute it in float32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Golden:
    """Texts with all that a client computes on the way to their vectors, float32 [texts, dimensions]."""

    texts: Sequence[str]
    words: Sequence[Sequence[str]]
    trigram_ids: Sequence[Sequence[np.ndarray]]
    vectors_ND: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    def lines(self) -> Iterator[str]:
        """golden.jsonl: nine digits name one float32."""
        for text, of_text, ids, vector in zip(self.texts, self.words, self.trigram_ids, self.vectors_ND, strict=True):
            yield json.dumps(
                {
                    "text": text,
                    "words": list(of_text),
                    "trigram_ids": [of_word.tolist() for of_word in ids],
                    "vector": [float(f"{value:.9g}") for value in vector.tolist()],
                },
                ensure_ascii=False,
            ) + "\n"  # fmt: skip


def golden(model: Model | Ensemble, titles: Sequence[str]) -> Golden:
    """Texts of the contract and some titles, each of which has a word, as the query tower sees them."""
    contract = [text for text, of_text, _ in golden_cases() if of_text]
    many = " ".join(word for title in titles for word in title.split())
    texts = list(dict.fromkeys([*contract, *titles, " ".join(many.split()[:NUM_LONG_WORDS])]))
    members = model.members if isinstance(model, Ensemble) else (model,)  # of one text contract
    rows, cut = members[0].layout.word_rows, [words(text) for text in texts]
    return Golden(
        texts=texts,
        words=cut,
        trigram_ids=[_of_words(of_text, rows) for of_text in cut],
        vectors_ND=search_vectors(model, texts, "query"),
    )


def onnx_difference(graph: bytes, expected: Golden) -> float:
    """The largest difference of a component between an ONNX query tower's vectors and the golden ones."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for ids, vector in zip(expected.trigram_ids, expected.vectors_ND, strict=True):
        found = session.run(["vector"], onnx_inputs(ids))[0]
        worst = max(worst, float(np.abs(found - vector).max()))
    return worst if np.isfinite(worst) else float("inf")


def onnx_inputs(trigram_ids_of_words: Sequence[np.ndarray]) -> dict[str, Any]:
    """The inputs of the graph for one text (query_onnx)."""
    lengths = [len(ids) for ids in trigram_ids_of_words]
    return {
        "trigram_ids": np.concatenate(trigram_ids_of_words).astype(np.int64),
        "word_of_trigram": np.repeat(np.arange(len(lengths), dtype=np.int64), lengths),
    }


def _of_words(of_text: Sequence[str], word_rows: WordRows) -> list[np.ndarray]:
    found = word_rows.of(of_text)
    return np.split(found.values, found.offsets[1:-1])
