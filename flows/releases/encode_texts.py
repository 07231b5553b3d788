"""Vectors of a catalogue's titles, reused from an earlier release of the same model or encoded.

Titles are encoded in parts of PART_TITLES. A part is written, whole or not at all, to URI/encoding/NAME, and NAME is a
hash of the model and the part's titles: a publisher that is killed leaves its finished parts, and the next one with the
same titles takes them. A catalogue of one part is encoded in a second and writes none.

With one worker the parts are encoded here, by all cores of this machine: 400,000 titles a second on two cores on the
compiled path, so a cluster is worth its start only for slower recipes or very many titles. With more workers they are
tasks of a Ray cluster: each reads the model from the store and writes its part, so every node must see the store and
the release URI. A part that is lost with its node is encoded again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.flows.releases.release_documents import EarlierRows, open_documents
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.release import ENCODING, Release, read_folder, read_pointer, release_folder
from clicktower.schemas.stage import Progress, StageResult
from clicktower.schemas.text_contract import normalise, normalise_column
from clicktower.training.model.embedding import AnyEncoder, search_vectors

PART_TITLES = 65_536
_BLOCK_TITLES = 65_536  # normalised at once


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TitleVectors:
    """`vectors_TD`: of the distinct titles, float32; `text_of_N`: each document's row of it. `earlier`: where some of
    them are from.
    """

    vectors_TD: np.ndarray
    text_of_N: np.ndarray
    earlier: EarlierRows | None
    counts: dict[str, int]  # distinct titles: encoded now, taken from parts of a killed publisher, reused
    parts: Sequence[str]  # files to remove after the release is placed


def encode_titles(
    uri: str, trained: StageResult, model: AnyEncoder, titles: Sequence[str], *, workers: int, progress: Progress
) -> TitleVectors:
    """The vectors of all titles from the document tower, in the form that searches compare.

    Raises StageError for a vector that is not finite.
    """
    row_of: dict[str, int] = {}
    text_of_N = np.array([row_of.setdefault(normalise(title), len(row_of)) for title in titles], np.int64)
    distinct = list(row_of)
    vectors_TD = np.empty((len(distinct), model.dimensions), np.float32)
    progress("look for vectors of an earlier release", 0, None)
    earlier = _earlier_rows(uri, trained, model, distinct)
    missing = np.arange(len(distinct))
    if earlier:
        is_known = earlier.row_of_T >= 0
        vectors_TD[is_known] = earlier.vectors_ND[earlier.row_of_T[is_known]]
        missing = np.flatnonzero(~is_known)
    rows = [missing[start : start + PART_TITLES] for start in range(0, len(missing), PART_TITLES)]
    texts = {at: [distinct[row] for row in part] for at, part in enumerate(rows)}
    names = [_part_name(uri, trained, part) for part in texts.values()] if len(rows) > 1 else []
    resumed = 0
    for at, name in enumerate(names):
        if (part_vectors := read_part(name, len(rows[at]), model.dimensions)) is not None:
            vectors_TD[rows[at]] = part_vectors
            resumed += len(part_vectors)
            del texts[at]
    num_encoded = len(distinct) - len(missing) + resumed
    progress("encode titles", num_encoded, len(distinct))
    encode = _encode_locally
    if workers > 1 and names:
        encode = resolve_name("clicktower.flows.releases.encode_on_ray:encode_on_ray")(trained, workers)
    for at, vectors in encode(model, texts, names):
        vectors_TD[rows[at]] = vectors
        num_encoded += len(vectors)
        progress("encode titles", num_encoded, len(distinct))
    counts = {
        "titles": len(distinct),
        "encoded": len(missing) - resumed,
        "resumed": resumed,
        "reused": len(distinct) - len(missing),
    }
    return TitleVectors(vectors_TD=vectors_TD, text_of_N=text_of_N, earlier=earlier, counts=counts, parts=names)


def _encode_locally(
    model: AnyEncoder, texts: Mapping[int, list[str]], names: Sequence[str]
) -> Iterator[tuple[int, np.ndarray]]:
    for at, part in texts.items():
        vectors = search_vectors(model, part, "document")
        if names:
            write_part(names[at], vectors)
        yield at, vectors


def _earlier_rows(uri: str, trained: StageResult, model: AnyEncoder, distinct: Sequence[str]) -> EarlierRows | None:
    """The rows of titles in an earlier release of the same model; None without one."""
    earlier = _release_of_model(uri, trained, model)
    if earlier is None:
        return None
    folder, release = earlier
    documents, vectors_ND = open_documents(folder)
    titles = documents["title"]
    blocks = [titles.slice(start, _BLOCK_TITLES).cast(pa.string()) for start in range(0, len(titles), _BLOCK_TITLES)]
    normalised = pa.concat_arrays([normalise_column(block).cast(pa.large_string()) for block in blocks])
    row_of_text = pc.index_in(pa.array(distinct, pa.large_string()), value_set=normalised)
    row_of_T = pc.fill_null(row_of_text, -1).to_numpy(zero_copy_only=False)
    return EarlierRows(folder=folder, index=release.index, vectors_ND=vectors_ND, row_of_T=row_of_T)


def _release_of_model(uri: str, trained: StageResult, model: AnyEncoder) -> tuple[str, Release] | None:
    """(folder, release): the live release if it has this model, otherwise the newest intact one that does; None without
    one.
    """

    def is_alike(release: Release) -> bool:
        return (
            release.is_searchable
            and release.inputs.get("model") == trained.manifest.digest
            and dict(release.text_contract) == dict(model.text_contract)
            and (release.dimensions, release.similarity) == (model.dimensions, model.similarity)
        )

    pointer = read_pointer(uri)
    candidates = []
    for digest in storage.list_folders(storage.join(uri, "releases")):
        folder = release_folder(uri, digest)
        try:
            release = read_folder(folder)
        except (StageError, OSError):
            continue
        if is_alike(release):
            is_live = pointer is not None and pointer.release == digest
            candidates.append((is_live, release.created, folder, release))
    for _, _, folder, release in sorted(candidates, key=lambda candidate: candidate[:3], reverse=True):
        if not damaged_files(folder, release.files, hashes=True):
            return folder, release
    return None


def _part_name(uri: str, trained: StageResult, texts: Sequence[str]) -> str:
    digest = hashlib.sha256(trained.manifest.digest.encode())
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "little") + content)
    return storage.join(uri, ENCODING, f"{digest.hexdigest()[:32]}.part")


def write_part(name: str, vectors: np.ndarray) -> None:
    """Write a hash of the rest, then float32 [titles, dimensions]."""
    content = np.ascontiguousarray(vectors, "<f4").tobytes()
    storage.write_atomic(name, hashlib.sha256(content).digest() + content)


def read_part(name: str, num_titles: int, dimensions: int) -> np.ndarray | None:
    """The vectors of a finished part; None if it is missing or damaged."""
    try:
        content = storage.read_bytes(name)
    except OSError:
        return None
    digest, content_bytes = content[:32], content[32:]
    if len(content_bytes) != 4 * num_titles * dimensions or hashlib.sha256(content_bytes).digest() != digest:
        return None
    return np.frombuffer(content_bytes, "<f4").reshape(num_titles, dimensions)
