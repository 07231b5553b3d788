import math

import bm25s
import numpy as np
import pyarrow as pa
import pytest

from clicktower.schemas.lexical_contract import Analyser
from clicktower.training.ranking.bm25 import TitleBM25
from tests.rounding import assert_equal_but_for_rounding, rounded


def test_hand_worked():
    # k1 1.2 and b 0.75. N = 3, lengths 2, 3, 1, avgdl 2; "bracket" in two titles, "angle" in one.
    # idf(bracket) = ln(1 + 1.5/2.5) = 0.470004; idf(angle) = ln(1 + 2.5/1.5) = 0.980829
    # title 0, length 2: K = 1.2 (0.25 + 0.75 * 2/2) = 1.2, each tf 1: 1/2.2
    #   (0.470004 + 0.980829) / 2.2 = 0.659470
    # title 1, length 3: K = 1.2 (0.25 + 0.75 * 3/2) = 1.65, tf(bracket) 2: 0.470004 * 2/3.65 = 0.257536
    found = TitleBM25(["Angle Bracket", "bracket steel BRACKET", "hose"], k1=1.2, b=0.75).scores(["angle bracket"])
    assert found.dtype == np.float32
    assert found[0].tolist() == pytest.approx([0.659470, 0.257536, 0.0], abs=1e-6)


def test_hand_worked_with_the_defaults():
    # Stemmed and without punctuation, "Brackets, steel" has the words of "bracket steel". K = 0.9 (0.4 + 0.6) = 0.9 for
    # each title, since all have two words: idf(bracket) = ln(1 + 1.5/2.5) = 0.470004, so 0.470004 / 1.9 = 0.247370.
    index = TitleBM25(["Brackets, steel", "(angle) bracket", "garden hose"])
    assert index.scores(["bracket's"])[0].tolist() == pytest.approx([0.247370, 0.247370, 0.0], abs=1e-6)


def reference_scores(titles: list[str], query: str) -> list[float]:
    """BM25 straight from its formula, one title and word at a time, in double precision."""
    words = Analyser().terms
    cut = [words(title) for title in titles]
    average = sum(map(len, cut)) / len(cut)
    scores = []
    for title in cut:
        score = 0.0
        for word in words(query):
            df, tf = sum(word in other for other in cut), title.count(word)
            idf = math.log(1 + (len(cut) - df + 0.5) / (df + 0.5))
            score += idf * tf / (tf + 0.9 * (0.4 + 0.6 * len(title) / average))
        scores.append(score)
    return scores


def test_equals_the_formula_on_random_titles():
    rng = np.random.default_rng(0)
    vocabulary = np.array(["2x4", "Nail", "é", "wood", "中文字", "#10", "x", "screw"])
    titles = [" ".join(rng.choice(vocabulary, rng.integers(1, 9))) for _ in range(50)]
    queries = [" ".join(rng.choice(vocabulary, rng.integers(1, 4))) for _ in range(20)]
    queries += ["wood wood", "no such"]
    expected = [reference_scores(titles, query) for query in queries]
    assert_equal_but_for_rounding(TitleBM25(titles).scores(queries), expected)


def test_a_query_without_a_known_word_or_any_word_scores_zero():
    assert not TitleBM25(["angle bracket"]).scores(["", "   ", "unseen"]).any()


def test_parameters_are_a_number_for_each_title_and_distinct_word():
    assert TitleBM25(["angle bracket angle", "", "hose"]).parameters == 3


def test_the_parts_of_a_score_are_its_terms():
    titles = ["Angle Brackets", "bracket steel BRACKET", "hose"]
    index = TitleBM25(titles, k1=1.2, b=0.75)
    # As worked above: idf(bracket) 0.470004, idf(angle) 0.980829, each over 2.2 in a title of two words.
    terms, parts = zip(*index.parts("angle, bracket", titles[0]), strict=True)
    assert terms == ("angl", "bracket")
    assert parts == pytest.approx([0.445831, 0.213638], abs=1e-6)


def test_the_parts_of_a_title_that_is_not_of_the_collection():
    index = TitleBM25(["Angle Bracket", "bracket steel BRACKET", "hose"], k1=1.2, b=0.75)
    # Of two words, so K = 1.2: "hose" ln(1 + 2.5/1.5) / 2.2; no title counts for "new", so it adds nothing.
    terms, parts = zip(*index.parts("new hose", "hose new"), strict=True)
    assert terms == ("new", "hose")
    assert parts == pytest.approx([0.0, 0.445831], abs=1e-6)
    assert index.parts("hose", "") == [("hose", 0.0)]
    assert index.parts("&", "hose") == []


def test_the_score_of_a_title_equal_to_the_query():
    # N = 3, avgdl 2, k1 1.2 and b 0.75; a word that no title has: idf = ln(1 + 3.5/0.5) = 2.079442.
    index = TitleBM25(["Angle Bracket", "bracket steel BRACKET", "hose"], k1=1.2, b=0.75)
    # Two words: K = 1.2. (0.980829 + 0.470004) / 2.2
    assert index.self_score("angle bracket") == pytest.approx(0.659470, abs=1e-6)
    # Three words: K = 1.2 (0.25 + 0.75 * 3/2) = 1.65. "bracket" twice, each 0.470004 * 2/3.65; "unseen" 2.079442 / 2.65
    assert index.self_score("bracket unseen bracket") == pytest.approx(0.515073 + 0.784695, abs=1e-6)
    assert index.self_score("& ") == 0.0


def test_relative_scores_are_parts_of_that_score():
    index = TitleBM25(["Angle Bracket", "bracket steel BRACKET", "hose"], k1=1.2, b=0.75)
    relative = index.relative("angle bracket", index.scores(["angle bracket"])[0])
    assert relative.dtype == np.float32
    assert relative.tolist() == pytest.approx([1.0, 0.257536 / 0.659470, 0.0], abs=1e-6)
    assert index.relative("&", np.zeros(3, np.float32)).tolist() == [0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def collection() -> list[str]:
    """2,000 titles: common words, rare ones, repeated ones, other scripts, and one without a word."""
    rng = np.random.default_rng(1)
    vocabulary = np.array(["in.", "x", "ﬁne", "中文字", "東京", "Café", "#10", *(f"w{n}" for n in range(200))])
    share = 1 / np.arange(1, len(vocabulary) + 1)
    titles = [" ".join(rng.choice(vocabulary, rng.integers(1, 12), p=share / share.sum())) for _ in range(1_999)]
    return [*titles, " "]


def test_scores_are_those_of_bm25s_bit_for_bit(collection):
    reference = bm25s.BM25(k1=0.9, b=0.6, method="lucene", backend="numpy")
    reference.index([Analyser().terms(title) for title in collection], show_progress=False)
    index = TitleBM25(collection)
    for query in [*collection[:200], "in. in. x", "w199 unseen", "東京"]:
        expected = reference.get_scores(Analyser().terms(query))
        assert index.scores([query])[0].tobytes() == expected.astype(np.float32).tobytes()


def test_a_titles_score_is_that_of_a_query_equal_to_it_and_the_sum_of_its_parts(collection):
    index = TitleBM25(collection)
    for row, title in enumerate(collection[:200]):
        score = index.scores([title])[0][row]
        assert sum((np.float32(part) for _, part in index.parts(title, title)), np.float32(0)) == score
        assert index.self_score(title) == rounded(float(score), of=float(score))


def test_titles_may_come_as_a_column(collection):
    expected = TitleBM25(collection).scores(collection[:20])
    column = pa.array(collection, pa.large_string())
    for titles in (column, column.cast(pa.string()), pa.chunked_array([column[:7], column[7:]])):
        assert (TitleBM25(titles).scores(collection[:20]) == expected).all()


@pytest.mark.parametrize("compiled", [False, None])
def test_the_best_are_those_with_the_highest_scores_and_all_that_tie_with_the_last(collection, compiled):
    index = TitleBM25(collection, compiled=compiled)
    for query in [*collection[:100], "in. in. x", "unseen"]:
        scores = index.scores([query])[0]
        for k in (1, 10, 5_000):
            rows, found = index.best(query, k)
            limit = max(np.sort(scores)[-min(k, len(scores))], np.float32(1e-9))
            assert sorted(rows.tolist()) == np.flatnonzero(scores >= limit).tolist()
            assert (found == scores[rows]).all()


@pytest.mark.parametrize("compiled", [False, None])
def test_the_best_among_some_titles_are_those_with_the_highest_scores_of_them(collection, compiled):
    index = TitleBM25(collection, compiled=compiled)
    among = np.flatnonzero(np.random.default_rng(0).random(len(collection)) < 0.1)
    for query in [*collection[:50], "in. in. x", "unseen"]:
        scores = index.scores([query])[0][among]
        for k in (1, 10, 5_000):
            rows, found = index.best(query, k, among)
            limit = max(np.sort(scores)[-min(k, len(scores))], np.float32(1e-9))
            assert sorted(rows.tolist()) == among[scores >= limit].tolist()
            assert (found == index.scores_of(query, rows)).all()


@pytest.mark.parametrize("compiled", [False, None])
def test_scores_of_some_titles_are_those_of_all(collection, compiled):
    index = TitleBM25(collection, compiled=compiled)
    rows = np.random.default_rng(0).permutation(len(collection))[:300]
    for query in [*collection[:50], "in. in. x", "unseen", ""]:
        assert (index.scores_of(query, rows) == index.scores([query])[0][rows]).all()


def test_words_by_white_space_are_those_of_the_text_contract():
    titles = ["Brackets, steel", "steel bracket", "hose"]
    index = TitleBM25(titles, None)
    assert (index.scores(["bracket"])[0] > 0).tolist() == [False, True, False]
    assert (index.scores(["brackets,"])[0] > 0).tolist() == [True, False, False]


def test_an_index_that_was_written_and_opened_is_the_one_that_was_made(collection, tmp_path):
    made = TitleBM25(collection)
    made.write(f"{tmp_path}/bm25.arrow")
    opened = TitleBM25.open(f"{tmp_path}/bm25.arrow")
    assert opened.num_titles == len(collection)
    queries = [*collection[:100], "in. in. x", "東京 unseen", "", "\ud800"]
    assert opened.scores(queries).tobytes() == made.scores(queries).tobytes()
    for query in queries:
        for found, expected in zip(opened.best(query, 10), made.best(query, 10), strict=True):
            assert found.tobytes() == expected.tobytes()
        assert opened.parts(query, collection[0]) == made.parts(query, collection[0])
        assert opened.self_score(query) == made.self_score(query)


def test_the_same_titles_make_the_same_bytes(collection, tmp_path):
    for name in ("a", "b"):
        TitleBM25(list(collection)).write(f"{tmp_path}/{name}")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_index_lies_on_an_object_store_too(collection):
    TitleBM25(collection).write("memory://release/bm25.arrow")
    opened = TitleBM25.open("memory://release/bm25.arrow")
    assert (opened.scores(collection[:9]) == TitleBM25(collection).scores(collection[:9])).all()


def test_titles_without_a_word_have_an_index(tmp_path):
    TitleBM25(["", "&"]).write(f"{tmp_path}/bm25.arrow")
    assert not TitleBM25.open(f"{tmp_path}/bm25.arrow").scores(["angle"]).any()


def test_an_index_of_other_words_or_settings_is_not_ours(tmp_path, monkeypatch):
    path = f"{tmp_path}/bm25.arrow"
    assert TitleBM25.open(path) is None
    TitleBM25(["Brackets"], "english").write(path)
    assert TitleBM25.open(path, "english")
    for language in ("german", "none", None):
        assert TitleBM25.open(path, language) is None
    for other in ({"k1": 1.2}, {"b": 0.75}):
        TitleBM25(["Brackets"], "english", **other).write(f"{tmp_path}/other.arrow")
        assert TitleBM25.open(f"{tmp_path}/other.arrow", "english") is None
    for name, version in (
        ("clicktower.schemas.lexical_contract.STEMMER_VERSION", "0.1"),
        ("clicktower.schemas.lexical_contract.LEXICAL_VERSION", "0.1"),
        ("clicktower.training.ranking.bm25._VERSION", "0.1"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(name, version)
            assert TitleBM25.open(path, "english") is None


def test_a_damaged_index_is_refused(collection, tmp_path):
    path = tmp_path / "bm25.arrow"
    TitleBM25(collection).write(str(path))
    whole = path.read_bytes()
    batch = pa.ipc.open_file(whole).get_batch(0)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.select(["term"]).schema) as writer:
        writer.write_batch(batch.select(["term"]))
    for damaged in (b"", b"no Arrow", whole[:-1], whole[: len(whole) // 2], whole[100:], sink.getvalue().to_pybytes()):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="is no index of BM25, or a damaged one"):
            TitleBM25.open(str(path))
