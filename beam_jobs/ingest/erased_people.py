"""The people who were erased from a store: a private list, by which every ingest leaves their lines out; and what is
left of the ingests that held them.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.engine.arrow_files import Record
from clicktower.beam_jobs.ingest.person_key import FOLDER
from clicktower.schemas import storage
from clicktower.schemas.errors import require_major
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.stage import StageResult

LIST_FOLDER = "erased"
PREFIX, SUFFIX = "erasure-", ".json"
_LIST = "clicktower.beam_jobs.ingest.erased_list"  # loaded where anybody was erased


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
        return resolve_name(f"{_LIST}:people_among")(self, records, key_path, key_id)


def open_list(store: str, key_path: str) -> ErasedPeople:
    """The list of a store as it is now, for an ingest with a key. Raises StageError (a damaged file, or key)."""
    files = tuple(list_names(store))
    if not files:
        return ErasedPeople(store=store)
    return ErasedPeople(
        store=store, files=files, digest=resolve_name(f"{_LIST}:digest_at_hand")(store, files, key_path)
    )


def without_people(joined: pa.Table, people: pa.Array) -> tuple[pa.Table, int]:
    """The JOINED rows without those of some people (hashes), and the number of rows left out.

    A row is theirs if its client is, or that of the line that has its query: the text was theirs.
    """
    if not len(people):
        return joined, 0
    is_theirs = pc.or_(*(pc.is_in(joined[name], value_set=people) for name in ("person", "searcher")))
    kept = joined.filter(pc.invert(is_theirs))
    return kept, len(joined) - len(kept)


def list_folder(store: str) -> str:
    return storage.join(store, FOLDER, LIST_FOLDER)


def list_names(store: str) -> list[str]:
    names = storage.list_names(list_folder(store))
    return [name for name in names if name.startswith(PREFIX) and name.endswith(SUFFIX)]


# Ingests after an erasure: what remains of them, and where it is now.
#
#     STORE/ingest/DIGEST/erased.json    {"schema_version": "1.1", "by": the digest of the ingest that took its place,
#                                         "listed": true}   since 1.1: those who were erased are on the store's list
#
# That file is the moment of an erasure: one process creates it, once, and from then on every request for DIGEST is led
# to the other. An ingest with `erased_from` counts only if that file names it, so the remains of a killed or beaten
# attempt are never read. The file stays when the rest is gone.
#
# A log that is ingested after an erasure gives such a remainder at once, without erased people (above):
# `erased_from` is then the ingest of the whole log, which was never made.
#
#     STORE/ingest/DIGEST/committing     while an ingest commits
#
# An erasure lists people, then looks through all ingests; an ingest commits, then looks whether the list is as it was.
# So one of the two sees the other. Until the ingest has looked, it carries that file and no build reads it; if it is
# killed there, the same ingest, repeated, looks again.


SCHEMA_VERSION = "1.1"
FILE_NAME = "erased.json"
COMMITTING = "committing"


def successor(folder: str) -> str | None:
    """The digest of the ingest that replaced an erased one; None for one that was not erased."""
    return erased_mark(folder).get("by")


def erased_mark(folder: str) -> Mapping[str, Any]:
    """What erased.json says of an ingest; empty for one that was not erased."""
    uri = storage.join(folder, FILE_NAME)
    try:
        value: Mapping[str, Any] = from_bytes(storage.read_bytes(uri))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    require_major(uri, value.get("schema_version"), SCHEMA_VERSION, stage="erase")
    return value


def follow(folder: str) -> str:
    """The folder that now holds an ingest's rows: its own, or what the last erasure left of it."""
    while by := successor(folder):
        folder = storage.join(folder.rsplit("/", 1)[0], by)
    return folder


def mark_erased(folder: str, by: str) -> bool:
    """Let another ingest replace this one. False if another did before."""
    content = json.dumps({"schema_version": SCHEMA_VERSION, "by": by, "listed": True}, indent=1).encode()
    return storage.write_new(storage.join(folder, FILE_NAME), content)


def take_place(result: StageResult) -> str:
    """Let an ingest take the place of the one that it was made from, or instead of, unless another did before. Returns
    the folder of the one that counts.
    """
    source = result.manifest.request.inputs.get("erased_from")
    if source is None:
        return follow(result.folder)
    folder = storage.join(result.folder.rsplit("/", 1)[0], source)
    if not successor(folder):
        mark_erased(folder, result.manifest.digest)
    return follow(folder)


def begin_commit(folder: str) -> None:
    storage.write_atomic(storage.join(folder, COMMITTING), b"")


def is_committing(folder: str) -> bool:
    """Whether an ingest has yet to look at the list of erased people (see above)."""
    return storage.exists(storage.join(folder, COMMITTING))


def end_commit(folder: str) -> None:
    storage.remove(storage.join(folder, COMMITTING))


def has_missed_people(store: str, result: StageResult, key_path: str) -> bool:
    """Whether people were erased since an ingest began that has yet to look."""
    begun_with = result.manifest.request.inputs.get("erasure", "")
    return is_committing(result.folder) and open_list(store, key_path).digest != begun_with
