"""Where words stand in a text as typed: by hand for what normalisation changes, and against the text contract."""

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.words import words
from training.analysis.occlusion import placed_words


def found(text: str) -> list[tuple[str, str]]:
    """Each word with what was typed for it."""
    return [(one.word, text[one.start : one.end]) for one in placed_words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("  \t ", []),
        ("Angle  BRACKET", [("angle", "Angle"), ("bracket", "BRACKET")]),
        ("ﬁsh ½in", [("fish", "ﬁsh"), ("1⁄2in", "½in")]),  # ligature and fraction: one character becomes several
        ("cafe\u0301 CAFÉ", [("café", "cafe\u0301"), ("café", "CAFÉ")]),  # two characters become one
        ("İstanbul", [("i̇stanbul", "İstanbul")]),  # lower case is longer
        ("ΟΔΟΣ ΣΑΣ", [("οδος", "ΟΔΟΣ"), ("σας", "ΣΑΣ")]),  # a letter's lower case depends on where it stands
        ("\u1100\u1161\u11a8 각", [("각", "\u1100\u1161\u11a8"), ("각", "각")]),  # three Korean letters are one
        ("ｶﾞﾗｽ", [("ガラ", "ｶﾞﾗ"), ("ラス", "ﾗｽ")]),  # half width: the voiced mark is a character of its own
        ("漢字かな x中", [("漢字", "漢字"), ("字か", "字か"), ("かな", "かな"), ("x", "x"), ("中", "中")]),
        ("🎉 👨\u200d👩\u200d👧 ok", [("🎉", "🎉"), ("👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"), ("ok", "ok")]),
        ("a\u00a0b\u3000C", [("a", "a"), ("b", "b"), ("c", "C")]),  # other white space
        ("x¨y", [("x", "x"), ("\u0308y", "¨y")]),  # a character that becomes a space and a mark
        ("\u0301a", [("\u0301a", "\u0301a")]),  # a mark that follows nothing
        ("ﷺ", [("صلى", "ﷺ"), ("الله", "ﷺ"), ("عليه", "ﷺ"), ("وسلم", "ﷺ")]),  # one character, four words
    ],
)
def test_what_was_typed_for_a_word(text, expected):
    assert found(text) == expected


def test_letters_stand_where_they_were_typed():
    (word,) = placed_words(" ﬁne\u0301")
    assert word.word == "finé"
    assert word.letters == ((1, 2), (1, 2), (2, 3), (3, 5))


# Characters that normalisation changes, or that lean on their neighbours, are few: they are drawn far more often.
CHANGING = [
    chr(point)
    for point in range(sys.maxunicode + 1)
    if not 0xD800 <= point < 0xE000
    and (
        unicodedata.normalize("NFKC", chr(point)) != chr(point)
        or unicodedata.combining(chr(point))
        or chr(point).lower() != chr(point)
        or 0x1100 <= point < 0x1200
    )
]
texts = st.text(
    st.one_of(
        st.sampled_from(CHANGING), st.sampled_from("aAeoΣσ \u0301\u0323漢字"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=12,
)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_the_words_are_those_of_the_contract_and_every_one_has_its_place(text):
    placed = list(placed_words(text))
    assert [one.word for one in placed] == words(text)
    for one in placed:
        assert len(one.letters) == len(one.word)
        assert all(0 <= start < end <= len(text) for start, end in one.letters)
        assert not any(letter.isspace() for letter in text[one.start : one.end])
    starts = [one.start for one in placed]
    assert starts == sorted(starts)


@settings(max_examples=200, deadline=None)
@given(texts)
def test_what_was_typed_for_a_word_makes_that_word(text):
    for one in placed_words(text):
        typed = text[one.start : one.end]
        # A capital sigma in the middle of a text ends a word that is cut out there.
        assert one.word.replace("ς", "σ") in unicodedata.normalize(
            "NFKC", unicodedata.normalize("NFKC", typed).lower()
        ).replace("ς", "σ")
