"""Who is a program: by the user agent of a search, and by what a client does over the whole log.

A bot is decided per client over everything read at once, so the statistics of a client travel through one exchange; the
bots are few, and their list is broadcast.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.bot_rules import BotRules
from beam_jobs.content_lists import BOT_USER_AGENTS, shipped_list
from schemas.log_row import KINDS

MS_PER_HOUR = 3_600_000
HOURS_PER_DAY = 24


# One row per person, hour and rank: searches carry the hour (-1 unknown, or for events), clicks their rank (-1
# unknown or for others). Sums, so that they may be formed in any order.
STATISTICS = pa.schema(
    [
        pa.field("person", pa.uint64(), nullable=False),
        pa.field("hour", pa.int64(), nullable=False),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("searches", pa.int64(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
        pa.field("named", pa.int64(), nullable=False),  # searches under a bot's user agent
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bots:
    """Hashed clients that are programs, each array ascending; `people` counts the clients that are not."""

    by_user_agent: np.ndarray
    by_behaviour: np.ndarray
    people: int


def is_bot_user_agent(user_agents: pa.Array) -> pa.Array:
    """Whether each user agent is a program's; a missing one says nothing (false)."""
    pattern = _user_agent_pattern()
    encoded = user_agents.dictionary_encode()
    verdicts = [bool(pattern.search(agent)) for agent in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(verdicts, pa.bool_()).take(encoded.indices), False)


def client_statistics(joined: pa.Table) -> pa.Table:
    """STATISTICS of some JOINED rows; lines of nobody are in none."""
    known = joined.filter(joined["person"].is_valid())
    kind = known["kind"].to_numpy()
    hours = pc.cast(known["time"], pa.int64()).fill_null(-MS_PER_HOUR).to_numpy() // MS_PER_HOUR
    is_search, is_impression, is_click = (kind == KINDS.index(name) for name in ("search", "impression", "click"))
    rows = pa.table(
        {
            "person": known["person"],
            "hour": pa.array(np.where(is_search, hours, -1), pa.int64()),
            "position": pa.array(np.where(is_click, known["position"].to_numpy(), -1), pa.int32()),
            "searches": pa.array(is_search.astype(np.int64)),
            "impressions": pa.array(is_impression.astype(np.int64)),
            "clicks": pa.array(is_click.astype(np.int64)),
            "named": pa.array((is_search & known["names_bot"].to_numpy()).astype(np.int64)),
        }
    )
    return _sum_by(rows, ["person", "hour", "position"]).select(STATISTICS.names).cast(STATISTICS)


def find_bots(statistics: pa.Table, rules: BotRules) -> Bots:
    """The bots among the clients of some STATISTICS rows, which must be all rows of these clients."""
    totals = _sum_by(statistics.drop_columns(["hour", "position"]), ["person"]).sort_by("person")
    person = totals["person"].to_numpy()
    searches, impressions, clicks, named = (
        totals[name].to_numpy() for name in ("searches", "impressions", "clicks", "named")
    )
    timed = statistics.filter(pc.greater_equal(statistics["hour"], 0))
    busiest_hour = _largest_sum(timed, person, timed["hour"], "searches")
    busiest_day = _largest_sum(timed, person, pc.divide(timed["hour"], HOURS_PER_DAY), "searches")
    ranked = statistics.filter(pc.greater_equal(statistics["position"], 0))
    one_rank_clicks = _largest_sum(ranked, person, ranked["position"], "clicks")

    too_fast = (busiest_hour >= rules.searches_per_hour) | (busiest_day >= rules.searches_per_day)
    clicks_everything = (
        (searches >= rules.clicked_share_searches) & (impressions > 0) & (clicks >= rules.clicked_share * impressions)
    )
    clicks_one_rank = (
        (searches >= rules.same_rank_searches)
        & (one_rank_clicks >= rules.same_rank_share * searches)
        & (one_rank_clicks >= rules.same_rank_share * clicks)
    )
    is_named = named > 0
    behaves = (too_fast | clicks_everything | clicks_one_rank) & ~is_named
    return Bots(by_user_agent=person[is_named], by_behaviour=person[behaves], people=int((~is_named & ~behaves).sum()))


def merge_bots(parts: Iterable[Bots]) -> Bots:
    """The bots of disjoint sets of clients together."""
    parts = list(parts)
    empty = np.zeros(0, np.uint64)
    return Bots(
        by_user_agent=np.sort(np.concatenate([empty, *(part.by_user_agent for part in parts)])),
        by_behaviour=np.sort(np.concatenate([empty, *(part.by_behaviour for part in parts)])),
        people=sum(part.people for part in parts),
    )


def bot_fates(joined: pa.Table, bots: Bots) -> tuple[np.ndarray, np.ndarray]:
    """(is a bot's by user agent, is a bot's by behaviour), for each JOINED row; no row is both.

    A line is a bot's if its client or its search's client is one, or if its search has a bot's user agent.
    """
    names_bot = joined["names_bot"].to_numpy() | _is_one_of(joined, bots.by_user_agent)
    return names_bot, _is_one_of(joined, bots.by_behaviour) & ~names_bot


def _is_one_of(joined: pa.Table, people: np.ndarray) -> np.ndarray:
    wanted = pa.array(people, pa.uint64())
    return pc.or_(pc.is_in(joined["person"], wanted), pc.is_in(joined["searcher"], wanted)).to_numpy()


def _sum_by(rows: pa.Table, keys: list[str]) -> pa.Table:
    values = [name for name in rows.column_names if name not in keys]
    return rows.group_by(keys).aggregate([(name, "sum") for name in values]).rename_columns([*keys, *values])


def _largest_sum(rows: pa.Table, person: np.ndarray, part: pa.ChunkedArray, value: str) -> np.ndarray:
    """For each person the largest sum of `value` over the rows of one `part`; 0 without rows. `person` ascends."""
    sums = _sum_by(pa.table({"person": rows["person"], "part": part, value: rows[value]}), ["person", "part"])
    largest = np.zeros(len(person), np.int64)
    np.maximum.at(largest, np.searchsorted(person, sums["person"].to_numpy()), sums[value].to_numpy())
    return largest


@lru_cache(maxsize=1)
def _user_agent_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{term})" for term in shipped_list(BOT_USER_AGENTS).terms), re.IGNORECASE)
