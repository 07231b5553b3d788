"""The figures of a release: what its evaluation measured of the vectors alone, and of the whole score it serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clicktower.training.evaluation.evaluate_stage import OURS, VECTORS
from clicktower.training.model.embedding import SharingEncoder

_IN_WORDS = {
    "ndcg@10": "NDCG@10 {:.3f} among judged documents",
    "collection_ndcg@10": "NDCG@10 {:.3f} among all",
    "collection_recall@100": "recall@100 {:.3f}",
}

Measures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """`whole` and `vectors`: each measure's mean and interval; None if it was not measured."""

    n: int  # judged queries
    whole: Measures | None
    vectors: Measures | None
    more: tuple[str, ...]  # what the whole score counts besides the vectors

    def of_vectors(self) -> str:
        """What the vectors of an export reach, in a sentence, and what the service does beside them."""
        if self.whole is None:
            return "The release was published without an evaluation: what its vectors reach was not measured."
        more = " and ".join(self.more)
        if self.vectors is None:
            return (
                f"These vectors alone were not measured: {_means(self.whole)} are of the service's whole score, which"
                f" also counts {more}."
            )
        alone = f"These vectors alone reach {_means(self.vectors)} ({self.n:,} queries)"
        if not more:
            return f"{alone}, and so does the service, which ranks by them."
        return f"{alone}; the service's whole score, which also counts {more}, reaches {_means(self.whole)}."

    def of_service(self) -> str:
        """What the service reaches, in a sentence."""
        if self.whole is None:
            return "The release was published without an evaluation: what its searches reach was not measured."
        return f"Ranked as the service does: {_means(self.whole)} ({self.n:,} queries)."

    def to_json(self) -> dict[str, Any]:
        """The means, and the sentence about the vectors."""
        by_system = {"vectors": _by_measure(self.vectors), "whole_score": _by_measure(self.whole)}
        return {"queries": self.n, **by_system, "sentence": self.of_vectors()}


def figures(evaluation: Mapping[str, Any], encoder: SharingEncoder) -> Figures:
    """The figures of a release's evaluation, which is empty if there was none, and lacks vectors before version 4."""
    systems = evaluation.get("systems", {})
    shares = {
        "each word's best match in a title": encoder.word_share,
        "the terms that query and title share (BM25)": encoder.lexical_share,
    }
    more = tuple(name for name, share in shares.items() if share)
    whole = systems.get(OURS) or None
    return Figures(n=evaluation.get("n", 0), whole=whole, vectors=systems.get(VECTORS) if more else whole, more=more)


def _by_measure(measures: Measures | None) -> dict[str, float] | None:
    return None if measures is None else {name: value["mean"] for name, value in measures.items()}


def _means(measures: Measures) -> str:
    return ", ".join(words.format(measures[name]["mean"]) for name, words in _IN_WORDS.items() if name in measures)
