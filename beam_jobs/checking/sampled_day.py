"""A sample taken through everything that `ingest` and `build` do with a log, by their own functions.

The rows are cut by query id into nested parts of the sample, so that what is kept at k can be told for an eighth of it,
a quarter, a half, and all: joining is by query id, so the parts join as the whole would.
"""

import re
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.build.click_pairs import REPORTED_K, click_pairs
from beam_jobs.build.titles import SHOWN_TITLED, plan_documents, read_documents_part, sum_positions
from beam_jobs.checking.log_sample import Sample
from beam_jobs.engine.beam_stage import Tally, add_up
from beam_jobs.engine.engine_options import with_local_workers
from beam_jobs.ingest.aggregate_day import aggregate_joined, merge_bucket
from beam_jobs.ingest.bot_crowds import activity_of, find_crowds
from beam_jobs.ingest.bots import BotRules, Bots, client_statistics, merge_bots, tell_clients
from beam_jobs.ingest.join_search_events import CLICK, IMPRESSION, SEARCH, join_search_events
from beam_jobs.ingest.person_key import KEY_BYTES
from schemas.day import EXPOSURES, QUERIES
from schemas.log_row import KINDS, SIMULATED_APPLICATION
from schemas.stage import Progress, silent
from schemas.text_columns import normalise_column

# What programs write where they have no client.
_PLACEHOLDERS = pa.array(
    ["null", "undefined", "none", "None", "NULL", "nan", "NaN", "anonymous", "Anonymous", "anon", "guest", "unknown",
     "N/A", "n/a", "-", "0", "-1", "00000000-0000-0000-0000-000000000000"]
)  # fmt: skip
# Times before this are of seconds that were taken for milliseconds: in 1970 nobody logged searches.
_TOO_EARLY_MS = 86_400_000 * 365 * 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Clients:
    lines_with: int
    lines_with_placeholder: int
    distinct: int
    largest_lines: int  # of the client with the most
    queries_per_client: float  # query ids
    largest_query_lines: int  # search lines of the query with the most
    searches: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Times are ISO 8601, UTC. `later`: lines after now; `early`: lines whose time is in the first years after 1970."""

    lines_with: int
    first: str | None
    last: str | None
    later: int
    early: int
    dates: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Joins:
    """Of the events that need their search: how many have it in the sample.

    `settled`, `settled_joined`: of those in the second half of their stretch, which a cut at its start hardly reaches.
    `same_stretch`: of the joined, those with their search in the same stretch.
    """

    events: int
    joined: int
    carrying: int  # events that carry their query, and need no search
    settled: int
    settled_joined: int
    same_stretch: int
    searches: int
    searches_with_event: int

    @property
    def share(self) -> float:
        return self.joined / self.events if self.events else 1.0

    @property
    def settled_share(self) -> float:
        return self.settled_joined / self.settled if self.settled else self.share


def kinds_of(rows: pa.Table) -> Counter[str]:
    """Lines by kind."""
    counted = rows["kind"].combine_chunks().dictionary_decode().value_counts().to_pylist()
    found = {row["values"]: row["counts"] for row in counted}
    return Counter({kind: found[kind] for kind in KINDS if kind in found})


def count_simulated(rows: pa.Table) -> int:
    application = rows["application"].combine_chunks().dictionary_decode()
    return pc.sum(pc.equal(application, SIMULATED_APPLICATION)).as_py() or 0


def clients_of(rows: pa.Table) -> Clients:
    client = rows["client_id"].combine_chunks()
    encoded = client.dictionary_encode()
    codes = encoded.indices.drop_null().to_numpy()
    sizes = np.bincount(codes, minlength=len(encoded.dictionary))
    placeholder = pc.sum(pc.is_in(client, value_set=_PLACEHOLDERS)).as_py() or 0
    pairs = rows.select(["client_id", "query_id"]).filter(client.is_valid()).group_by(["client_id", "query_id"])
    num_pairs = pairs.aggregate([]).num_rows
    searches = rows["query"].filter(pc.equal(rows["kind"].combine_chunks().dictionary_decode(), KINDS[SEARCH]))
    counted = pc.struct_field(pc.value_counts(searches.combine_chunks()), "counts")
    return Clients(
        lines_with=len(codes),
        lines_with_placeholder=placeholder,
        distinct=len(sizes),
        largest_lines=int(sizes.max(initial=0)),
        queries_per_client=num_pairs / len(sizes) if len(sizes) else 0.0,
        largest_query_lines=pc.max(counted).as_py() or 0,
        searches=len(searches),
    )


def times_of(rows: pa.Table, now: float) -> Times:
    moment = rows["time"].combine_chunks().drop_null().cast(pa.int64()).to_numpy()
    span = (_iso(int(moment.min())), _iso(int(moment.max()))) if len(moment) else (None, None)
    return Times(
        lines_with=len(moment),
        first=span[0],
        last=span[1],
        later=int((moment > now * 1000).sum()),
        early=int(((moment >= 0) & (moment < _TOO_EARLY_MS)).sum()),
        dates=len(np.unique(moment // 86_400_000)),
    )


def without_position(rows: pa.Table) -> tuple[int, int]:
    """(impressions and clicks, those of them without a position)."""
    kind = _kinds(rows)
    is_event = (kind == IMPRESSION) | (kind == CLICK)
    return int(is_event.sum()), int((is_event & (rows["position"].to_numpy() < 0)).sum())


def joins_of(rows: pa.Table, stretch: np.ndarray) -> Joins:
    """How events find their searches within the rows. `stretch`: of each row, the run of lines that it is in."""
    kind = _kinds(rows)
    query_id = rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    is_search, is_event = kind == SEARCH, (kind == IMPRESSION) | (kind == CLICK)
    carries = is_event & rows["query"].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    num_ids = int(query_id.max(initial=-1)) + 1
    home = np.full(num_ids, -1, np.int64)  # the stretch of each query id's search
    home[query_id[is_search]] = stretch[is_search]
    needs = is_event & ~carries
    joined = needs & (home[query_id] >= 0)
    number, size = _numbers_within(stretch)
    settled = needs & (number * 2 >= size)
    has_event = np.zeros(num_ids, bool)
    has_event[query_id[is_event]] = True
    return Joins(
        events=int(needs.sum()),
        joined=int(joined.sum()),
        carrying=int(carries.sum()),
        settled=int(settled.sum()),
        settled_joined=int((settled & joined).sum()),
        same_stretch=int((joined & (home[query_id] == stretch)).sum()),
        searches=int(is_search.sum()),
        searches_with_event=int((is_search & has_event[query_id]).sum()),
    )


def _numbers_within(stretch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the number of each row in its stretch, the stretch's rows)."""
    _, first, codes, sizes = np.unique(stretch, return_index=True, return_inverse=True, return_counts=True)
    return np.arange(len(stretch)) - first[codes], sizes[codes]


def _kinds(rows: pa.Table) -> np.ndarray:
    column = rows["kind"].combine_chunks()
    meaning = np.array([KINDS.index(kind) for kind in column.dictionary.to_pylist()], np.int8)
    return meaning[column.indices.to_numpy()]


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_MAX_SHAPES_FROM = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ClickedDocuments:
    """`titled`: ids of those with a title. `shapes`: how most ids look, in the log and in the file (9 a digit)."""

    titled: pa.Array
    num_documents: int
    clicked: int  # distinct
    clicked_titled: int
    clicks: int
    clicks_titled: int
    shapes: tuple[str, str]


def find_clicked(uri: str, exposures: pa.Table, progress: Progress = silent) -> ClickedDocuments:
    """What the file has of the documents in EXPOSURES. It is read once; of its titles nothing is kept.

    Raises UsageError and StageError, as reading documents does.
    """
    wanted = pc.unique(exposures["document_id"].combine_chunks())
    parts = plan_documents(uri)
    found: list[pa.Array] = []
    first: Sequence[str] = ()
    total = 0
    for number, part in enumerate(parts):
        for table in read_documents_part(part):
            total += table.num_rows
            ids = table["id"].combine_chunks()
            first = first or ids[:_MAX_SHAPES_FROM].drop_null().to_pylist()
            here = table.filter(pc.is_in(ids, value_set=wanted))
            has_word = pc.not_equal(normalise_column(here["title"].fill_null("")), "")
            found.append(here["id"].combine_chunks().filter(has_word))
        progress("reading the documents (parts)", number + 1, len(parts))
    titled = pa.concat_arrays([pa.array([], pa.string()), *found])
    clicked = exposures.filter(pc.greater(exposures["clicks"], 0))
    is_titled = pc.is_in(clicked["document_id"], value_set=titled)
    distinct = pc.unique(clicked["document_id"].combine_chunks())
    return ClickedDocuments(
        titled=titled,
        num_documents=total,
        clicked=len(distinct),
        clicked_titled=pc.sum(pc.is_in(distinct, value_set=titled)).as_py() or 0,
        clicks=pc.sum(clicked["clicks"]).as_py() or 0,
        clicks_titled=pc.sum(clicked["clicks"].filter(is_titled)).as_py() or 0,
        shapes=(_shape(distinct[:_MAX_SHAPES_FROM].to_pylist()), _shape(first)),
    )


def _shape(ids: Sequence[str]) -> str:
    """How most ids look, with 9 for digits and a, A for letters: nothing of any id is in it."""
    shapes = Counter(re.sub(r"[a-z]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"\d+", "9", each))) for each in ids)
    if not shapes:
        return ""
    shape = shapes.most_common(1)[0][0]
    return shape if shape.isascii() and len(shape) <= 30 else "other"


PARTS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the sample's query ids, each within the next
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledDay:
    """What became of the rows. `fates` are those of ingest; `bots` by rule; the last of `parts` is the whole sample."""

    fates: Counter[str]
    bots: Bots
    bot_lines: Counter[str]  # by the name of the rule
    parts: Sequence[tuple[pa.Table, pa.Table]]  # (QUERIES, EXPOSURES) of each of PARTS
    seconds: float
    joined_bytes: int

    @property
    def queries(self) -> pa.Table:
        return self.parts[-1][0]

    @property
    def exposures(self) -> pa.Table:
        return self.parts[-1][1]


def day_of_sample(rows: pa.Table, rules: BotRules) -> SampledDay:
    """The day that LOG_ROW rows make. People are hashed by a key that is made here and forgotten."""
    begun = time.perf_counter()
    key = secrets.token_bytes(KEY_BYTES)
    joined, fates = [], Counter[str]()
    for part in _cut(rows):
        of_part, dropped = join_search_events(part, key)
        joined.append(of_part)
        fates.update(dropped)
    bots = _bots(joined, rules)
    partial, tallies = [], []
    for of_part in joined:
        sums, tally = aggregate_joined(of_part, bots)
        partial.append(sums)
        tallies.append(tally)
    told = add_up(tallies)
    fates.update(told.fates)
    for name, fate in (("searches", "day_search"), ("impressions", "day_impression"), ("clicks", "day_click")):
        fates[fate] = sum(pc.sum(sums[name]).as_py() or 0 for sums in partial)
    seconds = time.perf_counter() - begun
    parts = [_merged(pa.concat_tables(partial[: number + 1])) for number in range(len(PARTS))]
    return SampledDay(
        fates=+fates,
        bots=bots,
        bot_lines=Counter({name.partition(":")[2]: count for name, count in told.counts.items() if ":" in name}),
        parts=parts,
        seconds=seconds,
        joined_bytes=sum(of_part.nbytes for of_part in joined),
    )


def kept_at_k(queries: pa.Table, exposures: pa.Table, titled: pa.Array | None, k: int) -> Tally:
    """What `build` would count of a day (queries_at_3, clicks_at_3, ..., fates), by its own function.

    Without documents each document id stands for its title. `titled`: ids of those that have one.
    """
    shown = sum_positions(exposures)
    title = shown["document_id"]
    if titled is not None:
        title = pc.if_else(pc.is_in(title, value_set=titled), title, pa.scalar(None, pa.string()))
    columns = [shown["query"], title, np.full(len(shown), -1, np.int32), shown["impressions"], shown["clicks"]]
    none = pa.array([], pa.string())
    return click_pairs(queries, pa.table(columns, schema=SHOWN_TITLED), none, k=k, split_salt="", dev_share=0.0)[1]


def values_of_k(k: int) -> list[int]:
    """The values of k to report, including the chosen one; 0 is no gate at all."""
    return sorted({*REPORTED_K, k})


def _cut(rows: pa.Table) -> list[pa.Table]:
    """The rows of each of PARTS that are not in the one before."""
    encoded = rows["query_id"].combine_chunks().dictionary_encode()
    drawn = np.random.default_rng(_SEED).random(len(encoded.dictionary))
    part = np.searchsorted(np.array(PARTS[:-1]), drawn, side="right")[encoded.indices.to_numpy()]
    return [rows.filter(pa.array(part == number)).combine_chunks() for number in range(len(PARTS))]


def _bots(joined: Sequence[pa.Table], rules: BotRules) -> Bots:
    bots, passers_by = tell_clients(pa.concat_tables(map(client_statistics, joined)), rules)
    return merge_bots([bots, find_crowds(passers_by, activity_of(passers_by), rules)])


def _merged(partial: pa.Table) -> tuple[pa.Table, pa.Table]:
    queries, exposures = merge_bucket(partial.combine_chunks())
    return queries.cast(QUERIES), exposures.cast(EXPOSURES)


# What the whole log would take on this machine: lines, time, memory, disk.
#
# How fast a line is read and counted is measured on the sample itself, on this machine, as busy as it is. The constants
# below are of what the sample does not do: starting Beam, moving rows between steps, making shards. They were measured
# on 2026-11-21 on two x86-64 cores that others used too, in one process and in seconds of processor time, with UBI
# logs:
#
#     lines        ingest                  the sample's functions    build
#     2,000        2.8 s, 231 MB
#     541,918      8.9 s, 404 MB           4.4 s                     7.6 s for 252,346 exposures
#     3,251,508    18.3 s, 422 MB (of 6 equal parts, so five sixths are repeats, which cost less)


START_SECONDS = 3.5  # of a Beam job
EXCHANGE_FACTOR = 1.4  # a whole ingest over the same functions without regrouping rows
BUILD_SECONDS_PER_EXPOSURE = 1.6e-5  # a row of query, document and position, to shards
MEMORY_BASE_BYTES = 230 << 20  # a process that has started
MEMORY_WORKING_BYTES = 200 << 20  # what it holds of a log at most, a bucket at a time
MEMORY_PER_PROCESS_BYTES = 400 << 20  # of more than one: engine_options
SHARD_BYTES_PER_PAIR = 700  # build_config: 100,000 pairs with four negatives are about 64 MiB


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """`lines` is counted where the sample is the whole log. Day and shard grow slower than the log: at most so much."""

    lines: int
    text_bytes: int
    processes: int
    ingest_seconds: float
    build_seconds: float
    memory_bytes: int
    scratch_bytes: int
    day_bytes: int
    shards_bytes: int
    sample_lines_per_second: float


def estimate_whole(sample: Sample, day: SampledDay, pairs: int, all_bytes: int, bytes_per_line: float) -> Estimate:
    """The estimate for a log of `all_bytes` as it is stored. `pairs`: that the sample would give."""
    times = 1.0 if sample.is_whole else all_bytes / max(sample.stored_bytes, 1)
    lines = round(sample.num_lines * times)
    text_bytes = round(lines * bytes_per_line)
    processes = num_processes(text_bytes)
    function_seconds = (sample.seconds + day.seconds) * times
    exposures = day.exposures.num_rows * times
    working = MEMORY_PER_PROCESS_BYTES * processes if processes > 1 else min(MEMORY_WORKING_BYTES, 2 * text_bytes)
    return Estimate(
        lines=lines,
        text_bytes=text_bytes,
        processes=processes,
        ingest_seconds=START_SECONDS + function_seconds * EXCHANGE_FACTOR / processes,
        build_seconds=START_SECONDS + exposures * BUILD_SECONDS_PER_EXPOSURE / processes,
        memory_bytes=MEMORY_BASE_BYTES + working,
        # Rows wait between two steps as Arrow files: those that were read, and those that were joined.
        scratch_bytes=round((sample.rows.nbytes + day.joined_bytes) * times),
        day_bytes=round((day.queries.nbytes + day.exposures.nbytes) * times),
        shards_bytes=round(pairs * times) * SHARD_BYTES_PER_PAIR,
        sample_lines_per_second=sample.num_lines / max(sample.seconds + day.seconds, 1e-9),
    )


def num_processes(text_bytes: int) -> int:
    """How many worker processes `ingest` would start on this machine, left to itself."""
    options = with_local_workers((), text_bytes)
    return int(options[-1].rpartition("=")[2]) if options else 1
