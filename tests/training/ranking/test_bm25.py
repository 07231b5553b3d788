import math

import numpy as np
import pytest

from schemas.words import words
from training.ranking.bm25 import TitleBM25


def test_hand_worked():
    # N = 3, lengths 2, 3, 1, avgdl 2; "bracket" in two titles, "angle" in one.
    # idf(bracket) = ln(1 + 1.5/2.5) = 0.470004; idf(angle) = ln(1 + 2.5/1.5) = 0.980829
    # title 0, length 2: K = 1.2 (0.25 + 0.75 * 2/2) = 1.2, each tf 1: 1/2.2
    #   (0.470004 + 0.980829) / 2.2 = 0.659470
    # title 1, length 3: K = 1.2 (0.25 + 0.75 * 3/2) = 1.65, tf(bracket) 2: 0.470004 * 2/3.65 = 0.257536
    found = TitleBM25(["Angle Bracket", "bracket steel BRACKET", "hose"]).scores(["angle bracket"])
    assert found.dtype == np.float32
    assert found[0].tolist() == pytest.approx([0.659470, 0.257536, 0.0], abs=1e-6)


def reference_scores(titles: list[str], query: str) -> list[float]:
    """BM25 straight from its formula, one title and word at a time, in double precision."""
    cut = [words(title) for title in titles]
    average = sum(map(len, cut)) / len(cut)
    scores = []
    for title in cut:
        score = 0.0
        for word in words(query):
            df, tf = sum(word in other for other in cut), title.count(word)
            idf = math.log(1 + (len(cut) - df + 0.5) / (df + 0.5))
            score += idf * tf / (tf + 1.2 * (0.25 + 0.75 * len(title) / average))
        scores.append(score)
    return scores


def test_equals_the_formula_on_random_titles():
    rng = np.random.default_rng(0)
    vocabulary = np.array(["2x4", "Nail", "é", "wood", "中文字", "#10", "x", "screw"])
    titles = [" ".join(rng.choice(vocabulary, rng.integers(1, 9))) for _ in range(50)]
    queries = [" ".join(rng.choice(vocabulary, rng.integers(1, 4))) for _ in range(20)]
    queries += ["wood wood", "no such"]
    expected = [reference_scores(titles, query) for query in queries]
    np.testing.assert_allclose(TitleBM25(titles).scores(queries), expected, rtol=1e-5, atol=1e-6)


def test_a_query_without_a_known_word_or_any_word_scores_zero():
    assert not TitleBM25(["angle bracket"]).scores(["", "   ", "unseen"]).any()


def test_parameters_are_a_number_for_each_title_and_distinct_word():
    assert TitleBM25(["angle bracket angle", "", "hose"]).parameters == 3
