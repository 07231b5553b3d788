"""The best titles for some words: those of adding up all scores, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.kernel.kernel_library import Postings, status

pytestmark = pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")


@st.composite
def searches(draw) -> tuple[int, list[tuple[np.ndarray, np.ndarray]], list[int], int]:
    """Titles, many of the kernel's windows or few; each word's entries; the words of a query, some of them repeated;
    and how many are wanted. Words of a few levels only make many titles tie; light ones are left out of sums."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_titles = draw(st.sampled_from([1, 30, 4_096, 4_097, 60_000]))
    num_levels = draw(st.sampled_from([1, 3, 1_000_000]))
    entries = []
    for _ in range(draw(st.integers(1, 5))):
        share = draw(st.sampled_from([0.0005, 0.01, 0.4, 1.0]))
        titles = np.flatnonzero(rng.random(num_titles) < share).astype(np.int32)
        levels = rng.integers(1, num_levels + 1, len(titles)) / num_levels
        weight = draw(st.sampled_from([0.01, 0.5, 1, 8]))
        entries.append((titles, (rng.uniform(0.5, 1) * weight * levels).astype(np.float32)))
    query = draw(st.lists(st.integers(0, len(entries) - 1), min_size=1, max_size=8))
    return num_titles, entries, query, draw(st.sampled_from([1, 3, 100, 100_000]))


@settings(max_examples=150)
@given(searches())
def test_the_best_are_those_of_adding_up_all_scores(search):
    num_titles, entries, query, k = search
    scores_N = all_scores(num_titles, entries, query)
    having = np.flatnonzero(scores_N)
    expected = having
    if k < len(having):
        expected = having[scores_N[having] >= np.sort(scores_N[having])[-k]]

    titles, scores = postings_of(entries).best(np.array(query), k)
    order = np.argsort(titles)
    assert titles[order].tolist() == expected.tolist()
    assert scores[order].tobytes() == scores_N[expected].tobytes()


@settings(max_examples=50)
@given(searches(), st.integers(0, 2**32 - 1))
def test_the_scores_of_some_titles_in_any_order_are_those_of_all(search, seed):
    num_titles, entries, query, _ = search
    scores_N = all_scores(num_titles, entries, query)
    rng, postings = np.random.default_rng(seed), postings_of(entries)
    for rows in (rng.integers(0, num_titles, 300), np.arange(num_titles), np.arange(0)):
        assert postings.scores_of(np.array(query), rows).tobytes() == scores_N[rows].tobytes()


def test_entries_of_a_damaged_file_lead_to_nothing_but_wrong_titles():
    rng = np.random.default_rng(0)
    starts = np.array([0, 3_000, 9_000, 10_000])
    titles = rng.integers(-(2**31), 2**31, starts[-1]).astype(np.int32)
    titles[::7] %= 10_000
    parts = rng.integers(0, 2**32, starts[-1], dtype=np.uint32).view(np.float32)
    postings = Postings(starts, titles, parts, np.array([1, 0.1, 5], np.float32))
    for k in (1, 10, 10_000):
        found, _ = postings.best(np.array([0, 1, 2, 1]), k)
        assert np.isin(found, titles).all()
    assert len(postings.scores_of(np.arange(3), titles)) == len(titles)


def all_scores(num_titles: int, entries: list[tuple[np.ndarray, np.ndarray]], query: list[int]) -> np.ndarray:
    scores_N = np.zeros(num_titles, np.float32)
    for word in query:
        titles, parts = entries[word]
        scores_N[titles] += parts
    return scores_N


def postings_of(entries: list[tuple[np.ndarray, np.ndarray]]) -> Postings:
    starts = np.concatenate([[0], np.cumsum([len(titles) for titles, _ in entries])])
    largest = np.array([parts.max(initial=0) for _, parts in entries], np.float32)
    return Postings(starts, *(np.concatenate(column) for column in zip(*entries, strict=True)), largest)
