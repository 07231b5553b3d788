"""A release: what is served, as a whole, behind a pointer that is swapped in one step.

    URI/pointer.json                 {"schema_version", "release": DIGEST, "previous": DIGEST | null, "swapped"}
    URI/releases/DIGEST/release.json everything a reader needs to know, written last
    URI/releases/DIGEST/model/       the model folder (safetensors weights, model.json)
    URI/releases/DIGEST/documents.lance  id, title, vector: a LanceDB table

A reader resolves the pointer once and then stays in that release's folder.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from schemas import storage
from schemas.errors import StageError, require_major

SCHEMA_VERSION = "1.0"
POINTER = "pointer.json"
RELEASE = "release.json"
TABLE = "documents"
MODEL = "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    digest: str
    text_contract: Mapping[str, Any]  # trigram contract version, Unicode version, table rows
    num_documents: int
    dimensions: int
    index: Mapping[str, Any]  # kind and settings, measured recall and its limit
    evaluation: Mapping[str, Any]  # the NDCG table, empty if there was none
    inputs: Mapping[str, str]  # digests of the model and the documents
    labels: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    files: list[Mapping[str, Any]] = field(default_factory=list)  # path, size_bytes, sha256

    def to_json(self) -> dict:
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    release: str
    previous: str | None
    swapped: str

    def to_json(self) -> dict:
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}


def read_pointer(uri: str) -> Pointer | None:
    """The live pointer of a release URI, or None where nothing was published yet. Raises StageError if damaged."""
    try:
        value = json.loads(storage.read_bytes(storage.join(uri, POINTER)))
        require_major(f"the pointer of {uri}", value.pop("schema_version", None), SCHEMA_VERSION)
        return Pointer(release=value["release"], previous=value["previous"], swapped=value["swapped"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StageError(
            asked=f"the pointer of {uri} was to be read",
            found=f"its {POINTER} is damaged",
            follows="which release is live cannot be known",
            do=f"set {POINTER} aside and publish again: the releases are kept",
        ) from None


def release_folder(uri: str, digest: str) -> str:
    return storage.join(uri, "releases", digest)


def read_release(uri: str) -> tuple[str, Release]:
    """(folder, release) that the pointer names now. Raises StageError where nothing was published."""
    pointer = read_pointer(uri)
    if pointer is None:
        raise StageError(
            asked=f"the release at {uri} was to be opened",
            found="nothing was published there yet",
            do="run `clicktower publish` first, or check the URI",
        )
    folder = release_folder(uri, pointer.release)
    return folder, read_folder(folder)


def read_folder(folder: str) -> Release:
    """The release in a folder. Raises StageError where there is none or it cannot be read."""
    try:
        value = json.loads(storage.read_bytes(storage.join(folder, RELEASE)))
        require_major(f"the release in {folder}", value.pop("schema_version", None), SCHEMA_VERSION)
        known = {f.name for f in fields(Release)}  # a later minor version may say more
        return Release(**{name: value[name] for name in value if name in known})
    except FileNotFoundError:
        found = f"there is no {RELEASE} in it"
    except (ValueError, TypeError, AttributeError):
        found = f"its {RELEASE} is damaged"
    raise StageError(
        asked=f"the release in {folder} was to be read",
        found=found,
        follows="nothing of it can be served",
        do="publish again",
    )
