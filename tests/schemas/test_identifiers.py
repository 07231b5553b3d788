import pyarrow as pa
import pytest
import regex

from clicktower.schemas.text_contract import id_of, ids, person_ids, visible


def forms_of(function, texts):
    return function(pa.array(texts, pa.string())).to_pylist()


def test_visible_drops_what_unicode_calls_ignorable_control_or_format_and_folds_every_white_space():
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    unseen = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}\p{White_Space}\u2800]")
    forms = forms_of(visible, characters)
    assert [bool(unseen.fullmatch(character)) for character in characters] == [form == "" for form in forms]


@pytest.mark.parametrize(
    "blank", ["  ", "\t", "\n", "\x0b", "\x85", "\xa0", "\u2009", "\u3000", "\u2800", " \u200b ", "\x00 "]
)
def test_a_run_of_white_space_is_one_space(blank):
    assert forms_of(visible, [f"{blank}angle{blank}bracket{blank}"]) == ["angle bracket"]


@pytest.mark.parametrize(
    ("printed", "meant"),
    [
        ("10.0", "10"), ("10.", "10"), ("0.0", "0"), ("-3.00", "-3"), (" 17\r", "17"),
        ("1.2345678E7", "12345678"), ("1e+16", "10000000000000000"), ("9.007199254740993e15", "9007199254740993"),
        ("10", "10"), ("010.0", "010.0"), ("1.5", "1.5"), ("1.25E1", "1.25E1"), ("12E5", "12E5"), ("1.0.0", "1.0.0"),
        ("v1.0", "v1.0"), ("", ""), ("SKU 7", "SKU 7"),
    ],
)  # fmt: skip
def test_ids_are_trimmed_and_whole_floats_are_whole_numbers(printed, meant):
    assert forms_of(ids, [printed, None]) == [meant, None]
    assert id_of(printed) == meant


@pytest.mark.parametrize("unseen", "\ufe0f\u034f\u115f\u3164\x00\x1b\x1f\x85\u200b\u00ad\u2800")
def test_no_character_that_nobody_sees_makes_another_person(unseen):
    spellings = [f"ann{unseen}e", f"{unseen}anne", f"anne {unseen}", f"a{unseen}{unseen}nne", "anne"]
    assert set(forms_of(person_ids, spellings)) == {"anne"}


def test_a_space_within_an_id_tells_people_apart_and_its_kind_and_number_do_not():
    spellings = ["ann lee", " ann  lee", "ann\tlee", "ann\u00a0\u2003lee ", "ann\u200b \u3000lee"]
    assert set(forms_of(person_ids, spellings)) == {"ann lee"}
    assert forms_of(person_ids, ["annlee"]) == ["annlee"]


def test_numbers_of_people_are_one_however_a_float_was_printed():
    assert set(forms_of(person_ids, ["10", "10.0", "1e1", "1E+1", "1.0e1", " 10.00 "])) == {"10"}
    assert forms_of(person_ids, ["1e1x", "Anne", "anne", None, ""]) == ["1e1x", "Anne", "anne", None, ""]


def test_letters_composed_in_another_order_are_one_person():
    assert len(set(forms_of(person_ids, ["Ren\u00e9", "Rene\u0301"]))) == 1
