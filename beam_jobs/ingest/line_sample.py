"""A sample of the lines that an ingest read, by which a log delivered again is known whatever its files are called.

A line is in the sample if its hash begins with enough zeros, so the samples of two logs hold the same of what both
have. Of a log of up to SAMPLED_BYTES all lines are in it. `lines.arrow` holds them hashed once more, with the person
key: without that key it says nothing about any line.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.hashes import keyed_hashes
from beam_jobs.engine.arrow_files import read_table, write_table
from schemas import storage
from schemas.stage import StageResult

SAMPLED_BYTES = 64 << 20
MIN_SHARE = 0.01  # of the smaller log: fewer lines may be equal by chance, where lines have no time and no id
_NAME = "lines"
_PERSON = b"clicktower-lines"  # BLAKE2b's personalisation: this use of the key and no other
_ZERO_BITS = b"zero_bits"


@dataclass(frozen=True, kw_only=True, slots=True)
class LineSample:
    """`lines`: distinct keyed hashes, uint64, ascending. `zeros`: how many zeros each began with before, uint8.

    `zero_bits`: the least of them that is asked for. `num_lines`: of the log, sampled or not.
    """

    lines: np.ndarray
    zeros: np.ndarray
    zero_bits: int
    num_lines: int

    def overlaps(self, other: "LineSample") -> bool:
        """Whether both logs have so many lines in common that it cannot be chance."""
        mine, theirs = self._beside(other)
        return num_common(mine, theirs) > MIN_SHARE * min(len(mine), len(theirs))

    def holds(self, other: "LineSample") -> bool:
        """Whether every line of the other sample is in this one's log, as far as the samples show."""
        mine, theirs = self._beside(other)
        return self.num_lines >= other.num_lines and num_common(mine, theirs) == len(theirs)

    def _beside(self, other: "LineSample") -> tuple[np.ndarray, np.ndarray]:
        """The lines of both that would be in either sample."""
        least = max(self.zero_bits, other.zero_bits)
        return self.lines[self.zeros >= least], other.lines[other.zeros >= least]


def num_common(one: np.ndarray, other: np.ndarray) -> int:
    """How many values two arrays of distinct values have in common."""
    return len(np.intersect1d(one, other, assume_unique=True))


def zero_bits_for(log_bytes: int) -> int:
    """How many zeros the hash of a sampled line begins with, for a log of this size (uncompressed)."""
    return (log_bytes // SAMPLED_BYTES).bit_length()


def sampled(line_hashes: pa.FixedSizeBinaryArray, zero_bits: int) -> bytes:
    """Of those hashes (LOG_ROW's `line_hash`) that are in the sample the first eight bytes, one after the other."""
    width = line_hashes.type.byte_width
    raw = np.frombuffer(line_hashes.buffers()[1], np.uint8)[line_hashes.offset * width :][: len(line_hashes) * width]
    first = raw.reshape(-1, width)[:, :8].copy().view(">u8").ravel()
    return first[first <= np.uint64((1 << 64 - zero_bits) - 1)].tobytes()


def write_sample(folder: str, hashes: bytes, zero_bits: int, key: bytes) -> None:
    """Write the sample of an ingest below `folder`, from what `sampled` gave for all its lines, in any order."""
    distinct = np.unique(np.frombuffer(hashes, ">u8"))
    zeros = 32 - np.frexp((distinct >> np.uint64(32)).astype(np.float64))[1]
    words = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(distinct), [None, pa.py_buffer(distinct.tobytes())])
    lines = keyed_hashes(words.cast(pa.binary()), key=key, person=_PERSON)
    order = np.argsort(lines)
    table = pa.table({"line": pa.array(lines[order]), "zeros": pa.array(zeros[order].astype(np.uint8))})
    write_table(table.replace_schema_metadata({_ZERO_BITS: str(zero_bits).encode()}), folder, _NAME)


def read_sample(ingest: StageResult) -> LineSample | None:
    """The sample of an ingest, or None of one that was made before there were any."""
    name = f"{_NAME}.arrow"
    if not any(file.path == f"{ingest.manifest.attempt}/{name}" for file in ingest.manifest.files):
        return None
    table = read_table(storage.join(ingest.data, name))
    return LineSample(
        lines=np.from_dlpack(table["line"].combine_chunks()),  # `to_numpy` would have pandas imported
        zeros=np.from_dlpack(table["zeros"].combine_chunks()),
        zero_bits=int(table.schema.metadata[_ZERO_BITS]),
        num_lines=ingest.manifest.outcome.counts["lines"],
    )
