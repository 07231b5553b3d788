"""The vectors of a catalogue's titles, reused from an earlier release of the same model or encoded.

Encoding goes in parts of PART_TITLES titles. A part is written, whole or not at all, to URI/encoding/NAME, and NAME is
a hash of the model and the part's titles: a publisher that is killed leaves its finished parts, and the next one with
the same titles takes them. A catalogue of one part is encoded in a second and writes none.

With one worker the parts are encoded here, by all cores of this machine: 400,000 titles a second on two cores on the
compiled path, so a cluster is worth its start only for slower recipes or very many titles. With more workers they are
tasks of a Ray cluster, and a part that is lost with its node is encoded again.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flows.releases.release_folder import files_of
from flows.releases.release_table import open_table
from schemas import storage
from schemas.errors import StageError
from schemas.manifest import damaged_files
from schemas.release import ENCODING, Release, read_folder, read_pointer, release_folder
from schemas.stage import Progress, StageResult
from schemas.text_contract import normalise
from training.models.ensemble import Ensemble
from training.models.model import Model
from training.ranking.embedding import search_vectors

PART_TITLES = 65_536
_READ_ROWS = 65_536


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TitleVectors:
    """`vectors_TD`: of the distinct titles, float32; `text_of_N`: each document's row of it."""

    vectors_TD: np.ndarray
    text_of_N: np.ndarray
    counts: dict[str, int]  # of distinct titles: encoded now, taken from parts of a killed publisher, reused
    parts: Sequence[str] = field(default_factory=list)  # files to remove once the release is in its place


def encode_titles(
    uri: str, trained: StageResult, model: Model | Ensemble, titles: Sequence[str], *, workers: int, progress: Progress
) -> TitleVectors:
    """The vectors of all titles as the document tower sees them and searches compare them.

    Raises StageError for one that is not finite.
    """
    row_of: dict[str, int] = {}
    text_of_N = np.array([row_of.setdefault(normalise(title), len(row_of)) for title in titles], np.int64)
    distinct = list(row_of)
    vectors_TD = np.empty((len(distinct), model.dimensions), np.float32)
    progress("look for vectors of an earlier release", 0, None)
    known_T = _take_known(uri, trained, model, distinct, vectors_TD)
    missing = np.flatnonzero(~known_T)
    parts = [missing[start : start + PART_TITLES] for start in range(0, len(missing), PART_TITLES)]
    texts = [[distinct[row] for row in part] for part in parts]
    names = [_name(uri, trained, part) for part in texts] if len(parts) > 1 else []
    resumed = 0
    for at, name in enumerate(names):
        if (found := _read_part(name, len(parts[at]), model.dimensions)) is not None:
            vectors_TD[parts[at]] = found
            resumed += len(found)
            texts[at] = []
    done = len(distinct) - len(missing) + resumed
    progress("encode titles", done, len(distinct))
    left = {at: part for at, part in enumerate(texts) if part}
    encoded = _on_ray(trained, left, names, model, workers) if workers > 1 and names else _here(model, left)
    for at, vectors in encoded:
        if names and workers == 1:
            _write_part(names[at], vectors)
        vectors_TD[parts[at]] = vectors
        done += len(vectors)
        progress("encode titles", done, len(distinct))
    counts = {
        "titles": len(distinct),
        "encoded": len(missing) - resumed,
        "resumed": resumed,
        "reused": len(distinct) - len(missing),
    }
    return TitleVectors(vectors_TD=vectors_TD, text_of_N=text_of_N, counts=counts, parts=names)


def encode_part(model: Model | Ensemble, texts: Sequence[str], name: str) -> None:
    """What a worker does: encode the titles of a part, and write it."""
    _write_part(name, search_vectors(model, texts, "document"))


def _here(model: Model | Ensemble, left: dict[int, list[str]]) -> Iterator[tuple[int, np.ndarray]]:
    for at, texts in left.items():
        yield at, search_vectors(model, texts, "document")


def _on_ray(
    trained: StageResult, left: dict[int, list[str]], names: Sequence[str], model: Model | Ensemble, workers: int
) -> Iterator[tuple[int, np.ndarray]]:
    from flows.releases.encode_on_ray import encode_parts

    parts = {at: (texts, storage.absolute(names[at])) for at, texts in left.items()}
    for at in encode_parts(encode_part, storage.absolute(trained.data), parts, workers):
        found = _read_part(names[at], len(left[at]), model.dimensions)
        # Not to be seen from here (a folder of the worker's own machine), or cleared away by another publisher.
        yield at, search_vectors(model, left[at], "document") if found is None else found


def _take_known(
    uri: str, trained: StageResult, model: Model | Ensemble, distinct: Sequence[str], vectors_TD: np.ndarray
) -> np.ndarray:
    """Fill in the vectors of titles that an earlier release of the same model has; whether each title is known, [T]."""
    known_T = np.zeros(len(distinct), bool)
    folder = _same_model(uri, trained, model)
    if folder is None:
        return known_T
    place = pa.array(distinct)
    with _lance_errors(folder):
        batches = open_table(folder).search().select(["title", "vector"]).to_batches(_READ_ROWS)
        for batch in batches:
            titles = pa.array([normalise(title) for title in batch["title"].to_pylist()], pa.string())
            rows = pc.index_in(titles, value_set=place).to_numpy(zero_copy_only=False)
            is_wanted = ~np.isnan(rows) if rows.dtype.kind == "f" else np.ones(len(rows), bool)
            wanted = rows[is_wanted].astype(np.int64)
            vectors_TD[wanted] = np.asarray(batch["vector"].flatten()).reshape(len(rows), -1)[is_wanted]
            known_T[wanted] = True
    return known_T


def _same_model(uri: str, trained: StageResult, model: Model | Ensemble) -> str | None:
    """The folder of the live release if it is of this model, else of the newest that is; None where none is whole."""
    pointer = read_pointer(uri)
    candidates = []
    for digest in storage.list_folders(storage.join(uri, "releases")):
        folder = release_folder(uri, digest)
        if (release := _readable(folder)) and _is_of(release, trained, model):
            candidates.append((pointer is not None and pointer.release == digest, release.created, folder, release))
    for _, _, folder, release in sorted(candidates, key=lambda found: found[:3], reverse=True):
        if not damaged_files(folder, files_of(release), hashes=True):
            return folder
    return None


def _is_of(release: Release, trained: StageResult, model: Model | Ensemble) -> bool:
    same_contract = dict(release.text_contract) == dict(model.text_contract)
    same_shape = (release.dimensions, release.similarity) == (model.dimensions, model.similarity)
    return release.inputs.get("model") == trained.manifest.digest and same_contract and same_shape


def _readable(folder: str) -> Release | None:
    try:
        return read_folder(folder)
    except (StageError, OSError):
        return None


@contextmanager
def _lance_errors(folder: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise StageError(asked=f"the vectors of {folder} were to be used again",
                         found=str(error).splitlines()[0][:200], follows="what is live stays as it is",
                         do="run `clicktower verify` on that release, and publish again") from None  # fmt: skip


def _name(uri: str, trained: StageResult, texts: Sequence[str]) -> str:
    digest = hashlib.sha256(trained.manifest.digest.encode())
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return storage.join(uri, ENCODING, f"{digest.hexdigest()[:32]}.part")


def _write_part(name: str, vectors: np.ndarray) -> None:
    """A hash of the rest, then float32 [titles, dimensions]."""
    content = np.ascontiguousarray(vectors, "<f4").tobytes()
    storage.write_atomic(name, hashlib.sha256(content).digest() + content)


def _read_part(name: str, num_titles: int, dimensions: int) -> np.ndarray | None:
    """The vectors of a finished part; None where it is not there or damaged."""
    try:
        content = storage.read_bytes(name)
    except OSError:
        return None
    digest, rest = content[:32], content[32:]
    if len(rest) != 4 * num_titles * dimensions or hashlib.sha256(rest).digest() != digest:
        return None
    return np.frombuffer(rest, "<f4").reshape(num_titles, dimensions)
