"""A log that is delivered again, in whatever form: each of its lines counts once, or the run refuses and says so."""

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.ingest.day_rows import sampled, write_sample, zero_bits_for
from clicktower.beam_jobs.ingest.days import open_window
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.line_samples import LineSample, read_sample
from clicktower.schemas.day_version import AGAIN, FIRST, LATE, REPLACED, list_dates, newest_version
from clicktower.schemas.errors import StageError, TransientError, UsageError
from clicktower.schemas.stage import open_result
from tests.beam_jobs.ingest.dated_logs import day_lines

pytestmark = pytest.mark.slow

DATE = "2026-09-01"
LINES = [line for number in range(4) for line in day_lines(DATE, number, num_searches=5)]
HALF = len(LINES) // 2


def write(path: Path, lines: list[bytes]) -> str:
    content = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def put(folder: Path, *logs: str, **config):
    return ingest_log(logs, store=str(folder / "store"), config=IngestConfig(date=DATE, **config))


def total_lines(folder: Path) -> int:
    """Of all that a build would read."""
    return sum(result.manifest.outcome.counts["lines"] for result in open_window([str(folder / "store")]).ingests)


@pytest.fixture
def half(tmp_path):
    """A folder whose store holds the first half of the day."""
    put(tmp_path, write(tmp_path / "a.ndjson", LINES[:HALF]))
    return tmp_path


@pytest.mark.parametrize(
    ("again", "because"),
    [
        ({"a.ndjson": LINES}, AGAIN),  # grown
        ({"a.ndjson": LINES[:HALF + 1]}, AGAIN),  # by a line
        ({"a.ndjson.gz": LINES[:HALF]}, AGAIN),  # packed
        ({"b.ndjson": LINES[:HALF]}, FIRST),  # renamed
        ({"a.ndjson.1": LINES[:HALF] + LINES[HALF:-3], "a.ndjson": LINES[-3:]}, AGAIN),  # rotated
        ({"x.ndjson": LINES[:5], "y.ndjson": LINES[5:HALF]}, AGAIN),  # split
        ({"late.ndjson": LINES[HALF:]}, LATE),
    ],
)  # fmt: skip
def test_what_holds_all_lines_takes_the_place_of_what_was_there(half, again, because):
    (half / "a.ndjson").unlink()
    put(half, *(write(half / name, lines) for name, lines in again.items()))
    every = {*LINES[:HALF], *(line for lines in again.values() for line in lines)}
    assert total_lines(half) == len(every)
    newest = newest_version(str(half / "store"), DATE)
    assert newest is not None
    assert newest.because == because


def test_files_ingested_one_by_one_and_then_joined_count_once(half):
    put(half, write(half / "late.ndjson", LINES[HALF:]))
    put(half, write(half / "merged.ndjson.gz", LINES))
    assert total_lines(half) == len(LINES)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (LINES[: HALF - 2], "they hold no other"),  # truncated
        (LINES[2:5], "they hold no other"),  # a part of it
        (LINES[HALF - 3 :], "each has lines that the other has not"),  # begins before the other ends
    ],
)
def test_what_would_count_lines_twice_is_refused_and_leaves_the_day_as_it_was(half, lines, words):
    log = write(half / "other.ndjson", lines)
    for _ in range(2):  # the second time nothing is read again, and the answer is the same
        with pytest.raises(StageError, match=words):
            put(half, log)
    assert total_lines(half) == HALF
    put(half, log, replace_day=True)
    assert total_lines(half) == len(lines)
    newest = newest_version(str(half / "store"), DATE)
    assert newest is not None
    assert (newest.version, newest.because) == (2, REPLACED)
    put(half, log, replace_day=True)
    assert newest_version(str(half / "store"), DATE) == newest


def test_a_day_is_replaced_only_by_a_dated_log():
    with pytest.raises(UsageError, match="--date"):
        IngestConfig(replace_day=True)


def test_logs_without_a_date_and_of_two_dates_are_not_united_where_they_share_lines(tmp_path):
    store = str(tmp_path / "store")
    ingest_log([write(tmp_path / "a.ndjson", LINES[:HALF])], store=store, config=IngestConfig())
    open_window([store])
    ingest_log([write(tmp_path / "b.ndjson.gz", LINES)], store=store, config=IngestConfig())
    with pytest.raises(StageError, match="hold the same lines in different files:"):
        open_window([store])
    other = tmp_path / "other"
    for date, lines in ((DATE, LINES[:HALF]), ("2026-09-02", LINES[HALF - 4 :])):
        config = IngestConfig(date=date)
        ingest_log([write(tmp_path / f"{date}.ndjson", lines)], store=str(other), config=config)
    with pytest.raises(StageError, match="hold the same lines in different files:"):
        open_window([str(other)])


def test_a_log_that_is_written_to_while_it_is_read_is_not_kept(tmp_path, monkeypatch):
    log, real = write(tmp_path / "a.ndjson", LINES), ingest_log.__globals__["ingest_request"]

    def appended(*arguments):
        made = real(*arguments)
        with open(log, "ab") as file:
            file.write(LINES[0] + b"\n")
        return made

    monkeypatch.setitem(ingest_log.__globals__, "ingest_request", appended)
    with pytest.raises(TransientError, match=r"was written to while it was read."):
        put(tmp_path, log)
    assert not list_dates(str(tmp_path / "store"))
    monkeypatch.undo()
    before = os.stat(log)
    put(tmp_path, log)
    assert total_lines(tmp_path) == len(LINES) + 1
    # A log that is only touched is the same log.
    os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert put(tmp_path, log).reused


@given(
    st.sets(st.integers(0, 2**64 - 1), max_size=200), st.sets(st.integers(0, 2**64 - 1), max_size=50),
    st.integers(0, 3), st.integers(0, 3),
)  # fmt: skip
def test_samples_of_any_size_agree_on_what_two_logs_share(tmp_path_factory, mine, more, my_bits, other_bits):
    def sample(values, bits, name):
        raw = np.array(sorted(values), ">u8").tobytes()
        hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(values), [None, pa.py_buffer(raw)])
        folder = str(tmp_path_factory.mktemp(name))
        write_sample(folder, sampled(hashes, bits), bits, b"key")
        table = pa.ipc.open_file(f"{folder}/lines.arrow").read_all()
        return LineSample(
            lines=table["line"].to_numpy(), zeros=table["zeros"].to_numpy(), zero_bits=bits, num_lines=len(values)
        )

    whole, part = sample(mine | more, my_bits, "whole"), sample(mine, other_bits, "part")
    assert len(whole.lines) == sum(value < 2 ** (64 - my_bits) for value in mine | more)
    assert whole.holds(part)
    least = 2 ** (64 - max(my_bits, other_bits))
    assert part.holds(whole) == (not more - mine) or not any(value < least for value in more - mine)
    assert whole.overlaps(part) == any(value < least for value in mine)


def test_a_sample_has_about_as_many_lines_however_long_the_log_is():
    assert [zero_bits_for(size) for size in (0, (64 << 20) - 1, 64 << 20, 128 << 20, 1 << 40)] == [0, 0, 1, 2, 15]


def test_the_sample_is_keyed_and_days_from_before_it_have_none(half):
    result = open_window([str(half / "store")]).ingests[0]
    found = read_sample(open_result(result.folder))
    assert found is not None
    assert len(found.lines) == HALF
    other = half / "other"
    put(other, write(half / "b.ndjson", LINES[:HALF]))
    elsewhere = read_sample(open_window([str(other / "store")]).ingests[0])
    assert elsewhere is not None
    assert not set(found.lines) & set(elsewhere.lines)
