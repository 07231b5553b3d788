"""Crowds of fresh clients behind one query: found where chance does not explain them, and only there."""

import itertools
import math
import random

import numpy as np
import pyarrow as pa
import pytest

from clicktower.beam_jobs.ingest.bots import (
    NO_TIME,
    PASSERS_BY,
    RULES,
    WINDOWS,
    BotRules,
    _smallest_between,
    _tail_bound,
    activity_of,
    find_crowds,
    merge_activity,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
BEGIN = 20_000 * DAY


def _table(rows):
    """Rows of (query, person, ms since BEGIN or None, silent)."""
    columns = list(zip(*rows, strict=True))
    times = [NO_TIME if time is None else BEGIN + time for time in columns[2]]
    return pa.table([*columns[:2], times, columns[3]], schema=PASSERS_BY)


def _day(seed=0, num=4_000, days=1, silent_share=0.0):
    """Passers-by of one day: 40 popular queries, the rest asked once or twice; more by day than by night."""
    rng = random.Random(seed)
    rows = []
    for person in range(num):
        query = rng.randrange(40) if rng.random() < 0.5 else 1_000 + rng.randrange(num // 2)
        hour = rng.choice([*range(24), *range(8, 20), *range(8, 20)])
        time = rng.randrange(days) * DAY + hour * HOUR + rng.randrange(HOUR)
        rows.append((query, 10_000 + person, time, rng.random() < silent_share))
    return rows


def _crowd(size, minutes, query=7_777_777, at=11 * HOUR, first=1, silent=False):
    return [(query, first + n, at + n * minutes * MINUTE // size, silent) for n in range(size)]


def _caught(rows, rules=None):
    """Person -> rule."""
    table = _table(rows)
    bots = find_crowds(table, activity_of(table), rules or BotRules())
    return dict(zip(bots.clients.tolist(), (RULES[rule] for rule in bots.rules), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_a_day_of_people_holds_no_crowd(seed):
    assert _caught(_day(seed)) == {}


@pytest.mark.parametrize(
    ("size", "minutes", "verdict"),
    [(4, 1, "unsure_crowd"), (6, 1, "crowd"), (6, 10, "unsure_crowd"), (12, 10, "crowd"), (20, 55, "crowd")],
)
def test_fresh_clients_who_gather_behind_one_query_are_a_crowd(size, minutes, verdict):
    assert _caught(_day() + _crowd(size, minutes)) == dict.fromkeys(range(1, size + 1), verdict)


def test_whom_a_crowd_has_nothing_to_do_with_is_left_alone():
    rows = _day() + _crowd(12, 5)
    others = [(7_777_777, 101, 2 * HOUR, False), (7_777_777, 102, 20 * HOUR, False)]
    assert _caught(rows + others).keys() == set(range(1, 13))


def test_a_few_clients_over_a_day_are_people():
    assert _caught(_day() + [(7_777_777, n, n * 4 * HOUR, False) for n in range(1, 6)]) == {}


def test_silent_clients_are_a_crowd_over_hours_where_others_have_events():
    gathered = [(7_777_777, n, n * 2 * HOUR, True) for n in range(1, 8)]
    assert _caught(_day() + gathered).keys() == set(range(1, 8))
    assert _caught(_day() + [(*row[:3], False) for row in gathered]) == {}
    # and not in a log in which a tenth of all have none
    assert _caught(_day(silent_share=0.1) + gathered) == {}


def test_a_query_that_many_others_ask_is_left_alone():
    campaign = _crowd(40, 10, query=3)  # query 3 is popular: about 50 ask it over the day
    assert _caught(_day() + campaign) == {}
    assert len(_caught(_day() + _crowd(40, 10))) == 40


def test_several_crowds_behind_one_query_do_not_hide_each_other():
    rows = _day()
    for number in range(5):
        rows += _crowd(10, 1, at=(3 + 4 * number) * HOUR, first=1 + 10 * number)
    assert _caught(rows).keys() == set(range(1, 51))


@pytest.mark.parametrize("resolution", [HOUR, DAY])
def test_coarse_clocks_convict_nobody(resolution):
    rows = [(query, person, time // resolution * resolution, silent) for query, person, time, silent in _day(1, days=5)]
    assert _caught(rows) == {}


def test_a_log_of_one_moment_or_without_times_convicts_nobody():
    assert _caught([(query, person, 0, False) for query, person, _, _ in _day()]) == {}
    assert _caught([(query, person, None, False) for query, person, _, _ in _day()]) == {}


def test_a_handful_of_clients_convicts_nobody():
    assert _caught(_crowd(4, 1)) == {}


def test_no_rows_are_no_crowd():
    bots = find_crowds(PASSERS_BY.empty_table(), merge_activity([]), BotRules())
    assert len(bots.clients) == bots.num_clients == 0


@pytest.mark.parametrize("seed", range(3))
def test_buckets_of_queries_give_what_the_whole_gives(seed):
    rows = _day(seed) + _crowd(9, 3) + _crowd(5, 1, query=8_888_888, first=50)
    whole = _caught(rows)
    assert len(whole) == 14
    random.Random(seed).shuffle(rows)
    activity = merge_activity([activity_of(_table(rows[n::7])) for n in range(7)])
    found = {}
    for bucket in range(4):
        bots = find_crowds(_table([row for row in rows if row[0] % 4 == bucket]), activity, BotRules())
        found |= dict(zip(bots.clients.tolist(), (RULES[rule] for rule in bots.rules), strict=True))
    assert found == whole


def test_the_bound_is_above_the_binomial_tail():
    for num, chance in itertools.product((1, 4, 11, 40), (0.001, 0.05, 0.5)):
        for least in range(num + 1):
            tail = sum(math.comb(num, c) * chance**c * (1 - chance) ** (num - c) for c in range(least, num + 1))
            bound = _tail_bound(np.array([num]), np.array([least]), np.array([chance]))[0]
            assert tail <= bound * (1 + 1e-9) <= 1 + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_smallest_between_matches_a_loop(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 70))
    values = rng.random(size)
    begin = np.minimum(np.maximum.accumulate(rng.integers(0, size, size)), np.arange(size))
    expected = [values[b : place + 1].min() for place, b in enumerate(begin)]
    np.testing.assert_array_equal(_smallest_between(values, begin), expected)


@pytest.mark.parametrize("seed", range(3))
def test_gatherings_match_a_loop_over_every_window(seed):
    """The same decision, window by window, with the counts of passers-by taken line by line."""
    rng = random.Random(seed)
    rows = _day(seed, 1_500) + _crowd(5, 1) + _crowd(8, 10, query=8_888_888, first=50, at=2 * HOUR + 55 * MINUTE)
    rows += [(9_999_999, 100 + n, rng.randrange(DAY), False) for n in range(6)]
    by_query = {}
    for query, person, time, _ in rows:
        by_query.setdefault(query, []).append((time, person))
    hours = [sum(row[2] // HOUR == hour for row in rows) for hour in range(25)]
    minutes = [sum(row[2] // MINUTE % 60 == minute for row in rows) for minute in range(60)]
    expected = {}
    for members in by_query.values():
        chances = {}
        for length, (begin, _) in itertools.product(WINDOWS, members):
            within = [person for time, person in members if begin <= time < begin + length * MINUTE]
            share = (sum(hours[begin // HOUR : (begin + length * MINUTE) // HOUR + 1]) + 1) / (len(rows) + 1)
            if length < 60:
                first = begin // MINUTE
                share *= min(1, (sum(minutes[(first + n) % 60] for n in range(length + 1)) + 1) / (len(rows) + 1))
            n, c = len(members) - 1, len(within) - 1
            if len(within) < 3 or c / n <= share or share >= 1:
                continue
            kl = c / n * math.log(c / n / share) + ((n - c) / n * math.log((n - c) / n / (1 - share)) if c < n else 0)
            for person in within:
                chances[person] = min(chances.get(person, 1), 7 * len(members) * math.exp(-n * kl))
        crowd = {person: chance for person, chance in chances.items() if chance <= 1e-5}
        if len(members) - len(crowd) < 32:
            expected |= {person: "crowd" if chance <= 1e-9 else "unsure_crowd" for person, chance in crowd.items()}
    assert _caught(rows) == expected
    assert len(expected) >= 12
