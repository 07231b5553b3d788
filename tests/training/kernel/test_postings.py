"""The best titles for some words: those of adding up all scores, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.kernel.kernel_library import status
from clicktower.training.kernel.kernel_search import Postings

pytestmark = pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")


@st.composite
def searches(draw) -> tuple[int, list[tuple[np.ndarray, np.ndarray]], list[int], int]:
    """Titles, more than a block of the kernel's or few; each word's entries; the words of a query, some of them
    repeated; and how many are wanted. Words of a few levels only make many titles tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_titles = draw(st.sampled_from([1, 30, 16_384, 16_385, 60_000]))
    num_levels = draw(st.sampled_from([1, 3, 1_000_000]))
    entries = []
    for _ in range(draw(st.integers(1, 5))):
        share = draw(st.sampled_from([0.0005, 0.01, 0.4, 1.0]))
        titles = np.flatnonzero(rng.random(num_titles) < share).astype(np.int32)
        levels = rng.integers(1, num_levels + 1, len(titles)) / num_levels
        entries.append((titles, (rng.uniform(0.1, 8) * levels).astype(np.float32)))
    query = draw(st.lists(st.integers(0, len(entries) - 1), min_size=1, max_size=8))
    return num_titles, entries, query, draw(st.sampled_from([1, 3, 100, 100_000]))


@settings(max_examples=60)
@given(searches())
def test_the_best_are_those_of_adding_up_all_scores(search):
    num_titles, entries, query, k = search
    scores_N = np.zeros(num_titles, np.float32)
    for word in query:
        titles, parts = entries[word]
        scores_N[titles] += parts
    having = np.flatnonzero(scores_N)
    expected = having
    if k < len(having):
        expected = having[scores_N[having] >= np.sort(scores_N[having])[-k]]

    postings = Postings(*(np.concatenate(column) for column in zip(*entries, strict=True)))
    ends = np.cumsum([len(titles) for titles, _ in entries])
    starts = ends - [len(titles) for titles, _ in entries]
    titles, scores = postings.best(starts[query], ends[query], k)
    order = np.argsort(titles)
    assert titles[order].tolist() == expected.tolist()
    assert scores[order].tobytes() == scores_N[expected].tobytes()
