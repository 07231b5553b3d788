"""Who clicked what (`pair_people` of ingest, `pair_k` of build): rows of a day, and how many people are behind a pair.

PARTIAL rows with a person each -> CLICKERS of a day -> PAIR_PEOPLE -> the number of people of each pair
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.compiled.log_library import row_digest
from clicktower.beam_jobs.ingest.day_rows import PARTIAL
from clicktower.beam_jobs.ingest.days import day_files
from clicktower.schemas.errors import StageError
from clicktower.schemas.search_log import CLICKERS, PEOPLE_CAP
from clicktower.schemas.stage import StageResult

_CLICKER = CLICKERS.names


def clickers_of(partial: pa.Table) -> pa.Table:
    """CLICKERS in ascending order, from all PARTIAL rows of some queries."""
    rows = partial.filter(pc.and_(partial["document_id"].is_valid(), partial["people"].is_valid()))
    rows = pa.table([rows["query"], rows["document_id"], pc.list_flatten(rows["people"])], schema=CLICKERS)
    distinct = rows.group_by(_CLICKER).aggregate([]).sort_by([(name, "ascending") for name in _CLICKER])
    if not len(distinct):
        return CLICKERS.empty_table()
    query, document = (distinct[name].combine_chunks().dictionary_encode().indices.to_numpy() for name in _CLICKER[:2])
    first = np.flatnonzero(np.append(True, (np.diff(query) != 0) | (np.diff(document) != 0)))
    place = np.arange(len(distinct)) - np.repeat(first, np.diff(np.append(first, len(distinct))))
    return distinct.filter(pa.array(place < PEOPLE_CAP)).combine_chunks().cast(CLICKERS)


def clickers_digest(clickers: pa.Table) -> str:
    """The digest of a day's CLICKERS; of people only their number, which no key changes."""
    return row_digest(clickers["query"], clickers["document_id"])


def clicker_rows(joined: pa.Table, query: np.ndarray, texts: pa.Array) -> pa.Table:
    """PARTIAL rows with a person each. `query` holds each line's index into `texts`."""
    counts = pc.and_(pc.greater(joined["weight"], 0), joined["person"].is_valid())
    lines = pa.table([pa.array(query), joined["document_id"], joined["person"]], names=_CLICKER).filter(counts)
    rows = lines.group_by(_CLICKER).aggregate([]).combine_chunks()
    person = rows["person"].combine_chunks()
    columns = {
        "query": texts.take(rows["query"].combine_chunks()),
        "document_id": rows["document_id"],
        "people": pa.ListArray.from_arrays(pa.array(np.arange(len(rows) + 1, dtype=np.int32)), person),
    }
    return pa.table([columns.get(f.name, pa.nulls(len(rows), f.type)) for f in PARTIAL], schema=PARTIAL)


# Who clicked a title for a query.
PAIR_PEOPLE = pa.schema({"query": pa.string(), "title": pa.string(), "person": pa.uint64()})


def title_clickers(clickers: pa.Table, answered: pa.Table) -> pa.Table:
    """PAIR_PEOPLE, from the search_log.CLICKERS of a bucket of queries and the titles it requested."""
    at = pc.index_in(clickers["document_id"], value_set=answered["document_id"])
    table = pa.table([clickers["query"], answered["title"].take(at), clickers["person"]], schema=PAIR_PEOPLE)
    return table.filter(table["title"].is_valid())


def count_clickers(pairs: pa.Table, queries: pa.Array, pair_people: pa.Table) -> np.ndarray:
    """How many distinct people clicked each pair, int64 [pairs], exact up to PEOPLE_CAP. `pairs`: `at`, an index into
    `queries`, and `title`.
    """
    people = pa.table(
        {
            "at": pc.index_in(pair_people["query"], value_set=queries).cast(pa.int64()),
            "title": pair_people["title"],
            "person": pair_people["person"],
        }
    )
    distinct = people.group_by(["at", "title", "person"]).aggregate([]).select(["at", "title"])
    at = pair_of_rows(distinct, pairs)
    return np.bincount(at[at >= 0], minlength=len(pairs))


def pair_of_rows(rows: pa.Table, pairs: pa.Table) -> np.ndarray:
    """The index of each row's pair, int64 [rows], -1 for none. Both have `at` and `title`; each pair occurs once."""
    if not len(pairs):
        return np.full(len(rows), -1)
    titles = pc.unique(pairs["title"].combine_chunks())

    def codes(table: pa.Table) -> np.ndarray:
        title = pc.fill_null(pc.index_in(table["title"], value_set=titles), len(titles)).to_numpy()
        return table["at"].to_numpy() * (len(titles) + 1) + title

    of_rows, of_pairs = codes(rows), codes(pairs)
    order = np.argsort(of_pairs)
    found = order[np.minimum(np.searchsorted(of_pairs, of_rows, sorter=order), len(pairs) - 1)]
    return np.where(of_pairs[found] == of_rows, found, -1)


def require_clickers(ingests: Sequence[StageResult], pair_k: int) -> None:
    """Raise StageError if a day does not hold who clicked what."""
    lacking = [day for day in ingests if not day_files([day], "clickers")]
    if lacking:
        raise StageError(
            f"pair_k = {pair_k} asks how many people clicked each pair, and {len(lacking):,} of {len(ingests):,} days"
            " do not hold it: clicks may all be of one person.",
            "Ingest their logs again with --set pair_people=true, or leave pair_k at 1.",
        )
