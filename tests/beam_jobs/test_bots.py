"""Bots: what they call themselves, and how they behave; people who are merely busy stay people."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from beam_jobs.bot_rules import BotRules
from beam_jobs.bots import bot_fates, client_statistics, find_bots, is_bot_user_agent, merge_bots
from beam_jobs.join_search_events import CLICK, IMPRESSION, JOINED, SEARCH
from schemas.errors import UsageError

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
    """Lines of (person, kind, time or None, position)."""
    people, kinds, times, positions = zip(*lines, strict=True)
    count = len(lines)
    return pa.table(
        [
            pa.array(kinds, pa.int8()),
            pa.array(["drill"] * count).dictionary_encode(),
            pa.array(people, pa.uint64()),
            pa.array(people, pa.uint64()),
            pa.array([False] * count),
            pa.array([None if kind == SEARCH else "D1" for kind in kinds], pa.string()),
            pa.array(positions, pa.int32()),
            pa.array(times, pa.timestamp("ms", tz="UTC")),
        ],
        schema=JOINED,
    )


def _searches(person, count, every: timedelta, clicked=(), shown=5):
    """`count` searches, each showing `shown` documents of which those at the ranks `clicked` are clicked."""
    lines = []
    for number in range(count):
        lines.append((person, SEARCH, START + number * every, -1))
        lines += [(person, IMPRESSION, START, rank) for rank in range(1, shown + 1)]
        lines += [(person, CLICK, START, rank) for rank in clicked]
    return lines


def _is_bot(lines, rules=None):
    bots = find_bots(client_statistics(_joined(lines)), rules or BotRules())
    assert len(bots.by_behaviour) + bots.people == 1
    return len(bots.by_behaviour) == 1


@pytest.mark.parametrize(("count", "verdict"), [(59, False), (60, True)])
def test_a_search_a_minute_for_an_hour_is_a_bot(count, verdict):
    assert _is_bot(_searches(1, count, timedelta(minutes=1))) is verdict


@pytest.mark.parametrize(("count", "verdict"), [(299, False), (300, True)])
def test_300_searches_a_day_are_a_bot(count, verdict):
    midnight = START.replace(hour=0)
    lines = [(1, SEARCH, midnight + number * timedelta(minutes=4.5), -1) for number in range(count)]  # 13 an hour
    assert _is_bot(lines) is verdict


def test_a_busy_person_over_months_is_no_bot():
    # three searches a day for a hundred days, with a click at a changing rank
    lines = []
    for number in range(300):
        lines += [(1, SEARCH, START + number * timedelta(hours=8), -1), (1, CLICK, START, number % 7 + 1)]
        lines += [(1, IMPRESSION, START, rank) for rank in range(8)]
    assert not _is_bot(lines)


@pytest.mark.parametrize(("count", "verdict"), [(19, False), (20, True)])
def test_who_clicks_everything_shown_is_a_bot(count, verdict):
    assert _is_bot(_searches(1, count, timedelta(days=1), clicked=(1, 2, 3, 4), shown=5)) is verdict


@pytest.mark.parametrize(("count", "verdict"), [(29, False), (30, True)])
def test_who_always_clicks_one_rank_and_nothing_else_is_a_bot(count, verdict):
    assert _is_bot(_searches(1, count, timedelta(days=1), clicked=(2,))) is verdict


def test_who_clicks_one_rank_among_others_is_no_bot():
    assert not _is_bot(_searches(1, 40, timedelta(days=1), clicked=(1, 3), shown=10))


def test_searches_without_a_time_or_a_client_convict_nobody():
    assert not _is_bot([(1, SEARCH, None, -1)] * 400)
    nobody = find_bots(client_statistics(_joined(_searches(None, 400, timedelta(seconds=1)))), BotRules())
    assert len(nobody.by_behaviour) == nobody.people == 0


def test_statistics_may_be_counted_in_parts():
    lines = _searches(1, 60, timedelta(minutes=1)) + _searches(2, 30, timedelta(days=1), clicked=(1,))
    parts = [client_statistics(_joined(lines[n::3])) for n in range(3)]
    bots = find_bots(pa.concat_tables(parts), BotRules())
    assert bots.by_behaviour.tolist() == [1, 2]


def test_all_lines_of_a_bot_are_its_lines_also_events_of_others_on_its_searches():
    joined = _joined([(1, SEARCH, START, -1), (2, CLICK, START, 1), (2, CLICK, START, 1), (None, SEARCH, START, -1)])
    searchers = pa.array([1, 1, 2, None], pa.uint64())
    joined = joined.set_column(3, JOINED.field("searcher"), searchers)
    bots = merge_bots([find_bots(client_statistics(_joined(_searches(1, 60, timedelta(minutes=1)))), BotRules())])
    named, behaves = bot_fates(joined, bots)
    assert behaves.tolist() == [True, True, False, False]
    assert not np.any(named)


def test_rules_out_of_range_are_wrong_usage():
    with pytest.raises(UsageError):
        BotRules(clicked_share=0)
    with pytest.raises(UsageError):
        BotRules(searches_per_hour=0)
