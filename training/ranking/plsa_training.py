"""Probabilistic latent semantic analysis, trained by expectation maximisation to a maximum a posteriori.

    p(w | d) = sum over the topics z of  p(w | z) p(z | d)
    log posterior = sum over d, w of  c(w, d) log p(w | d)
                    + title_prior * sum of log p(z | d)  + word_prior * sum of log p(w | z)

The priors are symmetric Dirichlet ones with parameters 1 + title_prior and 1 + word_prior, so the two are what is added
to the counts of the maximisation step (0: plain maximum likelihood). Each step never lowers the log posterior.

The posterior p(z | w, d) of each entry is never held: with the ratio r = c(w, d) / p(w | d) of each entry,

    new p(z | d)  is proportional to  p(z | d) * sum over the words w of d of  r p(w | z)    + title_prior
    new p(w | z)  is proportional to  p(w | z) * sum over the titles d with w of  r p(z | d) + word_prior

so a step is one dot product and two weighted sums of rows per entry, in blocks; memory is two tables and a block.

Suffixes: D titles, V words, Z topics, E entries of a block.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from training.ranking.term_counts import TermCounts

_BLOCK_VALUES = 1 << 20  # values gathered at once, so that a block of them stays in the cache


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Priors:
    """What is added to each count of the maximisation step; 0 or more."""

    title: float
    word: float


def train_topics(
    terms: TermCounts,
    num_topics: int,
    priors: Priors,
    *,
    iterations: int,
    seed: int,
    dtype: type = np.float32,
    tell: Callable[[int, float], None] = lambda step, log_posterior: None,
) -> tuple[np.ndarray, np.ndarray]:
    """(p(w | z) as [V, Z], p(z | d) as [D, Z]) after `iterations` steps from a seeded start.

    `tell` gets the log posterior before each step. A title without a known word has the mean of its prior, equal
    shares; a topic that lost every word, which only a word prior of 0 allows, has zeros.
    """
    rng = np.random.default_rng(seed)
    topics_VZ: np.ndarray = rng.uniform(0.5, 1.5, (len(terms.vocabulary), num_topics)).astype(dtype)
    topics_VZ /= topics_VZ.sum(axis=0)
    titles_DZ: np.ndarray = np.full((len(terms.starts) - 1, num_topics), 1 / num_topics, dtype)
    order, starts = terms.by_word()
    title_of = terms.title_of
    for step in range(iterations):
        ratios, log_likelihood = _ratios(terms, title_of, topics_VZ, titles_DZ)
        tell(step, log_likelihood + _log_prior(titles_DZ, priors.title) + _log_prior(topics_VZ, priors.word))
        grown_VZ = topics_VZ * _weighted_sums(titles_DZ, title_of[order], starts, ratios[order])
        _maximise_titles(terms, ratios, topics_VZ, titles_DZ, priors.title)
        topics_VZ = grown_VZ
        topics_VZ += priors.word
        topics_VZ /= np.maximum(topics_VZ.sum(axis=0, dtype=np.float64), np.finfo(dtype).tiny).astype(dtype)
    return topics_VZ, titles_DZ


def fold_in_titles(terms: TermCounts, topics_VZ: np.ndarray, prior: float, *, iterations: int) -> np.ndarray:
    """p(z | d) of titles under given topics, [D, Z]: the same steps for the titles alone, from equal shares."""
    num_topics = topics_VZ.shape[1]
    titles_DZ = np.full((len(terms.starts) - 1, num_topics), 1 / num_topics, topics_VZ.dtype)
    for _ in range(iterations):
        ratios, _ = _ratios(terms, terms.title_of, topics_VZ, titles_DZ)
        _maximise_titles(terms, ratios, topics_VZ, titles_DZ, prior)
    return titles_DZ


def _maximise_titles(
    terms: TermCounts, ratios: np.ndarray, topics_VZ: np.ndarray, titles_DZ: np.ndarray, prior: float
) -> None:
    """The maximisation step of p(z | d), in place and in blocks of titles."""
    num_titles, num_topics = titles_DZ.shape
    block = max(1, _BLOCK_VALUES // num_topics)
    for first in range(0, num_titles, block):
        rows = slice(first, min(first + block, num_titles))
        starts = terms.starts[rows.start : rows.stop + 1]
        entries = slice(starts[0], starts[-1])
        titles_DZ[rows] *= _weighted_sums(topics_VZ, terms.word_of[entries], starts - starts[0], ratios[entries])
        titles_DZ[rows] += prior
        mass = titles_DZ[rows].sum(axis=1, keepdims=True)
        titles_DZ[rows] = np.divide(
            titles_DZ[rows], mass, out=np.full_like(titles_DZ[rows], 1 / num_topics), where=mass > 0
        )


def _ratios(
    terms: TermCounts, title_of: np.ndarray, topics_VZ: np.ndarray, titles_DZ: np.ndarray
) -> tuple[np.ndarray, float]:
    """(c(w, d) / p(w | d) of each entry, the log likelihood)."""
    # A share that fell below the smallest number makes no infinity of the next step, nor does its ratio.
    floor = 1e6 * np.finfo(topics_VZ.dtype).tiny
    ratios, log_likelihood = np.empty(len(title_of), topics_VZ.dtype), 0.0
    for entries in _blocks(len(title_of), topics_VZ.shape[1]):
        words_EZ, of_titles_EZ = topics_VZ[terms.word_of[entries]], titles_DZ[title_of[entries]]
        share = np.maximum(np.einsum("ez,ez->e", words_EZ, of_titles_EZ), floor)
        log_likelihood += float(terms.counts[entries] @ np.log(share, dtype=np.float64))
        ratios[entries] = terms.counts[entries] / share
    return ratios, log_likelihood


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
        per_sample_weights=torch.from_numpy(np.ascontiguousarray(weights)),
    )
    return sums.numpy()


def _log_prior(table: np.ndarray, prior: float) -> float:
    if prior == 0:
        return 0.0
    return prior * sum(float(np.log(table[rows]).sum(dtype=np.float64)) for rows in _blocks(len(table), table.shape[1]))


def _blocks(num_rows: int, num_topics: int) -> Iterator[slice]:
    size = max(1, _BLOCK_VALUES // num_topics)
    for first in range(0, num_rows, size):
        yield slice(first, min(first + size, num_rows))
