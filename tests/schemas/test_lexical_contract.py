"""The lexical contract: golden cases, columns as single texts, and what its language changes."""

from itertools import pairwise
from typing import get_args

import pyarrow as pa
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.section import Language
from clicktower.schemas.text_contract import CONTRACT_VERSION
from tests.schemas.golden_terms import golden_terms


def test_golden_cases():
    cases = golden_terms()
    assert len(cases) > 20
    for language, text, terms in cases:
        assert Analyser(language).terms(text) == terms, text


@given(st.lists(st.text() | st.text("aé'’.,:_1５ ½中カ・ก\u200d\u0301-", max_size=12), max_size=5))
def test_a_column_has_the_terms_of_its_texts(texts):
    for language in ("english", "none", "french"):
        offsets, terms = Analyser(language).terms_of_column(pa.array(texts, pa.string()))
        cut = terms.to_pylist()
        assert [cut[a:b] for a, b in pairwise(offsets)] == list(map(Analyser(language).terms, texts))


def test_every_language_has_a_stemmer():
    named = set(get_args(Language)) - {"none"}
    assert named <= set(Stemmer.algorithms())
    # The others are older forms of a language that is there, and algorithms for study.
    assert not {name for name in Stemmer.algorithms() if "porter" not in name} - named


@pytest.mark.parametrize(("first", "second"), [("Brackets,", "(bracket)"), ("women's", "women’s"), ("½", "1/2")])
def test_forms_of_the_same_words(first, second):
    assert Analyser().terms(first) == Analyser().terms(second)


def test_the_contract_says_what_saved_terms_depend_on():
    assert Analyser("none").contract == {"version": "1.0", "text": CONTRACT_VERSION, "language": "none"}
    assert Analyser().contract == {
        "version": "1.0", "text": CONTRACT_VERSION, "language": "english", "stemmer": Stemmer.version(),
    }  # fmt: skip
