"""The versions of a date: each is a small immutable file that lists its ingests; the newest counts.

    STORE/days/2026-09-01/version-00002.json

A late log file is ingested alone, and the next version lists its aggregate with the existing ones: aggregates merge
when they are read. Versions are numbered from 1 without gaps, since a version is only written if the one before it is
the newest, and of two writers of one number exactly one wins.

While two keys of people overlap (person_key), a date is ingested under each of them. A version lists the parts of every
key, and a reader takes those of one.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.manifest import from_bytes

_VERSION_SCHEMA = "1.0"
_FOLDER = "days"
_PREFIX, _SUFFIX = "version-", ".json"

# Why a version exists, in plain words.
FIRST = "first ingest of this date"
LATE = "late log files were added"
ANEW = "made anew from all log files of this date"
AGAIN = "log files were delivered again, with all their lines and more"
REPLACED = "replaced, as --replace-day asked"
ERASED = "a person was erased"
SECOND_KEY = "people are hashed under a second key too"
KEY_ENDED = "the key of some parts has expired"


@dataclass(frozen=True, kw_only=True, slots=True)
class DayPart:
    """One ingest of a date.

    `ingest`: its digest. `logs`: fingerprints of its log files, ascending. `person_key`: the id of the key that hashes
    its people. `settings`: a digest of all other settings.
    """

    ingest: str
    logs: tuple[str, ...]
    person_key: str
    settings: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DayVersion:
    date: str  # ISO 8601
    version: int
    parts: tuple[DayPart, ...]
    because: str
    created: str  # ISO 8601, UTC

    def under(self, person_key: str) -> "DayVersion":
        """The version with the parts of one key alone."""
        return replace(self, parts=tuple(part for part in self.parts if part.person_key == person_key))

    @property
    def person_keys(self) -> set[str]:
        return {part.person_key for part in self.parts}

    @property
    def logs(self) -> set[str]:
        return {log for part in self.parts for log in part.logs}

    def to_json(self) -> dict:
        return {
            "schema_version": _VERSION_SCHEMA,
            "date": self.date,
            "version": self.version,
            "supersedes": self.version - 1 or None,
            "because": self.because,
            "parts": [asdict(part) | {"logs": list(part.logs)} for part in self.parts],
            "created": self.created,
        }


_VERSION = TypeAdapter(DayVersion)  # it ignores what a later version adds


def list_dates(store: str) -> list[str]:
    """The dates in a store, ascending."""
    return storage.list_folders(storage.join(store, _FOLDER))


def newest_version(store: str, date: str) -> DayVersion | None:
    """The newest version of a date, or None for an unknown date. Raises StageError for a damaged file."""
    folder = storage.join(store, _FOLDER, date)
    while names := _version_names(folder):
        uri = storage.join(folder, max(names))
        try:
            return read_version(uri)
        except StageError:
            if storage.exists(uri):
                raise  # otherwise the date was removed meanwhile
    return None


def remove_versions(store: str, date: str) -> None:
    """Remove a date from a store's days. The oldest version goes first, so that no earlier version ever counts in the
    place of the newest.
    """
    folder = storage.join(store, _FOLDER, date)
    while names := _version_names(folder):  # again, if a late log was added meanwhile
        for name in sorted(names):
            storage.remove(storage.join(folder, name))
    storage.remove(folder)


def _version_names(folder: str) -> list[str]:
    return list(filter(is_version_file, storage.list_names(folder)))


def read_version(uri: str) -> DayVersion:
    """The version in the file at a URI. Raises StageError if it is not a version."""
    try:
        value: Mapping[str, Any] = from_bytes(storage.read_bytes(uri))
        require_major(uri, value["schema_version"], _VERSION_SCHEMA, stage="ingest")
        return _VERSION.validate_python(value)
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        raise StageError(
            f"The file {uri} does not exist, or holds no version of a day.",
            "Give a file below STORE/days, or bring this one back from a copy.",
        ) from None


def write_version(store: str, version: DayVersion) -> bool:
    """Write a version. False, and nothing is written, if another process wrote that number first."""
    content = json.dumps(version.to_json(), indent=1).encode()
    return storage.write_new(version_uri(store, version), content)


def remove_versions_under(store: str, date: str, person_key: str) -> None:
    """Remove the versions of a date that list a part under a key."""
    folder = storage.join(store, _FOLDER, date)
    for name in _version_names(folder):
        uri = storage.join(folder, name)
        if person_key in read_version(uri).person_keys:
            storage.remove(uri)


def version_uri(store: str, version: DayVersion) -> str:
    return storage.join(store, _FOLDER, version.date, f"{_PREFIX}{version.version:05d}{_SUFFIX}")


def is_version_file(uri: str) -> bool:
    name = uri.rsplit("/", 1)[-1]
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)
