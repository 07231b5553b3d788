import logging
from pathlib import Path

import numpy as np
import pytest

from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.model.recipe import Recipe
from clicktower.training.model.word_vectors import read_vectors, with_word_vectors
from tests.recipes import recipe_with

gensim_models = pytest.importorskip("gensim.models")
WORDS = ["the", "hammer", "naïve", "zebra"]
VECTORS = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
LINES = [f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(WORDS, VECTORS.tolist(), strict=True)]
FORMS = ("glove.txt", "word2vec.txt", "word2vec.bin", "glove.txt.gz")


def columns_of(path: str) -> int:
    return with_word_vectors(Recipe(name="plain"), path).word_vectors.columns


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """The same vectors in each form; all but GloVe's, which gensim does not write, are gensim's own."""
    import gzip

    folder = tmp_path_factory.mktemp("vectors")
    vectors = gensim_models.KeyedVectors(5)
    vectors.add_vectors(WORDS, VECTORS)
    vectors.save_word2vec_format(folder / "word2vec.txt")
    vectors.save_word2vec_format(folder / "word2vec.bin", binary=True)
    vectors.save(str(folder / "native.kv"))
    (folder / "glove.txt").write_text("".join(LINES))
    (folder / "glove.txt.gz").write_bytes(gzip.compress("".join(LINES).encode()))
    return folder


@pytest.mark.parametrize("name", FORMS)
def test_every_form_gives_the_wanted_words_and_their_vectors_to_the_bit(files, name):
    assert columns_of(str(files / name)) == 5
    words, vectors = read_vectors(str(files / name), {"zebra", "naïve", "unheard"})
    assert words == ["naïve", "zebra"]
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, VECTORS[2:])


def text(lines) -> bytes:
    return "".join(lines).encode()


BINARY_WORD = b"hammer " + VECTORS[1].tobytes() + b"\n"
BAD = {
    "a line of one number, which gensim would take for all five": (text([LINES[0], "hammer 0.5\n"]), "line 2 is not"),
    "the second line counts below a first line of counts": (text(["2 5\n", LINES[0], "hammer 1\n"]), "line 3 is not"),
    "a line cut off": (text(LINES)[:-30], "line 4 is not a word and 5 numbers"),
    "a last number cut off": (text(LINES)[:-3], "last line has no end"),
    "fewer lines than promised": (text(["5 5\n", *LINES]), "promises 5 vectors, and there are 4"),
    "far fewer lines than promised": (text(["900 5\n", *LINES]), "cut off: 900 vectors of 5 numbers take at least"),
    "more lines than promised": (text(["3 5\n", *LINES]), "promises 3 vectors, and there are 4"),
    "a word twice": (text([*LINES, LINES[1]]), "1 words are there more than once"),
    "a word twice, in binary": (b"2 5\n" + BINARY_WORD * 2, "1 words are there more than once"),
    "binary cut off": (b"2 5\n" + BINARY_WORD + BINARY_WORD[:-9], "cut off or damaged"),
    "letters for numbers": (text([LINES[0], "hammer 1 2 3 4 x\n"]), "cut off or damaged"),
    "no vectors promised": (b"0 5\n", "says that there are no vectors"),
    "prose": (b"Once upon a time\nthere was\n", "neither a word and its numbers nor two counts"),
    "nothing": (b"", "neither a word and its numbers"),
    "a zip archive": (b"PK\x03\x04....", "it is a zip archive"),
    "nothing but zeros": (text(["hammer 0 0 0 0 0\n", LINES[3].split()[0] + " 0 0 0 0 0\n"]), "are zeros"),
    "a vector not finite": (text(["hammer 1 nan 2 3 4\n", LINES[3]]), "the vectors of 1 words that are needed"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_is_not_whole_and_sound_is_refused_without_a_word_of_it(what, tmp_path, caplog, capfd):
    content, found = BAD[what]
    (tmp_path / "bad").write_bytes(content)
    with caplog.at_level(logging.WARNING), pytest.raises(StageError, match=f"(?i){found}") as raised:
        read_vectors(str(tmp_path / "bad"), {"hammer", "zebra"})
    assert raised.value.fix
    output = f"{raised.value} {caplog.text} {''.join(capfd.readouterr())}"
    assert "hammer" not in output
    assert "Once" not in output


def test_an_infinite_vector_of_a_word_that_nobody_asked_for_does_no_harm(tmp_path):
    (tmp_path / "odd").write_text("unheard inf 1\nhammer 1 2\n")
    words, vectors = read_vectors(str(tmp_path / "odd"), {"hammer"})
    assert (words, vectors.tolist()) == (["hammer"], [[1, 2]])


class Trap:
    """What would show that somebody unpickled it."""

    sprung = False

    def __reduce__(self):
        return (setattr, (Trap, "sprung", True))


def test_gensims_own_format_is_refused_and_never_unpickled(files, tmp_path):
    import pickle

    with pytest.raises(StageError, match=r"It is a pickle, as gensim's own format is.*save_word2vec_format"):
        columns_of(str(files / "native.kv"))
    (tmp_path / "foreign").write_bytes(pickle.dumps(Trap()))
    for read in (columns_of, lambda path: read_vectors(path, {"hammer"})):
        with pytest.raises(StageError, match="a pickle"):
            read(str(tmp_path / "foreign"))
    assert not Trap.sprung
    pickle.loads((tmp_path / "foreign").read_bytes())
    assert Trap.sprung  # it would have been seen


def test_a_missing_file_and_one_elsewhere_are_wrong_usage(tmp_path):
    for path in (str(tmp_path / "none"), str(tmp_path), "memory://vectors.txt"):
        with pytest.raises(UsageError, match=r"There is no file .* on this machine"):
            columns_of(path)


def test_the_file_completes_the_recipe_and_another_dimension_is_refused(files):
    path, plain = str(files / "glove.txt"), Recipe(name="plain")
    completed = with_word_vectors(plain, path)
    assert (completed.word_vectors.kind, completed.word_vectors.columns) == ("tuned", 5)
    frozen = with_word_vectors(recipe_with(name="frozen", word_vectors="frozen"), path)
    assert (frozen.word_vectors.kind, frozen.word_vectors.columns) == ("frozen", 5)
    assert with_word_vectors(plain, None) is plain
    with pytest.raises(UsageError, match=r"of 300 columns.*have 5.*word_vectors.columns=5"):
        with_word_vectors(recipe_with(name="wide", word_vectors="tuned", word_columns=300), path)
    with pytest.raises(UsageError, match="no file of them is given"):
        with_word_vectors(frozen, None)
    with pytest.raises(UsageError, match="must be one of tuned, frozen"):
        recipe_with(name="odd", word_columns=300)
