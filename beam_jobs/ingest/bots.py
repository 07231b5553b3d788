"""Bot detection: by the user agent of a search, by a client's behaviour over the whole log, by crowds.

A client's verdict depends on everything it did, so its statistics travel through one exchange (by client), and those of
clients with few searches through a second one (by query). Bots are few, and their list is broadcast.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from clicktower.beam_jobs.compiled.log_library import keyed_hashes
from clicktower.schemas.content_filters import BOT_USER_AGENTS, shipped_list
from clicktower.schemas.errors import UsageError
from clicktower.schemas.search_log import KINDS, PEOPLE_CAP
from clicktower.schemas.section import Count, section

# A client is certainly a bot, certainly no bot, or unsure: kept out of training, counted separately. Each rule has a
# fate (schemas.ledger) for the lines of its clients. A client counts under the first rule that applies.
FATE_OF_RULE = {
    "user_agent": "bot_user_agent",
    "pace": "bot_behaviour",
    "clicks_everything": "bot_behaviour",
    "clicks_one_rank": "bot_behaviour",
    "around_the_clock": "bot_behaviour",
    "even_pace": "bot_behaviour",
    "crowd": "bot_crowd",
    "unsure_pace": "bot_unsure",
    "unsure_clicks_everything": "bot_unsure",
    "unsure_clicks_one_rank": "bot_unsure",
    "unsure_around_the_clock": "bot_unsure",
    "unsure_even_pace": "bot_unsure",
    "unsure_never_clicks": "bot_unsure",
    "unsure_crowd": "bot_unsure",
}
RULES = tuple(FATE_OF_RULE)
RULE = {name: number for number, name in enumerate(RULES)}
NO_RULE = len(RULES)  # after all of them
# Incremented when a rule is added, removed or changed in meaning. Thresholds are not part of it: they are recorded.
RULES_VERSION = 2

Fraction = Annotated[float, Field(gt=0, le=1)]  # with 0 every client, or none, would be a bot


@section
class BotRules:
    """From which values on a client's behaviour is certainly no person's, and (`unsure_...`) from which on it may not
    be.

    The rates are those of the busiest people, not of the average: the most eager shoppers look through the results of a
    search, so one search a minute for a whole hour without a pause, or 300 in a day, is a program. Volume over the
    whole log is no sign: a shared or professional account may search every day for months. The click rules need enough
    searches to rule out chance: even if 70% of clicks are on the first result, 30 searches in a row with only that
    click have a probability of 2e-5.

    Args:
        version: The version of the rules; any other is refused.
        searches_per_hour: The searches in a client's busiest hour that make it a bot.
        searches_per_day: The searches in its busiest day that make it one.
        unsure_searches_per_hour: Those in the busiest hour of a client that may be a bot.
        unsure_searches_per_day: Those in its busiest day.
        clicked_share: Clicks everything: the share of the documents shown that a bot clicks.
        unsure_clicked_share: The share that a client clicks that may be a bot.
        clicked_share_searches: The searches from which on these shares count.
        shown_per_search: The mean of documents shown per search from which on they count: a log of clicks alone shows
            nothing.
        same_rank_share: Clicks one rank: the share of a bot's searches whose only click is there, and
            hardly one elsewhere.
        same_rank_searches: The searches from which on that share makes a bot.
        unsure_same_rank_searches: Those from which on a client may be a bot.
        clock_hours: Around the clock: the active hours of one day (UTC) from which on nobody slept, or several people
            share a client id.
        even_dispersion: Even pace: the largest ratio of variance to mean of a client's searches per hour (or day).
            People come in bursts, far above 1; pure chance gives 1; a timer is near 0.
        few_clicks_share: Almost never clicks: the largest ratio of clicks to searches; a sign, not a rule, since a
            blocked tracker hides all clicks.
        distinct_share: Almost never repeats a query: the smallest ratio of distinct queries to searches; a sign, too.
        sign_searches: The searches from which on the two signs count.
        unsure_never_clicks_searches: The searches from which on both signs together make it unsure.
        crowd_clients: Crowd: the fewest clients that ask for one query within a short time.
        crowd_queries: The most different queries of such a client in the whole log.
        crowd_chance: The chance that so many unrelated clients ask, below which they are bots.
        unsure_crowd_chance: The chance below which they may be bots.
        crowd_silent_share: The largest share of such clients without events at which their absence counts.
    """

    version: int = RULES_VERSION
    searches_per_hour: Count = 60
    searches_per_day: Count = 300
    unsure_searches_per_hour: Count = 45
    unsure_searches_per_day: Count = 200
    clicked_share: Fraction = 0.8
    unsure_clicked_share: Fraction = 0.6
    clicked_share_searches: Count = 20
    shown_per_search: Annotated[float, Field(ge=1)] = 2.0
    same_rank_share: Fraction = 0.95
    same_rank_searches: Count = 30
    unsure_same_rank_searches: Count = 20
    clock_hours: Count = 20
    even_dispersion: Fraction = 0.2
    few_clicks_share: Fraction = 0.01
    distinct_share: Fraction = 0.9
    sign_searches: Count = 20
    unsure_never_clicks_searches: Count = 50
    crowd_clients: Count = 3
    crowd_queries: Count = 3
    crowd_chance: Fraction = 1e-9
    unsure_crowd_chance: Fraction = 1e-5
    crowd_silent_share: Fraction = 0.02

    def __post_init__(self) -> None:
        if self.version != RULES_VERSION:
            raise UsageError(
                f"The rules for bots are of version {self.version}; this clicktower has version {RULES_VERSION}, which"
                " may judge clients otherwise.",
                f"Compare docs/privacy.md with what you set, and set version {RULES_VERSION}.",
            )


MS_PER_HOUR = 3_600_000
HOURS_PER_DAY = 24
MAX_HOURS = 1024 * HOURS_PER_DAY  # hours are counted on a clock of 1,024 days, so that a wild one cannot fill memory
RANKS = 200  # deeper clicks count as clicks on this rank
QUERIES_KEPT = 128
NO_QUERY = 0
NO_TIME = 2**63 - 1

# Searches have the hour (-1 if unknown, or for events; more by MAX_HOURS at midnight sharp, which is all that a date
# without an hour says); searches, and events that own their query, have the query;
# clicks have their rank (-1 if unknown, or for others). `asked` are the lines that a row counts for its query, the
# other numbers what it counts for its hour and in total: one row has both for a client with few queries, separate rows
# for others.
STATISTICS = pa.schema(
    {
        "person": pa.uint64(),
        "hour": pa.int32(),
        "position": pa.int32(),
        "query": pa.uint64(),
        "first_ms": pa.int64(),  # of the query, NO_TIME if unknown
        "searches": pa.int64(),
        "asked": pa.int64(),
        "impressions": pa.int64(),
        "clicks": pa.int64(),
        "named": pa.int64(),  # lines that own their query, under a bot's user agent
    }
)
KEYS = ("person", "hour", "position", "query")
SUMS = ("searches", "asked", "impressions", "clicks", "named")
_READ = ["kind", "query", "person", "names_bot", "position", "time", "owns_query"]


def client_statistics(joined: pa.Table) -> pa.Table:
    """STATISTICS of some JOINED rows; a line without a client is in none."""
    lines = joined.select(_READ).filter(joined["person"].is_valid())
    kind, person = lines["kind"].to_numpy(), lines["person"].to_numpy()
    time = pc.fill_null(pc.cast(lines["time"], pa.int64()), NO_TIME).to_numpy()
    is_search, is_impression, is_click = (kind == KINDS.index(name) for name in ("search", "impression", "click"))
    asks, queries = lines["owns_query"].to_numpy(), lines["query"].combine_chunks()
    hashes = keyed_hashes(queries.dictionary)
    hashes[hashes == NO_QUERY] = NO_QUERY + 1
    hashes = hashes[queries.indices.to_numpy(zero_copy_only=False)]
    is_midnight = time % (HOURS_PER_DAY * MS_PER_HOUR) == 0
    hour = np.where(
        is_search & (time != NO_TIME), time // MS_PER_HOUR % MAX_HOURS + np.where(is_midnight, MAX_HOURS, 0), -1
    )
    rows = {
        "person": person,
        "hour": hour.astype(np.int32),
        "position": np.where(is_click, np.minimum(lines["position"].to_numpy(), RANKS), -1).astype(np.int32),
        "query": np.where(asks, hashes, np.uint64(NO_QUERY)),
        "first_ms": np.where(asks, time, NO_TIME),
        "searches": is_search.astype(np.int64),
        "asked": asks.astype(np.int64),
        "impressions": is_impression.astype(np.int64),
        "clicks": is_click.astype(np.int64),
        "named": (asks & lines["names_bot"].to_numpy()).astype(np.int64),
    }
    distinct, code = np.unique(person, return_inverse=True)
    heavy = asks & (np.bincount(code[asks], minlength=len(distinct))[code] > QUERIES_KEPT)
    if not heavy.any():
        return _add_up(pa.table(rows))
    light = _add_up(pa.table({name: column[~heavy] for name, column in rows.items()}))
    of_heavy = {name: column[heavy] for name, column in rows.items()}
    none, nothing = np.full(int(heavy.sum()), -1, np.int32), np.zeros(int(heavy.sum()), np.int64)
    by_hour = of_heavy | {"query": nothing.astype(np.uint64) + np.uint64(NO_QUERY), "asked": nothing}
    by_query = of_heavy | dict.fromkeys(SUMS, nothing) | {"hour": none, "position": none, "asked": of_heavy["asked"]}
    return pa.concat_tables([light, _add_up(pa.table(by_hour)), keep_smallest(_add_up(pa.table(by_query)))])


def keep_smallest(rows: pa.Table) -> pa.Table:
    """Of rows with one row per person and query, those of each person's QUERIES_KEPT smallest query hashes."""
    rows = rows.sort_by([("person", "ascending"), ("query", "ascending")])
    person = rows["person"].to_numpy()
    first = np.append(True, person[1:] != person[:-1]) if len(person) else np.zeros(0, bool)
    number_within = np.arange(len(person)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    return rows.filter(pa.array(number_within < QUERIES_KEPT))


def _add_up(rows: pa.Table) -> pa.Table:
    added = rows.group_by(list(KEYS)).aggregate([("first_ms", "min"), *((name, "sum") for name in SUMS)])
    return added.rename_columns([*KEYS, "first_ms", *SUMS]).select(STATISTICS.names).cast(STATISTICS)


# A client with few searches, and one of its queries: the evidence of a crowd.
PASSERS_BY = pa.schema(
    {
        "query": pa.uint64(),
        "person": pa.uint64(),
        "first_ms": pa.int64(),  # NO_TIME unknown
        "silent": pa.bool_(),  # the client has only searches
    }
)
# Fewer hours or days than this say nothing about the evenness of a pace; nor do fewer searches in each on average.
_EVEN_HOURS, _PER_EVEN_HOUR = 20, 2
_EVEN_DAYS, _PER_EVEN_DAY = 14, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Bots:
    """Hashed clients that may not be people, ascending, and for each the number in RULES of the rule that applies.

    `num_clients` is the number of all clients examined.
    """

    clients: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint64))
    rules: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    num_clients: int = 0

    @property
    def people(self) -> int:
        return self.num_clients - len(self.clients)

    def by_rule(self) -> dict[str, int]:
        """Clients by the name of their rule, in the order of RULES."""
        counts = np.bincount(self.rules, minlength=len(RULES)).tolist()
        return {rule: count for rule, count in zip(RULES, counts, strict=True) if count}

    def by_fate(self) -> Counter[str]:
        """Clients by the fate of their lines."""
        counts: Counter[str] = Counter()
        for name, count in self.by_rule().items():
            counts[FATE_OF_RULE[name]] += count
        return counts


def is_bot_user_agent(user_agents: pa.Array) -> pa.Array:
    """Whether each user agent is a program's; false for a missing one."""
    pattern = _user_agent_pattern()
    encoded = user_agents.dictionary_encode()
    verdicts = [bool(pattern.search(agent)) for agent in encoded.dictionary.to_pylist()]
    return pc.fill_null(pa.array(verdicts, pa.bool_()).take(encoded.indices), False)


def detect_bots(statistics: pa.Table, rules: BotRules) -> tuple[Bots, pa.Table]:
    """The bots among the clients of some STATISTICS rows, which must be all rows of these clients; and PASSERS_BY for
    the clients that no rule caught.
    """
    columns = ["person", "searches", "impressions", "clicks", "named"]
    totals = _sum_by(statistics.select(columns), ["person"]).sort_by("person")
    person, searches, impressions, clicks, named = (totals[name].to_numpy() for name in columns)
    on_clock = _by_part(statistics, person, "hour", "searches")
    # A client whose times are all midnight has days and no hours, so no pace per hour.
    has_hours = np.zeros(len(person), bool)
    has_hours[on_clock.person[on_clock.part < MAX_HOURS]] = True
    hourly = on_clock.modulo(MAX_HOURS)
    daily = hourly.per(HOURS_PER_DAY)
    per_hour, per_day = np.where(has_hours, hourly.largest(len(person)), 0), daily.largest(len(person))
    one_rank_clicks = _by_part(statistics, person, "position", "clicks").largest(len(person))
    # The number and first time of each client's queries; for clients with many, a sample of their queries.
    asking = statistics.filter(pc.not_equal(statistics["query"], pa.scalar(NO_QUERY, pa.uint64())))
    added = asking.group_by(["person", "query"]).aggregate([("asked", "sum"), ("first_ms", "min")])
    queries = keep_smallest(added.rename_columns(["person", "query", "asked", "first_ms"]))
    asker = np.searchsorted(person, queries["person"].to_numpy())
    num_queries = np.bincount(asker, minlength=len(person))
    distinct_share = num_queries / np.maximum(np.bincount(asker, queries["asked"].to_numpy(), len(person)), 1)

    # Signs
    enough = searches >= rules.sign_searches
    few_clicks = enough & (clicks <= rules.few_clicks_share * searches)
    all_distinct = enough & (distinct_share >= rules.distinct_share)
    hours_of_day = _Parts(person=hourly.person, part=hourly.part // HOURS_PER_DAY, value=np.ones(len(hourly.person)))
    all_day = hours_of_day.added().largest(len(person)) >= rules.clock_hours
    even = hourly.is_even(len(person), rules.even_dispersion, _EVEN_HOURS, _PER_EVEN_HOUR)
    even |= daily.is_even(len(person), rules.even_dispersion, _EVEN_DAYS, _PER_EVEN_DAY)

    shown = (searches >= rules.clicked_share_searches) & (impressions >= rules.shown_per_search * searches)
    one_rank = one_rank_clicks >= rules.same_rank_share * np.maximum(searches, clicks)
    holds = {
        "user_agent": named > 0,
        "pace": (per_hour >= rules.searches_per_hour) | (per_day >= rules.searches_per_day),
        "clicks_everything": shown & (clicks >= rules.clicked_share * impressions),
        "clicks_one_rank": one_rank & (searches >= rules.same_rank_searches),
        "around_the_clock": all_day & (few_clicks | all_distinct | even),
        "even_pace": even & (few_clicks | all_distinct),
        "unsure_pace": (per_hour >= rules.unsure_searches_per_hour) | (per_day >= rules.unsure_searches_per_day),
        "unsure_clicks_everything": shown & (clicks >= rules.unsure_clicked_share * impressions),
        "unsure_clicks_one_rank": one_rank & (searches >= rules.unsure_same_rank_searches),
        "unsure_around_the_clock": all_day,
        "unsure_even_pace": even,
        "unsure_never_clicks": few_clicks & all_distinct & (searches >= rules.unsure_never_clicks_searches),
    }
    verdict = np.full(len(person), NO_RULE, np.int8)
    for name, whom in holds.items():
        verdict[whom] = np.minimum(verdict[whom], RULE[name])
    caught = verdict < NO_RULE
    bots = Bots(clients=person[caught], rules=verdict[caught], num_clients=len(person))

    passes_by = ~caught & (num_queries <= rules.crowd_queries)
    silent = (impressions == 0) & (clicks == 0)
    passers_by = pa.table([queries["query"], queries["person"], queries["first_ms"], silent[asker]], schema=PASSERS_BY)
    return bots, passers_by.filter(pa.array(passes_by[asker]))


def merge_bots(parts: Iterable[Bots]) -> Bots:
    """The bots of several lists; a client in several of them has the first rule in the order of RULES."""
    parts = list(parts)
    clients = np.concatenate([np.zeros(0, np.uint64), *(part.clients for part in parts)])
    rules = np.concatenate([np.zeros(0, np.int8), *(part.rules for part in parts)])
    order = np.lexsort((rules, clients))
    distinct, first = np.unique(clients[order], return_index=True)
    return Bots(clients=distinct, rules=rules[order][first], num_clients=sum(part.num_clients for part in parts))


def rule_of_lines(joined: pa.Table, bots: Bots) -> np.ndarray:
    """For each JOINED row the number of the rule that makes it a bot's, NO_RULE for none: int8.

    A line is a bot's if its client or its search's client is one, or if its search has a bot's user agent; if several
    rules apply, the first in the order of RULES counts.
    """
    rules_of_lines = np.where(joined["names_bot"].to_numpy(), RULE["user_agent"], NO_RULE).astype(np.int8)
    if len(bots.clients):
        rules = np.append(bots.rules, np.int8(NO_RULE))
        for column in ("person", "searcher"):
            place = pc.index_in(joined[column], value_set=pa.array(bots.clients, pa.uint64()))
            rules_of_lines = np.minimum(rules_of_lines, rules[pc.fill_null(place, len(bots.clients)).to_numpy()])
    return rules_of_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """Sums by person and part: `person` indexes the list of people, and each (person, part) occurs once."""

    person: np.ndarray
    part: np.ndarray
    value: np.ndarray

    def added(self) -> "_Parts":
        """The sums with rows of the same person and part added up."""
        sums = _sum_by(pa.table({"person": self.person, "part": self.part, "value": self.value}), ["person", "part"])
        return _Parts(person=sums["person"].to_numpy(), part=sums["part"].to_numpy(), value=sums["value"].to_numpy())

    def modulo(self, size: int) -> "_Parts":
        """The sums over parts that agree modulo `size`."""
        return _Parts(person=self.person, part=self.part % size, value=self.value).added()

    def per(self, size: int) -> "_Parts":
        """The sums over groups of `size` consecutive parts."""
        return _Parts(person=self.person, part=self.part // size, value=self.value).added()

    def largest(self, num_people: int) -> np.ndarray:
        """The largest sum of each person; 0 for a person without any."""
        maxima = np.zeros(num_people, np.int64)
        np.maximum.at(maxima, self.person, self.value.astype(np.int64))
        return maxima

    def is_even(self, num_people: int, dispersion: float, fewest_parts: int, fewest_per_part: float) -> np.ndarray:
        """Whether each person's sums vary little, over all parts strictly between the first and last."""
        first, last = np.full(num_people, 2**31), np.full(num_people, -1)
        np.minimum.at(first, self.person, self.part)
        np.maximum.at(last, self.person, self.part)
        inside = (self.part > first[self.person]) & (self.part < last[self.person])
        who, value = self.person[inside], self.value[inside].astype(float)
        num_parts = np.maximum(last - first - 1, 1)
        mean = np.bincount(who, value, minlength=num_people) / num_parts
        variance = np.bincount(who, value**2, minlength=num_people) / num_parts - mean**2
        return (last - first - 1 >= fewest_parts) & (mean >= fewest_per_part) & (variance <= dispersion * mean)


def _by_part(statistics: pa.Table, person: np.ndarray, part: str, value: str) -> _Parts:
    """The sums of `value` by person and `part` (-1: no part); `person` ascends."""
    rows = statistics.filter(pc.and_(pc.greater_equal(statistics[part], 0), pc.greater(statistics[value], 0)))
    return _Parts(
        person=np.searchsorted(person, rows["person"].to_numpy()),
        part=rows[part].to_numpy(),
        value=rows[value].to_numpy(),
    ).added()


def _sum_by(rows: pa.Table, keys: list[str]) -> pa.Table:
    values = [name for name in rows.column_names if name not in keys]
    return rows.group_by(keys).aggregate([(name, "sum") for name in values]).rename_columns([*keys, *values])


@lru_cache(maxsize=1)
def _user_agent_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{term})" for term in shipped_list(BOT_USER_AGENTS).terms), re.IGNORECASE)


# Crowds: fresh clients that ask for one query together, so that it looks like the query of many people.
#
# One such client looks like a person who came once, and in real logs most clients come once; several of them, with one
# query and within minutes, do not. The test looks at each query alone: of the clients with few searches in the whole
# log (PASSERS_BY), would so many unrelated ones have asked for it at one time? The answer uses the log's own clock: how
# many passers-by come in each hour of it and in each minute of an hour. So a log that spans a minute, or has only
# dates, convicts nobody.
#
# A person who refuses cookies and asks four times makes four clients, and is a crowd by this rule, rightly: one person.
# Crowds are looked for only if they matter to the privacy gate: a query with PEOPLE_CAP other people passes anyway, so
# a campaign for something well known is left alone.

MS_PER_MINUTE = 60_000
MINUTES = 60
# The number of minutes within which a crowd comes; silent clients get longer, since few are silent by chance.
WINDOWS = (1, 10, 60)
SILENT_WINDOWS = (1, 10, 60, 24 * 60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """When passers-by come: their number by hour (of a clock of MAX_HOURS) and by minute of an hour."""

    hours: np.ndarray  # the hours with passers-by, ascending
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
    """The clients in crowds among PASSERS_BY rows, which must be all rows of their queries; `activity` is the whole
    log's.

    These clients were counted before, so `num_clients` is 0.
    """
    rows = passers_by.sort_by([("query", "ascending"), ("first_ms", "ascending"), ("person", "ascending")])
    query = np.unique(rows["query"].to_numpy(), return_inverse=True)[1]
    first_ms, silent = rows["first_ms"].to_numpy(), rows["silent"].to_numpy()
    num_of_query = np.bincount(query)
    timed = (num_of_query[query] >= rules.crowd_clients) & (first_ms != NO_TIME)

    chance = np.ones(len(query))  # the chance of each row's least likely gathering
    # The share of silent clients elsewhere: a crowd must not make silence usual.
    silent_of_query = np.bincount(query[silent], minlength=len(num_of_query))
    elsewhere = (activity.num_silent - silent_of_query + 1) / (activity.total - num_of_query + 1)
    says_something = silent & (elsewhere <= rules.crowd_silent_share)[query]
    for whom, share, windows in (
        (timed, np.ones(len(query)), WINDOWS),
        (timed & says_something, elsewhere[query], SILENT_WINDOWS),
    ):
        at = np.flatnonzero(whom)
        chances = _chances(query[at], first_ms[at], num_of_query, share[at], windows, activity, rules.crowd_clients)
        chance[at] = np.minimum(chance[at], chances)
    chance *= len(WINDOWS) + len(SILENT_WINDOWS)

    in_crowd = chance <= rules.unsure_crowd_chance
    num_outside = num_of_query - np.bincount(query[in_crowd], minlength=len(num_of_query))
    in_crowd &= num_outside[query] < PEOPLE_CAP
    surely = chance <= rules.crowd_chance
    verdict = np.where(surely, RULE["crowd"], RULE["unsure_crowd"]).astype(np.int8)
    return merge_bots([Bots(clients=rows["person"].to_numpy()[in_crowd], rules=verdict[in_crowd])])


def _chances(
    query: np.ndarray,
    first_ms: np.ndarray,
    num_of_query: np.ndarray,
    share: np.ndarray,
    windows: Sequence[int],
    activity: Activity,
    fewest: int,
) -> np.ndarray:
    """For each row an upper bound of the chance of its least likely gathering, 1 for a row in none.

    Rows are in order of query and time; `share`, for each row, is the share of clients that could be in its gathering.
    """
    chances = np.ones(len(query))
    if not len(query):
        return chances
    distinct = np.unique(first_ms)
    code = query * (len(distinct) + 1)
    codes = code + np.searchsorted(distinct, first_ms)
    for minutes in windows:
        until = np.searchsorted(distinct, first_ms + minutes * MS_PER_MINUTE)
        end = np.searchsorted(codes, code + until)  # the rows within the window of each one
        num = end - np.arange(len(query))
        num_neighbours = num_of_query[query] - 1
        expected = share * _expected_share(first_ms, minutes, activity)
        # Any of the query's clients may have started such a gathering.
        bound = (num_neighbours + 1) * _tail_bound(num_neighbours, num - 1, expected)
        begin = np.searchsorted(end, np.arange(len(query)), side="right")  # the first row whose window holds this one
        chances = np.minimum(chances, _smallest_between(np.where(num >= fewest, bound, 1.0), begin))
    return chances


def _smallest_between(values: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """For each place the smallest value from `begin` up to it, inclusive."""
    place = np.arange(len(values))
    level = np.frexp(place - begin + 1)[1] - 1  # the exact floor of the binary logarithm
    minima = np.empty(len(values))
    smallest = values  # of the 2^n values that end at each index
    for n in range(int(level.max(initial=-1)) + 1):
        of_level = np.flatnonzero(level == n)
        minima[of_level] = np.minimum(smallest[of_level], smallest[begin[of_level] + 2**n - 1])
        smallest = np.minimum(smallest, np.concatenate([smallest[: 2**n], smallest[: -(2**n)]]))
    return minima


def _expected_share(first_ms: np.ndarray, minutes: int, activity: Activity) -> np.ndarray:
    """The share of the log's passers-by that come within some minutes of each time, as if there were one more."""
    first, last = first_ms // MS_PER_HOUR, (first_ms + minutes * MS_PER_MINUTE) // MS_PER_HOUR
    summed = np.concatenate([[0], np.cumsum(activity.by_hour)])
    begin, end = (np.searchsorted(activity.hours, hour % MAX_HOURS) for hour in (first, last + 1))
    wraps = (last + 1) % MAX_HOURS < first % MAX_HOURS
    within = summed[end] - summed[begin] + wraps * summed[-1]
    by_hour = (within + 1) / (activity.total + 1)
    if minutes >= MINUTES:
        return np.minimum(by_hour, 1.0)
    # Both border minutes count fully.
    twice = np.concatenate([[0], np.cumsum(np.tile(activity.by_minute, 3))])
    minute = first_ms // MS_PER_MINUTE % MINUTES
    of_hour = (twice[minute + minutes + 1] - twice[minute] + 1) / (activity.by_minute.sum() + 1)
    return np.minimum(by_hour * np.minimum(of_hour, 1.0), 1.0)


def _tail_bound(num: np.ndarray, at_least: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Chernoff's upper bound of P[Binomial(num, chance) >= at_least], with 0 < chance."""
    share = at_least / np.maximum(num, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        complement = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - chance)), 0.0)
        divergence = np.where(share > 0, share * np.log(share / chance), 0.0) + complement
    return np.where((share > chance) & (chance < 1), np.exp(-num * divergence), 1.0)
