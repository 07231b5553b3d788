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

from collections.abc import Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.engine.arrow_files import Record
from clicktower.beam_jobs.ingest.person_key import FOLDER
from clicktower.schemas import storage

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
