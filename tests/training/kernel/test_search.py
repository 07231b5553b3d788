"""The scan of eight-bit copies against NumPy's of the vectors themselves: the same answer, bit for bit."""

from concurrent.futures import ThreadPoolExecutor
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.flows.releases.ivf_index import partition
from clicktower.schemas.release import Similarity
from clicktower.training.kernel.kernel_library import Int8Rows, library, status
from clicktower.training.ranking.nearest import Nearest, Partitions

pytestmark = pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def whole(rows: Int8Rows, query: np.ndarray, k: int, num_rows: int) -> list[int]:
    return rows.candidates(query, k, np.array([0]), np.array([num_rows])).tolist()


@st.composite
def searches(draw) -> tuple[Similarity, np.ndarray, Partitions | None, np.ndarray, int, int | None]:
    """Vectors so near to each other that their copies are in another order, repeated ones and zeros; and a search.

    By distance they are of any length, and may be far from 0 for how near they are to each other.
    """
    similarity: Similarity = draw(st.sampled_from(["cosine", "euclidean"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_vectors = draw(st.integers(1, 400))
    dimensions = draw(st.sampled_from([1, 2, 3, 16, 31, 96, 100, 257]))
    spread = draw(st.sampled_from([0.0, 1e-6, 1e-4, 1e-2, 1.0, 10.0]))
    about = rng.normal(size=(draw(st.integers(1, 5)), dimensions)) * draw(st.sampled_from([1.0, 1e-3]))
    about[:, 0] += 1  # a component that is much larger than the others makes the copies of those coarse
    apart = spread * rng.normal(size=(num_vectors, dimensions))
    vectors = about[rng.integers(0, len(about), num_vectors)] + apart
    made = unit
    if similarity == "euclidean":
        size = draw(st.sampled_from([1e-3, 1.0, 300.0]))

        def made(vectors: np.ndarray) -> np.ndarray:
            return (size * vectors).astype(np.float32)

    vectors = made(vectors)
    vectors[rng.random(num_vectors) < draw(st.sampled_from([0.0, 0.1]))] = 0
    again = rng.random(num_vectors) < draw(st.sampled_from([0.0, 0.3]))
    vectors[again] = vectors[rng.integers(0, num_vectors, again.sum())]
    query = draw(st.sampled_from(["a vector", "another", "zero"]))
    asked = {
        "a vector": vectors[rng.integers(0, num_vectors)],
        "another": made(rng.normal(size=(1, dimensions)))[0],
        "zero": np.zeros(dimensions, np.float32),
    }[query]
    k = draw(st.integers(1, 12) | st.integers(1, num_vectors + 5))
    num_partitions = draw(st.integers(0, 6))
    if not num_partitions:
        return similarity, vectors, None, asked, k, draw(st.none() | st.just(3))
    of_N = rng.integers(0, num_partitions, num_vectors).astype(np.int32)  # some of them may be empty
    partitions = Partitions(centres_PD=made(rng.normal(size=(num_partitions, dimensions))), of_N=of_N)
    return similarity, vectors, partitions, asked, k, draw(st.none() | st.integers(1, num_partitions + 1))


@settings(max_examples=200, deadline=None)
@given(search=searches())
def test_the_answer_is_bit_for_bit_that_of_comparing_the_vectors_themselves(search):
    similarity, vectors, partitions, query, k, probes = search
    compiled, numpy = (
        Nearest(vectors, partitions, similarity=similarity, compiled=compiled) for compiled in (True, False)
    )
    rows, scores = compiled.best(query, k, probes)
    expected_rows, expected_scores = numpy.best(query, k, probes)
    assert rows.tolist() == expected_rows.tolist()
    assert scores.tobytes() == expected_scores.tobytes()
    assert {rows.dtype, expected_rows.dtype} == {np.dtype(np.int64)}


@pytest.mark.parametrize("similarity", get_args(Similarity))
def test_real_partitions_give_the_same_too(similarity):
    rng = np.random.default_rng(1)
    vectors = unit(rng.normal(size=(40, 24))[rng.integers(0, 40, 6_000)] + 0.3 * rng.normal(size=(6_000, 24)))
    found = partition(vectors, similarity=similarity)
    compiled, numpy = (Nearest(vectors, found, similarity=similarity, compiled=compiled) for compiled in (True, False))
    for query in unit(vectors[:100] + 0.1 * rng.normal(size=(100, 24))):
        for k, probes in ((1, 1), (10, 8), (100, 20), (100, None)):
            for ours, theirs in zip(compiled.best(query, k, probes), numpy.best(query, k, probes), strict=True):
                assert ours.tobytes() == theirs.tobytes()


def test_hand_worked_copies_and_bounds():
    rows = Int8Rows(np.array([[1, 0.5], [0, 0], [-0.6, 0.8]], np.float32))
    # Scales 1/127, 1 (nothing to scale) and 0.8/127. 0.5 is 63.5 of 1/127: rounded to even, 64. -0.6 is -95.25 of them.
    assert rows._kept[0].tolist() == [[127, 64], [0, 0], [-95, 127]]
    assert rows._kept[1] == pytest.approx([1 / 127, 1, 0.8 / 127])
    # |v - v̂|: 64/127 - 0.5 = 0.0039370; 0; 0.25 * 0.8/127 = 0.0015748. Those of the floats, and never below.
    assert rows._kept[2] == pytest.approx([0.0039370, 0, 0.0015748], abs=1e-7)
    # For the query (1, 0) the copies give 1, 0 and -95 * 0.8/127 = -0.598, each within its error, and little besides.
    assert whole(rows, np.array([1, 0], np.float32), 1, 3) == [0]
    # For (0, 1): 0.5039 ± 0.0039, 0, 0.8 ± 0.0016.
    assert whole(rows, np.array([0, 1], np.float32), 1, 3) == [2]
    assert whole(rows, np.array([0, 1], np.float32), 2, 3) == [0, 2]


def test_hand_worked_copies_of_vectors_to_be_compared_by_distance():
    # Their middle is (101, 201), from which they are (1, 0.5), (-1, 0.5) and (0, -1): half their squares are 0.625,
    # 0.625 and 0.5; codes as above.
    rows = Int8Rows(np.array([[102, 201.5], [100, 201.5], [101, 200]], np.float32), "euclidean")
    assert rows._kept[0].tolist() == [[127, 64], [-127, 64], [0, -127]]
    assert rows._kept[3].tolist() == [0.625, 0.625, 0.5]
    # (104, 204) is (3, 3) from the middle: 4.5 - 0.625, -1.5 - 0.625 and -3 - 0.5 order them.
    assert whole(rows, np.array([104, 204], np.float32), 1, 3) == [0]
    assert whole(rows, np.array([104, 204], np.float32), 2, 3) == [0, 1]
    # The middle itself is sqrt(1.25) from the first two, and 1 from the last.
    assert whole(rows, np.array([101, 201], np.float32), 1, 3) == [2]
    assert whole(rows, np.array([101, 201], np.float32), 2, 3) == [0, 1, 2]


def test_a_copy_that_is_nearer_than_its_vector_does_not_win():
    # In 127ths of 1 the second components are 0.4 (0) and 0.6 (1): copies say that B is nearer by 1/127 = 0.0079, and
    # the vectors by 0.2/127. C's third component makes up 0.3/127, which its copy does not show.
    vectors = np.array([[1, 0.4 / 127, 0], [1, 0.6 / 127, 0], [1, 0.4 / 127, 0.3 / 127]], np.float32)
    query = np.array([0, 1, 1], np.float32) / np.float32(2) ** 0.5
    rows, _ = Nearest(vectors, compiled=True).best(query, 1)
    assert rows.tolist() == [2]


@pytest.mark.parametrize("dimensions", [96, 4_096])
def test_the_largest_sums_of_products_fit(dimensions):
    """All components equal: every code is 127, and every one of the query's is the largest there is."""
    vectors = np.full((3, dimensions), dimensions**-0.5, np.float32)
    vectors[1] *= -1
    vectors[2, ::2] *= -1
    assert whole(Int8Rows(vectors), vectors[0], 1, 3) == [0]
    assert whole(Int8Rows(vectors), vectors[1], 1, 3) == [1]


@pytest.mark.parametrize(("similarity", "far"), [("cosine", 0), ("euclidean", 0), ("euclidean", 1_000)])
def test_few_vectors_are_left_to_compare(similarity, far):
    """However far from 0 the vectors are, where they are compared by distance."""
    vectors = unit(np.random.default_rng(2).normal(size=(20_000, 64))) + np.float32(far)
    rows = Int8Rows(vectors, similarity)
    left = [len(whole(rows, query, 10, len(vectors))) for query in vectors[:50]]
    assert np.mean(left) < 40


@pytest.mark.parametrize("similarity", get_args(Similarity))
def test_every_instruction_set_of_this_processor_leaves_the_same(similarity):
    rng = np.random.default_rng(3)
    vectors = unit(rng.normal(size=(3_000, 100)))
    rows, found = Int8Rows(vectors, similarity), {}
    try:
        for name in ("avx512", "avx2", "generic"):
            if library().kernel_choose(name.encode()):
                found[name] = str([whole(rows, query, 10, len(vectors)) for query in vectors[:20]])
    finally:
        library().kernel_choose(status().instructions.encode())
    assert status().instructions in found
    assert len(set(found.values())) == 1, f"{list(found)} differ"


def test_many_threads_may_ask_at_once():
    rng = np.random.default_rng(4)
    vectors = unit(rng.normal(size=(20_000, 32)))
    nearest = Nearest(vectors, compiled=True)
    alone = [nearest.best(query, 10)[0].tolist() for query in vectors[:200]]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda query: nearest.best(query, 10)[0].tolist(), vectors[:200])) == alone
