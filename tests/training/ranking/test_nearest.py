import numpy as np
import pytest

from clicktower.flows.releases.ivf_index import partition
from clicktower.training.ranking.nearest import Nearest, Partitions
from tests.rounding import gamma, rounded


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    """3,000 around 40 directions, of which 200 are one and the same."""
    rng = np.random.default_rng(0)
    about = rng.normal(size=(40, 12))[rng.integers(0, 40, 3_000)]
    made = unit(about + 0.3 * rng.normal(size=about.shape))
    made[rng.permutation(3_000)[:200]] = made[7]
    return made


@pytest.fixture(scope="module")
def partitions(vectors) -> Partitions:
    return partition(vectors)


def test_hand_worked():
    nearest = Nearest(np.array([[1, 0], [0, 1], [0.6, 0.8], [0, 1]], np.float32))
    rows, cosines = nearest.best(np.array([0.8, 0.6], np.float32), 1)
    assert (rows.tolist(), cosines.tolist()) == ([2], pytest.approx([0.96]))
    rows, cosines = nearest.best(np.array([0, 1], np.float32), 1)
    assert sorted(rows.tolist()) == [1, 3]  # both are the nearest
    assert nearest.scores_of(np.array([0.8, 0.6], np.float32), np.array([3, 0])).tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("compiled", [None, False])
def test_hand_worked_distances(compiled):
    nearest = Nearest(
        np.array([[103, 100], [100, 104], [100, 100], [100, 104]], np.float32),
        similarity="euclidean",
        compiled=compiled,
    )
    rows, scores = nearest.best(np.array([100, 100], np.float32), 2)
    assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == {2: 0, 0: -3}
    rows, scores = nearest.best(np.array([100, 100], np.float32), 3)
    assert dict(zip(rows.tolist(), scores.tolist(), strict=True)) == {2: 0, 0: -3, 1: -4, 3: -4}  # both are the third
    # (103, 104) is 4 from the first, 3 from the second, and 5 from the third.
    assert nearest.scores_of(np.array([103, 104], np.float32), np.array([2, 0, 1])).tolist() == [-5, -4, -3]
    assert nearest.vectors_of(np.array([3, 0])).tolist() == [[100, 104], [103, 100]]


@pytest.mark.parametrize("probes", [None, 1, 110])
def test_by_distance_what_float64_finds_nearest_is_found_and_equal_vectors_are_0_apart(probes):
    """Among 3,000 around 40 points far from 0, of which 200 are one and the same."""
    rng = np.random.default_rng(0)
    about = 20 + rng.normal(size=(40, 12))[rng.integers(0, 40, 3_000)]
    vectors = (about + 0.1 * rng.normal(size=about.shape)).astype(np.float32)
    vectors[rng.permutation(3_000)[:200]] = vectors[7]
    found = partition(vectors, similarity="euclidean")
    squares_NP = ((vectors[:, None].astype(np.float64) - found.centres_PD) ** 2).sum(axis=2)
    # In float32 they are what is left of sums of 12 products of about 20 by 20.
    least_N = rounded(squares_NP.min(axis=1), 16, of=np.square(vectors).sum(axis=1).max())
    assert squares_NP[np.arange(3_000), found.of_N] == least_N
    nearest = Nearest(vectors, found, similarity="euclidean")
    hits = 0
    for query in vectors[:100]:
        exact = np.linalg.norm(vectors.astype(np.float64) - query, axis=1)
        rows, scores = nearest.best(query, 10, probes)
        assert -scores == pytest.approx(exact[rows], rel=gamma(12 + 4))
        assert np.min(-scores) == 0
        hits += min(10, int((exact[rows] <= np.sort(exact)[9]).sum()))
    assert hits == 1_000 if probes != 1 else 500 < hits < 1_000
    rows, scores = nearest.best(vectors[7], 5, 1)
    assert sorted(rows.tolist()) == np.flatnonzero((vectors == vectors[7]).all(axis=1)).tolist()
    assert scores.tolist() == [0.0] * len(rows)


@pytest.mark.parametrize("probes", [None, 110])
def test_all_partitions_give_what_comparing_with_all_gives(vectors, partitions, probes):
    nearest = Nearest(vectors, partitions)
    exact = vectors.astype(np.float64) @ vectors[:100].astype(np.float64).T
    for query, cosines_N in zip(vectors[:100], exact.T, strict=True):
        rows, cosines = nearest.best(query, 10, probes)
        assert cosines == rounded(cosines_N[rows])
        assert np.sort(cosines)[-10:] == rounded(np.sort(cosines_N)[-10:])
        assert len(set(rows.tolist())) == len(rows)


def test_equal_vectors_have_bit_for_bit_one_cosine_and_are_found_together(vectors, partitions):
    for nearest, probes in ((Nearest(vectors), None), (Nearest(vectors, partitions), 1)):
        rows, cosines = nearest.best(vectors[7], 5, probes)
        assert sorted(rows.tolist()) == np.flatnonzero((vectors == vectors[7]).all(axis=1)).tolist()
        assert len(set(cosines.tolist())) == 1


def test_more_partitions_find_more_and_few_find_most(vectors, partitions):
    nearest = Nearest(vectors, partitions)
    found = []
    for probes in (1, 4, 16):
        hits = 0
        for query in vectors[100:300]:
            limit = np.sort(vectors @ query)[-10]
            hits += min(10, int((nearest.best(query, 10, probes)[1] >= limit - 1e-5).sum()))
        found.append(hits / 2_000)
    assert found == sorted(found)
    assert found[-1] > 0.95 > found[0]


def test_where_the_partitions_hold_too_few_all_vectors_are_compared(vectors, partitions):
    rows, _ = Nearest(vectors, partitions).best(vectors[0], 2_900, 1)
    assert len(rows) >= 2_900
    rows, _ = Nearest(vectors, partitions).best(vectors[0], 5_000, 1)
    assert sorted(rows.tolist()) == list(range(3_000))


def test_the_same_partitions_every_time_and_each_vector_in_that_of_its_nearest_centre(vectors, partitions):
    again = partition(vectors)
    assert (again.of_N == partitions.of_N).all()
    assert again.centres_PD.tobytes() == partitions.centres_PD.tobytes()
    assert partitions.centres_PD.shape == (110, 12)  # 2 √3,000
    assert np.linalg.norm(partitions.centres_PD, axis=1) == rounded(np.ones(110))
    to_centres = vectors @ partitions.centres_PD.T
    own = to_centres[np.arange(3_000), partitions.of_N]
    assert own == rounded(to_centres.max(axis=1))
    assert (partition(vectors, seed=1).of_N != partitions.of_N).any()


def test_one_vector_is_one_partition():
    found = partition(np.ones((1, 4), np.float32) / 2)
    rows, cosines = Nearest(np.ones((1, 4), np.float32) / 2, found).best(np.ones(4, np.float32) / 2, 3, 1)
    assert (rows.tolist(), cosines.tolist()) == ([0], [1.0])


def test_partitions_of_other_vectors_are_refused(vectors, partitions):
    for wrong in (
        Partitions(centres_PD=partitions.centres_PD, of_N=partitions.of_N[:-1]),
        Partitions(centres_PD=partitions.centres_PD[:, :-1], of_N=partitions.of_N),
        Partitions(centres_PD=partitions.centres_PD[:-1], of_N=np.full(3_000, 109, np.int32)),
        Partitions(centres_PD=partitions.centres_PD, of_N=np.full(3_000, -1, np.int32)),
    ):
        with pytest.raises(ValueError, match="not of these vectors"):
            Nearest(vectors, wrong)
