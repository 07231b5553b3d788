"""A pair of texts explained without a release: plain values, and shares as the model's equations have them."""

import json

import numpy as np
import pytest

from clicktower.flows.releases.word_shares import MOST_WORDS, explain_pair
from clicktower.schemas.errors import UsageError
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.ensemble import Ensemble
from tests.rounding import rounded
from tests.trained_model import matrix_of
from tests.training import reference
from tests.training.analysis.small_models import ROWS, TOWERS, small_model

QUERY, TITLE = "Angle braket 4", "steel Angle bracket, 90 angle"


def test_both_texts_word_by_word():
    found = explain_pair(small_model("lstm"), "ANGLE  angle brakets", TITLE)
    assert json.loads(json.dumps(found)) == found
    query, title = found["query"], found["title"]
    assert query["text"] == "ANGLE  angle brakets"
    assert [word["word"] for word in query["words"]] == ["angle", "angle", "brakets"]
    assert [word["in_other"] for word in query["words"]] == [True, True, False]
    assert [word["in_other"] for word in title["words"]] == [False, True, False, False, True]
    assert (query["num_words"], title["num_words"]) == (3, 5)
    first, *others = query["words"]
    assert (first["moved"], first["keyword"]) == (0.0, False)  # read first: nothing to move from
    assert all(0 <= word["moved"] <= 1 and isinstance(word["keyword"], bool) for word in others)


def test_without_gates_there_are_no_keywords():
    found = explain_pair(small_model("bag"), "angle", TITLE)
    assert {(word["moved"], word["keyword"]) for word in found["title"]["words"]} == {(None, None)}


def test_where_words_have_a_share_of_a_score_each_says_which_word_it_meets():
    model = small_model("bag", tie_towers=True, word_share=0.3)
    found = explain_pair(model, "angle brakets", TITLE)
    assert json.loads(json.dumps(found)) == found
    met = [word["match"] for word in found["query"]["words"]]
    assert met[0] == {"word": "angle", "cosine": rounded(1.0), "weight": None}
    apart = search_vectors(model, ["brakets"], "query") @ search_vectors(model, words(TITLE), "document").T
    assert met[1] == {"word": words(TITLE)[apart[0].argmax()], "cosine": rounded(float(apart.max())), "weight": None}
    assert explain_pair(small_model("bag"), "hose", "hose")["query"]["words"][0]["match"] is None


def test_a_text_without_a_word_is_refused():
    with pytest.raises(UsageError, match="In the query there is no word, and a"):
        explain_pair(small_model("bag"), " ", TITLE)


# Shares against a second implementation of the model that reads the shortened texts, in float64.

OTHERS = {"dssm": {"hidden": 6}, "clsm": {"hidden": 6, "window": 3}, "bag": {}}


def model_of(tower: str, **changes):
    return small_model(tower, same_start=False, **OTHERS.get(tower, {}), **changes)


def shares(found: dict, text: str) -> list[float]:
    return [word["share"] for word in found[text]["words"]]


@pytest.mark.slow
@pytest.mark.parametrize("tower", [*TOWERS, *OTHERS])
def test_every_share_is_what_the_equations_say_of_the_shortened_text(tower):
    model = model_of(tower)
    found = explain_pair(model, QUERY, TITLE)

    def embed(text: list[str], side: str):
        kind = reference.kind_of(model.recipe)
        params = reference.from_matrix(matrix_of(model, side).double().numpy(), model.recipe.tower.cells, kind)
        return reference.embed(params, [trigram_ids([word], ROWS)[1].tolist() for word in text], kind)

    query, title = embed(words(QUERY), "query"), embed(words(TITLE), "document")
    expected = reference.cosine(query, title)
    assert found["cosine"] == rounded(expected)
    for name, side, text, other in (("query", "query", QUERY, title), ("title", "document", TITLE, query)):
        assert [word["word"] for word in found[name]["words"]] == words(text)
        for at, share in enumerate(shares(found, name)):
            without = embed(words(text)[:at] + words(text)[at + 1 :], side)
            assert share == rounded(expected - reference.cosine(without, other), of=2)


def test_by_distance_a_share_is_how_much_further_apart_the_texts_are_without_the_word():
    model = small_model("variational", objective="classify", features="w2")

    def apart(query: str, title: str) -> float:
        one, other = model.encode([query, title], "query", empty="zero").astype(np.float64)
        return float(np.linalg.norm(one - other))

    found = explain_pair(model, QUERY, TITLE)
    assert (found["cosine"], found["distance"]) == (None, rounded(apart(QUERY, TITLE)))
    for at, share in enumerate(shares(found, "query")):
        without = " ".join(words(QUERY)[:at] + words(QUERY)[at + 1 :])
        assert share == rounded(apart(without, TITLE) - apart(QUERY, TITLE), of=2)
    # Without its only word the query is at 0, which is as far from the title as its vector is long.
    assert shares(explain_pair(model, "bracket", TITLE), "query") == [
        rounded(apart("", TITLE) - apart("bracket", TITLE), of=2)
    ]


def test_an_ensemble_carries_the_mean_of_what_its_members_carry():
    members = (model_of("lstm"), model_of("bag", seed=2), model_of("rnn", seed=3))
    *alone, together = (explain_pair(one, QUERY, TITLE) for one in (*members, Ensemble(members=members)))
    assert together["cosine"] == rounded(np.mean([one["cosine"] for one in alone]))
    for text in ("query", "title"):
        assert shares(together, text) == rounded(np.mean([shares(one, text) for one in alone], axis=0), of=2)


def test_without_its_only_word_a_text_is_like_nothing():
    found = explain_pair(model_of("lstm"), "bracket", TITLE)
    assert shares(found, "query") == [found["cosine"]]


@pytest.mark.parametrize("overflow", ["truncate", "merge"])
def test_a_word_that_the_model_does_not_read_has_no_share(overflow):
    model = model_of("lstm", max_words=2, overflow=overflow)
    found = shares(explain_pair(model, "angle", "steel angle bracket plate"), "title")
    assert (found[2:] == [0.0, 0.0]) == (overflow == "truncate")
    assert found[1] != 0  # another word takes its place


def test_of_a_long_text_the_first_words_are_left_out_in_turn():
    found = explain_pair(model_of("bag"), "angle", "steel angle " * 5_000)
    assert found["title"]["num_words"] == 10_000
    assert 0 < len(found["title"]["words"]) < MOST_WORDS
