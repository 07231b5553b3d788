"""One form for all spellings of a question, and no two questions with one form."""

import unicodedata
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.text_contract import comparison_forms, normalise, words

# Ordinary words, many of them one letter apart in shape or in an accent.
ORDINARY = [
    *("led", "ied", "modern", "modem", "corn", "com", "clone", "done", "bulb", "screw", "5l", "51", "10", "lo", "io"),
    *("ohm", "0hm", "maße", "masse", "mabe", "größe", "grosse", "été", "ete", "crème", "creme", "señor", "senor"),
    *("кошка", "кошки", "лампа", "сосна", "шуруп", "винт", "соль", "мел", "мель", "ножи", "ножь"),
    *("λάμπα", "λαμπα", "βίδα", "ξύλο", "լամպ", "ռամպ", "ոամպ", "בו", "בן", "כלב", "قلم", "علم", "सूची", "सूचा"),
    *(
        "手机",
        "机手",
        "手机壳",
        "壳手机",
        "東京都",
        "京都東",
        "カバー",
        "ガバー",
        "ไฟ",
        "ใฟ",
        "१०",
        "१",
        "전구",
        "전기",
    ),
]
UNSEEN = ["\u200b", "\ufe0f", "\u034f", "\u3164", "\xad", "\u2060", "\U000e0020"]
SEPARATORS = [" ", "  ", "-", "/", "_", " - ", ", ", " / ", "\u00a0", "\u2800", "…", "“", "' "]
# Of UTS #39, and beyond it small capitals: written by hand, and not by the library.
LOOK_ALIKES = {
    "Armenian": {"n": "ո", "o": "օ", "g": "ց", "h": "հ", "u": "ս", "q": "զ"},
    "Cherokee": {"a": "Ꭺ", "b": "Ᏼ", "d": "Ꭰ", "e": "Ꭼ", "l": "Ꮮ", "r": "Ꮢ", "v": "Ꮩ", "w": "Ꮃ", "p": "Ꮲ"},
    "Lisu": {"a": "ꓮ", "b": "ꓐ", "c": "ꓚ", "d": "ꓓ", "e": "ꓰ", "i": "ꓲ", "l": "ꓡ", "s": "ꓢ", "r": "ꓣ", "w": "ꓪ"},
    "small capitals": {"a": "ᴀ", "b": "ʙ", "d": "ᴅ", "e": "ᴇ", "l": "ʟ", "n": "ɴ", "s": "ꜱ", "f": "ꜰ", "k": "ᴋ"},
    "Cyrillic": {"a": "а", "c": "с", "e": "е", "o": "о", "p": "р", "k": "к", "r": "г", "w": "ѡ"},
    "Greek": {"a": "α", "o": "σ", "v": "ν", "p": "ρ", "i": "ι", "k": "κ", "m": "Μ"},
}


def comparison_form(text: str) -> str:
    return comparison_forms(pa.array([normalise(text)], pa.string()))[0].as_py()


@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("deck screw", "deck screw"),
        ("deck\u200b screw\ufeff", "deck screw"),  # a zero-width space, a byte order mark
        ("\u202edeck scr\u00adew", "deck screw"),  # right-to-left override, soft hyphen
        ("\u0441\u043e\u0440", "cop"),  # Cyrillic es, o, er
        ("кошкa", "koшka"),  # the last letter is Latin
        ("кошка", "koшka"),
        ("größe 窓", "größe 窓"),
        ("e\u034f\u0301clair", "éclair"),
        ('Screws, #8 x 1/2"?', "1 2 8 screws x"),
        ("東京 京都", "京都 東京"),  # the bag of 東京都
        ("手机壳iphone", "iphone 手机 机壳"),
        ("c++", "c"),
        ("ꓪ\u0300ood", "ẁood"),  # its accent as one letter has it
        ("???", "???"),
        (" ❤\ufe0f ", "❤"),
        ("\u200b", ""),
        ("İstanbul", "istanbul"),
    ],
)
def test_forms_by_hand(query, form):
    assert comparison_form(query) == form


@pytest.mark.parametrize("script", LOOK_ALIKES)
def test_look_alikes_of_other_alphabets_are_the_letters_that_a_reader_sees(script):
    twins = LOOK_ALIKES[script]
    for word in ("led", "bulb", "screw", "window", "cover", "wood", "dimmable", "landing", "quick", "paper", "silver"):
        written = "".join(twins.get(letter, letter) for letter in word)
        assert comparison_form(f"{written} 5") == f"5 {word}", f"{word} as {written!a}"


def test_no_two_ordinary_words_have_one_form():
    forms = comparison_forms(pa.array(map(normalise, ORDINARY), pa.string())).to_pylist()
    assert [word for word, count in Counter(forms).items() if count > 1] == []


@given(st.lists(st.sampled_from(ORDINARY), min_size=1, max_size=5), st.data())
def test_spellings_of_a_question_have_one_form_and_another_question_has_another(question, data):
    shuffled = data.draw(st.permutations(question))
    spelled = data.draw(st.sampled_from(["", '"', "- ", "¿"]))
    for word in shuffled:
        at = data.draw(st.integers(0, len(word)))
        upper = data.draw(st.booleans()) and word.isascii()
        word = word[:at] + data.draw(st.sampled_from(["", *UNSEEN])) + word[at:]
        spelled += (word.upper() if upper else word) + data.draw(st.sampled_from(SEPARATORS))
    spelled += data.draw(st.sampled_from(["", "?", ".", "!!", "\u200b", "_"]))
    assert comparison_form(spelled) == comparison_form(" ".join(question))
    other = data.draw(st.lists(st.sampled_from(ORDINARY), min_size=1, max_size=5))
    bags = [Counter(words(" ".join(each))) for each in (question, other)]
    assert (comparison_form(" ".join(other)) == comparison_form(" ".join(question))) == (bags[0] == bags[1])


_TEXTS = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=12) | st.text("ab1 -_.,/аеꓮ京都東é❤\u0301\u200b", max_size=9)
)


@given(_TEXTS)
def test_the_form_of_a_form_is_itself_and_a_column_is_its_texts(texts):
    forms = comparison_forms(pa.array(map(normalise, texts), pa.string()))
    assert comparison_forms(forms).equals(forms)
    assert forms.to_pylist() == [comparison_form(text) for text in texts]


def test_a_query_as_text_contract_1_0_normalised_it_has_the_form_of_today():
    days_of_then = pa.array(["deck\u200b scr\u00adew", "e\u034f\u0301clair", "i\u0307stanbul"])
    assert comparison_forms(days_of_then).to_pylist() == ["deck screw", "éclair", "istanbul"]


@given(st.text("abcxyz019 ", max_size=20))
def test_plain_words_are_only_sorted(text):
    assert comparison_form(text) == " ".join(sorted(text.split()))


def test_letters_of_the_form_are_never_capitals():
    """A prototype of UTS #39 is often a capital; a form is compared with normalised queries."""
    every = [chr(point) for point in range(0x110000) if unicodedata.category(chr(point))[0] == "L"]
    forms = comparison_forms(pa.array(map(normalise, every), pa.string())).to_pylist()
    assert all(form == normalise(form) for form in forms)
