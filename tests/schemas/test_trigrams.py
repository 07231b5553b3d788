import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.text_contract import golden_cases, normalise, trigram_ids, words
from tests.schemas.reference_trigrams import reference_ids, reference_words

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
# The reference tells scripts by their characters' Unicode names, which are no help at unassigned or odd code points.
UNSEEN = "\x00\x1b\x7f\x9f\xad\u034f\u115f\u17b4\u200b\u200c\u200d\u2060\u2800\u3164\ufe0f\ufeff\U000e0041"
LETTERS = st.text(
    st.sampled_from("aZ09 \t#-éÉΣςİıßﬁ½Ａ漢字日本東京ひらカタไทยລາວខមမြန🔨\u0301\u3000")
    | st.sampled_from("Iij\u0307\u0323" + UNSEEN),
    max_size=30,
)


def ids_of(word: str) -> list[int]:
    return trigram_ids([word])[1].tolist()


def test_ids_of_good_are_the_hand_worked_ones():
    # mark 0, d 4, g 7, o 15: #go = 0*1369 + 7*37 + 15 = 274; goo = 7*1369 + 15*37 + 15 = 10,153;
    # ood = 15*1369 + 15*37 + 4 = 21,094; od# = 15*1369 + 4*37 + 0 = 20,683
    assert ids_of("good") == [274, 10_153, 21_094, 20_683]


def test_a_one_letter_word_stands_between_both_marks():
    assert ids_of("a") == [37]  # #a# = 0*1369 + 1*37 + 0


def test_a_literal_hash_is_not_the_boundary_mark():
    assert ids_of("#go")[1] != ids_of("go")[0]
    assert min(ids_of("#")) >= 50_653


def test_golden_file_covers_the_hard_scripts_and_holds():
    cases = golden_cases()
    together = " ".join(text for text, _, _ in cases)
    for hard in ("#", "é", "Σ", "İ", "漢", "ไ", "🔨"):
        assert hard in together
    for text, expected_words, expected_ids in cases:
        assert words(text) == expected_words
        assert [ids_of(word) for word in words(text)] == expected_ids


@given(LETTERS)
def test_words_equal_the_character_by_character_reference(text):
    assert words(text) == reference_words(text)


@given(st.lists(TEXTS.filter(lambda t: len(t) > 0), max_size=8))
def test_batch_ids_equal_the_scalar_reference(batch):
    offsets, ids = trigram_ids(batch)
    assert ids.dtype == np.uint32
    for i, word in enumerate(batch):
        assert ids[offsets[i] : offsets[i + 1]].tolist() == reference_ids(word)


@given(TEXTS | LETTERS)
def test_normalise_is_idempotent_and_keeps_words(text):
    once = normalise(text)
    assert normalise(once) == once
    assert words(once) == words(text)


@given(TEXTS | LETTERS, st.data())
def test_a_character_that_nobody_sees_changes_no_word(text, data):
    at = data.draw(st.integers(0, len(text)))
    unseen = data.draw(st.sampled_from(UNSEEN.replace("\u2800", "")))
    assert words(text[:at] + unseen + text[at:]) == words(text)


def test_a_text_of_unseen_characters_has_no_word_and_no_visible_character_is_among_them():
    unseen = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\p{White_Space}\u2800\x1c-\x1f]")
    characters = [chr(point) for point in range(0x110000)]
    assert [bool(unseen.fullmatch(character)) for character in characters] == [not words(c) for c in characters]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("İSTANBUL", "istanbul"), ("I\u0307ǧ", "iǧ"), ("co\u00adoperate", "cooperate"), ("❤\ufe0f", "❤"),
        ("می\u200cخواهم", "میخواهم"), ("क्\u200dष", "क्ष"), ("a\u2800b", "a b"), ("e\u200b\u0301", "é"),
    ],
)  # fmt: skip
def test_spellings_that_look_alike_are_the_same_words(first, second):
    assert words(first) == words(second)


def test_the_dotless_i_is_a_letter_of_its_own():
    assert words("ışık IŞIK") == ["ışık", "işik"]


@given(st.lists(TEXTS.filter(bool) | st.text("ab9", min_size=1), max_size=8), st.sampled_from([1, 2, 50_000, 50_653]))
def test_a_table_without_a_row_beyond_the_computed_ids_hashes_every_trigram(batch, table_rows):
    _, ids = trigram_ids(batch, table_rows)
    assert ids.tolist() == [number for word in batch for number in reference_ids(word, table_rows)]


def test_the_row_beyond_the_computed_ids_is_for_letters_that_have_none():
    assert trigram_ids(["good", "#"], 50_654)[1].tolist() == [274, 10_153, 21_094, 20_683, 50_653]
    assert trigram_ids(["good"], 50_653)[1].tolist() != [274, 10_153, 21_094, 20_683]
