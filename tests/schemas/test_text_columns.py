import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from clicktower.schemas.text_contract import (
    golden_cases,
    normalise,
    normalise_column,
    split_normalised,
    trigram_ids,
    words_of_column,
)

# Plain words, every kind of white space, letters that folding changes, scripts with and without spaces.
LETTERS = st.text(
    st.one_of(
        st.sampled_from("aZ0 # \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x00\x7f\x85\xa0\u2028\u3000"),
        st.sampled_from("-éÉΣςİıßﬁ½Ａ漢字日ひカไทยລາမြန🔨\u0301i\u0307\xad\u200b\u200d\u2800\ufe0f"),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=12,
)
ASCII = st.text(st.sampled_from("abAB1 \t\x1c\x1f\x00\x7f-"), max_size=12)
COLUMNS = st.lists(st.one_of(LETTERS, ASCII), max_size=12)


def slowly(texts: list[str]) -> tuple[list[str], list[int], list[int], list[str]]:
    """(normalised, offsets, word codes, distinct words) by `normalise` and `split_normalised`, one text at a time."""
    normalised = [normalise(text) for text in texts]
    of_texts = [split_normalised(text) for text in normalised]
    words = [word for of_text in of_texts for word in of_text]
    distinct = list(dict.fromkeys(words))
    offsets = [0]
    for of_text in of_texts:
        offsets.append(offsets[-1] + len(of_text))
    return normalised, offsets, [distinct.index(word) for word in words], distinct


def require_equal(texts: list[str], column: pa.Array | pa.ChunkedArray) -> None:
    normalised, offsets, codes, distinct = slowly(texts)
    fast = normalise_column(column)
    assert fast.to_pylist() == normalised
    fast_offsets, words = words_of_column(fast)
    assert fast_offsets.tolist() == offsets
    assert words.indices.to_pylist() == codes
    assert words.dictionary.to_pylist() == distinct


@given(COLUMNS)
@example([])
@example([""])
@example(["", " ", "a", "", "a "])
@example(["a b", "b a", "a"])
@example(["漢字 a", "字 漢", "漢字x漢字"])
@example(["İ", "ΑΣ", "Σ\n", "a\u0301"])
@example(["a\x7fb", "\x00", "a \x1b b", "\u200b", "c"])
def test_a_column_is_what_its_texts_are_one_by_one(texts):
    require_equal(texts, pa.array(texts, pa.string()))


@given(COLUMNS, st.integers(0, 3), st.integers(0, 3))
def test_slices_and_chunks_change_nothing(texts, cut, start):
    column = pa.array(texts, pa.string())
    require_equal(texts[start:], column.slice(start))
    require_equal(texts[start : start + cut], column.slice(start, cut))
    require_equal(texts, pa.chunked_array([column.slice(0, cut), column.slice(cut)]))


@given(COLUMNS)
def test_ids_of_a_column_of_words_are_those_of_the_strings(texts):
    column = words_of_column(normalise_column(pa.array(texts, pa.string())))[1].dictionary
    words = column.to_pylist()
    for some, part in ((words, column), (words[1:], column.slice(1)), (words[1:2], column.slice(1, 1))):
        expected, found = trigram_ids(some), trigram_ids(part)
        assert found[0].tolist() == expected[0].tolist()
        assert found[0].dtype == expected[0].dtype
        assert found[1].tolist() == expected[1].tolist()


def test_every_text_of_the_golden_file_has_its_words_and_ids_by_column():
    cases = golden_cases()
    offsets, words = words_of_column(normalise_column(pa.array([text for text, _, _ in cases])))
    of_word = words.to_pylist()
    id_offsets, ids = trigram_ids(words.dictionary)
    for row, (_, expected_words, expected_ids) in enumerate(cases):
        at = range(offsets[row], offsets[row + 1])
        assert [of_word[i] for i in at] == expected_words
        codes = [words.indices[i].as_py() for i in at]
        assert [ids[id_offsets[c] : id_offsets[c + 1]].tolist() for c in codes] == expected_ids


def test_a_part_of_a_column_that_was_cast_is_normalised_like_any_other():
    texts = [f"Title {row} Ø" if row % 7 else f"TITLE {row}" for row in range(100)]
    part = pa.array(texts, pa.large_string()).slice(60, 30)
    assert normalise_column(part.cast(pa.string())).to_pylist() == [normalise(text) for text in texts[60:90]]
