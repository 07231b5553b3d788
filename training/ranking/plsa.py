"""PLSA over titles: a title answers a query through its topics (the PLSA row of the paper's Table IV).

    score(q, d) = log p(q | d) = sum over the words w of q of  c(w, q) log p(w | d)
    p(w | d) = background * p(w | C) + (1 - background) * m(w | d)
    m(w | d) = own_words * c(w, d) / |d| + (1 - own_words) * sum over the topics z of  p(w | z) p(z | d)

The topics are trained on the titles to a maximum a posteriori (Gao, Toutanova and Yih 2011;
`training.ranking.plsa_training`). The background, the share of w among all words of the collection, keeps every score
finite: topics may give a word no probability at all. `own_words` mixes in what the title itself says (Hofmann 1999,
PLSI-U); the paper names no such mixture, so there is none unless asked for.

A query word that no title has is left out of the query, as in `training.ranking.language_model`. A title without a
known word has the mean of its prior, equal shares of all topics.

The defaults did well on 1,229 dev queries of product search (54,667 titles). Tried were title priors of 0 to 0.5; word
priors of 0 to 0.1 (beside a title prior of 0.01 each lowered NDCG@10, 0.850 to 0.847 with 0.01 and 500 topics); 20 to
100 steps; backgrounds of 0.01 to 0.5 (within 0.002). NDCG@10 of the judged documents is 0.850 to 0.852 with 100,
300 or 500 topics; over the whole collection recall@100 grows with the topics: 0.273, 0.436, 0.489, and 0.587 with 500
topics and own_words = 0.2. Training takes 7, 14 and 26 seconds of one core, and 500 topics 110 MB for 55,000 titles.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np

from schemas.words import normalise
from training.ranking.language_model import repeats_of_known
from training.ranking.plsa_training import Priors, fold_in_titles, train_topics
from training.ranking.term_counts import count_terms

TOPICS = 500  # the paper's row; it tried 100 to 500
ITERATIONS = 50
PRIORS = Priors(title=0.01, word=0.0)
BACKGROUND = 0.5

_FOLD_IN_ITERATIONS = 50
_BLOCK_WORDS = 64  # query words whose probabilities in all titles are held at once


class TitlePLSA:
    """log p(query | title) for every title of a collection."""

    def __init__(
        self,
        titles: Sequence[str],
        *,
        topics: int = TOPICS,
        iterations: int = ITERATIONS,
        priors: Priors = PRIORS,
        background: float = BACKGROUND,
        own_words: float = 0.0,
        seed: int = 0,
        dtype: type = np.float32,
        tell: Callable[[int, float], None] = lambda step, log_posterior: None,
    ) -> None:
        """Trained on the titles; `tell` gets each step's number and the log posterior before it.

        Raises ValueError for settings out of range, and where no title has a word.
        """
        if min(topics, iterations) < 1 or not 0 < background < 1 or not 0 <= own_words < 1:
            raise ValueError("topics and iterations must be at least 1, 0 < background < 1 and 0 <= own_words < 1")
        terms = count_terms(titles)
        if not terms.vocabulary:
            raise ValueError("PLSA needs at least one title with a word")
        self._vocabulary, self._background, self._own_words = terms.vocabulary, background, own_words
        self._prior = priors.title
        self._shares_V = (terms.of_words / terms.counts.sum()).astype(dtype)
        self._topics_VZ, titles_DZ = train_topics(
            terms, topics, priors, iterations=iterations, seed=seed, dtype=dtype, tell=tell
        )
        self._place(titles, titles_DZ)

    def over(self, titles: Sequence[str]) -> "TitlePLSA":
        """The system of other titles with these topics and this background: the titles are folded in.

        So a model trained on a part of a large collection serves all of it. Words that these topics lack are left
        out of the titles and of the queries.
        """
        other = copy.copy(self)
        other._place(titles, self.fold_in(titles))
        return other

    def fold_in(self, titles: Sequence[str]) -> np.ndarray:
        """p(topic | title) of any titles, [titles, topics]; the topics stay as they are."""
        terms = count_terms(titles, self._vocabulary)
        return fold_in_titles(terms, self._topics_VZ, self._prior, iterations=_FOLD_IN_ITERATIONS)

    @property
    def parameters(self) -> int:
        """The numbers held: p(word | topic), and p(topic | title) of each distinct title."""
        return self._topics_VZ.size + self._titles_TZ.size

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """log p(query | title), float32 [queries, titles]; words that no title has are left out."""
        scores_BT = np.zeros((len(queries), len(self._titles_TZ)), np.float32)
        uses: dict[int, list[tuple[int, int]]] = {}  # word -> (query, how often)
        for row, query in enumerate(queries):
            for word, count in repeats_of_known(query, self._vocabulary).items():
                uses.setdefault(word, []).append((row, count))
        asked = list(uses)
        for first in range(0, len(asked), _BLOCK_WORDS):
            block = asked[first : first + _BLOCK_WORDS]
            for word, log_shares_T in zip(block, self._log_shares_WT(block), strict=True):
                for row, count in uses[word]:
                    scores_BT[row] += count * log_shares_T
        return scores_BT[:, self._text_of_N]

    def _log_shares_WT(self, block: list[int]) -> np.ndarray:
        """log p(w | d) of some words and each distinct title."""
        shares_WT = self._topics_VZ[block] @ self._titles_TZ.T
        shares_WT *= (1 - self._background) * (1 - self._own_words)
        own_weight = (1 - self._background) * self._own_words
        for row, word in enumerate(block if own_weight else []):
            found = slice(self._own_starts[word], self._own_starts[word + 1])
            shares_WT[row, self._own_titles[found]] += own_weight * self._own_shares[found]
        shares_WT += self._background * self._shares_V[block][:, None]
        return np.log(shares_WT, out=shares_WT)

    def _place(self, titles: Sequence[str], titles_DZ: np.ndarray) -> None:
        """Hold what scoring needs, once for each distinct title, so that documents of one title have one score."""
        row_of: dict[str, int] = {}
        self._text_of_N = np.array([row_of.setdefault(normalise(title), len(row_of)) for title in titles], np.int64)
        self._titles_TZ = titles_DZ[np.unique(self._text_of_N, return_index=True)[1]]
        terms = count_terms(list(row_of), self._vocabulary)
        by_word, self._own_starts = terms.by_word()
        self._own_titles = terms.title_of[by_word]
        self._own_shares = (terms.counts / terms.lengths[terms.title_of])[by_word].astype(self._titles_TZ.dtype)
