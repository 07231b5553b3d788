"""The manifest of a stage's output: written last and atomically, so if it exists, the stage has finished.

`STORE/STAGE/DIGEST/manifest.json`, with the data beside it under the attempt that made it
(`STORE/STAGE/DIGEST/ATTEMPT/...`). Two attempts at one digest write under different names, and the first to create the
manifest wins. The digest identifies the request: inputs, config, stage version, seed.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.ledger import Ledger

SCHEMA_VERSION = "1.0"
FILE_NAME = "manifest.json"
DIGEST = re.compile(r"[0-9a-f]{24}")  # of a request


def _inside(path: str) -> str:
    if not path or path.startswith("/") or "\\" in path or "\0" in path or ".." in path.split("/"):
        raise ValueError("it leads out of its folder")
    return path


# The only paths that a record may name: a stranger's record could point anywhere.
InnerPath = Annotated[str, AfterValidator(_inside)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """Everything that a stage is asked to do: equal requests have equal digests.

    `inputs` maps a name to the digest or fingerprint of an input. `stage_version` is an integer, incremented when the
    stage's results change.
    """

    stage: str
    stage_version: int
    config: Mapping[str, Any]
    inputs: Mapping[str, Any]
    seed: int = 0

    @property
    def digest(self) -> str:
        """24 hexadecimal digits that name the output."""
        return hashlib.sha256(canonical_json(asdict(self))).hexdigest()[:24]

    def named_digests(self, *, without: Collection[str] = ()) -> set[str]:
        """The digests of other outputs that the inputs name; `without`: names of inputs to leave out."""
        inputs = {name: value for name, value in self.inputs.items() if name not in without}
        return {text for text in re.findall(r'"([^"]*)"', json.dumps(inputs, default=list)) if DIGEST.fullmatch(text)}


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    path: InnerPath  # relative to the folder of the manifest
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of a stage before its manifest: counts and metrics for people, labels that later stages inherit.

    `logical_digest` covers the logical rows in any order; it does not depend on file names, the number of workers or
    the version of the Arrow library.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Any] = field(default_factory=dict)
    ledger: Ledger | None = None
    logical_digest: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    request: Request
    outcome: Outcome
    files: Sequence[OutputFile]
    attempt: InnerPath
    created: str  # ISO 8601, UTC
    duration_seconds: float
    software: Mapping[str, str]

    @property
    def digest(self) -> str:
        return self.request.digest

    def to_json(self) -> dict:
        return {"schema_version": SCHEMA_VERSION, "digest": self.digest, **_MANIFEST.dump_python(self, warnings=False)}


_MANIFEST = TypeAdapter(Manifest)


def from_json(value: Mapping[str, Any], where: str = "a manifest") -> Manifest:
    """The manifest in a parsed JSON object.

    Raises UnknownVersionError for another major version, ValueError for an invalid manifest.
    """
    require_major(where, value.get("schema_version"), SCHEMA_VERSION)
    return _MANIFEST.validate_python(value)


def is_finished(folder: str) -> bool:
    """Whether a stage has finished in its folder, STORE/STAGE/DIGEST."""
    return storage.exists(storage.join(folder, FILE_NAME))


def read(folder: str) -> Manifest:
    """The manifest of a finished stage. Raises StageError if it is missing or cannot be read."""
    where = storage.join(folder, FILE_NAME)
    try:
        return from_json(from_bytes(storage.read_bytes(where)), where)
    except (FileNotFoundError, NotADirectoryError):
        raise StageError(
            f"The folder {folder} has no {FILE_NAME}: it is not the output of a stage, or that stage never finished.",
            "Give the path that the stage printed, or run the stage again.",
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StageError(
            f"The manifest {where} is damaged.", "Run the stage again; it sets the damaged manifest aside."
        ) from None


def output_files(folder: str, below: str = "") -> list[OutputFile]:
    """Every file below a folder with its size and hash; `below`: what comes before its path in the record."""
    names = storage.list_files(folder)
    uris = [storage.join(folder, name) for name in names]
    sizes, hashes = storage.map_files(storage.size_bytes, uris), storage.map_files(storage.sha256, uris)
    return [
        OutputFile(path=f"{below}{name}", size_bytes=size or 0, sha256=sha256)
        for name, size, sha256 in zip(names, sizes, hashes, strict=True)
    ]


def damaged_files(folder: str, files: Sequence[OutputFile], *, hashes: bool = False) -> list[str]:
    """The damage of files below a folder, one sentence each; empty if there is none.

    Sizes are always compared; `hashes` reads every byte as well. A link is damage: no stage writes one, and a
    stranger's could lead to any file of its reader.
    """
    result = []
    for file in files:
        where = storage.join(folder, file.path)
        size = storage.size_bytes(where)
        if storage.is_link(folder, file.path):
            result.append(f"{file.path} is a link, or in a linked folder")
        elif size is None:
            result.append(f"{file.path} is missing")
        elif size != file.size_bytes:
            result.append(f"{file.path} has {size:,} bytes and should have {file.size_bytes:,}")
        elif hashes and storage.sha256(where) != file.sha256:
            result.append(f"{file.path} has other bytes than were written")
    return result


def canonical_json(value: Any) -> bytes:
    """JSON with one form for one value: sorted keys, no spaces, UTF-8."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=list
    ).encode()


# A small JSON record with a hash of its own content, so that a changed byte is detected without another file.
#
# {"schema_version": "1.1", ..., "seal": SHA-256 of the canonical JSON of all the rest}

SEAL = "seal"
_MOST_LEVELS = 64


def seal(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same record with its seal; an older seal is replaced."""
    content = {name: entry for name, entry in value.items() if name != SEAL}
    return {**content, SEAL: hashlib.sha256(canonical_json(content)).hexdigest()}


def to_bytes(value: Mapping[str, Any] | Collection[Any]) -> bytes:
    """The bytes of a record. Raises ValueError for a number that JSON does not know: NaN, or an infinite one."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode()


def from_bytes(content: bytes | bytearray | str) -> Any:
    """The value of a record's bytes. Raises ValueError if it is not JSON, or deeper than any record that we write: a
    stranger's could be too deep to be read, compared or written again.
    """
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("it is too deep") from None
    level = [value]
    for _ in range(_MOST_LEVELS + 1):
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _entries(outer)]
        if not level:
            return value
    raise ValueError("it is too deep")


def _entries(outer: dict | list) -> Iterable[Any]:
    return outer.values() if isinstance(outer, dict) else outer


def is_respelled(content: bytes) -> bool:
    """Whether a sealed record differs from the bytes of `to_bytes` but parses to the same value, as 1e-5 and 1E-5
    do.
    """
    value = from_bytes(content)
    return SEAL in value and to_bytes(value) != content


def is_broken(value: Mapping[str, Any]) -> bool:
    """Whether a parsed record does not match its seal. Those of version 1.0 had none."""
    if SEAL not in value:
        return value.get("schema_version") != "1.0"
    return seal(value) != value
