"""A model's folder: two files, readable without torch; and where an evaluation finds a model.

model.safetensors   query.W [rows, columns] and the tower's other parts (query.W_rec, query.b, ...; training.towers),
                    document.* alike (or shared.* where both sides use one tower, with what an objective puts above
                    it: shared.head.W_1, ...; parameters)
model.json          recipe, text contract (trigram contract, Unicode version, rows of trigrams), dimensions, outputs;
                    where some words have rows of their own, these words, and their digest in the text contract

The folders of an ensemble (ensemble) and of an imported encoder (imported_encoder) have the same two files.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Literal

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.manifest import OutputFile, damaged_files, from_bytes
from clicktower.schemas.release import MODEL, POINTER, RELEASE, Release, read_folder, read_release
from clicktower.schemas.section import DEFAULT_LANGUAGE, Language, UnknownKind
from clicktower.schemas.stage import StageResult, open_result, require_present
from clicktower.schemas.text_contract import CONTRACT_VERSION
from clicktower.training.towers.text_table import WordRows

SCHEMA_VERSION = "2.1"  # 2.0 had no imported encoders and no shares; 1.2 had a flat recipe
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"


Stored = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]  # the description and the weights of a model folder


class ShapesDiffer(Exception):
    """The weights do not match the recipe beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """A model's outputs for a text besides its embedding: classes or words; none after clicks.

    They come from the data and determine the shapes of parameters, so the model's description holds them.
    """

    unit: Literal["", "pairs", "texts"] = ""  # the classified unit
    classes: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()  # of the decoder (targets)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> "Outputs":
        """The inverse of `asdict`."""
        return Outputs(unit=value["unit"], classes=tuple(value["classes"]), vocabulary=tuple(value["vocabulary"]))


NO_OUTPUTS = Outputs()


@contextmanager
def reading_model(folder: str) -> Iterator[None]:
    """Raises StageError for errors within, while a model folder's content is read and interpreted."""
    again = "Train again, or copy the folder again."
    try:
        yield
    except FileNotFoundError:
        raise StageError(
            f"The model in {folder} has no {DESCRIPTION} or no {WEIGHTS}.",
            "Give the folder that `clicktower train` made.",
        ) from None
    except ShapesDiffer:
        raise StageError(f"The weights in {folder} do not have the shapes that their recipe declares.", again) from None
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, AssertionError) as error:
        if unknown := UnknownKind.within(error):
            raise StageError(
                f"This clicktower does not know the recipe of the model in {folder}: {unknown}.",
                "Upgrade clicktower, or import the file that defines this kind.",
            ) from None
        raise StageError(f"The model in {folder} has a damaged file ({type(error).__name__}).", again) from None


def read_model(folder: str) -> Stored:
    """(model.json, the arrays of model.safetensors).

    Raises UnknownVersionError for another major version of the model or of the text contract.
    """
    description: dict[str, Any] = from_bytes(storage.read_bytes(storage.join(folder, DESCRIPTION)))
    require_major(f"the model in {folder}", description.get("schema_version"), SCHEMA_VERSION, stage="train")
    contract = description["text_contract"]["trigrams"]
    require_major("the model's text contract", contract, CONTRACT_VERSION, stage="train")
    for described in (description, *description.get("members", ())):
        # Texts are cut as of now, whatever minor version the model learnt from.
        described["text_contract"]["trigrams"] = CONTRACT_VERSION
        _require_own_words(described)
    return description, read_arrays(storage.map_bytes(storage.join(folder, WEIGHTS)))


def _require_own_words(description: Mapping[str, Any]) -> None:
    """Raises ValueError for words with rows of their own that are not those of the text contract, or that no recipe
    gives rows.
    """
    words, contract = tuple(description.get("words", ())), description["text_contract"].get("words", {})
    if words and not description["recipe"].get("word_vectors"):
        raise ValueError("the recipe has no word vectors")
    if WordRows(0, words).text_contract().get("words", {}).get("sha256") != contract.get("sha256"):
        raise ValueError("the words are not those of the text contract")


def write_files(folder: str, description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """Write the two files of a model folder, the description last."""
    storage.write_atomic(storage.join(folder, WEIGHTS), *safetensors_pieces(weights))
    storage.write_atomic(storage.join(folder, DESCRIPTION), json.dumps(description, indent=1).encode())


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSource:
    """`digest`: of the training, even if the model is read from a release. `folder`: of the model's two files.
    `outputs`: the training, if the model is read from it; `prune` may remove it before a stage that reads it claims it.
    """

    digest: str
    folder: str
    labels: Mapping[str, Any]
    outputs: Sequence[StageResult] = ()


def model_source(uri: str) -> ModelSource:
    """The model of a train stage's folder, of a release's folder, or of the live release at a URI.

    Raises StageError if it is missing, or has other bytes than those recorded, and TransientError if it is removed
    meanwhile.
    """
    if release := _release_at(uri):
        return _release_source(*release)
    trained = open_result(uri)
    fix = "Run the same `train` again; if it is above 64 MiB, remove the folder first."
    try:
        _require_whole(trained.folder, trained.manifest.files, fix)
    except StageError:
        require_present([trained])
        raise
    labels = dict(trained.manifest.outcome.labels)
    return ModelSource(digest=trained.manifest.digest, folder=trained.data, labels=labels, outputs=[trained])


def language_of(uri: str) -> Language:
    """The language of a release's terms, or the default for the folder of a training."""
    release = _release_at(uri)
    return release[1].language if release else DEFAULT_LANGUAGE


def _release_at(uri: str) -> tuple[str, Release] | None:
    """(folder, release) of a release's folder or of the live one at a URI; None for anything else."""
    if storage.exists(storage.join(uri, POINTER)):
        return read_release(uri)
    return (uri, read_folder(uri)) if storage.exists(storage.join(uri, RELEASE)) else None


def _release_source(folder: str, release: Release) -> ModelSource:
    of_model = [file for file in release.files if file.path.startswith(f"{MODEL}/")]
    _require_whole(folder, of_model, "Publish the model again from where it was trained.")
    return ModelSource(digest=release.inputs["model"], folder=storage.join(folder, MODEL), labels=dict(release.labels))


def _require_whole(folder: str, files: Sequence[OutputFile], fix: str) -> None:
    """Every byte is checked: a model is small, and its figures do not show damage."""
    if wrong := damaged_files(folder, files, hashes=True):
        raise StageError(f"The model in {folder} is not as it was written: {'; '.join(wrong[:3])}.", fix)


# Named arrays as the bytes of a safetensors file and back, without a second copy in memory. safetensors' own functions
# make the whole file beside the arrays, twice; for a model of gigabytes and its velocity that decides which machine can
# train it.

# In safetensors' own order of arrays, so that files have the same bytes.
_TYPES = {"int64": "I64", "float64": "F64", "float32": "F32", "int32": "I32", "uint8": "U8"}
_LENGTH = 8  # bytes of the header's length field, and the multiple that the header is padded to


def safetensors_pieces(arrays: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """The parts of a file of some arrays: its header, then the memory of each array.

    Raises KeyError for a type other than bytes and 32 or 64 bits of integer or floating point.
    """
    types = {name: _TYPES[array.dtype.name] for name, array in arrays.items()}
    names = sorted(arrays, key=lambda name: (list(_TYPES.values()).index(types[name]), name))
    header, end = {}, 0
    for name in names:
        begin, end = end, end + arrays[name].nbytes
        header[name] = {"dtype": types[name], "shape": arrays[name].shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    return [
        len(text).to_bytes(_LENGTH, "little") + text,
        *(arrays[name].reshape(-1).view(np.uint8).data for name in names),
    ]


def read_arrays(content: bytearray | mmap) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, as views of its bytes.

    Raises ValueError, KeyError or TypeError if they are damaged.
    """
    data = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = from_bytes(content[_LENGTH:data])
    header.pop("__metadata__", None)
    numpy_names = {stored: name for name, stored in _TYPES.items()}
    arrays = {}
    for name, entry in header.items():
        dtype, (begin, end) = np.dtype(numpy_names[entry["dtype"]]), entry["data_offsets"]
        flat = np.frombuffer(content, dtype, (end - begin) // dtype.itemsize, data + begin)
        arrays[name] = flat.reshape(entry["shape"])
    return arrays
