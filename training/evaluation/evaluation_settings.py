"""The settings of evaluations, and the intervals and tests that they ask for."""

from typing import Annotated

import numpy as np
from pydantic import Field

from clicktower.schemas.languages import DEFAULT_LANGUAGE, Language
from clicktower.schemas.section import Confidence, Count, Natural, Seed, section
from clicktower.training.ranking.measure import Rules
from clicktower.training.ranking.ndcg import CUTOFFS, Gain
from clicktower.training.ranking.significance import bootstrap_interval, holm, randomisation_p


@section
class EvaluateConfig:
    """How models are evaluated.

    Args:
        cutoffs: The ranks of NDCG: 10 is NDCG@10.
        gain: exponential, 2^grade - 1, or linear, the grade.
        min_judged: Queries with fewer judged documents are left out.
        relevant_grade: The grade from which on a document is relevant, for recall and reciprocal rank.
        language: The language of the words of BM25 and of the lexical share of a score (docs/model.md).
        top_k: Results of each query over the full collection, for NDCG@10 over it too.
        num_examples: The queries whose rankings are shown.
        confidence: The confidence of intervals.
        num_resamples: Resamples of the bootstrap and of the randomisation test.
        seed: The seed of the resamples.
    """

    cutoffs: Annotated[tuple[Count, ...], Field(min_length=1)] = CUTOFFS
    gain: Gain = "exponential"
    min_judged: Count = 1
    relevant_grade: Count = 1
    language: Language = DEFAULT_LANGUAGE
    top_k: Annotated[int, Field(ge=10)] = 100
    num_examples: Natural = 10
    confidence: Confidence = 0.95
    num_resamples: Count = 10_000
    seed: Seed = 0

    @property
    def rules(self) -> Rules:
        return Rules(cutoffs=self.cutoffs, gain=self.gain, relevant_grade=self.relevant_grade, top_k=self.top_k)

    def intervals(self, values_QM: np.ndarray) -> list[dict[str, float]]:
        """The mean of each measure over the queries, and its interval."""
        low_M, high_M = bootstrap_interval(
            values_QM, confidence=self.confidence, num_resamples=self.num_resamples, seed=self.seed
        )
        rows = zip(values_QM.mean(axis=0).tolist(), low_M.tolist(), high_M.tolist(), strict=True)
        return [{"mean": mean, "low": low, "high": high} for mean, low, high in rows]

    def p_values(self, differences_QM: np.ndarray) -> list[dict[str, float]]:
        """The p of each measure's mean difference, and corrected over the measures."""
        p_values = randomisation_p(differences_QM, num_resamples=self.num_resamples, seed=self.seed).tolist()
        return [{"p": p, "p_holm": corrected} for p, corrected in zip(p_values, holm(p_values), strict=True)]
