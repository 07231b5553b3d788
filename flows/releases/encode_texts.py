"""Vectors of titles that an earlier release of the same model has, and the encoding of very many (make_release).

More titles than PART_TITLES are encoded in parts. A part is written, whole or not at all, to URI/encoding/NAME, and
NAME is a hash of the model and the part's titles: a publisher that is killed leaves its finished parts, and the next
one with the same titles takes them.

With one worker the parts are encoded here, by all cores of this machine: 400,000 titles a second on two cores on the
compiled path, so a cluster is worth its start only for slower recipes or very many titles. With more workers they are
tasks of a Ray cluster: each reads the model from the store and writes its part, so every node must see the store and
the release URI. A part that is lost with its node is encoded again.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.flows.releases.release_documents import EarlierRows, open_documents
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.release import ENCODING, Release, read_folder, read_pointer, release_folder
from clicktower.schemas.stage import StageResult
from clicktower.schemas.text_contract import normalise_column
from clicktower.training.model.embedding import AnyEncoder, search_vectors
from clicktower.training.model.model import load_encoder

_BLOCK_TITLES = 65_536  # normalised at once
_TRIES = 3  # tries of workers at a part


def encode_parts(
    uri: str,
    trained: StageResult,
    model: AnyEncoder,
    texts: Sequence[str],
    part_titles: int,
    workers: int,
    tell: Callable[[int], None],
) -> tuple[np.ndarray, int, list[str]]:
    """(the vectors of texts, how many of them a killed publisher had encoded, the files of the parts, to be removed
    after the release is placed). `tell` is called with how many texts have a vector.
    """
    parts = {start: texts[start : start + part_titles] for start in range(0, len(texts), part_titles)}
    names = {start: _part_name(uri, trained, part) for start, part in parts.items()}
    vectors_TD = np.empty((len(texts), model.dimensions), np.float32)
    resumed = 0
    for start, name in names.items():
        part_vectors = read_part(name, len(parts[start]), model.dimensions)
        if part_vectors is not None:
            vectors_TD[start : start + part_titles] = part_vectors
            resumed += len(part_vectors)
            del parts[start]
    num_encoded = resumed
    tell(num_encoded)
    encoded = _encode_here(model, parts, names)
    if workers > 1:
        encoded = _encode_on_ray(trained, workers, model, parts, names)
    for start, part_vectors in encoded:
        vectors_TD[start : start + part_titles] = part_vectors
        num_encoded += len(part_vectors)
        tell(num_encoded)
    return vectors_TD, resumed, list(names.values())


def _encode_here(
    model: AnyEncoder, parts: Mapping[int, Sequence[str]], names: Mapping[int, str]
) -> Iterator[tuple[int, np.ndarray]]:
    for start, part in parts.items():
        vectors = search_vectors(model, part, "document")
        write_part(names[start], vectors)
        yield start, vectors


def _encode_on_ray(
    trained: StageResult, workers: int, model: AnyEncoder, parts: Mapping[int, Sequence[str]], names: Mapping[int, str]
) -> Iterator[tuple[int, np.ndarray]]:
    """Parts in the order of completion, by tasks of a Ray cluster: each reads the model from the store.

    It uses the cluster that this process is connected to or that RAY_ADDRESS names; without either it starts one and
    ends it. Raises StageError if a part fails repeatedly.
    """
    import ray

    from clicktower.training.trainer.ray_cluster import cluster

    with cluster(workers):
        try:
            share = max(1, int(ray.cluster_resources().get("CPU", 1)) // workers)
            options = ray.remote(num_cpus=share, max_retries=_TRIES, scheduling_strategy="SPREAD")
            task = cast(Any, options(_encode_part))
            where = storage.absolute(trained.data)
            number = {task.remote(where, part, storage.absolute(names[at])): at for at, part in parts.items()}
            running = list(number)
            while running:
                finished, running = ray.wait(running, num_returns=1)
                ray.get(finished)
                at = number[finished[0]]
                vectors = read_part(names[at], len(parts[at]), model.dimensions)
                # Not visible from here (a folder on the worker's own machine), or removed by another publisher.
                yield at, search_vectors(model, parts[at], "document") if vectors is None else vectors
        except (ray.exceptions.RayTaskError, ray.exceptions.RayError) as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, StageError):
                raise cause from None
            raise StageError(
                f"A worker of {workers} that encode titles failed again and again ({type(error).__name__})."
                " Finished parts are kept; what is live stays as it is.",
                "Publish again, or with --workers 1 on this machine alone.",
            ) from None


def _encode_part(model: str, texts: Sequence[str], name: str) -> None:
    """A worker's task."""
    write_part(name, search_vectors(_loaded(model), texts, "document"))


@lru_cache(maxsize=1)
def _loaded(model: str) -> AnyEncoder:
    return load_encoder(model)


def earlier_rows(uri: str, trained: StageResult, model: AnyEncoder, distinct: Sequence[str]) -> EarlierRows | None:
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
