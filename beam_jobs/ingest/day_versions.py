"""An ingest among those of its store: a sample of its lines, and what erasures left of it.

The sample recognises lines that a date already has (dated_days), and days that hold the same lines (days).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa

from clicktower.beam_jobs.compiled.log_library import keyed_hashes
from clicktower.beam_jobs.engine.arrow_files import read_table, write_table
from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.manifest import Request, from_bytes
from clicktower.schemas.stage import StageResult, open_result

SAMPLED_BYTES = 64 << 20
MIN_SHARE = 0.01  # of the smaller log: fewer lines may be equal by chance if lines have no time and no id
_NAME = "lines"
_PERSON = b"clicktower-lines"  # BLAKE2b's personalisation: this use of the key and no other
_ZERO_BITS = b"zero_bits"


@dataclass(frozen=True, kw_only=True, slots=True)
class LineSample:
    """`lines`: distinct keyed hashes, uint64, ascending. `zeros`: how many zeros each began with before, uint8.

    `zero_bits`: the minimum number of zeros. `num_lines`: of the log, sampled or not.
    """

    lines: np.ndarray
    zeros: np.ndarray
    zero_bits: int
    num_lines: int

    def overlaps(self, sample: "LineSample") -> bool:
        """Whether the two logs have more lines in common than chance explains."""
        num_lines, theirs, num_common = self._shared_counts(sample)
        return num_common > MIN_SHARE * min(num_lines, theirs)

    def holds(self, sample: "LineSample") -> bool:
        """Whether the log of this sample has every line of the other's, as far as the samples show."""
        _, theirs, num_common = self._shared_counts(sample)
        return self.num_lines >= sample.num_lines and num_common == theirs

    def _shared_counts(self, sample: "LineSample") -> tuple[int, int, int]:
        """Of the lines that would be in either sample: how many each has, and how many both have."""
        least = max(self.zero_bits, sample.zero_bits)
        lines, theirs = self.lines[self.zeros >= least], sample.lines[sample.zeros >= least]
        return len(lines), len(theirs), len(np.intersect1d(lines, theirs, assume_unique=True))


def zero_bits_for(log_bytes: int) -> int:
    """The number of zeros that the hash of a sampled line begins with, for a log of this size (uncompressed)."""
    return (log_bytes // SAMPLED_BYTES).bit_length()


def sampled(line_hashes: pa.FixedSizeBinaryArray, zero_bits: int) -> bytes:
    """The first eight bytes of each hash (LOG_ROW's `line_hash`) that is in the sample, concatenated."""
    width = line_hashes.type.byte_width
    raw = np.frombuffer(line_hashes.buffers()[1], np.uint8)[line_hashes.offset * width :][: len(line_hashes) * width]
    first = raw.reshape(-1, width)[:, :8].copy().view(">u8").ravel()
    return first[first <= np.uint64((1 << 64 - zero_bits) - 1)].tobytes()


def write_sample(folder: str, hashes: bytes, zero_bits: int, key: bytes) -> None:
    """Write the sample of an ingest below `folder`, from the results of `sampled` for all its lines, in any order."""
    distinct = np.unique(np.frombuffer(hashes, ">u8"))
    zeros = 32 - np.frexp((distinct >> np.uint64(32)).astype(np.float64))[1]
    words = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(distinct), [None, pa.py_buffer(distinct.tobytes())])
    lines = keyed_hashes(words.cast(pa.binary()), key=key, person=_PERSON)
    order = np.argsort(lines)
    table = pa.table({"line": pa.array(lines[order]), "zeros": pa.array(zeros[order].astype(np.uint8))})
    write_table(table.replace_schema_metadata({_ZERO_BITS: str(zero_bits).encode()}), folder, _NAME)


def read_sample(ingest: StageResult) -> LineSample | None:
    """The sample of an ingest, or None for one that predates samples."""
    name = f"{_NAME}.arrow"
    if not any(file.path == f"{ingest.manifest.attempt}/{name}" for file in ingest.manifest.files):
        return None
    table = read_table(storage.join(ingest.data, name))
    return LineSample(
        lines=np.from_dlpack(table["line"].combine_chunks()),  # `to_numpy` would import pandas
        zeros=np.from_dlpack(table["zeros"].combine_chunks()),
        zero_bits=int(table.schema.metadata[_ZERO_BITS]),
        num_lines=ingest.manifest.outcome.counts["lines"],
    )


def of_date(request: Request) -> Any:
    """The module dated_days for an ingest with a date; None for one without, which is no part of a day."""
    return resolve_name("clicktower.beam_jobs.ingest.dated_days") if data_date(request) else None


def data_date(request: Request) -> str | None:
    """The date of an ingest's data, or None for an undated one."""
    return request.config.get("date")


# Ingests after an erasure: what remains of them, and where it is now.
#
#     STORE/ingest/DIGEST/erased.json    {"schema_version": "1.1", "by": the digest of the ingest that took its place,
#                                         "listed": true}   since 1.1: those who were erased are on the store's list
#
# That file is the moment of an erasure: one process creates it, once, and from then on every request for DIGEST is led
# to the other. An ingest with `erased_from` counts only if that file names it, so the remains of a killed or beaten
# attempt are never read. The file stays when the rest is gone.
#
# A log that is ingested after an erasure gives such a remainder at once, without erased people (erased_people):
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
_INSTEAD = "instead-"  # and a digest: a file beside it while that ingest is made


def successor(folder: str) -> str | None:
    """The digest of the ingest that replaced an erased one; None for one that was not erased."""
    return _erased(folder).get("by")


def may_be_made_again(folder: str) -> bool:
    """Whether the log of an ingest would bring back nobody: all who were erased from it are listed."""
    while value := _erased(folder):
        if not value.get("listed"):
            return False
        folder = storage.join(folder.rsplit("/", 1)[0], value["by"])
    return True


def _erased(folder: str) -> Mapping[str, Any]:
    uri = storage.join(folder, FILE_NAME)
    try:
        value: Mapping[str, Any] = from_bytes(storage.read_bytes(uri))
    except FileNotFoundError:
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


def remainder_request(request: Request, of: str, erasure: str) -> Request:
    """The request for an ingest without erased people, instead of the ingest in the folder `of`. `erasure`: the digest
    of their list.
    """
    return replace(request, inputs={**request.inputs, "erased_from": of.rsplit("/", 1)[-1], "erasure": erasure})


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


def clear_behind(result: StageResult) -> None:
    """Remove what is left of the ingests whose place an ingest took: these, or an erasure, may have been cut off."""
    while source := result.manifest.request.inputs.get("erased_from"):
        folder = storage.join(result.folder.rsplit("/", 1)[0], source)
        if storage.list_files(folder) == [FILE_NAME]:
            return
        is_finished = storage.exists(storage.join(folder, manifest.FILE_NAME))
        before = open_result(folder) if is_finished else None
        clear(folder)
        if before is None:
            return
        result = before


def note_attempt(folder: str, digest: str) -> list[str]:
    """Note that an ingest is made to take the place of another; returns the folders of those that were begun before,
    under other lists of erased people, and of the other one: a killed ingest may have left rows there.
    """
    names = [name.removeprefix(_INSTEAD) for name in storage.list_names(folder) if name.startswith(_INSTEAD)]
    storage.write_atomic(storage.join(folder, f"{_INSTEAD}{digest}"), b"")
    return [folder, *(storage.join(folder.rsplit("/", 1)[0], name) for name in names if name != digest)]


def clear(folder: str) -> None:
    """Remove everything of an erased ingest but the file that leads to what is left of it."""
    for inside in storage.list_folders(folder):
        storage.remove(storage.join(folder, inside))
    for name in storage.list_files(folder):
        if name != FILE_NAME:
            storage.remove(storage.join(folder, name))


def _is_current(result: StageResult) -> bool:
    """Whether an ingest's rows count: it was not erased, and if it is the remainder of an erasure, it is the one that
    won.
    """
    if successor(result.folder):
        return False
    source = result.manifest.request.inputs.get("erased_from")
    before = storage.join(result.folder.rsplit("/", 1)[0], str(source))
    return source is None or successor(before) == result.manifest.digest


def finished_ingests(store: str) -> list[StageResult]:
    """Every ingest of a store whose rows count, including older versions of a day."""
    folder = storage.join(store, "ingest")
    names = storage.list_folders(folder)
    opened = [open_finished(storage.join(folder, name)) for name in names]
    return [result for result in opened if result and _is_current(result)]


def open_finished(folder: str) -> StageResult | None:
    """A finished ingest by its folder; None for one that never finished, or was removed. Raises StageError for a
    damaged one.
    """
    named = storage.join(folder, manifest.FILE_NAME)
    try:
        return open_result(folder) if storage.exists(named) else None
    except StageError:
        if storage.exists(named):
            raise
        return None
