import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.text_contract import words
from clicktower.training.ranking.plsa import TitleLanguageModel
from tests.rounding import assert_sums_equal

WORDS = st.sampled_from(["nail", "Nail", "é", "wood", "中文字", "#10", "2x4"])
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


def test_hand_worked():
    # Six words in all: angle 1, bracket 3, steel 1, hose 1; mu = 2, so mu p(w | C) is 1/3 for angle, 1 for bracket.
    # "angle bracket" under title 0 (length 2): log((1 + 1/3) / 4) + log((1 + 1) / 4) = log(1/3) + log(1/2) = -log 6
    # title 1 (length 3, bracket twice):        log((1/3) / 5) + log((2 + 1) / 5)     = log(1/15 * 3/5)     = -log 25
    # title 2 (length 1, neither):              log((1/3) / 3) + log(1 / 3)           = log(1/9 * 1/3)      = -log 27
    system = TitleLanguageModel(["Angle Bracket", "bracket steel BRACKET", "hose"], mu=2)
    found = system.scores(["angle bracket"])
    assert found.dtype == np.float32
    assert found[0].tolist() == pytest.approx([-math.log(6), -math.log(25), -math.log(27)], abs=1e-6)
    assert system.parameters == 5 + 3 + 4  # a gain per title and distinct word, a length per title, a share per word


def reference_scores(titles: list[str], query: str, mu: float) -> list[tuple[float, float]]:
    """The formula one title and word at a time, in double precision; words that no title has are left out.

    Beside each score, what is added up for it without the signs: a word's background, gain and length.
    """
    cut = [words(title) for title in titles]
    collection = [word for title in cut for word in title]
    scores = []
    for title in cut:
        score = absolute = 0.0
        for word in words(query):
            if share := collection.count(word) / max(1, len(collection)):
                score += math.log((title.count(word) + mu * share) / (len(title) + mu))
                absolute += abs(math.log(mu * share)) + abs(math.log(len(title) + mu))
                absolute += math.log1p(title.count(word) / (mu * share))
        scores.append((score, absolute))
    return scores


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8), st.lists(TEXTS, min_size=1, max_size=3), st.floats(0.01, 1e4))
def test_equals_the_formula(titles, queries, mu):
    found = TitleLanguageModel(titles, mu=mu).scores(queries)
    scores, absolute = np.moveaxis([reference_scores(titles, query, mu) for query in queries], 2, 0)
    assert_sums_equal(found, scores, absolute, 6 + 3)  # six words; each gain is rounded, times its count, and added


def test_a_word_that_no_title_has_changes_no_score():
    system = TitleLanguageModel(["angle bracket", "hose", ""])
    np.testing.assert_array_equal(system.scores(["hose unseen unseen"]), system.scores(["hose"]))
    assert not system.scores(["unseen"]).any()
    assert not TitleLanguageModel(["", " "]).scores(["hose"]).any()


def test_a_word_twice_in_the_query_counts_twice():
    system = TitleLanguageModel(["angle bracket", "hose hose reel"])
    np.testing.assert_allclose(system.scores(["hose hose"]), 2 * system.scores(["hose"]), rtol=1e-6)


def test_documents_of_one_title_have_exactly_one_score():
    found = TitleLanguageModel(["steel angle", "hose", "Steel  Angle"]).scores(["angle of steel"])[0]
    assert found[0] == found[2] != found[1]
