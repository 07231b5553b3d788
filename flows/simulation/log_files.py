"""The files of the log and of its truth, open while the searches are drawn, one block of them after the other."""

import gzip
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flows.simulation.lines import FATE_NAMES, NO_FATE, Lines, query_id
from flows.simulation.people import Population
from flows.simulation.searches import INTENT, WHAT, Searches

# By number, as in people.
ROLES = (
    "person",
    "heavy_person",
    "declared_bot",
    "undeclared_bot",
    "slow_bot",
    "clicking_bot",
    "crowd_bot",
    "professional",
)
_NAME = pa.dictionary(pa.int8(), pa.string())
# `line` counts from 1, `offset` in bytes of the uncompressed file. `then`: see simulation.lines.Lines.
LINES = pa.schema(
    [("file", pa.int32()), ("line", pa.int64()), ("offset", pa.int64()), ("fate", _NAME), ("then", _NAME)]
)
SEARCHES = pa.schema(
    [
        ("query_id", pa.string()),
        ("client_id", pa.string()),
        ("role", _NAME),
        ("what", _NAME),
        ("intent", pa.int64()),
        ("form", pa.int8()),
        ("understood", pa.bool_()),
        ("misspelled", pa.bool_()),
        ("odd_case", pa.bool_()),
        ("odd_spaces", pa.bool_()),
    ]
)


def file_name(number: int) -> str:
    return f"ubi-{number:05d}.ndjson.gz"


class LogFiles:
    """`log/` and the two Parquet files of `truth/` below a folder.

    A block's lines are shuffled and dealt out to all files, so that a search and its events part company.
    """

    def __init__(self, folder: Path, num_files: int, open_files: ExitStack) -> None:
        self._files = []
        for number in range(num_files):
            raw = open_files.enter_context((folder / "log" / file_name(number)).open("wb"))
            # Without name and time in the header, the same lines are the same bytes.
            zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0)
            open_files.callback(zipped.close)
            self._files.append(zipped)
        truth = folder / "truth"
        self._lines = open_files.enter_context(
            pq.ParquetWriter(
                truth / "lines.parquet",
                LINES,
                use_dictionary=["fate", "then"],
                column_encoding=dict.fromkeys(("file", "line", "offset"), "DELTA_BINARY_PACKED"),
            )
        )
        self._searches = open_files.enter_context(pq.ParquetWriter(truth / "searches.parquet", SEARCHES))
        self._num_lines, self._num_bytes = [0] * num_files, [0] * num_files
        self._turn = 0

    def write(self, population: Population, searches: Searches, lines: Lines, order: np.ndarray) -> None:
        """Append a block: its searches as they are, its lines in `order`."""
        self._searches.write_table(_searches_table(population, searches))
        shares = enumerate(np.array_split(order, len(self._files)))
        truth = [self._write_lines((number + self._turn) % len(self._files), lines, rows) for number, rows in shares]
        self._lines.write_table(pa.concat_tables(truth))  # at once: each row group costs memory until the end
        self._turn += 1

    def _write_lines(self, at: int, lines: Lines, rows: np.ndarray) -> pa.Table:
        """Append lines to file `at`: what is true of them."""
        dealt = [lines.text[row] for row in rows.tolist()]
        self._files[at].write("".join(f"{line}\n" for line in dealt).encode("utf-8", "surrogateescape"))
        sizes = np.array([len(line) + 1 for line in dealt], np.int64)
        ends = np.cumsum(sizes) + self._num_bytes[at]
        then = lines.then[rows]
        columns = [
            np.full(len(rows), at, np.int32),
            np.arange(len(rows)) + self._num_lines[at] + 1,
            ends - sizes,
            pa.DictionaryArray.from_arrays(pa.array(lines.fate[rows]), pa.array(FATE_NAMES)),
            pa.DictionaryArray.from_arrays(pa.array(then, mask=then == NO_FATE), pa.array(FATE_NAMES)),
        ]
        self._num_lines[at] += len(rows)
        self._num_bytes[at] += int(sizes.sum())
        return pa.table(columns, schema=LINES)


def _searches_table(population: Population, searches: Searches) -> pa.Table:
    who = searches.who
    known = zip(who.actor.tolist(), searches.has_client.tolist(), strict=True)
    columns = [
        [query_id(number) for number in searches.numbers.tolist()],
        [population.client(actor) if has_client else None for actor, has_client in known],
        pa.DictionaryArray.from_arrays(pa.array(who.role.astype(np.int8)), pa.array(ROLES)),
        pa.DictionaryArray.from_arrays(pa.array(searches.what), pa.array(WHAT)),
        pa.array(searches.intents.number, mask=searches.what != INTENT),
        searches.form.astype(np.int8),
        searches.understood,
        *searches.altered.T,
    ]
    return cast(pa.Table, pa.table(columns, schema=SEARCHES))
