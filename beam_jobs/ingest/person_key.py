"""The keys that hash client ids, kept apart from the data, with an expiry date.

`STORE/private/person-key.json`: {"version": 1, "key": 64 hexadecimal digits, "created": date, "expires": date},
readable by its owner alone. Deleting it makes the hashes in all days meaningless; that is its purpose. The key itself
is stored nowhere else, not even in the job's graph: workers read it from the file.

The next key is `person-key-2.json`, and so on: the highest number is the store's newest key. Files are only created,
never moved or changed, so if two processes renew a key, one succeeds. There are two ways from one key to the next:

- With an overlap (the days of the longest window) the next key is made before the last one expires, early enough for
  every window to have one key that covers all of it. Until then each log is ingested once under every key. A key that
  has expired is removed, with everything under it (expired_keys).
- Without one the next key is made when the last one has expired and somebody asks for it; windows begin anew with it.
  The old key stays until its owner deletes it; until then people can be erased from its days.
"""

import json
import os
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.compiled.log_library import keyed_hashes
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.stage import is_planning
from clicktower.schemas.text_contract import person_ids

KEY_BYTES = 32
PERSON = b"clicktower-people"[:16]  # BLAKE2b's personalisation: this use of the key and no other
LIFETIME_DAYS = 90
MAX_OVERLAP_DAYS = 60  # a new key every 28 days, and four keys at most at a time
LATE_DAYS = 3  # a run that is late takes its own day, whose window began earlier; three nights are made up
NOTICE_DAYS = 14
FOLDER = "private"
_NAME = re.compile(r"person-key(?:-(\d+))?\.json")


@dataclass(frozen=True, slots=True)
class PersonKey:
    key: bytes
    expires: date

    def __repr__(self) -> str:  # never print a key
        return f"PersonKey({self.id})"

    @property
    def begins(self) -> date:
        return self.expires - timedelta(days=LIFETIME_DAYS)

    @property
    def id(self) -> str:
        """A name of the key that does not reveal it."""
        return blake2b(self.key, digest_size=8, person=b"person-key-id").hexdigest()


def key_paths(store: str) -> list[str]:
    """The files of a store's keys, the oldest window's first."""
    folder = storage.join(store, FOLDER)
    names = [name for name in storage.list_files(folder) if _NAME.fullmatch(name)]
    return [storage.join(folder, name) for name in sorted(names, key=_window_number)]


def default_path(store: str) -> str:
    """The file of a store's newest key, whether it exists yet or not."""
    return next(reversed(key_paths(store)), storage.join(store, FOLDER, "person-key.json"))


def _window_number(path: str) -> int:
    match = _NAME.fullmatch(path.rsplit("/", 1)[-1])
    return int(match[1] or 1) if match else 0


def ensure_store_key(store: str, *, renew: bool, overlap: int = 0, today: date | None = None) -> tuple[str, PersonKey]:
    """The store's newest key, valid today, and its file; created if it is missing.

    `renew`: replace an expired key. `overlap`: replace a key early enough for windows of that many days. Raises
    StageError (see `ensure_key`).
    """
    today = today or current_date()
    path = default_path(store)
    if storage.exists(path):
        days_left = (read_key(path).expires - today).days
        if (renew and days_left < 0) or (overlap and days_left < overlap + LATE_DAYS):
            path = storage.join(store, FOLDER, f"person-key-{_window_number(path) + 1}.json")
    return path, ensure_key(path, create=True, today=today)


def valid_keys(store: str, today: date | None = None) -> list[tuple[str, PersonKey]]:
    """The store's keys that have not expired, and their files, the newest first. Raises StageError."""
    keys = [(path, read_key(path)) for path in reversed(key_paths(store))]
    return [(path, key) for path, key in keys if key.expires >= (today or current_date())]


def key_state(store: str, *, renews: bool, today: date | None = None) -> dict[str, str]:
    """What a person should know of a store's keys: {"expires": the newest's date, "notice": that it ends soon, and what
    to do; "overlap": that there are several}; a sentence is empty if it is not so. `renews`: the next key needs nobody.
    Raises StageError.
    """
    today = today or current_date()
    expires = read_key(default_path(store)).expires
    valid, days_left, notice, overlap = valid_keys(store, today), (expires - today).days, "", ""
    if days_left <= NOTICE_DAYS and not renews:
        ends = f"expires on {expires.isoformat()}" if days_left >= 0 else f"expired on {expires.isoformat()}"
        notice = (
            f"the key of people {ends}, and ingest fails from the day after: set [window] last = {MAX_OVERLAP_DAYS} or"
            " fewer, and keys renew themselves; or renew_key = true in [ingest], and windows begin anew with a new key"
        )
    if len(valid) > 1:
        until = valid[-1][1].expires.isoformat()
        overlap = f"{len(valid)} keys of people overlap until {until}: the log is read once for each"
    return {"expires": expires.isoformat(), "notice": notice, "overlap": overlap}


def current_date() -> date:
    return datetime.now(UTC).date()


def ensure_key(path: str, *, create: bool, today: date | None = None) -> PersonKey:
    """The key in a file that is valid today; with `create`, a missing one is created; while it is only
    planned (schemas.stage), a stand-in that no file holds.

    Raises UsageError (no file) and StageError (expired, damaged, readable by others).
    """
    today = today or current_date()
    if not storage.exists(path):
        if not create:
            raise UsageError(
                f"There is no key file {path} to hash client ids with.",
                "Give the path of a key file, or none: then one is made in the store.",
            )
        if is_planning():
            return PersonKey(bytes(KEY_BYTES), today + timedelta(days=LIFETIME_DAYS))
        _create(path, today)
    key = read_key(path)
    if today > key.expires:
        raise StageError(
            f"The key in {path} expired on {key.expires.isoformat()}: under it people could be followed into the next"
            " window. Nothing was read.",
            "Run it again with --renew-key (in a pipeline.toml, [window] last, and keys renew themselves): a new key is"
            " made. Days of two keys are never built together; what was ingested before stays usable by itself (build"
            " --to DATE).",
        )
    return key


def ensure_lasting_key(path: str) -> PersonKey:
    """The key in a file that never expires, created if it is missing. Raises StageError."""
    if not storage.exists(path):
        _create(path, current_date(), expires=date.max)
    return read_key(path)


@lru_cache(maxsize=8)
def worker_key(path: str, key_id: str) -> bytes:
    """The key that the job was submitted with, read once per process. Raises StageError if it has changed since."""
    current = read_key(path)
    if current.id != key_id:
        raise StageError(
            f"{path} holds the person key {current.id}, and the job began with {key_id}: hashes of two keys would be"
            " mixed.",
            "Leave the key file alone while a job runs; run the same command again.",
        )
    return current.key


def read_key(path: str) -> PersonKey:
    """The key in a file, expired or not. Raises StageError."""
    try:
        _refuse_if_others_can_read(path)
        value = from_bytes(storage.read_bytes(path))
        require_major(path, value.get("version"), "1")
        key = bytes.fromhex(value["key"])
        if len(key) != KEY_BYTES:
            raise ValueError
        return PersonKey(key, date.fromisoformat(value["expires"]))
    except OSError as error:
        raise StageError(
            f"The person key {path} cannot be read: {error.strerror or type(error).__name__}.",
            "Make the file readable for this user and for the workers.",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StageError(
            f"{path} is not a key file.", "Bring the file back from a copy, or move it away to have a new key made."
        ) from None


def _create(path: str, today: date, expires: date | None = None) -> None:
    value = {
        "version": 1,
        "key": secrets.token_bytes(KEY_BYTES).hex(),
        "created": today.isoformat(),
        "expires": (expires or today + timedelta(days=LIFETIME_DAYS)).isoformat(),
    }
    storage.make_folder(path.rpartition("/")[0], private=True)
    storage.write_new(path, json.dumps(value, indent=1).encode())  # if two processes start together, one creates it


def _refuse_if_others_can_read(path: str) -> None:
    if os.name != "posix" or not storage.is_local(path):
        return
    local = storage.filesystem(path)[1]
    if os.stat(local).st_mode & 0o077:
        raise StageError(
            f"Other users of this machine may read the person key {path}: the hashes would protect nobody.",
            f"Run `chmod 600 {local}`.",
        )


def hash_people(client_ids: pa.Array, key: bytes) -> pa.Array:
    """A keyed 64-bit BLAKE2b hash of each client id, as uint64; null for null: a line without a client is nobody's.

    All spellings of an id are one person (text_contract.person_ids), and an id of which nothing is left is nobody's.
    Ids that differ in case are two people, since base64 ids do.
    """
    encoded = client_ids.dictionary_encode()
    names = person_ids(encoded.dictionary)
    distinct = pa.array(keyed_hashes(names, key=key, person=PERSON).byteswap())  # the digest's first byte is highest
    return pc.if_else(pc.equal(names, ""), None, distinct).take(encoded.indices)
