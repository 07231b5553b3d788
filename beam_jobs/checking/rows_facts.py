"""Counts over the readable lines of a sample: kinds, clients, times, positions, and how events find their searches."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.build.titles import plan_documents, read_documents_part
from beam_jobs.ingest.join_search_events import CLICK, IMPRESSION, SEARCH
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


# Whether the documents that were clicked are in the documents file.


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
