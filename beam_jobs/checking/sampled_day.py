"""A sample taken through everything that `ingest` and `build` do with a log, by their own functions.

The rows are cut by query id into nested parts of the sample, so that what is kept at k can be told for an eighth of it,
a quarter, a half, and all: joining is by query id, so the parts join as the whole would.
"""

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.aggregate_day import aggregate_joined, merge_bucket
from beam_jobs.bot_crowds import activity_of, find_crowds
from beam_jobs.bot_rules import BotRules
from beam_jobs.bots import Bots, merge_bots, tell_clients
from beam_jobs.click_pairs import REPORTED_K, click_pairs
from beam_jobs.client_statistics import client_statistics
from beam_jobs.join_search_events import join_search_events
from beam_jobs.person_key import KEY_BYTES
from beam_jobs.tally import Tally, add_up
from beam_jobs.titles import SHOWN_TITLED, sum_positions
from schemas.day import EXPOSURES, QUERIES

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
    """The values of k that are told of, the chosen one among them; 0 is no gate at all."""
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
