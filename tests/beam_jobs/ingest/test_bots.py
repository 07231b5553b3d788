"""Bots: what they call themselves, and how they behave; people who are merely busy stay people."""

import itertools
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from clicktower.beam_jobs.ingest.bots import (
    MAX_HOURS,
    NO_RULE,
    QUERIES_KEPT,
    RANKS,
    RULE,
    RULES,
    RULES_VERSION,
    BotRules,
    Bots,
    client_statistics,
    detect_bots,
    is_bot_user_agent,
    merge_bots,
    rule_of_lines,
)
from clicktower.beam_jobs.ingest.day_rows import CLICK, IMPRESSION, JOINED, SEARCH
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed

START = datetime(2026, 9, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "agent",
    [
        "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
        "Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/120.0.0.0 Safari/537.36",
        "curl/8.5.0",
        "Wget/1.21.3",
        "python-requests/2.32.3",
        "Scrapy/2.11 (+https://scrapy.org)",
        "Go-http-client/2.0",
        "facebookexternalhit/1.1",
        "Pingdom.com_bot_version_1.4",
    ],
)
def test_programs_that_name_themselves_are_bots(agent):
    assert is_bot_user_agent(pa.array([agent])).to_pylist() == [True]


@pytest.mark.parametrize(
    "agent",
    [
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Version/17.5 Mobile/15E148 Safari/604.1",
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Mozilla/5.0 (Linux; Android 9; CUBOT X19) AppleWebKit/537.36 Chrome/126.0 Mobile Safari/537.36",
        "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.1; Trident/6.0)",
        "Mozilla/5.0 (Linux; Android 14; Pixel 8; wv) Version/4.0 Chrome/126 Mobile Safari/537.36",
        "Opera/9.80 (Windows NT 6.1; WOW64) Presto/2.12.388 Version/12.18",
        "MyShop/5.1 (iPhone; iOS 17.5; Scale/3.00)",
        "okhttp/4.12.0",
        "",
        None,
    ],
)
def test_browsers_apps_and_silence_are_not(agent):
    assert is_bot_user_agent(pa.array([agent], pa.string())).to_pylist() == [False]


def _joined(lines):
    """Lines of (person, kind, time or None, position) or with a fifth, the query."""
    people, kinds, times, positions, queries = zip(*((*line, "drill")[:5] for line in lines), strict=True)
    return pa.table(
        [
            pa.array(kinds, pa.int8()),
            pa.array(queries).dictionary_encode(),
            pa.array(people, pa.uint64()),
            pa.array(people, pa.uint64()),
            pa.array([False] * len(lines)),
            pa.array([None if kind == SEARCH else "D1" for kind in kinds], pa.string()),
            pa.array(positions, pa.int32()),
            pa.array(times, pa.timestamp("ms", tz="UTC")),
            pa.array([1000 * (kind == CLICK) for kind in kinds], pa.int32()),
            pa.array([kind == SEARCH for kind in kinds]),
        ],
        schema=JOINED,
    )


def _searches(person, count, every: timedelta, clicked=(), shown=5, start=START, query="drill {}"):
    """`count` searches, each showing `shown` documents of which those at the ranks `clicked` are clicked.

    `query` is what is asked, with the number of the search: a new query each time unless it does not say the number.
    """
    lines = []
    for number in range(count):
        asked = query.format(number)
        lines.append((person, SEARCH, start + number * every, -1, asked))
        lines += [(person, IMPRESSION, start, rank, asked) for rank in range(1, shown + 1)]
        lines += [(person, CLICK, start, rank, asked) for rank in clicked]
    return lines


def _verdict(lines, rules=None):
    """The name of the rule that catches the one client of these lines, None for a person."""
    bots = detect_bots(client_statistics(_joined(lines)), rules or BotRules())[0]
    assert bots.num_clients == 1
    assert len(bots.clients) + bots.people == 1
    return next(iter(bots.by_rule()), None)


# Some clicks, at ranks that change, so that only the pace is in question.
def _clicking(person, count, every, share=0.4, **more):
    lines = _searches(person, count, every, **more)
    searches = [line for line in lines if line[1] == SEARCH]
    rng = random.Random(person)
    return lines + [
        (person, CLICK, time, rng.randrange(1, 6), query) for _, _, time, _, query in searches[: round(share * count)]
    ]


@pytest.mark.parametrize(("count", "verdict"), [(44, None), (45, "unsure_pace"), (59, "unsure_pace"), (60, "pace")])
def test_a_search_a_minute_for_an_hour_is_a_bot(count, verdict):
    assert _verdict(_clicking(1, count, timedelta(minutes=1))) == verdict


@pytest.mark.parametrize(("count", "verdict"), [(199, None), (200, "unsure_pace"), (299, "unsure_pace"), (300, "pace")])
def test_300_searches_a_day_are_a_bot(count, verdict):
    day = START.replace(hour=3)
    # bursts of 20 within an hour, for up to 15 hours: not around the clock, and repeating itself
    lines = [
        (1, SEARCH, day + number // 20 * timedelta(hours=1) + number % 20 * timedelta(minutes=2), -1, f"q{number % 50}")
        for number in range(count)
    ]
    assert _verdict(lines) == verdict


@pytest.mark.parametrize(("count", "verdict"), [(199, None), (200, "unsure_pace"), (300, "pace")])
def test_days_without_hours_measure_a_pace_per_day_alone(count, verdict):
    midnight = START.replace(hour=0)
    assert _verdict([(1, SEARCH, midnight, -1, f"q{number % 50}") for number in range(count)]) == verdict
    later = [(1, SEARCH, midnight + timedelta(days=1, seconds=1), -1, "q")]  # so midnight is an hour like any other
    assert _verdict([(1, SEARCH, midnight, -1, f"q{number % 50}") for number in range(60)] + later) == "pace"


def test_a_busy_person_over_months_is_no_bot():
    # three searches a day for a hundred days, with a click at a changing rank
    lines = []
    for number in range(300):
        lines += [(1, SEARCH, START + number * timedelta(hours=8), -1), (1, CLICK, START, number % 7 + 1)]
        lines += [(1, IMPRESSION, START, rank) for rank in range(8)]
    assert _verdict(lines) is None


def test_an_account_of_several_shifts_is_no_bot():
    rng = random.Random(5)
    lines = []
    for number in range(600):  # 40 a day, from 5 to 22
        time = START.replace(hour=5) + timedelta(days=number // 40, minutes=rng.randrange(17 * 60))
        query = f"part {rng.randrange(200)}"
        lines.append((1, SEARCH, time, -1, query))
        lines += [(1, IMPRESSION, time, rank, query) for rank in range(1, 6)]
        lines += [(1, CLICK, time, rank, query) for rank in range(1, 6) if rng.random() < 0.3 / rank]
    assert _verdict(lines) is None


@pytest.mark.parametrize(("count", "verdict"), [(19, None), (20, "clicks_everything")])
def test_who_clicks_everything_shown_is_a_bot(count, verdict):
    assert _verdict(_searches(1, count, timedelta(days=1), clicked=(1, 2, 3, 4), shown=5)) == verdict


def test_who_clicks_most_of_what_is_shown_is_unsure():
    assert _verdict(_searches(1, 20, timedelta(days=1), clicked=(1, 2, 3), shown=5)) == "unsure_clicks_everything"
    assert _verdict(_searches(1, 60, timedelta(days=1), clicked=(1, 2), shown=5)) is None


def test_a_log_that_records_only_what_was_clicked_convicts_nobody_of_clicking_everything():
    lines = []
    for number in range(40):
        time, rank = START + number * timedelta(days=1), number % 9 + 1
        lines += [(1, kind, time, -1 if kind == SEARCH else rank, f"q{number}") for kind in (SEARCH, IMPRESSION, CLICK)]
    assert _verdict(lines) is None


@pytest.mark.parametrize(
    ("count", "verdict"),
    [(19, None), (20, "unsure_clicks_one_rank"), (29, "unsure_clicks_one_rank"), (30, "clicks_one_rank")],
)
def test_who_always_clicks_one_rank_and_nothing_else_is_a_bot(count, verdict):
    assert _verdict(_searches(1, count, timedelta(days=1), clicked=(2,))) == verdict


def test_who_clicks_one_rank_among_others_is_no_bot():
    assert _verdict(_searches(1, 40, timedelta(days=1), clicked=(1, 3), shown=10)) is None


@pytest.mark.parametrize(
    ("hours", "share", "verdict"),
    [(19, 0.0, None), (20, 0.0, "around_the_clock"), (20, 0.4, "around_the_clock"), (24, 0.0, "around_the_clock")],
)
def test_who_searches_in_20_hours_of_a_day_and_never_asks_twice_is_a_bot(hours, share, verdict):
    midnight = START.replace(hour=0)
    assert _verdict(_clicking(1, hours, timedelta(hours=1), share, start=midnight)) == verdict


def test_who_searches_in_20_hours_of_a_day_and_is_otherwise_like_people_is_unsure():
    midnight, lines, rng = START.replace(hour=0), [], random.Random(1)
    for hour in range(24):  # several people behind one client id, night and day
        for _ in range(rng.choice([1, 1, 6])):
            query = f"part {rng.randrange(20)}"
            time = midnight + timedelta(hours=hour, minutes=rng.randrange(60))
            lines += [(1, SEARCH, time, -1, query), (1, CLICK, time, rng.randrange(1, 9), query)]
    assert _verdict(lines) == "unsure_around_the_clock"


def test_an_even_pace_with_a_pause_at_night_is_told_from_people_over_weeks():
    lines = []
    for day in range(20):  # ten searches a day, no more, no less, without a click
        for number in range(10):
            lines.append((1, SEARCH, START + timedelta(days=day, minutes=40 * number), -1, f"q{day}-{number}"))
    assert _verdict(lines) == "even_pace"
    rng = random.Random(2)
    human = []
    for day in range(20):
        for number in range(rng.choice([0, 0, 3, 8, 20, 29])):
            human.append((1, SEARCH, START + timedelta(days=day, minutes=17 * number), -1, f"q{rng.randrange(9)}"))
    assert _verdict(human) is None


@pytest.mark.parametrize(("count", "verdict"), [(49, None), (50, "unsure_never_clicks")])
def test_who_asks_for_50_different_things_and_clicks_nothing_is_unsure(count, verdict):
    rng = random.Random(3)
    times = [START + timedelta(days=rng.randrange(50), minutes=rng.randrange(500)) for _ in range(count)]
    assert _verdict([(1, SEARCH, time, -1, f"q{number}") for number, time in enumerate(times)]) == verdict
    assert _verdict([(1, SEARCH, time, -1, f"q{number // 2}") for number, time in enumerate(times)]) is None


def test_searches_without_a_time_or_a_client_convict_nobody():
    assert _verdict([(1, SEARCH, None, -1)] * 400) is None
    nobody = detect_bots(client_statistics(_joined(_searches(None, 400, timedelta(seconds=1)))), BotRules())[0]
    assert len(nobody.clients) == nobody.people == nobody.num_clients == 0


@pytest.mark.parametrize("seed", range(3))
def test_statistics_may_be_counted_in_parts(seed):
    lines = _searches(1, 60, timedelta(minutes=1)) + _searches(2, 30, timedelta(days=1), clicked=(1,))
    lines += _searches(3, 700, timedelta(minutes=7), shown=0) + _clicking(4, 300, timedelta(hours=8))
    lines += _searches(5, 700, timedelta(minutes=7), query="always the same", clicked=(4,))
    whole = detect_bots(client_statistics(_joined(lines)), BotRules())[0]
    random.Random(seed).shuffle(lines)
    cuts = [0, 100, 130, 2000, len(lines)]
    parts = [client_statistics(_joined(lines[a:b])) for a, b in itertools.pairwise(cuts)]
    bots = detect_bots(pa.concat_tables(parts[::-1]), BotRules())[0]
    assert bots.clients.tolist() == whole.clients.tolist() == [1, 2, 3, 5]
    assert bots.rules.tolist() == whole.rules.tolist()
    assert [RULES[rule] for rule in bots.rules] == ["pace", "clicks_one_rank", "around_the_clock", "clicks_one_rank"]


@pytest.mark.slow
def test_a_client_with_everything_in_the_world_has_few_rows():
    rng = random.Random(1)
    lines = []
    for number in range(60_000):
        time = datetime(1, 1, 1, tzinfo=UTC) + timedelta(hours=rng.randrange(24 * 365 * 9_000))
        lines.append((1, SEARCH, time, -1, f"query {number}"))
        lines.append((1, CLICK, time, rng.randrange(2**31), f"query {number}"))
    rows = client_statistics(_joined(lines))
    assert rows.num_rows <= MAX_HOURS + RANKS + 2 * QUERIES_KEPT + 2
    assert sum(rows["searches"].to_pylist()) == sum(rows["clicks"].to_pylist()) == 60_000


def test_all_lines_of_a_bot_are_its_lines_also_events_of_others_on_its_searches():
    joined = _joined([(1, SEARCH, START, -1), (2, CLICK, START, 1), (2, CLICK, START, 1), (None, SEARCH, START, -1)])
    searchers = pa.array([1, 1, 2, None], pa.uint64())
    joined = joined.set_column(3, JOINED.field("searcher"), searchers)
    bots = merge_bots([detect_bots(client_statistics(_joined(_searches(1, 60, timedelta(minutes=1)))), BotRules())[0]])
    assert rule_of_lines(joined, bots).tolist() == [RULE["pace"], RULE["pace"], NO_RULE, NO_RULE]


def test_a_line_of_two_bots_counts_under_the_first_rule():
    joined = _joined([(1, CLICK, START, 1)]).set_column(3, JOINED.field("searcher"), pa.array([2], pa.uint64()))
    crowd, pace = np.array([RULE["crowd"]], np.int8), np.array([RULE["pace"]], np.int8)
    parts = [Bots(clients=np.array([1], np.uint64), rules=crowd), Bots(clients=np.array([2], np.uint64), rules=pace)]
    assert rule_of_lines(joined, merge_bots(parts)).tolist() == [RULE["pace"]]
    assert merge_bots([parts[0], Bots(clients=parts[0].clients, rules=pace)]).rules.tolist() == [RULE["pace"]]


def test_rules_out_of_range_or_of_another_version_are_wrong_usage():
    for wrong in (
        {"clicked_share": 0},
        {"searches_per_hour": 0},
        {"crowd_chance": 1.5},
        {"version": RULES_VERSION - 1},
    ):
        with pytest.raises(UsageError):
            changed(BotRules(), wrong)
