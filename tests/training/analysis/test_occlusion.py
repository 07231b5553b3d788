"""Shares against a second implementation of the model that reads the shortened texts, in float64 and by hand."""

import numpy as np
import pytest
import torch

from schemas.errors import UsageError
from schemas.trigrams import trigram_ids
from schemas.words import words
from tests.rounding import rounded
from tests.training import reference
from tests.training.analysis.small_models import ROWS, TOWERS, small_model
from training.analysis import occlusion
from training.analysis.occlusion import carried, trigrams
from training.models.ensemble import Ensemble
from training.ranking.embedding import search_vectors

torch.set_num_threads(1)
QUERY, TITLE = "Angle braket 4", "steel Angle bracket, 90 angle"
OTHERS = {"dssm": {"hidden": 6}, "clsm": {"hidden": 6, "window": 3}, "bag": {}}
every_tower = pytest.mark.parametrize("tower", [*TOWERS, *OTHERS])


def model_of(tower: str, **changes):
    return small_model(tower, same_start=False, **OTHERS.get(tower, {}), **changes)


def bags(text: str) -> list[list[int]]:
    return [trigram_ids([word], ROWS)[1].tolist() for word in words(text)]


def reader(model, side: str):
    """Bags of trigrams -> embedding, by the printed equations; the zero vector where there is no word."""
    kind = reference.kind_of(model.recipe)
    params = reference.from_matrix(model.towers[side].double().numpy(), model.recipe.cells, kind)
    return lambda text: reference.embed(params, text, kind) if text else None


def cosine(a, b) -> float:
    return 0.0 if a is None or b is None else reference.cosine(a, b)


@every_tower
def test_every_share_is_what_the_equations_say_of_the_shortened_text(tower):
    model = model_of(tower)
    found = carried(model, QUERY, TITLE)
    embed = {side: reader(model, side) for side in ("query", "document")}
    whole = {"query": embed["query"](bags(QUERY)), "document": embed["document"](bags(TITLE))}
    expected = cosine(*whole.values())
    assert found.score == rounded(expected)
    for shares, other in ((found.query, "document"), (found.title, "query")):
        text = bags(shares.text)
        assert [word.word for word in shares.words] == words(shares.text)
        for number, word in enumerate(shares.words):
            without = embed[shares.side](text[:number] + text[number + 1 :])
            assert word.share == rounded(expected - cosine(without, whole[other]), of=2)
            if len(word.word) == 1:
                assert [one.share for one in word.trigrams] == [word.share]
                continue
            for at, trigram in enumerate(word.trigrams):
                bag = text[number][:at] + text[number][at + 1 :]
                without = embed[shares.side]([*text[:number], bag, *text[number + 1 :]])
                assert trigram.share == rounded(expected - cosine(without, whole[other]), of=2)


def test_the_cosine_is_that_of_a_search():
    model = model_of("lstm")
    served = search_vectors(model, [QUERY], "query")[0] @ search_vectors(model, [TITLE], "document")[0]
    assert carried(model, QUERY, TITLE).score == rounded(float(served))


def test_by_distance_a_share_is_how_much_further_apart_the_texts_are_without_the_word():
    model = small_model("variational", objective="classify", features="w2", tie_towers=True)

    def apart(query: str, title: str) -> float:
        one, other = model.encode([query, title], "query", empty="zero").astype(np.float64)
        return float(np.linalg.norm(one - other))

    found = carried(model, QUERY, TITLE)
    assert found.score == rounded(-apart(QUERY, TITLE))
    for shares, other in ((found.query, TITLE), (found.title, QUERY)):
        every = words(shares.text)
        for number, word in enumerate(shares.words):
            without = " ".join(every[:number] + every[number + 1 :])
            assert word.share == rounded(apart(without, other) - apart(shares.text, other), of=2)
    (word,) = carried(model, "bracket", TITLE).query.words
    # Without it the query is at 0, which is as far from the title as its vector is long.
    assert word.share == rounded(apart("", TITLE) - apart("bracket", TITLE), of=2)


def test_models_side_by_side_carry_the_mean_of_what_each_carries():
    members = (model_of("lstm"), model_of("bag", seed=2), model_of("rnn", seed=3))
    alone = [carried(member, QUERY, TITLE) for member in members]
    together = carried(Ensemble(members=members), QUERY, TITLE)
    assert together.score == rounded(np.mean([one.score for one in alone]))
    for side in ("query", "title"):
        shares = [[word.share for word in getattr(one, side).words] for one in (*alone, together)]
        assert shares[-1] == rounded(np.mean(shares[:-1], axis=0), of=2)


def test_without_its_only_word_a_text_is_like_nothing():
    found = carried(model_of("lstm"), "bracket", TITLE)
    (word,) = found.query.words
    assert word.share == found.score
    assert not found.query.cut


def test_trigrams_have_the_letters_places_and_company_that_they_have_by_hand():
    assert trigrams("good") == [
        ("#go", (True, False)), ("goo", (False, False)), ("ood", (False, False)), ("od#", (False, True)),
    ]  # fmt: skip
    assert trigrams("a") == [("#a#", (True, True))]
    found = carried(model_of("bag"), "good ﬁg", "a GOODS fi#")
    good, fig = found.query.words
    assert [(one.letters, one.start, one.end, one.shared) for one in good.trigrams] == [
        ("#go", 0, 2, True), ("goo", 0, 3, True), ("ood", 1, 4, True), ("od#", 2, 4, False),
    ]  # fmt: skip
    # The ligature's two letters stand at one place. "fi#" of the title ends in a character, "ig#" of fig in a boundary.
    assert [(one.letters, one.start, one.end, one.shared) for one in fig.trigrams] == [
        ("#fi", 5, 6, True), ("fig", 5, 7, False), ("ig#", 5, 7, False),
    ]  # fmt: skip


def test_a_literal_mark_is_not_a_boundary():
    (word,) = carried(model_of("bag"), "od#", "good").query.words
    assert [(one.letters, one.shared) for one in word.trigrams] == [("#od", False), ("od#", False), ("d##", False)]


@pytest.mark.parametrize("overflow", ["truncate", "merge"])
def test_a_word_that_the_model_does_not_read_has_no_share(overflow):
    model = model_of("lstm", max_words=2, overflow=overflow)
    found = carried(model, "angle", "steel angle bracket plate")
    shares = [word.share for word in found.title.words]
    assert (shares[2:] == [0.0, 0.0]) == (overflow == "truncate")
    vectors = search_vectors(model, ["steel bracket plate", "steel angle bracket plate"], "document")
    cosines = vectors @ search_vectors(model, ["angle"], "query")[0]
    assert shares[1] == rounded(float(cosines[1] - cosines[0]), of=2)  # another word takes its place


def test_long_texts_are_cut_and_say_so():
    model = model_of("bag")
    title = "steel angle " * 5_000
    found = carried(model, "angle", title)
    assert found.title.num_words == 10_000
    assert 0 < len(found.title.words) < occlusion.MOST_WORDS
    assert found.title.cut
    assert not found.query.cut
    served = search_vectors(model, ["angle"], "query")[0] @ search_vectors(model, [title], "document")[0]
    assert found.score == rounded(float(served), 256)  # of the whole text, 10,000 words added up


def test_a_word_of_too_many_letters_is_left_out_as_a_whole_only():
    longest = "x" * (occlusion.LONGEST_WORD + 1)
    found = carried(model_of("bag"), f"angle {longest}", "angle")
    angle, long = found.query.words
    assert len(angle.trigrams) == 5
    assert long.trigrams == ()
    assert found.query.cut


@pytest.mark.parametrize(("query", "title", "which"), [("", "a", "query"), ("a", " \t\u3000", "title")])
def test_a_text_without_a_word_cannot_be_explained(query, title, which):
    with pytest.raises(UsageError, match=f"The {which} has no word") as raised:
        carried(model_of("bag"), query, title)
    assert "embedding" in raised.value.follows
