"""Each word of a query against each word of a title (training/ranking/title_ranking.py)."""

import math
from pathlib import Path

import numpy as np
import pytest

from clicktower.schemas import storage
from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.model_folder import read_arrays, safetensors_pieces
from clicktower.training.ranking.title_ranking import WordMatches
from tests.rounding import assert_equal_but_for_rounding, rounded
from tests.training.ranking.projection_encoder import ProjectionEncoder

TITLES = [
    "steel angle bracket",
    "garden hose 50 ft",
    "bracket Angle steel steel",
    "angle grinder",
    "hose",
    "鋼の角 hose",
]


class Plane:
    """Words as directions in a plane, in degrees; a text is where its words point together."""

    similarity = "cosine"
    degrees = {"bolt": 0, "screw": 60, "nut": 90, "tap": 180}  # noqa: RUF012

    def encode(self, texts, side):
        angles = [np.radians([self.degrees[word] for word in words(text)]) for text in texts]
        return np.array([[np.cos(of).sum(), np.sin(of).sum()] for of in angles], np.float32)


def test_the_score_is_the_one_worked_out_by_hand():
    matches = WordMatches(Plane(), ["bolt", "screw nut", "bolt tap"])
    # Of 3 titles 2 have bolt and 1 has nut: ln(1 + 1.5 / 2.5) and ln(1 + 2.5 / 1.5).
    bolt, nut = math.log(1.6), math.log(8 / 3)
    # bolt is met by itself, by screw (60 degrees away), by itself; nut by bolt (90 degrees), by itself, by bolt.
    expected = [bolt / (bolt + nut), (0.5 * bolt + nut) / (bolt + nut), bolt / (bolt + nut)]
    assert_equal_but_for_rounding(matches.scores(["bolt nut"])[0], np.array(expected))
    # A word that stands twice counts twice.
    expected = [2 * bolt / (2 * bolt + nut), (bolt + nut) / (2 * bolt + nut), 2 * bolt / (2 * bolt + nut)]
    assert_equal_but_for_rounding(matches.scores(["bolt nut bolt"])[0], np.array(expected))
    # tap is opposite to bolt; a word that no title has, as screw here, is the rarest: ln(1 + 2.5 / 0.5).
    tap, screw = math.log(1 + 1.5 / 1.5), math.log(1 + 2.5 / 0.5)
    expected = [(-tap + 0.5 * screw) / (tap + screw), (tap + 0.5 * screw) / (tap + screw)]
    assert_equal_but_for_rounding(
        WordMatches(Plane(), ["bolt", "bolt tap"]).scores(["tap screw"])[0], np.array(expected)
    )


def test_a_file_is_mapped_and_gives_the_same_bits(tmp_path):
    encoder, uri = ProjectionEncoder(), str(tmp_path / "words.safetensors")
    made = WordMatches(encoder, TITLES)
    made.write(uri)
    opened = WordMatches.open(uri, encoder)
    assert opened.num_titles == len(TITLES)
    again = str(tmp_path / "again")
    WordMatches(encoder, TITLES).write(again)
    Path(again).rename(tmp_path / "words")
    assert Path(tmp_path, "words").read_bytes() == Path(uri).read_bytes()
    Path(uri).unlink()  # mapped files stay
    queries = ["angle bracket", "steell hoses", "角 50"]
    np.testing.assert_array_equal(opened.scores(queries), made.scores(queries))
    for of_words in (lambda m: m.weights(["steel", "hoses"]), lambda m: m.vectors_of(["garden", "spigot"])):
        np.testing.assert_array_equal(of_words(opened), of_words(made))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"word_of": np.array([0, 9], np.int32)},
        {"word_of": np.array([0, -1], np.int32)},
        {"starts": np.array([0, 0, 2])},
        {"starts": np.array([0, 1])},
        {"vectors": np.ones((1, 2), np.float32)},
        {"vectors": np.ones((2, 2))},
        {"titles_with": np.array([1])},
    ],
)
def test_a_damaged_file_is_refused(tmp_path, wrong):
    uri = str(tmp_path / "words.safetensors")
    WordMatches(Plane(), ["bolt", "nut"]).write(uri)
    arrays = read_arrays(storage.map_bytes(uri))
    assert WordMatches.open(uri, Plane()).num_titles == 2
    if wrong:
        storage.write_atomic(uri, *safetensors_pieces({**arrays, **wrong}))
    else:
        storage.write_atomic(uri, b"half a file")
    with pytest.raises(ValueError, match="is not a file of the titles' words, or is damaged"):
        WordMatches.open(uri, Plane())


def step_by_step(encoder, titles, query):
    """M, one word and one title at a time, in double precision."""
    found = []
    for title in titles:
        total = weights = 0.0
        for word in words(query):
            having = sum(word in words(other) for other in titles)
            idf = math.log(1 + (len(titles) - having + 0.5) / (having + 0.5))
            vector = search_vectors(encoder, [word], "query")[0].astype(np.float64)
            others = search_vectors(encoder, words(title), "document").astype(np.float64)
            total, weights = total + idf * float((others @ vector).max()), weights + idf
        found.append(total / weights)
    return np.array(found)


@pytest.mark.parametrize("query", ["angle bracket", "steell hoses", "hose hose garden", "角 50"])
def test_scores_equal_those_of_one_word_and_one_title_at_a_time(query):
    encoder = ProjectionEncoder()
    matches = WordMatches(encoder, TITLES)
    assert_equal_but_for_rounding(matches.scores([query])[0], step_by_step(encoder, TITLES, query))


def test_some_titles_have_bit_for_bit_the_scores_they_have_among_all():
    matches = WordMatches(ProjectionEncoder(), TITLES)
    rows = np.array([4, 0, 2, 3])
    for query in ("angle bracket", "unheard of"):
        np.testing.assert_array_equal(matches.scores_of(query, rows), matches.scores([query])[0, rows])


def test_titles_of_the_same_words_have_the_same_score_in_any_order_and_number():
    scores = WordMatches(ProjectionEncoder(), TITLES).scores(["angle grinders", "hose"])
    assert (scores[:, 0] == scores[:, 2]).all()
    assert np.abs(scores).max() <= 1 + 1e-6
    assert scores[1, 4] == rounded(1.0)
