"""Whether days hold the same lines: samples of the lines of ingests (day_rows.write_sample), compared.

They recognise lines that a date already has (dated_days), and days that would count lines twice (windows).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from clicktower.beam_jobs.engine.arrow_files import read_table
from clicktower.beam_jobs.ingest.day_rows import SAMPLE, ZERO_BITS
from clicktower.beam_jobs.ingest.days import data_date
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import StageResult

MIN_SHARE = 0.01  # of the smaller log: fewer lines may be equal by chance if lines have no time and no id


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


def read_sample(ingest: StageResult) -> LineSample | None:
    """The sample of an ingest, or None for one that predates samples."""
    name = f"{SAMPLE}.arrow"
    if not any(file.path == f"{ingest.manifest.attempt}/{name}" for file in ingest.manifest.files):
        return None
    table = read_table(storage.join(ingest.data, name))
    return LineSample(
        lines=np.from_dlpack(table["line"].combine_chunks()),  # `to_numpy` would import pandas
        zeros=np.from_dlpack(table["zeros"].combine_chunks()),
        zero_bits=int(table.schema.metadata[ZERO_BITS]),
        num_lines=ingest.manifest.outcome.counts["lines"],
    )


def require_disjoint_lines(days: Sequence[StageResult]) -> None:
    """Raises StageError if two days were made from the same lines, even from different files.

    Lines without a time may legitimately be equal on two dates.
    """
    samples = [(result, sample) for result in days if (sample := read_sample(result))]
    if not samples:
        return
    lines = np.sort(np.concatenate([sample.lines for _, sample in samples]))
    if not (lines[1:] == lines[:-1]).any():
        return
    for (first, mine), (second, theirs) in combinations(samples, 2):
        may_repeat = data_date(first.manifest.request) and data_date(second.manifest.request) and not (
            first.manifest.outcome.metrics["first_time"] and second.manifest.outcome.metrics["first_time"]
        )  # fmt: skip
        if not may_repeat and mine.overlaps(theirs):
            raise StageError(
                f"{first.folder} and {second.folder} hold the same lines in different files: their clicks would"
                " count twice.",
                "Ingest both logs together, or keep one of the two folders and remove the other.",
            )
