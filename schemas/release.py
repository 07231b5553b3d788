"""The files of a release: everything that is served, behind a pointer that is swapped in one step.

    URI/pointer.json                     {"release": DIGEST, "previous": DIGEST | null, "swapped", "number"}
    URI/swaps/NUMBER.json                on an object store: the pointer that swap made, created once
    URI/encoding/                        vectors of a release in the making, and who makes it; gone when it is made
    URI/decisions/DIGEST.json            why a release went live, or did not: a Decision, and against what
    URI/releases/DIGEST/release.json     everything a reader needs to know, written last
    URI/releases/DIGEST/README.md        the model card
    URI/releases/DIGEST/model/           the model folder (safetensors weights, model.json)
    URI/releases/DIGEST/query.onnx       the query tower (query_onnx), where it could be exported exactly
    URI/releases/DIGEST/golden.jsonl     texts with their words, trigram ids and expected vectors
    URI/releases/DIGEST/documents.arrow  id, title, kept columns, vector (float32): an Arrow file (release_documents)
    URI/releases/DIGEST/ivf.safetensors  the index of vectors, where there is one (release_documents)
    URI/releases/DIGEST/bm25.arrow       the index of terms (training.ranking.bm25)
    URI/releases/DIGEST/per_query.json   every measure of every system for every judged query: ids and numbers only

A reader resolves the pointer once and then stays in that release's folder. Pointer, decision and release.json have a
seal (schemas.manifest) over their own content, and release.json has the hash of every other file, so no byte can change
unnoticed.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, Field, TypeAdapter

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.manifest import OutputFile, from_bytes, is_broken, seal, to_bytes
from clicktower.schemas.section import DEFAULT_LANGUAGE, Count, Language, Natural

SCHEMA_VERSION = "2.1"  # of release.json; version 1 had a LanceDB table in place of DOCUMENTS
_RECORD_VERSION = "1.3"  # of pointers and decisions

# How a query's vector and a document's are compared: a model is trained for one similarity, and a release records it. A
# higher score is nearer.
#
# cosine      vectors of length 1: a score is their dot product
# euclidean   vectors as they are: a score is minus their distance. For means and deviations concatenated the distance
#             is W2, the 2-Wasserstein distance of the two diagonal Gaussians
Similarity = Literal["cosine", "euclidean"]

POINTER = "pointer.json"
RELEASE = "release.json"
DOCUMENTS = "documents.arrow"
MODEL = "model"
CARD = "README.md"
QUERY_TOWER = "query.onnx"
GOLDEN = "golden.jsonl"
PER_QUERY = "per_query.json"
SWAPS = "swaps"
DECISIONS = "decisions"
ENCODING = "encoding"


Digest = Annotated[str, Field(pattern=r"^\w+$")]  # the name of a release's folder, not a path


def _counted(index: Mapping[str, Any]) -> Mapping[str, Any]:
    steps = index.get("steps", ())
    for facts in (index, *steps):
        for name, value in facts.items():
            if isinstance(value, int | float) and not 0 <= value <= _MOST:
                raise ValueError(f"its {name} is {value}")
    if not all(isinstance(step[name], int) for step in steps for name in ("recall_at", "num_probes")):
        raise ValueError("a step of its index is no number")
    return index


def _spoken(lexical: Mapping[str, Any]) -> Mapping[str, Any]:
    if lexical.get("language", DEFAULT_LANGUAGE) not in get_args(Language):
        raise ValueError("its language is unknown")
    return lexical


_MOST = 2**53  # of what an index counts or measures


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    digest: Digest
    text_contract: Mapping[str, Any]  # trigram contract version, Unicode version, table rows
    num_documents: Natural
    dimensions: Count
    index: Annotated[Mapping[str, Any], AfterValidator(_counted)]  # kind and settings, measured recall and its limit
    evaluation: Mapping[str, Any]  # the NDCG table, or empty
    inputs: Mapping[str, str]  # digests of the model and the documents
    labels: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    files: list[OutputFile] = field(default_factory=list)
    # Since 1.1:
    evaluated: Mapping[str, Any] = field(default_factory=dict)  # `inputs` and `config` of the evaluation, or empty
    query_tower: Mapping[str, Any] = field(default_factory=dict)  # file and largest difference, or why there is none
    golden: Mapping[str, Any] = field(default_factory=dict)  # file, num_texts
    encoded: Mapping[str, int] = field(default_factory=dict)  # distinct titles: encoded, reused from earlier releases
    # Since 1.2. A reader of 1.1 takes every release for one of cosines, but it refuses the towers of other
    # similarities.
    similarity: Similarity = "cosine"
    # Since 1.3: the lexical contract of its terms. A release without one is searched by that of its reader.
    lexical: Annotated[Mapping[str, Any], AfterValidator(_spoken)] = field(default_factory=dict)
    # Since 2.1: the rest of the request that made it, and how long that took.
    stage_version: Natural = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    duration_seconds: float | None = None

    @property
    def language(self) -> Language:
        """Of the titles' terms."""
        return self.lexical.get("language", DEFAULT_LANGUAGE)

    @property
    def is_searchable(self) -> bool:
        """False for a release of version 1, whose model is still read."""
        return any(file.path == DOCUMENTS for file in self.files)

    def to_json(self) -> dict:
        return seal({"schema_version": SCHEMA_VERSION, **asdict(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    release: Digest
    previous: Digest | None
    swapped: str
    number: int = 0  # number of swaps so far; since 1.1

    def to_json(self) -> dict:
        return seal({"schema_version": _RECORD_VERSION, **asdict(self)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A decision on a candidate: whether it goes live, the reason in a sentence, and the figures (JSON values)."""

    promote: bool
    reason: str
    figures: Mapping[str, Any] = field(default_factory=dict)


Record = TypeVar("Record", Release, Pointer, Decision)

# (live release or None, its folder, candidate, its folder) -> Decision. `publish(..., decide=...)` asks it once.
Decide = Callable[[Release | None, str | None, Release, str], Decision]


def read_pointer(uri: str) -> Pointer | None:
    """The live pointer of a release URI, or None if nothing was published yet. Raises StageError if damaged.

    On an object store pointer.json may lag behind the swaps: a publisher may have died before writing the pointer, or
    may have written it late. So this function looks for the swaps that follow it, until one is missing.
    """

    def read(name: str) -> Pointer | None:
        return _read(Pointer, uri, name, f"Set {name} aside and publish again: the releases are kept.")

    pointer = read(POINTER)
    if not storage.is_local(uri):
        while later := read(swap_name(pointer.number + 1 if pointer else 1)):
            pointer = later
    return pointer


def swap_name(number: int) -> str:
    """The path, below the URI of an object store, of the pointer that a swap created."""
    return f"{SWAPS}/{number:010}.json"


def release_folder(uri: str, digest: str) -> str:
    return storage.join(uri, "releases", digest)


def kept_folder(uri: str, digest: str) -> str:
    """The folder of a release that is kept at a URI. Raises UsageError for another digest."""
    if digest not in storage.list_folders(storage.join(uri, "releases")):
        raise UsageError(f"No release {digest} is kept at {uri}.", "Name one that `clicktower releases` lists.")
    return release_folder(uri, digest)


def read_release(uri: str) -> tuple[str, Release]:
    """(folder, release) that the pointer names now. Raises StageError if nothing was published."""
    pointer = read_pointer(uri)
    if pointer is None:
        raise StageError(f"Nothing is published at {uri} yet.", "Run `clicktower publish` first, or check the URI.")
    folder = release_folder(uri, pointer.release)
    return folder, read_folder(folder)


def read_folder(folder: str) -> Release:
    """The release in a folder. Raises StageError if it is missing or unreadable."""
    release = _read(Release, folder, RELEASE, "Publish again.")
    if release is None:
        raise StageError(f"The folder {folder} has no {RELEASE}: it is no release.", "Publish again.")
    return release


def require_searchable(uri: str, release: Release) -> None:
    """Raises StageError for a release of version 1."""
    if not release.is_searchable:
        raise StageError(
            f"The release {release.digest} at {uri} is of an earlier version, whose documents are in a LanceDB table.",
            f"Publish its model again: `clicktower publish --model store/train/{release.inputs.get('model')}"
            f" --documents documents.tsv --to {uri}`.",
        )


def write_decision(uri: str, digest: str, decision: Decision, *, against: str | None, decided: str) -> None:
    """Record why a release went live, or did not, replacing an earlier decision about it.

    against: the release that was live then; decided: ISO 8601, UTC.
    """
    value = {"schema_version": _RECORD_VERSION, "release": digest, "against": against, "decided": decided}
    content = to_bytes(seal({**value, **asdict(decision)}))
    storage.write_atomic(storage.join(uri, _decision_file(digest)), content)


def read_decision(uri: str, digest: str) -> Decision | None:
    """The decision about a release, or None without one. Raises StageError if the record is damaged."""
    name = _decision_file(digest)
    return _read(Decision, uri, name, f"Publish the release again, or remove {name}: nothing is served from it.")


def remove_decision(uri: str, digest: str) -> None:
    storage.remove(storage.join(uri, _decision_file(digest)))


def _decision_file(digest: str) -> str:
    return f"{DECISIONS}/{digest}.json"


def _read(kind: type[Record], folder: str, name: str, fix: str) -> Record | None:
    """The sealed record in a file of a folder, or None without one. Raises StageError if it is damaged."""
    try:
        value = from_bytes(storage.read_bytes(storage.join(folder, name)))
        version = value.get("schema_version")
        is_earlier = kind is not Release or str(version).startswith("1.")
        known = _RECORD_VERSION if is_earlier else SCHEMA_VERSION
        require_major(f"{name} of {folder}", version, known, stage="publish")
        if is_broken(value):
            raise ValueError("the seal is broken")
        return TypeAdapter(kind).validate_python(value)  # a later version may have more fields
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, AttributeError, KeyError):
        raise StageError(f"The file {name} of {folder} is damaged.", fix) from None
