from itertools import pairwise

import pyarrow as pa

from clicktower.training.ranking.bm25 import count_terms
from clicktower.training.ranking.plsa import known_words


def test_each_word_holds_its_titles_and_how_often_they_have_it():
    terms = count_terms(["hose Hose 50 ft", "", "ft nail"], None)
    assert terms.vocabulary == {"hose": 0, "50": 1, "ft": 2, "nail": 3}
    assert [terms.title_of[a:b].tolist() for a, b in pairwise(terms.starts)] == [[0], [0], [0, 2], [2]]
    assert terms.word_of.tolist() == [0, 1, 2, 2, 3]
    assert terms.counts.tolist() == [2, 1, 1, 1, 1]
    assert terms.lengths.tolist() == [4, 0, 2]
    assert terms.of_words.tolist() == [2, 1, 2, 1]
    assert terms.titles_with.tolist() == [1, 1, 2, 1]


def test_titles_in_several_chunks_are_counted_as_in_one(monkeypatch):
    titles = ["hose 50", "中文字 hose", "nail", "50 ft", ""]
    whole = count_terms(pa.array(titles), None)
    monkeypatch.setattr("clicktower.training.ranking.bm25._CHUNK_TITLES", 2)
    parts = count_terms(titles, None)
    assert parts.vocabulary == whole.vocabulary
    for name in ("starts", "title_of", "counts", "lengths"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()


def test_titles_without_any_word_have_no_entry():
    terms = count_terms(["", " "], None)
    assert (len(terms.counts), terms.lengths.tolist(), terms.starts.tolist()) == (0, [0, 0], [0])
    assert count_terms([], None).lengths.tolist() == []


def test_a_query_holds_its_known_words_in_order():
    assert known_words("ft Hose new ft", {"hose": 0, "ft": 1}, None) == [1, 0, 1]
