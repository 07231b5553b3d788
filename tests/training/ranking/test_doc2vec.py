import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clicktower.schemas.errors import StageError
from clicktower.training.ranking.doc2vec import TitleDoc2Vec

pytest.importorskip("gensim")

# Two topics whose words never meet.
WATER = ["hose tap", "tap pipe", "pipe hose valve", "valve tap", "hose valve", "pipe tap valve"]
WOOD = ["oak plank", "plank pine", "pine oak board", "board plank", "oak board", "pine plank board"]
TITLES = [*WATER, *WOOD]
# So few words are all frequent: not thinned, and in more epochs than the paper's, they are learned.
SMALL = {"thinning": 0.0, "epochs": 300, "dimensions": 16}


@pytest.fixture(scope="module")
def trained() -> TitleDoc2Vec:
    return TitleDoc2Vec(TITLES, ["hose", "oak"], **SMALL)


def test_a_query_is_nearest_to_the_titles_of_its_topic(trained):
    for query, own in (("tap hose", slice(0, 6)), ("board of oak", slice(6, 12))):
        scores = trained.scores([query])[0]
        assert scores.dtype == np.float32
        assert scores[own].mean() > np.delete(scores, own).mean() + 0.1
        assert (np.abs(scores) <= 1 + 1e-6).all()


def test_a_querys_vector_depends_on_the_query_alone():
    system = TitleDoc2Vec(TITLES, thinning=0.0, epochs=5)
    alone = system.vectors(["tap hose"])
    assert np.abs(alone).max() > 0
    before = system.scores(["board"])
    np.testing.assert_array_equal(system.vectors(["oak", "pipe", "Tap  Hose"])[2:], alone)
    np.testing.assert_array_equal(system.vectors(["tap hose unseen"]) == alone, np.zeros((1, 100), bool))
    np.testing.assert_array_equal(system.scores(["board"]), before)  # a query leaves the model as it is


@pytest.mark.parametrize("given", [{}, {"window": 1, "epochs": 40}])
def test_distributed_memory_has_gensims_similarities_of_trained_texts(given):
    from gensim.models.doc2vec import Doc2Vec, TaggedDocument

    system = TitleDoc2Vec(TITLES, ["hose", "Oak  Plank", "oak board pine"], memory=True, dimensions=16, seed=3, **given)
    texts = [*TITLES, "hose", "oak board pine"]  # "oak plank" is a title
    gensim = Doc2Vec(
        [TaggedDocument(text.split(), [text]) for text in texts], dm=1, vector_size=16, min_count=1, sample=1e-4,
        negative=5, seed=3, workers=1, **({"window": 5, "epochs": 30} | given),
    )  # fmt: skip
    found = system.scores(["oak board pine", "OAK plank"])
    expected = [[gensim.dv.similarity(q, d) for d in TITLES] for q in ("oak board pine", "oak plank")]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert system.scores([]).shape == (0, 12)
    with pytest.raises(ValueError, match="1 of 2 texts"):
        system.scores(["hose", "unseen"])


def test_a_query_of_unknown_words_scores_zero(trained):
    assert not trained.scores(["unseen words"]).any()
    assert trained.vectors([]).shape == (0, 16)


def test_a_title_without_words_scores_zero():
    system = TitleDoc2Vec(["hose tap", " ", "oak"], ["tap"], epochs=2)
    first, second, third = system.scores(["tap"])[0]
    assert second == 0
    assert first != 0 != third


def test_documents_of_one_title_have_exactly_one_score():
    system = TitleDoc2Vec(["Hose  Tap", "oak", "hose tap"], epochs=2)
    first, second, third = system.scores(["tap"])[0]
    assert first == third != second


TRAINED_ELSEWHERE = """
from clicktower.training.ranking.doc2vec import *
system = TitleDoc2Vec(["hose tap", "oak plank", "tap oak"], ["hose"], epochs=5, thinning=0.0)
print(system.scores(["hose oak"]).tobytes().hex())
"""


@pytest.mark.slow
def test_another_process_with_another_hash_salt_has_the_same_scores():
    done = subprocess.run(
        [sys.executable, "-c", TRAINED_ELSEWHERE], env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    here: dict = {}
    exec(TRAINED_ELSEWHERE.replace("print(", "found = (").strip(), here)
    assert done.stdout.strip() == here["found"]


def test_the_seed_changes_the_vectors():
    first, other = (TitleDoc2Vec(TITLES, epochs=3, seed=s).scores(["tap"]) for s in (0, 1))
    assert not np.array_equal(first, other)


def test_parameters_are_the_texts_vectors_and_two_for_each_word():
    system = TitleDoc2Vec(["hose tap", "Hose Tap", "oak"], ["hose", "oak"], epochs=1)
    assert system.parameters == (3 + 2 * 3) * 100  # three distinct texts, three words
    assert system.dimensions == 100


def test_texts_without_words_are_refused():
    with pytest.raises(StageError, match="None of the 1 texts for Doc2Vec has a"):
        TitleDoc2Vec(["", " "])


def test_without_gensim_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "gensim.models.doc2vec", None)
    with pytest.raises(StageError, match=r"Install it: pip install 'clicktower\[compare\]'"):
        TitleDoc2Vec(["hose"])
