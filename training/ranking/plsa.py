"""PLSA over titles: a title answers a query through its topics (the PLSA row of the paper's Table IV).

    score(q, d) = log p(q | d) = sum over the words w of q of  c(w, q) log p(w | d)
    p(w | d) = background * p(w | C) + (1 - background) * sum over the topics z of  p(w | z) p(z | d)

The background, the share of w among all words of the collection, keeps every score finite: topics may give a word no
probability at all. A query word that no title has is left out of the query, as in the language model.

The topics are trained on the titles by expectation maximisation to a maximum a posteriori (Gao, Toutanova and Yih
2011). The prior of each title's topics is a symmetric Dirichlet one with the parameter 1 + title prior, that of each
topic's words one with 1 + word prior, so the priors are what is added to the counts of the maximisation step; no step
lowers the log posterior. The posterior p(z | w, d) of each entry is never held: with the ratio r = c(w, d) / p(w | d),

    new p(z | d)  is proportional to  p(z | d) * sum over the words w of d of  r p(w | z)    + title prior
    new p(w | z)  is proportional to  p(w | z) * sum over the titles d with w of  r p(z | d) + word prior

so a step is one dot product and two weighted sums of rows per entry, in blocks; memory is two tables and a block.

The paper trains topics on the documents of the training set. Given their titles, only these enter the second sum, and
every other title's p(z | d) follows the topics from step to step (folding in).

The defaults did well on 1,229 dev queries of product search (54,667 titles). Tried were title priors of 0 to 0.5; a
word prior (which lowered NDCG@10, 0.850 to 0.847 with 0.01 and 500 topics, and is 0); 20 to 100 steps; backgrounds
of 0.01 to 0.5 (within 0.002). NDCG@10 of the judged documents is 0.850 to 0.852 with 100, 300 or 500 topics; over the
whole collection recall@100 grows with the topics: 0.273, 0.436, 0.489. Training takes 7, 14 and 26 seconds of one core,
and 500 topics 110 MB for 55,000 titles.

Suffixes: D titles, T distinct titles, V words, Z topics, E entries (a title and a word of it) of a block.

Beside it a unigram language model of each title with Dirichlet smoothing: ULM of the paper's Table IV.

    log p(q | d) = sum over the words w of q of  c(w, q) log((c(w, d) + mu p(w | C)) / (|d| + mu))

c counts occurrences, |d| is the number of words of title d, and p(w | C) the share of w among the words of the
whole collection (Zhai and Lafferty 2001). A title that has the word gains log(1 + c(w, d) / (mu p(w | C))); all others
differ by their length alone, so only matching titles are looked up.

A query word that no title has (p(w | C) = 0) is left out of the query: the scores equal those of the query without it.
Giving it a small probability instead would change the order for no reason found in the titles, in favour of the
shorter ones. A query of such words alone scores 0 everywhere.

mu is about the length of a title, so that title and collection weigh alike; the 1,000 to 2,000 of long documents
would leave a title little influence. Values of 0.5 to 2,000 were tried on 1,229 dev queries of product search: from 10
on the judged documents are ordered equally well (NDCG@10 0.850 with 10, 50 and 1,000), while over the whole collection
smaller is better (NDCG@10 0.286 with 10, 0.281 with 50, 0.250 with 1,000).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from clicktower.schemas.section import DEFAULT_LANGUAGE, Language
from clicktower.training.model.embedding import distinct_texts
from clicktower.training.ranking.bm25 import TermCounts, count_terms, terms_of

MU = 10.0


def known_words(query: str, vocabulary: Mapping[str, int], language: Language | None) -> list[int]:
    """The numbers of the known words of a query, in order and with repeats."""
    return [vocabulary[word] for word in terms_of(query, language) if word in vocabulary]


class TitleLanguageModel:
    """log p(query | title) for every title of a collection."""

    def __init__(self, titles: Sequence[str], language: Language | None = DEFAULT_LANGUAGE, *, mu: float = MU) -> None:
        """mu: positive. language: of the titles' words, as in bm25."""
        terms = count_terms(titles, language)
        self._language = language
        smoothed_V = mu * terms.of_words / max(1, terms.counts.sum())
        self._vocabulary, self._starts, self._titles = terms.vocabulary, terms.starts, terms.title_of
        self._log_smoothed_V = np.log(smoothed_V)
        self._log_length_N = np.log(terms.lengths + mu)
        self._gains = np.log1p(terms.counts / smoothed_V[terms.word_of]).astype(np.float32)

    @property
    def parameters(self) -> int:
        """The numbers held: one per title and distinct word of it, per title, and per word."""
        return len(self._gains) + len(self._log_length_N) + len(self._log_smoothed_V)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """log p(query | title), float32 [queries, titles]; words that no title has are left out."""
        scores_BN = np.zeros((len(queries), len(self._log_length_N)), np.float32)
        for row, query in enumerate(queries):
            repeats = Counter(known_words(query, self._vocabulary, self._language))
            background = sum(count * self._log_smoothed_V[word] for word, count in repeats.items())
            scores_BN[row] = background - repeats.total() * self._log_length_N
            for word, count in repeats.items():
                postings = slice(self._starts[word], self._starts[word + 1])
                scores_BN[row, self._titles[postings]] += count * self._gains[postings]
        return scores_BN


TOPICS = 500  # the paper's row; it tried 100 to 500
ITERATIONS = 50
TITLE_PRIOR = 0.01
BACKGROUND = 0.5

_BLOCK_WORDS = 64  # query words whose probabilities in all titles are held at once
_BLOCK_VALUES = 1 << 20  # values gathered at once, so that a block of them stays in the cache


class TitlePLSA:
    """log p(query | title) for every title of a collection."""

    def __init__(
        self,
        titles: Sequence[str],
        language: Language | None = DEFAULT_LANGUAGE,
        *,
        topics: int = TOPICS,
        training_titles: Sequence[str] = (),
        word_prior: float = 0.0,
        iterations: int = ITERATIONS,
        seed: int = 0,
        tell: Callable[[int], None] = lambda step: None,
    ) -> None:
        """Trained on the training titles, without any on all; `tell` gets the number of each step.

        language: of the titles' words, as in bm25. Raises ValueError if no title has a word.
        """
        num_teaching = len(training_titles)
        terms = count_terms([*training_titles, *titles], language)
        if not terms.vocabulary:
            raise ValueError("PLSA needs at least one title with a word")
        self._vocabulary, self._language = terms.vocabulary, language
        self._shares_V = (terms.of_words / terms.counts.sum()).astype(np.float32)
        self._topics_VZ, titles_DZ = train_topics(
            terms, topics, num_teaching=num_teaching or None, word_prior=word_prior,
            iterations=iterations, seed=seed, tell=tell,
        )  # fmt: skip
        self._text_of_N = distinct_texts(titles)[1]
        self._titles_TZ = titles_DZ[num_teaching:][np.unique(self._text_of_N, return_index=True)[1]]

    @property
    def parameters(self) -> int:
        """The numbers held: p(word | topic), and p(topic | title) of each distinct title."""
        return self._topics_VZ.size + self._titles_TZ.size

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """log p(query | title), float32 [queries, titles]; words that no title has are left out."""
        scores_BT = np.zeros((len(queries), len(self._titles_TZ)), np.float32)
        uses: dict[int, list[tuple[int, int]]] = {}  # word -> (query, how often)
        for row, query in enumerate(queries):
            for word, count in Counter(known_words(query, self._vocabulary, self._language)).items():
                uses.setdefault(word, []).append((row, count))
        distinct = list(uses)
        for first in range(0, len(distinct), _BLOCK_WORDS):
            block = distinct[first : first + _BLOCK_WORDS]
            for word, log_shares_T in zip(block, self._log_shares_WT(block), strict=True):
                for row, count in uses[word]:
                    scores_BT[row] += count * log_shares_T
        return scores_BT[:, self._text_of_N]

    def _log_shares_WT(self, block: list[int]) -> np.ndarray:
        """log p(w | d) of some words and each distinct title."""
        shares_WT = self._topics_VZ[block] @ self._titles_TZ.T
        shares_WT *= 1 - BACKGROUND
        shares_WT += BACKGROUND * self._shares_V[block][:, None]
        return np.log(shares_WT, out=shares_WT)


def train_topics(
    terms: TermCounts,
    num_topics: int,
    *,
    num_teaching: int | None = None,
    word_prior: float = 0.0,
    iterations: int,
    seed: int,
    tell: Callable[[int], None] = lambda step: None,
) -> tuple[np.ndarray, np.ndarray]:
    """(p(w | z) as [V, Z], p(z | d) as [D, Z]), float32, after `iterations` steps from a seeded start.

    `num_teaching`: the topics come from this many first titles; None: from all. A title without words has the mean of
    its prior, equal shares; a topic that lost every word has zeros.
    """
    rng = np.random.default_rng(seed)
    topics_VZ: np.ndarray = rng.uniform(0.5, 1.5, (len(terms.vocabulary), num_topics)).astype(np.float32)
    topics_VZ /= topics_VZ.sum(axis=0)
    titles_DZ: np.ndarray = np.full((len(terms.lengths), num_topics), 1 / num_topics, np.float32)
    word_of, title_of = terms.word_of, terms.title_of
    by_title = np.argsort(title_of, kind="stable")
    starts_of_titles = np.searchsorted(title_of[by_title], np.arange(len(titles_DZ) + 1))
    tiny = np.finfo(np.float32).tiny
    for step in range(iterations):
        tell(step)
        ratios = _ratios(terms, word_of, topics_VZ, titles_DZ)
        teaching = ratios if num_teaching is None else ratios * (title_of < num_teaching)
        grown_VZ = topics_VZ * _weighted_sums(titles_DZ, title_of, terms.starts, teaching) + np.float32(word_prior)
        for titles in _blocks(len(titles_DZ), num_topics):
            starts = starts_of_titles[titles.start : titles.stop + 1]
            entries = by_title[starts[0] : starts[-1]]
            of_block = titles_DZ[titles]
            of_block *= _weighted_sums(topics_VZ, word_of[entries], starts - starts[0], ratios[entries])
            of_block += TITLE_PRIOR
            of_block /= of_block.sum(axis=1, keepdims=True)
        topics_VZ = grown_VZ / np.maximum(grown_VZ.sum(axis=0, dtype=np.float64), tiny).astype(np.float32)
    return topics_VZ, titles_DZ


def _ratios(terms: TermCounts, word_of: np.ndarray, topics_VZ: np.ndarray, titles_DZ: np.ndarray) -> np.ndarray:
    """c(w, d) / p(w | d) of each entry."""
    # A share that underflowed makes no infinity of the next step, nor does its ratio.
    floor = 1e6 * np.finfo(np.float32).tiny
    ratios = np.empty(len(word_of), np.float32)
    for entries in _blocks(len(word_of), topics_VZ.shape[1]):
        share = np.einsum("ez,ez->e", topics_VZ[word_of[entries]], titles_DZ[terms.title_of[entries]])
        ratios[entries] = terms.counts[entries] / np.maximum(share, floor)
    return ratios


def _weighted_sums(table: np.ndarray, rows: np.ndarray, starts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """For each group of entries, the sum of weight * the table's row, [groups, Z]; an empty group has zeros."""
    import torch  # a sum of rows is several times as fast as with NumPy or SciPy

    if not len(rows):
        return np.zeros((len(starts) - 1, table.shape[1]), table.dtype)
    sums = torch.nn.functional.embedding_bag(
        torch.from_numpy(rows.astype(np.int64)),
        torch.from_numpy(table),
        torch.from_numpy(starts[:-1].astype(np.int64)),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights),
    )
    return sums.numpy()


def _blocks(num_rows: int, num_topics: int) -> Iterator[slice]:
    size = max(1, _BLOCK_VALUES // num_topics)
    for first in range(0, num_rows, size):
        yield slice(first, min(first + size, num_rows))
