from itertools import pairwise

import numpy as np

from training.ranking.language_model import count_terms


def test_each_title_holds_its_distinct_words_and_how_often_they_occur():
    terms = count_terms(["hose Hose 50 ft", "", "ft nail"])
    assert terms.vocabulary == {"hose": 0, "50": 1, "ft": 2, "nail": 3}
    assert terms.title_of.tolist() == [0, 0, 0, 2, 2]
    assert terms.word_of.tolist() == [0, 1, 2, 2, 3]
    assert terms.counts.tolist() == [2, 1, 1, 1, 1]
    assert terms.starts.tolist() == [0, 3, 3, 5]
    assert terms.lengths.tolist() == [4, 0, 2]
    assert terms.of_words.tolist() == [2, 1, 2, 1]


def test_the_entries_of_a_word_are_found():
    terms = count_terms(["hose Hose 50 ft", "", "ft nail"])
    order, starts = terms.by_word()
    assert [terms.title_of[order[a:b]].tolist() for a, b in pairwise(starts)] == [
        [0], [0], [0, 2], [2]
    ]  # fmt: skip


def test_titles_without_any_word_have_no_entry():
    terms = count_terms(["", " "])
    assert len(terms.counts) == 0
    np.testing.assert_array_equal(terms.lengths, [0, 0])
    assert len(terms.by_word()[0]) == 0
