"""The systems on labelled rows: the model's own answers first, then baselines from words alone.

A similarity is float64 [rows], higher for more similar texts; a classifier's answer is float64 [rows, classes]. TF-IDF
and BM25 count terms of the lexical contract, naive Bayes and word movers the words of the text contract. Rarity and
mean length come from the distinct training sentences alone; a term that none of them has is as rare as possible.
"""

from collections import Counter
from collections.abc import Sequence
from math import lcm
from typing import Literal

import numpy as np
import scipy.optimize
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.naive_bayes import MultinomialNB

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import DEFAULT_LANGUAGE, Language
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.analysis.classifying import encoded_sides, probabilities, refusal
from clicktower.training.model.embedding import Side, TextEncoder, search_vectors
from clicktower.training.model.model import Model
from clicktower.training.model.word_vectors import read_vectors
from clicktower.training.ranking.bm25 import K1, B, count_terms
from clicktower.training.towers.tower_kinds import Variational
from clicktower.training.trainer.labelled_shards import LabelledData, LabelledRows

COSINE, W2, CLASSIFIER, MAJORITY = "model", "w2", "classifier", "constant"
WORD_MOVERS, VECTOR_MOVERS = "word-movers", "word-movers-vectors"
Scores = tuple[np.ndarray, np.ndarray]  # of the sampled training rows and of the held-out ones


def systems_of(
    model: TextEncoder,
    data: LabelledData,
    sampled: LabelledRows,
    *,
    sides: Literal["crossed", "query", "document"],
    language: Language,
    word_movers: bool,
    word_vectors: str | None = None,
    progress: Progress,
) -> tuple[dict[str, Scores], str]:
    """(every system's scores by name, the model's best-informed one first; why the model's classes are not used).

    `sampled`: training rows. `word_vectors`: a file of word vectors, for word mover's distance on it too. Raises
    UsageError for labelled texts whose classes the model does not know, since it has no other answer for a single text.
    """
    texts = [*data.train.texts, *data.dev.texts]  # no text is in both
    num_training = len(data.train.texts)
    rows = tuple(
        np.concatenate([of_train, of_dev + num_training])
        for of_train, of_dev in zip(sampled.sides, data.dev.sides, strict=True)
    )
    scores_of: dict[str, np.ndarray] = {}
    refused = refusal(model, data) if isinstance(model, Model) else "an ensemble has no classifier"
    if refused and data.unit == "texts":
        raise UsageError(
            f"The model cannot classify labelled texts: {refused}.",
            "Give a model that `clicktower train` made of labelled texts of these classes.",
        )
    if isinstance(model, Model) and not refused:
        scores_of[CLASSIFIER] = probabilities(model, texts, rows, data.classes, progress)
    if data.unit == "texts":
        labelled, unlabelled = ([texts[at] for at in side] for side in (data.train.sides[0], rows[0]))
        scores_of["naive-bayes"] = naive_bayes(labelled, data.train.labels, unlabelled, len(data.classes))
    else:
        first, second = rows
        if isinstance(model, Model) and isinstance(model.recipe.tower, Variational):
            first_side, second_side = encoded_sides(model, texts, rows, progress)
            scores_of[W2] = -np.linalg.norm(first_side.astype(np.float64) - second_side, axis=1)
        scores_of[COSINE] = cosines(model, texts, first, second, sides, progress)
        lexical = LexicalSimilarity(texts, num_training, language)
        scores_of["tf-idf"] = lexical.tf_idf(first, second)
        scores_of["bm25"] = lexical.bm25(first, second)
        if word_movers:
            scores_of[WORD_MOVERS] = -WordMovers(texts).distances(first, second, progress=progress)
        if word_vectors:
            scores_of[VECTOR_MOVERS] = -WordMovers(texts, word_vectors).distances(first, second, progress=progress)
    if data.classes:
        scores_of[MAJORITY] = np.zeros(len(rows[0]))
    return {name: (scores[: len(sampled)], scores[len(sampled) :]) for name, scores in scores_of.items()}, refused


def cosines(
    encoder: TextEncoder,
    texts: list[str],
    first: np.ndarray,
    second: np.ndarray,
    sides: str,
    progress: Progress = silent,
) -> np.ndarray:
    """The cosine of each pair of texts, given by their indices, float64; crossed: the mean of both directions."""
    used = np.unique(np.concatenate([first, second]))
    a, b = np.searchsorted(used, first), np.searchsorted(used, second)
    towers: tuple[Side, ...] = ("query", "document") if sides == "crossed" else (sides,)  # type: ignore[assignment]
    of_used = [texts[i] for i in used.tolist()]
    vectors = {
        side: search_vectors(encoder, of_used, side, similarity="cosine", progress=progress).astype(np.float64)
        for side in towers
    }
    first_vectors, second_vectors = vectors[towers[0]], vectors[towers[-1]]
    return ((first_vectors[a] * second_vectors[b]).sum(axis=1) + (first_vectors[b] * second_vectors[a]).sum(axis=1)) / 2


class LexicalSimilarity:
    """The cosine of TF-IDF vectors, and BM25 made symmetric. `texts`: those of training first, `num_training` of them.

        TF-IDF: weight tf * (ln((1 + N) / (1 + df)) + 1), cosine of the two vectors
        BM25:   (s(a, b) + s(b, a)) / (s(a, a) + s(b, b)), with s as bm25 scores a query and a title

    BM25 has no upper end, and asks more of a long query: divided by what each text scores against itself it is 1 for
    two texts of the same terms and 0 for texts that share none, so that one threshold does for all lengths. A text
    without a term, such as "?!", shares none, even with itself. language: as in bm25.
    """

    def __init__(self, texts: Sequence[str], num_training: int, language: Language | None = DEFAULT_LANGUAGE) -> None:
        counts = count_terms(texts, language)
        entries = (counts.counts.astype(np.float64), (counts.title_of, counts.word_of.astype(np.int32)))
        self._tf = scipy.sparse.csr_array(entries, shape=(len(texts), max(1, len(counts.vocabulary))))
        of_training = counts.word_of[counts.title_of < num_training]
        self._df = np.bincount(of_training, minlength=self._tf.shape[1])
        self._num_training = num_training
        self._lengths = counts.lengths

    def tf_idf(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The cosine of each pair of texts, given by their indices, float64 [pairs]."""
        weights = TfidfTransformer().fit(self._tf[: self._num_training]).transform(self._tf)
        return _dot(weights, first, second)

    def bm25(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Symmetric BM25 of each pair of texts, given by their indices, float64 [pairs]."""
        idf = np.log1p((self._num_training - self._df + 0.5) / (self._df + 0.5))
        mean_words = self._lengths[: self._num_training].mean() or 1.0
        saturation = K1 * (1 - B + B * self._lengths / mean_words)
        parts = self._tf.copy()
        parts.data = parts.data / (parts.data + np.repeat(saturation, np.diff(parts.indptr)))
        parts = parts @ scipy.sparse.diags_array(idf)
        sums = np.asarray(self._tf.multiply(parts).sum(axis=1)).ravel()
        across = _dot(self._tf, first, second, parts) + _dot(self._tf, second, first, parts)
        of_themselves = sums[first] + sums[second]
        return across / np.where(of_themselves > 0, of_themselves, 1.0)


def _dot(
    rows: scipy.sparse.csr_array, a: np.ndarray, b: np.ndarray, other_rows: scipy.sparse.csr_array | None = None
) -> np.ndarray:
    """The dot product of row a[i] and row b[i] (of `other_rows`, if given) for each i, float64."""
    return np.asarray(rows[a].multiply((rows if other_rows is None else other_rows)[b]).sum(axis=1)).ravel()


MAX_UNITS = 192  # with more units an assignment takes longer than the programme
PAIRS_A_REPORT = 500


class WordMovers:
    """Word mover's distance (Kusner et al., ICML 2015) of pairs of texts: the least total distance by which the words
    of one must move to become those of the other.

    Each word of a text holds its count's share of the text. The distance of two words is the Euclidean distance of
    their vectors: the letter-trigram counts of a word scaled to length 1, so nothing is learnt and no word is unknown;
    it ranges from 0 for the same word to the square root of 2 for words without a common trigram. Or, as in the paper,
    the vectors of a file, `word_vectors`: unknown words are left out, and a text without known words is as far from any
    other as the two that are farthest apart.

    The result is exact. Since the distance of words is a metric, mass that both texts hold of one word may stay in
    place; the rest is moved by an assignment of equal units if these are few, and otherwise by a linear programme.
    """

    def __init__(self, texts: Sequence[str], word_vectors: str | None = None) -> None:
        self._counts = [Counter(words(text)) for text in texts]
        vocabulary = sorted({word for counts in self._counts for word in counts})
        if word_vectors is None:
            self._vectors = _unit_trigrams(vocabulary)
        else:
            vocabulary, vectors = read_vectors(word_vectors, set(vocabulary))
            self._vectors = scipy.sparse.csr_array(vectors, dtype=np.float64)
        self._row_of = {word: row for row, word in enumerate(vocabulary)}
        self._squares = np.asarray(self._vectors.multiply(self._vectors).sum(axis=1)).ravel()
        if word_vectors is not None:
            self._counts = [
                Counter({word: n for word, n in bag.items() if word in self._row_of}) for bag in self._counts
            ]

    def distances(self, first: np.ndarray, second: np.ndarray, *, progress: Progress = silent) -> np.ndarray:
        """The distance of each pair of texts, given by their indices, float64 [pairs]."""
        result = np.zeros(len(first))
        for pair, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            if pair % PAIRS_A_REPORT == 0:
                progress("move words", pair, len(first))
            has_words = self._counts[a] and self._counts[b]
            result[pair] = self._distance(self._counts[a], self._counts[b]) if has_words else np.nan
        return np.nan_to_num(result, nan=np.nanmax(result, initial=0.0))

    def _distance(self, a: Counter[str], b: Counter[str]) -> float:
        num_units = lcm(a.total(), b.total())
        of_a = {word: count * (num_units // a.total()) for word, count in a.items()}
        of_b = {word: count * (num_units // b.total()) for word, count in b.items()}
        left = {word: units - of_b.get(word, 0) for word, units in of_a.items() if units > of_b.get(word, 0)}
        lacking = {word: units - of_a.get(word, 0) for word, units in of_b.items() if units > of_a.get(word, 0)}
        if not left:
            return 0.0
        rows, columns = ([self._row_of[word] for word in part] for part in (left, lacking))
        dots = (self._vectors[rows] @ self._vectors[columns].T).toarray()
        ways = np.sqrt(np.maximum(self._squares[rows][:, None] + self._squares[columns] - 2 * dots, 0))
        return least_total(ways, np.array(list(left.values())), np.array(list(lacking.values()))) / num_units


def least_total(ways: np.ndarray, supply: np.ndarray, demand: np.ndarray) -> float:
    """The least sum of units times distance. ways: float64 [n, m]; supply, demand: whole units with the same sum."""
    common = int(np.gcd.reduce([*supply, *demand]))
    units = int(supply.sum()) // common
    if min(ways.shape) == 1:
        return float((ways * (supply[:, None] if ways.shape[1] == 1 else demand)).sum())
    if units <= MAX_UNITS:
        each = np.repeat(np.repeat(ways, supply // common, axis=0), demand // common, axis=1)
        rows, columns = scipy.optimize.linear_sum_assignment(each)
        return float(each[rows, columns].sum()) * common
    return by_linear_programme(ways, supply, demand)


def by_linear_programme(ways: np.ndarray, supply: np.ndarray, demand: np.ndarray) -> float:
    """The same as a transport problem, by HiGHS."""
    n, m = ways.shape
    leaves = scipy.sparse.kron(scipy.sparse.eye_array(n), np.ones((1, m)))
    arrives = scipy.sparse.kron(np.ones((1, n)), scipy.sparse.eye_array(m))
    total = supply.sum()
    solution = scipy.optimize.linprog(
        ways.ravel(),
        A_eq=scipy.sparse.vstack([leaves, arrives], format="csr"),
        b_eq=np.concatenate([supply, demand]) / total,
        method="highs",
    )
    assert solution.status == 0, solution.message
    return float(solution.fun * total)


def _unit_trigrams(vocabulary: Sequence[str]) -> scipy.sparse.csr_array:
    offsets, ids = trigram_ids(vocabulary)
    counts = scipy.sparse.csr_array(
        (np.ones(len(ids)), ids.astype(np.int64), offsets), shape=(len(vocabulary), 1 << 16)
    )
    counts.sum_duplicates()
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    return scipy.sparse.csr_array(scipy.sparse.diags_array(1 / lengths) @ counts)


def naive_bayes(texts: Sequence[str], labels: np.ndarray, queries: Sequence[str], num_classes: int) -> np.ndarray:
    """p of each class for `queries` by multinomial naive Bayes over the words of labelled texts, add-one smoothing:
    float64 [texts, classes]. Words that no labelled text has say nothing."""
    counts = CountVectorizer(analyzer=words)
    model = MultinomialNB().fit(counts.fit_transform(texts), labels)
    result = np.zeros((len(queries), num_classes))
    result[:, model.classes_] = model.predict_proba(counts.transform(queries))
    return result
