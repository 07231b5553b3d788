import pickle
from math import exp, tanh
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import StageError, UsageError
from tests.rounding import assert_equal_but_for_rounding, rounded
from training.model.embedding import TitleEmbeddings
from training.ranking.skip_thought import SkipThought

WORDS = ["<eos>", "UNK", "garden", "hose", "50", "ft", "-"]
INPUTS, UNI, BI = 4, 5, 3


def unit(prefix: str, size: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"W": (INPUTS, 2 * size), "b": (2 * size,), "U": (size, 2 * size),
              "Wx": (INPUTS, size), "bx": (size,), "Ux": (size, size)}  # fmt: skip
    return {f"{prefix}_{name}": rng.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "dictionary.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    for table in ("utable", "btable"):
        np.save(tmp_path / f"{table}.npy", rng.normal(size=(len(WORDS), INPUTS)).astype(np.float32))
    np.savez(tmp_path / "uni_skip.npz", **unit("encoder", UNI, rng), Wemb=np.zeros((9, 9)))  # decoders' arrays too
    np.savez(tmp_path / "bi_skip.npz", **unit("encoder", BI, rng), **unit("encoder_r", BI, rng))
    return tmp_path


def reference_run(arrays, prefix: str, inputs: list[np.ndarray]) -> list[float]:
    """One text through one recurrent unit, cell by cell, in double precision."""

    def sigmoid(x):
        return 1 / (1 + exp(-x))

    W, b, U, Wx, bx, Ux = (arrays[f"{prefix}_{n}"].astype(float) for n in ("W", "b", "U", "Wx", "bx", "Ux"))
    size = len(bx)
    h = [0.0] * size
    for x in inputs:
        new = []
        for i in range(size):
            reset = sigmoid(b[i] + sum(x * W[:, i]) + sum(h[j] * U[j, i] for j in range(size)))
            update = sigmoid(b[size + i] + sum(x * W[:, size + i]) + sum(h[j] * U[j, size + i] for j in range(size)))
            fresh = tanh(bx[i] + sum(x * Wx[:, i]) + reset * sum(h[j] * Ux[j, i] for j in range(size)))
            new.append(update * h[i] + (1 - update) * fresh)
        h = new
    return h


def reference_vector(folder: Path, rows: list[int]) -> np.ndarray:
    utable, btable = (np.load(folder / f"{name}.npy").astype(float) for name in ("utable", "btable"))
    uni, bi = np.load(folder / "uni_skip.npz"), np.load(folder / "bi_skip.npz")
    one = np.array(reference_run(uni, "encoder", [utable[row] for row in rows]))
    both = np.array(
        reference_run(bi, "encoder", [btable[row] for row in rows])
        + reference_run(bi, "encoder_r", [btable[row] for row in reversed(rows)])
    )
    return np.concatenate([one / np.linalg.norm(one), both / np.linalg.norm(both)])


def test_equals_a_reference_cell_by_cell(folder):
    # "Hose-50" is no word of the dictionary: it is cut at its punctuation. "reel" is unknown in whole.
    texts = {"garden hose": [2, 3], "Hose": [3], "hose-50 reel": [3, 6, 4, 1], "50 ft garden hose": [4, 5, 2, 3]}
    model = SkipThought(str(folder))
    found = model.encode(list(texts), "query")
    assert (model.dimensions, found.shape, found.dtype) == (UNI + 2 * BI, (4, UNI + 2 * BI), np.float32)
    expected = [reference_vector(folder, rows) for rows in texts.values()]
    assert_equal_but_for_rounding(found, expected)


def test_a_texts_vector_does_not_depend_on_its_company(folder, monkeypatch):
    model = SkipThought(str(folder))
    texts = ["garden hose", "hose garden", "ft ft", "50 ft hose", "hose", "hose hose"]
    together = model.encode(texts, "document")
    monkeypatch.setattr("training.ranking.skip_thought._BATCH_TEXTS", 2)
    assert_equal_but_for_rounding(model.encode(texts, "document"), together)
    for row, text in enumerate(texts):
        assert_equal_but_for_rounding(model.encode([text], "query")[0], together[row])


def test_it_ranks_titles(folder):
    scores = TitleEmbeddings(SkipThought(str(folder)), ["50 ft garden hose", "hose", "ft"]).scores(["hose"])[0]
    assert scores.argmax() == 1
    assert scores[1] == rounded(1)


def test_parameters_are_tables_and_units(folder):
    one = 3 * INPUTS + 3  # inputs and biases of a cell's three sums; and as many again from h
    expected = 2 * len(WORDS) * INPUTS + UNI * (one + 3 * UNI) + 2 * BI * (one + 3 * BI)
    assert SkipThought(str(folder)).parameters == expected


def test_a_text_without_a_word_is_refused(folder):
    with pytest.raises(ValueError, match="without a word"):
        SkipThought(str(folder)).encode(["hose", " "], "query")


@pytest.mark.parametrize("name", ["dictionary.txt", "utable.npy", "btable.npy", "uni_skip.npz", "bi_skip.npz"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(UsageError, match=f"It has no {name}"):
        SkipThought(str(folder))


def test_a_missing_folder_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="no such folder"):
        SkipThought(str(tmp_path / "nothing"))


@pytest.mark.parametrize("name", ["utable.npy", "btable.npy", "uni_skip.npz", "bi_skip.npz"])
@pytest.mark.parametrize("damage", ["pickled", "cut off", "empty", "objects"])
def test_a_damaged_or_pickled_file_is_named(folder, name, damage):
    path = folder / name
    content = path.read_bytes()
    if damage == "objects":
        save = np.save if name.endswith("npy") else lambda at, array: np.savez(at, **dict.fromkeys(bi_names(), array))
        save(path, np.array([{}, {}], dtype=object))
    else:
        made = {"pickled": pickle.dumps({"dim": 5}), "cut off": content[: len(content) * 2 // 3], "empty": b""}
        path.write_bytes(made[damage])
    with pytest.raises(StageError, match=name):
        SkipThought(str(folder))


def bi_names() -> list[str]:
    rng = np.random.default_rng(0)
    return [*unit("encoder", BI, rng), *unit("encoder_r", BI, rng)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoder_r_U": None}, "It lacks encoder_r_U"),
        ({"encoder_W": np.zeros((INPUTS + 1, 2 * BI))}, r"bi_skip.npz must hold encoder_W of shape \(4, 6\)"),
        ({"encoder_r_bx": np.zeros(BI + 1)}, r"encoder_r_bx of shape \(3,\)"),
        ({"encoder_Ux": np.float64(1)}, "encoder_"),
        ({"encoder_b": np.full(2 * BI, np.nan)}, "finite numbers in encoder_b"),
        ({"encoder_b": np.zeros(2 * BI, int)}, "floating-point numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_named(folder, change, words):
    arrays = {**dict(np.load(folder / "bi_skip.npz")), **change}
    np.savez(folder / "bi_skip.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(StageError, match=words):
        SkipThought(str(folder))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"UNK\nhose\n", "a row for each of the 2 words"),
        (b"\n".join(b"word%d" % i for i in range(7)), "the word UNK"),
        (b"UNK\n\xff\n", "not UTF-8"),
    ],
)
def test_a_dictionary_that_does_not_fit_is_named(folder, content, words):
    (folder / "dictionary.txt").write_bytes(content)
    with pytest.raises(StageError, match=words):
        SkipThought(str(folder))
