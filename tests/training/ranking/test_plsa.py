import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.text_contract import words
from clicktower.training.ranking.bm25 import count_terms
from clicktower.training.ranking.plsa import TITLE_PRIOR, TitlePLSA, train_topics

TITLES = ["garden hose", "hose 50 ft hose", "angle bracket", "steel angle bracket", "", "bracket for shelf"]
TEXTS = st.lists(st.sampled_from(["hose", "garden", "angle", "steel", "2x4", "é"]), max_size=5).map(" ".join)


def counts_of(titles: list[str]) -> np.ndarray:
    """c(w, d), dense: float64 [titles, words], words in the order of their first occurrence."""
    vocabulary = list(dict.fromkeys(word for title in titles for word in words(title)))
    return np.array([[words(title).count(word) for word in vocabulary] for title in titles], np.float64)


def dense_steps(counts_DV, topics_VZ, titles_DZ, iterations, teaching=None, word_prior=0.0):
    """Textbook EM with the whole posterior p(z | d, w) held as one array."""
    for _ in range(iterations):
        joint_DVZ = titles_DZ[:, None, :] * topics_VZ[None, :, :]
        posterior_DVZ = joint_DVZ / np.maximum(joint_DVZ.sum(axis=2, keepdims=True), 1e-30)  # 0: no topic has the word
        expected_DVZ = counts_DV[:, :, None] * posterior_DVZ
        topics_VZ = expected_DVZ[:teaching].sum(axis=0) + word_prior
        topics_VZ = topics_VZ / topics_VZ.sum(axis=0)
        titles_DZ = expected_DVZ.sum(axis=1) + TITLE_PRIOR
        titles_DZ = titles_DZ / titles_DZ.sum(axis=1, keepdims=True)
    return topics_VZ, titles_DZ


@pytest.mark.parametrize(("teaching", "word_prior"), [(None, 0.0), (None, 0.02), (3, 0.02), (4, 0.0)])
def test_training_equals_a_dense_em(teaching, word_prior):
    terms = count_terms(TITLES, None)
    start = (table.astype(np.float64) for table in train_topics(terms, 3, iterations=0, seed=5))
    found = train_topics(terms, 3, num_teaching=teaching, word_prior=word_prior, iterations=12, seed=5)
    for table, expected in zip(found, dense_steps(counts_of(TITLES), *start, 12, teaching, word_prior), strict=True):
        np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-6)


def test_one_topic_is_the_counts_of_the_training_titles_and_the_priors():
    """p(hose) of "hose hose tap" alone, with a prior of 0.5 for each of three words, is (2 + 0.5) / (3 + 3 * 0.5)."""
    system = TitlePLSA(["pipe tap"], training_titles=["hose hose tap"], topics=1, word_prior=0.5, iterations=1)
    topic = np.array([2.5, 1.5, 0.5]) / 4.5  # hose, tap, and pipe, which no training title has
    shares = np.array([2, 2, 1]) / 5  # of all words
    np.testing.assert_allclose(system.scores(["hose", "tap", "pipe"])[:, 0], np.log((topic + shares) / 2), rtol=1e-5)


def test_a_title_that_taught_no_topic_is_near_to_those_of_its_words():
    plumbing, fastening = ["hose tap", "tap pipe", "pipe hose"], ["nail screw", "screw bolt", "bolt nail"]
    system = TitlePLSA(["tap", "bolt", "novel"], training_titles=[*plumbing, *fastening] * 4, topics=2, seed=1)
    pipe, nail = system.scores(["pipe", "nail"])
    assert pipe[0] > pipe[1] + 1
    assert nail[1] > nail[0] + 1
    assert np.isfinite([pipe, nail]).all()


def test_blocks_change_nothing(monkeypatch):
    terms = count_terms(TITLES, None)
    whole = train_topics(terms, 3, iterations=5, seed=1)
    monkeypatch.setattr("clicktower.training.ranking.plsa._BLOCK_VALUES", 6)  # two rows at a time
    for table, again in zip(whole, train_topics(terms, 3, iterations=5, seed=1), strict=True):
        np.testing.assert_allclose(table, again, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(TEXTS, min_size=1, max_size=8).filter(lambda t: any(words(x) for x in t)),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.1]),
)
def test_the_log_posterior_never_falls_and_shares_are_shares(titles, topics, prior):
    terms, counts_DV, before = count_terms(titles, None), counts_of(titles), -np.inf
    for iterations in range(1, 12):
        topics_VZ, titles_DZ = train_topics(terms, topics, word_prior=prior, iterations=iterations, seed=0)
        share_DV = np.maximum(titles_DZ.astype(np.float64) @ topics_VZ.T, 1e-30)
        posterior = (counts_DV * np.log(share_DV)).sum() + TITLE_PRIOR * np.log(titles_DZ).sum(dtype=np.float64)
        posterior += prior * np.log(topics_VZ, where=topics_VZ > 0, out=np.zeros_like(topics_VZ)).sum(dtype=np.float64)
        assert posterior >= before - 1e-4 * (1 + abs(posterior))
        before = posterior
    np.testing.assert_allclose(topics_VZ.sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(titles_DZ.sum(axis=1), 1, rtol=1e-5)
    assert (topics_VZ >= 0).all()
    assert (titles_DZ >= 0).all()


def test_scores_are_the_mixture_of_topics_and_background():
    system = TitlePLSA(TITLES, topics=3, iterations=9, seed=5)
    topics_VZ, titles_DZ = train_topics(count_terms(TITLES, None), 3, iterations=9, seed=5)
    counts_DV = counts_of(TITLES)
    mixed_DV = 0.5 * titles_DZ @ topics_VZ.T
    mixed_DV += 0.5 * counts_DV.sum(axis=0) / counts_DV.sum()
    hose, angle = 1, 4  # garden hose 50 ft angle ...
    expected = [np.log(mixed_DV[:, hose]), np.log(mixed_DV[:, angle]) + 2 * np.log(mixed_DV[:, hose])]
    found = system.scores(["hose", "hose angle unseen hose"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_topics_join_words_that_occur_together():
    """Two blocks of words that never meet: a title of one block scores high for a word of it that it lacks."""
    plumbing, fastening = ["hose tap", "tap pipe", "pipe hose"], ["nail screw", "screw bolt", "bolt nail"]
    system = TitlePLSA(plumbing * 4 + fastening * 4, topics=2, iterations=100, seed=1)
    scores = system.scores(["pipe"])[0]
    assert scores[0] > scores[12:].max() + 1  # "hose tap" has no "pipe", and neither have the fasteners


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6).filter(lambda t: any(words(x) for x in t)), TEXTS)
def test_every_score_is_finite(titles, query):
    assert np.isfinite(TitlePLSA(titles, topics=7, iterations=60).scores([query, "é unseen"])).all()


def test_the_seed_alone_decides_and_one_title_has_one_score():
    titles = [*TITLES, "Garden  Hose"]
    first, again, other = (TitlePLSA(titles, topics=4, seed=seed).scores(["hose ft"])[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first[0] == first[-1]


def test_parameters_are_both_tables():
    assert TitlePLSA(["a b", "A  B", "c"], topics=5).parameters == 3 * 5 + 2 * 5  # three words, two distinct titles


def test_titles_without_words_are_refused():
    with pytest.raises(ValueError, match="one title with a word"):
        TitlePLSA(["", " "])
