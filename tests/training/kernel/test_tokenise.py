from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.text_contract import golden_cases, trigram_ids, words
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.kernel_towers import tokenised, tokenised_in_python
from clicktower.training.towers.text_table import TextTable, WordRows

pytestmark = pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")
ROWS = 65_536


def assert_follows_the_contract(texts: list[str], found: TextTable, rows: int = ROWS) -> None:
    """Python's own words, numbered as they first appear, and Python's own trigrams."""
    number: dict[str, int] = {}
    of_texts = [[number.setdefault(word, len(number)) for word in words(text)] for text in texts]
    assert found.words.lengths.tolist() == [len(text) for text in of_texts]
    assert found.words.values.tolist() == [word for text in of_texts for word in text]
    offsets, ids = trigram_ids(list(number), rows)
    assert np.array_equal(found.trigrams.offsets, offsets)
    assert np.array_equal(found.trigrams.values, ids)


def test_the_golden_file_holds():
    cases = golden_cases()
    table = tokenised([text for text, _, _ in cases], ROWS)
    for at, (_, _, ids) in enumerate(cases):
        of_text = table.words.values[table.words.offsets[at] : table.words.offsets[at + 1]]
        offsets, values = table.trigrams.offsets, table.trigrams.values
        assert [values[offsets[word] : offsets[word + 1]].tolist() for word in of_text] == ids


# Every kind of character, lone surrogates included, and often those that decide something.
CHARACTERS = st.one_of(
    st.characters(exclude_categories=()),
    st.sampled_from("aAzZ09#-'\"\x00\t\n\v\f\r\x1b\x1c\x1d\x1e\x1f \x7f\x80\x85\xa0\u2003\u200b\u2800\u3000"),
    st.sampled_from("éÉßſKİıΣς½ﬁＡ漢字カナﾊﾟไทยแ한🔨\u0301i\u0307\xad\u200d\ufe0f\ud800\udfff\U0010ffff"),
)


@given(texts=st.lists(st.text(CHARACTERS, max_size=30), max_size=8))
def test_any_texts_are_cut_as_python_cuts_them(texts):
    assert_follows_the_contract(texts, tokenised(texts, ROWS))


@pytest.mark.parametrize("character", [chr(c) for c in range(128)])
def test_every_ascii_character_is_read_as_python_reads_it(character):
    texts = [character, f"a{character}b", f"{character} {character}A", f"A{character}"]
    assert_follows_the_contract(texts, tokenised(texts, ROWS))


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(50_654, 5_000_000))
def test_a_vocabulary_grows_without_mixing_words_up(seed, rows):
    rng = np.random.default_rng(seed)
    letters = np.array(list("ab1-é"))  # few letters, so that many words share their first eight bytes
    line = "".join(rng.choice(letters, 60_000))
    vocabulary = [
        line[at : at + n] for at, n in zip(rng.integers(0, 50_000, 4_000), rng.integers(1, 24, 4_000), strict=True)
    ]
    texts = [" ".join(vocabulary[word] for word in text) for text in rng.integers(0, 4_000, (800, 10))]
    assert_follows_the_contract(texts, tokenised(texts, rows), rows)


def test_the_texts_of_an_arrow_column_need_not_become_strings():
    texts = ["Angle bracket", "", "2 in. x 4 ft.", "café", "東京の金槌", "a"]
    for kind in (pa.string(), pa.large_string()):
        assert_follows_the_contract(texts, tokenised(pa.array(texts, kind), ROWS))
        assert_follows_the_contract(texts[2:5], tokenised(pa.array(texts, kind).slice(2, 3), ROWS))
        assert_follows_the_contract([], tokenised(pa.array([], kind), ROWS))


def test_a_missing_text_is_refused():
    with pytest.raises(TypeError, match="1 of 2 texts are missing"):
        tokenised(pa.array(["a", None]), ROWS)


@pytest.mark.parametrize("rows", [1, 50_000, 50_653, 50_654])
def test_a_table_without_a_row_beyond_the_computed_ids_hashes_every_trigram(rows):
    texts = ["Angle bracket", "", "2 in. x 4 ft. angle", "café", "東京の金槌", "a"]
    assert_follows_the_contract(texts, tokenised(texts, rows), rows)


def test_the_same_table_comes_without_the_kernel():
    texts = ["Angle bracket", "", "2 in. x 4 ft. angle", "café", "東京の金槌", "\ud800 a"]
    for found, plain in zip(
        (tokenised(texts, ROWS).words, tokenised(texts, ROWS).trigrams),
        (tokenised_in_python(texts, WordRows(ROWS)).words, tokenised_in_python(texts, WordRows(ROWS)).trigrams),
        strict=True,
    ):
        assert np.array_equal(found.offsets, plain.offsets)
        assert np.array_equal(found.values, plain.values)
        assert (found.offsets.dtype, found.values.dtype) == (plain.offsets.dtype, plain.values.dtype)


def test_tables_outlive_the_call_that_made_them():
    texts = [f"{n} in. x {n % 7} ft. plank" for n in range(5_000)]
    kept = tokenised(texts, ROWS).trigrams.values  # a view of one of the four arrays
    for _ in range(20):
        tokenised(texts[::-1], ROWS)
    assert np.array_equal(kept, tokenised(texts, ROWS).trigrams.values)


def test_threads_do_not_disturb_one_another():
    collections = [[f"{thread} plank no {n}" for n in range(3_000)] for thread in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for texts, found in zip(collections, threads.map(lambda t: tokenised(t, ROWS), collections), strict=True):
            assert_follows_the_contract(texts, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["homedepot/documents", "homedepot/queries.train", "sogou_qt/documents", "dbpedia_entity/documents"]
)
def test_real_titles_and_queries_are_cut_as_python_cuts_them(real_data, name):
    lines = (real_data / f"{name}.tsv").read_text(encoding="utf-8").split("\n")
    texts = [line.split("\t")[1] for line in lines if line]
    assert_follows_the_contract(texts, tokenised(texts, ROWS))
