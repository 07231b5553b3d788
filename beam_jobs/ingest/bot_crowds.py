"""Crowds: fresh clients that ask for one query together, so that it seems that many people did.

One such client looks like a person who came once, and in real logs most clients came once; several of them, behind one
query and within minutes, do not. The question is asked of each query alone: of the clients that did little in the whole
log (PASSERS_BY), would so many who have nothing to do with each other have come for it at one time? The answer takes
the log's own clock: how many passers-by come in each hour of it and in each minute of an hour. So a log that spans a
minute, or says the day only, convicts nobody.

A person who refuses cookies and asks four times makes four clients, and is a crowd by this rule, rightly: one person.
Only where a crowd can matter to the privacy gate is it looked for: a query that PEOPLE_CAP others asked passes anyway,
so a campaign for something well known is left alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_jobs.ingest.bots import MAX_HOURS, MS_PER_HOUR, NO_TIME, RULE, BotRules, Bots
from schemas.day import PEOPLE_CAP

MS_PER_MINUTE = 60_000
MINUTES = 60
# Within how many minutes a crowd comes; silent clients are watched for longer, since few are silent by chance.
WINDOWS = (1, 10, 60)
SILENT_WINDOWS = (1, 10, 60, 24 * 60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """When passers-by come, over some of them: their number by hour (of a clock of MAX_HOURS), by minute of an hour."""

    hours: np.ndarray  # the hours with any, ascending
    by_hour: np.ndarray
    by_minute: np.ndarray  # (MINUTES)
    num_silent: int
    total: int  # also those without a time


def activity_of(passers_by: pa.Table) -> Activity:
    """The Activity of some PASSERS_BY rows."""
    first_ms = passers_by["first_ms"].to_numpy()
    timed = first_ms[first_ms != NO_TIME]
    hours, by_hour = np.unique(timed // MS_PER_HOUR % MAX_HOURS, return_counts=True)
    return Activity(
        hours=hours,
        by_hour=by_hour,
        by_minute=np.bincount(timed // MS_PER_MINUTE % MINUTES, minlength=MINUTES),
        num_silent=int(passers_by["silent"].to_numpy().sum()),
        total=len(first_ms),
    )


def merge_activity(parts: Iterable[Activity]) -> Activity:
    """The activity of all parts together."""
    parts = list(parts)
    none = np.zeros(0, np.int64)
    all_hours = np.concatenate([none, *(part.hours for part in parts)])
    hours, place = np.unique(all_hours, return_inverse=True)
    by_hour = np.zeros(len(hours), np.int64)
    np.add.at(by_hour, place, np.concatenate([none, *(part.by_hour for part in parts)]))
    return Activity(
        hours=hours,
        by_hour=by_hour,
        by_minute=sum((part.by_minute for part in parts), np.zeros(MINUTES, np.int64)),
        num_silent=sum(part.num_silent for part in parts),
        total=sum(part.total for part in parts),
    )


def find_crowds(passers_by: pa.Table, activity: Activity, rules: BotRules) -> Bots:
    """The clients in crowds, among PASSERS_BY rows that are all rows of their queries; `activity` is the whole log's.

    They were counted as clients before, so `num_clients` is 0.
    """
    rows = passers_by.sort_by([("query", "ascending"), ("first_ms", "ascending"), ("person", "ascending")])
    query = np.unique(rows["query"].to_numpy(), return_inverse=True)[1]
    first_ms, silent = rows["first_ms"].to_numpy(), rows["silent"].to_numpy()
    num_of_query = np.bincount(query)
    timed = (num_of_query[query] >= rules.crowd_clients) & (first_ms != NO_TIME)

    chance = np.ones(len(query))  # for each row, of the least likely gathering that it is in
    # How many are silent elsewhere: a crowd must not be what makes silence usual.
    silent_of_query = np.bincount(query[silent], minlength=len(num_of_query))
    elsewhere = (activity.num_silent - silent_of_query + 1) / (activity.total - num_of_query + 1)
    says_something = silent & (elsewhere <= rules.crowd_silent_share)[query]
    for whom, share, windows in (
        (timed, np.ones(len(query)), WINDOWS),
        (timed & says_something, elsewhere[query], SILENT_WINDOWS),
    ):
        at = np.flatnonzero(whom)
        found = _chances(query[at], first_ms[at], num_of_query, share[at], windows, activity, rules.crowd_clients)
        chance[at] = np.minimum(chance[at], found)
    chance *= len(WINDOWS) + len(SILENT_WINDOWS)

    in_crowd = chance <= rules.unsure_crowd_chance
    others = num_of_query - np.bincount(query[in_crowd], minlength=len(num_of_query))
    in_crowd &= others[query] < PEOPLE_CAP
    surely = chance <= rules.crowd_chance
    verdict = np.where(surely, RULE["crowd"], RULE["unsure_crowd"]).astype(np.int8)
    person = rows["person"].to_numpy()[in_crowd]
    order = np.lexsort((verdict[in_crowd], person))
    clients, first = np.unique(person[order], return_index=True)
    return Bots(clients=clients, rules=verdict[in_crowd][order][first])


def _chances(
    query: np.ndarray,
    first_ms: np.ndarray,
    num_of_query: np.ndarray,
    share: np.ndarray,
    windows: Sequence[int],
    activity: Activity,
    fewest: int,
) -> np.ndarray:
    """For each row an upper bound of the chance of the least likely gathering that it is in, 1 where there is none.

    Rows are in order of query and time; `share`, for each, is of the clients that could be among them at all.
    """
    found = np.ones(len(query))
    if not len(query):
        return found
    distinct = np.unique(first_ms)
    code = query * (len(distinct) + 1)
    own = code + np.searchsorted(distinct, first_ms)
    for minutes in windows:
        until = np.searchsorted(distinct, first_ms + minutes * MS_PER_MINUTE)
        end = np.searchsorted(own, code + until)  # the rows from each one on, within its window
        num = end - np.arange(len(query))
        others = num_of_query[query] - 1
        expected = share * _expected_share(first_ms, minutes, activity)
        # Any of the query's clients may have been the first of such a gathering.
        bound = (others + 1) * _tail_bound(others, num - 1, expected)
        begin = np.searchsorted(end, np.arange(len(query)), side="right")  # the first row whose window holds this one
        found = np.minimum(found, _smallest_between(np.where(num >= fewest, bound, 1.0), begin))
    return found


def _smallest_between(values: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """For each place the smallest of the values from `begin` to it, both included."""
    place = np.arange(len(values))
    level = np.frexp(place - begin + 1)[1] - 1  # the whole part of the logarithm to base 2, exactly
    found = np.empty(len(values))
    smallest = values  # of the 2^n values that end at each place
    for n in range(int(level.max(initial=-1)) + 1):
        of_level = np.flatnonzero(level == n)
        found[of_level] = np.minimum(smallest[of_level], smallest[begin[of_level] + 2**n - 1])
        smallest = np.minimum(smallest, np.concatenate([smallest[: 2**n], smallest[: -(2**n)]]))
    return found


def _expected_share(first_ms: np.ndarray, minutes: int, activity: Activity) -> np.ndarray:
    """The share of the log's passers-by that come in so many minutes from each time on; at least that of one more."""
    first, last = first_ms // MS_PER_HOUR, (first_ms + minutes * MS_PER_MINUTE) // MS_PER_HOUR
    summed = np.concatenate([[0], np.cumsum(activity.by_hour)])
    begin, end = (np.searchsorted(activity.hours, hour % MAX_HOURS) for hour in (first, last + 1))
    wraps = (last + 1) % MAX_HOURS < first % MAX_HOURS
    within = summed[end] - summed[begin] + wraps * summed[-1]
    by_hour = (within + 1) / (activity.total + 1)
    if minutes >= MINUTES:
        return np.minimum(by_hour, 1.0)
    # Both minutes at the borders count in full.
    twice = np.concatenate([[0], np.cumsum(np.tile(activity.by_minute, 3))])
    minute = first_ms // MS_PER_MINUTE % MINUTES
    of_hour = (twice[minute + minutes + 1] - twice[minute] + 1) / (activity.by_minute.sum() + 1)
    return np.minimum(by_hour * np.minimum(of_hour, 1.0), 1.0)


def _tail_bound(num: np.ndarray, at_least: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Chernoff's upper bound of P[Binomial(num, chance) >= at_least], with 0 < chance."""
    share = at_least / np.maximum(num, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - chance)), 0.0)
        divergence = np.where(share > 0, share * np.log(share / chance), 0.0) + rest
    return np.where((share > chance) & (chance < 1), np.exp(-num * divergence), 1.0)
