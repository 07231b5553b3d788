import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.words import words
from training.ranking.language_model import count_terms
from training.ranking.plsa import Priors, TitlePLSA, train_topics

TITLES = ["garden hose", "hose 50 ft hose", "angle bracket", "steel angle bracket", "", "bracket for shelf"]
TEXTS = st.lists(st.sampled_from(["hose", "garden", "angle", "steel", "2x4", "é"]), max_size=5).map(" ".join)
PRIORS = st.builds(Priors, title=st.sampled_from([0.0, 0.01, 1.0]), word=st.sampled_from([0.0, 0.01, 1.0]))


def counts_of(titles: list[str]) -> np.ndarray:
    """c(w, d), dense: float64 [titles, words], words in the order of their first occurrence."""
    vocabulary = list(dict.fromkeys(word for title in titles for word in words(title)))
    return np.array([[words(title).count(word) for word in vocabulary] for title in titles], np.float64)


def dense_steps(counts_DV, topics_VZ, titles_DZ, priors, iterations):
    """Textbook EM with the whole posterior p(z | d, w) held as one array."""
    for _ in range(iterations):
        joint_DVZ = titles_DZ[:, None, :] * topics_VZ[None, :, :]
        posterior_DVZ = joint_DVZ / joint_DVZ.sum(axis=2, keepdims=True)
        expected_DVZ = counts_DV[:, :, None] * posterior_DVZ
        topics_VZ = expected_DVZ.sum(axis=0) + priors.word
        topics_VZ = topics_VZ / topics_VZ.sum(axis=0)
        titles_DZ = expected_DVZ.sum(axis=1) + priors.title
        mass = titles_DZ.sum(axis=1, keepdims=True)
        titles_DZ = np.where(mass > 0, titles_DZ / np.where(mass > 0, mass, 1), 1 / titles_DZ.shape[1])
    return topics_VZ, titles_DZ


@pytest.mark.parametrize("priors", [Priors(title=0, word=0), Priors(title=0.3, word=0.05)])
def test_training_equals_a_dense_em(priors):
    terms = count_terms(TITLES)
    start = train_topics(terms, 3, priors, iterations=0, seed=5, dtype=np.float64)
    found = train_topics(terms, 3, priors, iterations=12, seed=5, dtype=np.float64)
    expected = dense_steps(counts_of(TITLES), *start, priors, 12)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9, atol=1e-12)


def test_blocks_change_nothing(monkeypatch):
    terms = count_terms(TITLES)
    whole = train_topics(terms, 3, Priors(title=0.1, word=0.1), iterations=5, seed=1)
    monkeypatch.setattr("training.ranking.plsa._BLOCK_VALUES", 6)  # two rows at a time
    for table, again in zip(
        whole, train_topics(terms, 3, Priors(title=0.1, word=0.1), iterations=5, seed=1), strict=True
    ):
        np.testing.assert_allclose(table, again, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8).filter(lambda t: any(words(x) for x in t)), PRIORS, st.integers(1, 4))
def test_the_log_posterior_never_falls_and_shares_are_shares(titles, priors, topics):
    told = []
    topics_VZ, titles_DZ = train_topics(
        count_terms(titles), topics, priors, iterations=15, seed=0, dtype=np.float64, tell=lambda _, at: told.append(at)
    )
    steps = np.diff(told)
    assert (steps >= -1e-9 * np.abs(told[:-1])).all()
    np.testing.assert_allclose(topics_VZ.sum(axis=0), 1)
    np.testing.assert_allclose(titles_DZ.sum(axis=1), 1)
    assert (topics_VZ >= 0).all()
    assert (titles_DZ >= 0).all()


def test_the_log_posterior_is_what_it_is_said_to_be():
    terms, priors, told = count_terms(TITLES), Priors(title=0.3, word=0.05), []
    topics_VZ, titles_DZ = train_topics(terms, 2, priors, iterations=0, seed=3, dtype=np.float64)
    train_topics(terms, 2, priors, iterations=1, seed=3, dtype=np.float64, tell=lambda _, at: told.append(at))
    expected = (counts_of(TITLES) * np.log(titles_DZ @ topics_VZ.T)).sum()
    expected += 0.3 * np.log(titles_DZ).sum() + 0.05 * np.log(topics_VZ).sum()
    assert told == [pytest.approx(expected, rel=1e-12)]


def test_scores_are_the_mixture_of_topics_and_background():
    priors = Priors(title=0.1, word=0.01)
    system = TitlePLSA(TITLES, topics=3, iterations=9, priors=priors, background=0.2, seed=5, dtype=np.float64)
    topics_VZ, titles_DZ = train_topics(count_terms(TITLES), 3, priors, iterations=9, seed=5, dtype=np.float64)
    counts_DV = counts_of(TITLES)
    mixed_DV = 0.8 * titles_DZ @ topics_VZ.T
    mixed_DV += 0.2 * counts_DV.sum(axis=0) / counts_DV.sum()
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
@given(st.lists(TEXTS, min_size=1, max_size=6).filter(lambda t: any(words(x) for x in t)), TEXTS, PRIORS)
def test_every_score_is_finite(titles, query, priors):
    assert np.isfinite(TitlePLSA(titles, topics=7, iterations=60, priors=priors).scores([query, "é unseen"])).all()


def test_the_seed_alone_decides_and_one_title_has_one_score():
    titles = [*TITLES, "Garden  Hose"]
    first, again, other = (TitlePLSA(titles, topics=4, seed=seed).scores(["hose ft"])[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first[0] == first[-1]


def test_parameters_are_both_tables():
    assert TitlePLSA(["a b", "A  B", "c"], topics=5).parameters == 3 * 5 + 2 * 5  # three words, two distinct titles


@pytest.mark.parametrize("settings_", [{"topics": 0}, {"iterations": 0}, {"background": 0}, {"background": 1}])
def test_settings_out_of_range_are_refused(settings_):
    with pytest.raises(ValueError, match="at least 1"):
        TitlePLSA(TITLES, **settings_)


def test_titles_without_words_are_refused():
    with pytest.raises(ValueError, match="one title with a word"):
        TitlePLSA(["", " "])
