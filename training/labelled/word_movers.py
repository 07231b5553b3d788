"""Word mover's distance (Kusner et al., ICML 2015): the least total way that the words of one text must go to become
those of the other.

Each word of a text holds its count's share of the text. The way between two words is the Euclidean distance of their
vectors: here the letter-trigram counts of a word scaled to length 1, so nothing is learnt and no word is unknown; from
0 for the same word to the square root of 2 for words without a common trigram.

The distance is exact. Since the way between words is a metric, mass that both texts hold of one word may stay where it
is; what is left is moved by an assignment of equal units where these are few, and otherwise by a linear programme.
"""

from collections import Counter
from collections.abc import Sequence
from math import lcm

import numpy as np
import scipy.optimize
import scipy.sparse

from schemas.stage import Progress, silent
from schemas.text_contract import trigram_ids, words

MAX_UNITS = 192  # an assignment of so many equal units takes about as long as the programme does
_TOLD_EVERY = 500


class WordMovers:
    """Distances of pairs of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(words(text)) for text in texts]
        vocabulary = sorted({word for counts in self._counts for word in counts})
        self._row_of = {word: row for row, word in enumerate(vocabulary)}
        self._vectors = _unit_trigrams(vocabulary)

    def distances(self, first: np.ndarray, second: np.ndarray, *, progress: Progress = silent) -> np.ndarray:
        """The distance of each pair of texts, given by their places, float64 [pairs]."""
        found = np.zeros(len(first))
        for pair, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
            if pair % _TOLD_EVERY == 0:
                progress("move words", pair, len(first))
            found[pair] = self._distance(self._counts[a], self._counts[b])
        return found

    def _distance(self, a: Counter[str], b: Counter[str]) -> float:
        whole = lcm(a.total(), b.total())
        of_a = {word: count * (whole // a.total()) for word, count in a.items()}
        of_b = {word: count * (whole // b.total()) for word, count in b.items()}
        left = {word: units - of_b.get(word, 0) for word, units in of_a.items() if units > of_b.get(word, 0)}
        lacking = {word: units - of_a.get(word, 0) for word, units in of_b.items() if units > of_a.get(word, 0)}
        if not left:
            return 0.0
        rows, columns = ([self._row_of[word] for word in part] for part in (left, lacking))
        cosines = (self._vectors[rows] @ self._vectors[columns].T).toarray()
        ways = np.sqrt(np.maximum(2 - 2 * cosines, 0))
        return least_total(ways, np.array(list(left.values())), np.array(list(lacking.values()))) / whole


def least_total(ways: np.ndarray, supply: np.ndarray, demand: np.ndarray) -> float:
    """The least sum of units times their way. ways: float64 [n, m]; supply, demand: whole units of the same sum."""
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
    found = scipy.optimize.linprog(
        ways.ravel(),
        A_eq=scipy.sparse.vstack([leaves, arrives], format="csr"),
        b_eq=np.concatenate([supply, demand]) / total,
        method="highs",
    )
    assert found.status == 0, found.message
    return float(found.fun * total)


def _unit_trigrams(vocabulary: Sequence[str]) -> scipy.sparse.csr_array:
    offsets, ids = trigram_ids(vocabulary)
    counts = scipy.sparse.csr_array(
        (np.ones(len(ids)), ids.astype(np.int64), offsets), shape=(len(vocabulary), 1 << 16)
    )
    counts.sum_duplicates()
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    return scipy.sparse.csr_array(scipy.sparse.diags_array(1 / lengths) @ counts)
