"""The people who were erased from a store: a private list, by which every ingest leaves their lines out.

    STORE/private/erased/erasure-00001.json  {"schema_version": "1.0", "created": date, "people": {key id: [hash, ...]}}
    STORE/private/erased/list-key.json       the key of the list (person_key), which never expires

One file per erasure, readable by its owner alone, so that two erasures at once both count. It holds a hash of each
person under every key that the store has at that time, and under the list's own. Days are hashed with the former: they
say whom to erase from an ingest, and go with their key. The list's own key hashes nobody else: by it later ingests
recognise these people under whatever key they hash others. An ingest compares its clients with the hashes under its
own key, the store's other keys and the list's. Workers read the hashes from the files: they are not in the job's graph.
Without the files, or without a person in them, an ingest does nothing about it.

Erasures before the list had a key hashed under the store's keys alone; once these are deleted, nobody can recognise the
people of such a file any more.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.engine.arrow_files import Record, get
from clicktower.beam_jobs.ingest.person_key import FOLDER, ensure_lasting_key, hash_people, key_paths, read_key
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError, require_major
from clicktower.schemas.manifest import from_bytes

SCHEMA_VERSION = "1.0"
LIST_FOLDER = "erased"
PREFIX, SUFFIX = "erasure-", ".json"
LIST_KEY = "list-key.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasedPeople:
    """The list as one ingest applies it: its files then, and a digest of the hashes under the keys at hand.

    The digest is empty if it holds nobody.
    """

    store: str
    files: tuple[str, ...] = ()
    digest: str = ""

    def among(self, records: Sequence[Record], key_path: str, key_id: str) -> pa.Array:
        """The hashes, under the job's key, of the listed people who may be clients of some LOG_ROW records."""
        if not self.digest:
            return pa.array([], pa.uint64())
        key, people, other_keys = _worker_list(self, key_path, key_id)
        found = [people]
        for record in records if other_keys else ():
            clients = get([record])["client_id"].unique()
            for other, hashes in other_keys:
                is_listed = pc.is_in(hash_people(clients, other), value_set=hashes)
                found.append(hash_people(clients.filter(is_listed), key))
        return pa.concat_arrays(found).unique()


def open_list(store: str, key_path: str) -> ErasedPeople:
    """The list of a store as it is now, for an ingest with a key. Raises StageError (a damaged file, or key)."""
    files = tuple(_names(store))
    if not files:
        return ErasedPeople(store=store)
    by_key = read_list(store, files)
    at_hand = {key_id: by_key[key_id] for key_id in _keys(store, key_path) if key_id in by_key}
    return ErasedPeople(store=store, files=files, digest=_digest(at_hand))


def read_list(store: str, files: Iterable[str] | None = None) -> dict[str, pa.Array]:
    """The hashes of all listed people, uint64, ascending, by the id of the key. Raises StageError (a damaged file)."""
    uris = [storage.join(_folder(store), name) for name in (_names(store) if files is None else files)]
    hashes: dict[str, list[int]] = {}
    for people in storage.map_files(_read_file, uris):
        for key_id, some in people.items():
            hashes.setdefault(key_id, []).extend(some)
    return {key_id: pa.array(np.unique(np.array(some, np.uint64))) for key_id, some in hashes.items()}


def add_to_list(store: str, people: Mapping[str, pa.Array]) -> None:
    """Put people (hashes by the id of the key) on a store's list; those who are on it already are not added again."""
    for name in storage.list_names(_folder(store)):
        if name.endswith(".partial"):  # of an erasure that was killed as it wrote
            storage.remove(storage.join(_folder(store), name))
    listed = read_list(store)
    none = pa.array([], pa.uint64())
    missing = {
        key_id: hashes.filter(pc.invert(pc.is_in(hashes, value_set=listed.get(key_id, none))))
        for key_id, hashes in people.items()
    }
    if not any(map(len, missing.values())):
        return
    value = {
        "schema_version": SCHEMA_VERSION,
        "created": datetime.now(UTC).date().isoformat(),
        "people": {key_id: sorted(hashes.to_pylist()) for key_id, hashes in missing.items() if len(hashes)},
    }
    content = json.dumps(value, indent=1).encode()
    for private in (storage.join(store, FOLDER), _folder(store)):
        storage.make_folder(private, private=True)
    number = max(map(_number, _names(store)), default=0) + 1
    while True:
        with suppress(FileNotFoundError):  # another erasure took it for the remains of a killed one
            if storage.write_new(storage.join(_folder(store), f"{PREFIX}{number:05d}{SUFFIX}"), content):
                return
            number += 1  # another erasure was first


def is_listed_under(store: str, key_id: str) -> bool:
    """Whether everybody on a store's list has a hash under a key: a key that was made later has none of them."""
    uris = [storage.join(_folder(store), name) for name in _names(store)]
    return all(key_id in people for people in storage.map_files(_read_file, uris))


def ensure_list_key(store: str) -> str:
    """The file of the list's own key, which is created if it is missing."""
    path = storage.join(_folder(store), LIST_KEY)
    ensure_lasting_key(path)
    return path


def remove_key(store: str, key_id: str) -> bool:
    """Remove the hashes under a key from the list. False if they are the only ones that a file holds of its people:
    then they stay there, since these people could come back otherwise.
    """
    path = storage.join(_folder(store), LIST_KEY)
    list_key = read_key(path).id if storage.exists(path) else None
    is_gone = True
    for name in _names(store):
        uri = storage.join(_folder(store), name)
        value = _read_list(uri)
        if key_id not in value["people"]:
            continue
        if list_key not in value["people"]:
            is_gone = False
            continue
        del value["people"][key_id]
        storage.write_atomic(uri, json.dumps(value, indent=1).encode())
    return is_gone


def without_people(joined: pa.Table, people: pa.Array) -> tuple[pa.Table, int]:
    """The JOINED rows without those of some people (hashes), and the number of rows left out.

    A row is theirs if its client is, or that of the line that has its query: the text was theirs.
    """
    if not len(people):
        return joined, 0
    is_theirs = pc.or_(*(pc.is_in(joined[name], value_set=people) for name in ("person", "searcher")))
    kept = joined.filter(pc.invert(is_theirs))
    return kept, len(joined) - len(kept)


def _folder(store: str) -> str:
    return storage.join(store, FOLDER, LIST_FOLDER)


def _names(store: str) -> list[str]:
    names = storage.list_names(_folder(store))
    return [name for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)]


def _number(name: str) -> int:
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    return int(digits) if digits.isdecimal() else 0


def _read_file(uri: str) -> dict[str, list[int]]:
    people: dict[str, list[int]] = _read_list(uri)["people"]
    return people


def _read_list(uri: str) -> dict[str, Any]:
    try:
        value: dict[str, Any] = from_bytes(storage.read_bytes(uri))
        require_major(uri, value["schema_version"], SCHEMA_VERSION, stage="erase")
        value["people"] = {key_id: np.array(some, np.uint64).tolist() for key_id, some in value["people"].items()}
        return value
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, FileNotFoundError):
        raise StageError(
            f"{uri} is no list of erased people: without it they could come back. Nothing was read.",
            "Bring the file back from a copy; or remove it, and erase those people again.",
        ) from None


def _keys(store: str, key_path: str) -> dict[str, bytes]:
    """The keys at hand by their ids: an ingest's own, then those of the store and the list's."""
    list_key = storage.join(_folder(store), LIST_KEY)
    paths = [key_path, *key_paths(store), *([list_key] if storage.exists(list_key) else [])]
    return {key.id: key.key for key in map(read_key, dict.fromkeys(paths))}


def _digest(by_key: Mapping[str, pa.Array]) -> str:
    text = json.dumps({key_id: hashes.to_pylist() for key_id, hashes in sorted(by_key.items())})
    return blake2b(text.encode(), digest_size=8, person=b"erased-people").hexdigest() if by_key else ""


@lru_cache(maxsize=8)
def _worker_list(
    erased: ErasedPeople, key_path: str, key_id: str
) -> tuple[bytes, pa.Array, list[tuple[bytes, pa.Array]]]:
    """The job's key, the people under it, and other keys with theirs; read once per process.

    Raises TransientError if they are not those that the job began with.
    """
    keys, by_key = _keys(erased.store, key_path), read_list(erased.store, erased.files)
    at_hand = {id_: by_key[id_] for id_ in keys if id_ in by_key}
    if key_id not in keys or _digest(at_hand) != erased.digest:
        raise TransientError(
            f"The list of erased people in {_folder(erased.store)}, or a key, has changed since the job began.",
            "Run the same command again.",
        )
    own = at_hand.pop(key_id, pa.array([], pa.uint64()))
    return keys[key_id], own, [(keys[id_], hashes) for id_, hashes in at_hand.items()]
