import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.text_contract import golden_cases, normalise, trigram_ids, words
from tests.schemas.reference_trigrams import reference_ids, reference_words

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
# The reference tells scripts by their characters' Unicode names, which are no help at unassigned or odd code points.
LETTERS = st.text(st.sampled_from("aZ09 \t#-éÉΣςİıßﬁ½Ａ漢字日本東京ひらカタไทยລາວខមမြန🔨\u0301\u3000"), max_size=30)


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


@given(TEXTS)
def test_normalise_is_idempotent_and_keeps_words(text):
    once = normalise(text)
    assert normalise(once) == once
    assert words(once) == words(text)


def test_a_table_without_room_for_hashed_trigrams_is_refused():
    with pytest.raises(ValueError, match="50653"):
        trigram_ids(["a"], 50_653)
