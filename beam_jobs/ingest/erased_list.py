"""The files of the list of erased people (erased_people): read, added to, and what a worker needs of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.engine.arrow_files import Record, get
from clicktower.beam_jobs.ingest.erased_people import PREFIX, SUFFIX, ErasedPeople, list_folder, list_names
from clicktower.beam_jobs.ingest.person_key import FOLDER, ensure_lasting_key, hash_people, key_paths, read_key
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError, require_major
from clicktower.schemas.manifest import from_bytes

SCHEMA_VERSION = "1.0"
LIST_KEY = "list-key.json"


def read_list(store: str, files: Iterable[str] | None = None) -> dict[str, pa.Array]:
    """The hashes of all listed people, uint64, ascending, by the id of the key. Raises StageError (a damaged file)."""
    uris = [storage.join(list_folder(store), name) for name in (list_names(store) if files is None else files)]
    hashes: dict[str, list[int]] = {}
    for people in storage.map_files(_read_file, uris):
        for key_id, numbers in people.items():
            hashes.setdefault(key_id, []).extend(numbers)
    return {key_id: pa.array(np.unique(np.array(numbers, np.uint64))) for key_id, numbers in hashes.items()}


def add_to_list(store: str, people: Mapping[str, pa.Array]) -> None:
    """Put people (hashes by the id of the key) on a store's list; those who are on it already are not added again."""
    for name in storage.list_names(list_folder(store)):
        if name.endswith(".partial"):  # of an erasure that was killed as it wrote
            storage.remove(storage.join(list_folder(store), name))
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
    for private in (storage.join(store, FOLDER), list_folder(store)):
        storage.make_folder(private, private=True)
    number = max(map(_number, list_names(store)), default=0) + 1
    while True:
        with suppress(FileNotFoundError):  # another erasure took it for the remains of a killed one
            if storage.write_new(storage.join(list_folder(store), f"{PREFIX}{number:05d}{SUFFIX}"), content):
                return
            number += 1  # another erasure was first


def is_listed_under(store: str, key_id: str) -> bool:
    """Whether everybody on a store's list has a hash under a key: a key that was made later has none of them."""
    uris = [storage.join(list_folder(store), name) for name in list_names(store)]
    return all(key_id in people for people in storage.map_files(_read_file, uris))


def ensure_list_key(store: str) -> str:
    """The file of the list's own key, which is created if it is missing."""
    path = storage.join(list_folder(store), LIST_KEY)
    ensure_lasting_key(path)
    return path


def remove_key(store: str, key_id: str) -> bool:
    """Remove the hashes under a key from the list. False if they are the only ones that a file holds of its people:
    then they stay there, since these people could come back otherwise.
    """
    path = storage.join(list_folder(store), LIST_KEY)
    list_key = read_key(path).id if storage.exists(path) else None
    is_gone = True
    for name in list_names(store):
        uri = storage.join(list_folder(store), name)
        value = _read_list(uri)
        if key_id not in value["people"]:
            continue
        if list_key not in value["people"]:
            is_gone = False
            continue
        del value["people"][key_id]
        storage.write_atomic(uri, json.dumps(value, indent=1).encode())
    return is_gone


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
        value["people"] = {key_id: np.array(numbers, np.uint64).tolist() for key_id, numbers in value["people"].items()}
        return value
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, FileNotFoundError):
        raise StageError(
            f"{uri} is no list of erased people: without it they could come back. Nothing was read.",
            "Bring the file back from a copy; or remove it, and erase those people again.",
        ) from None


def _keys(store: str, key_path: str) -> dict[str, bytes]:
    """The keys at hand by their ids: an ingest's own, then those of the store and the list's."""
    list_key = storage.join(list_folder(store), LIST_KEY)
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
            f"The list of erased people in {list_folder(erased.store)}, or a key, has changed since the job began.",
            "Run the same command again.",
        )
    of_key = at_hand.pop(key_id, pa.array([], pa.uint64()))
    return keys[key_id], of_key, [(keys[id_], hashes) for id_, hashes in at_hand.items()]


def digest_at_hand(store: str, files: Iterable[str], key_path: str) -> str:
    """The digest of the hashes in some files of the list under the keys at hand: empty if these name nobody."""
    by_key = read_list(store, files)
    return _digest({key_id: by_key[key_id] for key_id in _keys(store, key_path) if key_id in by_key})


def people_among(erased: ErasedPeople, records: Sequence[Record], key_path: str, key_id: str) -> pa.Array:
    """As ErasedPeople.among, for a list that holds somebody."""
    key, people, other_keys = _worker_list(erased, key_path, key_id)
    hashes_of_listed = [people]
    for record in records if other_keys else ():
        clients = get([record])["client_id"].unique()
        for other_key, hashes in other_keys:
            is_listed = pc.is_in(hash_people(clients, other_key), value_set=hashes)
            hashes_of_listed.append(hash_people(clients.filter(is_listed), key))
    return pa.concat_arrays(hashes_of_listed).unique()
