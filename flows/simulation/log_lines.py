"""Searches and their pages -> the lines of the log in UBI's form, with everything that goes wrong in real logs.

The fate of a line is the one that ingest should give it: unreadable lines first, then exact repeats, other actions,
events without a document, events whose search is lost, bots, queries that must not be learned from.
"""

import json
from dataclasses import dataclass

import numpy as np

from clicktower.flows.simulation.simulated_searches import (
    CLICKING_BOT,
    CROWD_BOT,
    DECLARED_BOT,
    EMPTY,
    HUMAN,
    PAGE,
    SLOW_BOT,
    UNDECLARED_BOT,
    Pages,
    Population,
    Searches,
)
from clicktower.flows.simulation.simulated_shop import document_id
from clicktower.flows.simulation.simulation_config import SimulationConfig, bits, uniform
from clicktower.schemas.ledger import FATES
from clicktower.schemas.search_log import SIMULATED_APPLICATION

FATE_NAMES = tuple(FATES)
FATE = {name: number for number, name in enumerate(FATE_NAMES)}
SEARCH, IMPRESSION, CLICK = range(3)
_DAY = np.array([FATE["day_search"], FATE["day_impression"], FATE["day_click"]])
_HEAD = f'{{"application": "{SIMULATED_APPLICATION}", "query_id": "'


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """L lines, without line ends. Every character is one byte; a lone surrogate stands for a byte that is not UTF-8."""

    text: list[str]
    fate: np.ndarray  # int8 (L), numbers of FATE_NAMES


def query_id(number: int) -> str:
    return f"s{number:08d}"


def log_lines(config: SimulationConfig, population: Population, searches: Searches, pages: Pages) -> Lines:
    """All lines of these searches: each search line, then its impressions and clicks, then what was added to them."""
    seed = config.seed
    num = len(searches.numbers)
    shown, clicked = np.nonzero(pages.shown), np.nonzero(pages.clicked)
    kind = np.repeat([SEARCH, IMPRESSION, CLICK], [num, len(shown[0]), len(clicked[0])])
    row = np.concatenate([np.arange(num), shown[0], clicked[0]])
    rank = np.concatenate([np.zeros(num, int), shown[1], clicked[1]])
    slot = np.where(kind == SEARCH, 0, rank + 1 + PAGE * (kind == CLICK))
    number = searches.numbers[row]
    mishap = _draw_mishaps(config, kind, uniform(seed, "mishap", number, slot))
    detail = bits(seed, "mishap's detail", number, slot)
    document = np.where(kind == SEARCH, -1, pages.documents[row, rank])
    at = _moments(seed, searches, row, rank, kind, slot)
    times = _stamps(at)

    text = _search_lines(population, searches, times[:num])
    text += _event_lines(searches, population, row[num:], rank[num:], kind[num:], document[num:], times[num:])
    fate = _fates(searches, row, kind)
    extra: list[tuple[str, int]] = []  # text, fate
    lost = np.zeros(num, bool)  # searches with an unreadable search line
    for i in np.flatnonzero(mishap != _NONE):
        kind_of_mishap, drawn, before = mishap[i], int(detail[i]), text[i]
        if kind_of_mishap == _BROKEN:
            text[i], fate[i] = _break(before, kind[i], drawn)
            lost[row[i]] |= kind[i] == SEARCH
        elif kind_of_mishap == _REPEATED:
            extra.append((before, FATE["repeat"]))
        elif kind_of_mishap == _UNKNOWN_SEARCH:
            text[i], fate[i] = before.replace(query_id(number[i]), f"x{drawn % 10**8:08d}", 1), FATE["search_unknown"]
        elif kind_of_mishap == _UNKNOWN_DOCUMENT:  # an id outside any catalogue
            text[i] = before.replace(document_id(document[i]), f"P9{drawn % 10**8:08d}", 1)
        elif kind[i] == SEARCH:  # the same search logged again a moment later
            (later,) = _stamps(at[i : i + 1] + 40 + drawn % 400)
            extra.append((before.replace(times[i], later, 1), FATE["search_repeated"]))
        elif drawn % 2:
            text[i], fate[i] = before.replace(f'"{_ACTION[kind[i]]}"', '"add_to_cart"', 1), FATE["other_action"]
        else:
            text[i] = before.replace(f'"object_id": "{document_id(document[i])}", ', "", 1)
            fate[i] = FATE["document_missing"]
    # An event whose search line is broken leads nowhere, whatever else it is, unless it is unreadable itself.
    led_nowhere = lost[row] & (kind != SEARCH) & (fate >= FATE["search_unknown"]) & (fate != FATE["document_missing"])
    fate[led_nowhere] = FATE["search_unknown"]
    return Lines(
        text=text + [line for line, _ in extra],
        fate=np.concatenate([fate, [kind_of_mishap for _, kind_of_mishap in extra]]).astype(np.int8),
    )


_NONE, _BROKEN, _REPEATED, _UNKNOWN_SEARCH, _UNKNOWN_DOCUMENT, _OTHER = range(6)
_ACTION = ("", "impression", "click")


def _draw_mishaps(config: SimulationConfig, kind: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """At most one mishap per line, mostly _NONE."""
    rates = (
        config.broken_lines,
        config.repeated_lines,
        config.unknown_searches,
        config.unknown_documents,
        config.other_lines,
    )
    mishap = np.searchsorted(np.cumsum(rates), unit, side="right") + 1
    mishap[mishap > len(rates)] = _NONE
    mishap[(kind == SEARCH) & ((mishap == _UNKNOWN_SEARCH) | (mishap == _UNKNOWN_DOCUMENT))] = _NONE
    return mishap


def _break(line: str, kind: int, drawn: int) -> tuple[str, int]:
    """An unreadable line, and the fate that says why."""
    way, drawn = drawn % (5 if kind == SEARCH else 4), drawn >> 8
    if way == 0:
        return line[: len(line) * (30 + drawn % 65) // 100], FATE["unreadable_not_json"]
    if way == 1:
        return f"[{line}]", FATE["unreadable_not_json"]
    if way == 2:
        return line.replace('"query_id"', '"qid"', 1), FATE["unreadable_no_query_id"]
    if way == 3:
        return line.replace(SIMULATED_APPLICATION, SIMULATED_APPLICATION + "\udcff", 1), FATE["unreadable_not_utf8"]
    value = json.loads(line)
    return json.dumps({**value, "user_query": [drawn % 100]}), FATE["unreadable_field"]


def _fates(searches: Searches, row: np.ndarray, kind: np.ndarray) -> np.ndarray:
    """The fates of lines without a mishap."""
    of_search = np.full(len(searches.numbers), -1)
    of_search[searches.kind == EMPTY] = FATE["query_empty"]
    for roles, name in (
        ((UNDECLARED_BOT, SLOW_BOT, CLICKING_BOT), "bot_behaviour"),
        ((CROWD_BOT,), "bot_crowd"),
        ((DECLARED_BOT,), "bot_user_agent"),
    ):
        of_search[np.isin(searches.who.role, roles)] = FATE[name]
    return np.where(of_search[row] < 0, _DAY[kind], of_search[row])


def _moments(
    seed: int, searches: Searches, row: np.ndarray, rank: np.ndarray, kind: np.ndarray, slot: np.ndarray
) -> np.ndarray:
    """When each line was logged, in milliseconds: impressions at once, people's clicks some seconds later, bots' clicks
    at once.
    """
    unit = uniform(seed, "delay", searches.numbers[row], slot)
    is_human = np.isin(searches.who.role[row], (*HUMAN, CROWD_BOT))
    delay = np.where(
        kind == IMPRESSION, 60 + 200 * unit, 100 + 150 * unit + is_human * (1_500 + rank * 900 + 20_000 * unit)
    )
    return searches.who.time_ms[row] + np.where(kind == SEARCH, 0, delay).astype(np.int64)


def _stamps(ms: np.ndarray) -> list[str]:
    return [f"{stamp}Z" for stamp in np.datetime_as_string(ms.astype("datetime64[ms]")).tolist()]


def _client(population: Population, searches: Searches) -> list[str]:
    """The client_id field of each search's lines, empty for a few."""
    return [
        f'"client_id": "{population.client(actor)}", ' if has_client else ""
        for actor, has_client in zip(searches.who.actor.tolist(), searches.has_client.tolist(), strict=True)
    ]


def _search_lines(population: Population, searches: Searches, times: list[str]) -> list[str]:
    rows = zip(
        searches.numbers.tolist(),
        _client(population, searches),
        searches.text,
        times,
        searches.who.actor.tolist(),
        searches.who.role.tolist(),
        strict=True,
    )
    return [
        f'{_HEAD}{query_id(number)}", {client}"user_query": {json.dumps(text)}, "timestamp": "{time}", '
        f'"query_attributes": {{"user_agent": "{population.agent(actor, role)}"}}}}'
        for number, client, text, time, actor, role in rows
    ]


def _event_lines(
    searches: Searches,
    population: Population,
    row: np.ndarray,
    rank: np.ndarray,
    kind: np.ndarray,
    document: np.ndarray,
    times: list[str],
) -> list[str]:
    heads = [
        f'{_HEAD}{query_id(number)}", {client}"event_attributes": {{"object": {{"object_id": "'
        for number, client in zip(searches.numbers.tolist(), _client(population, searches), strict=True)
    ]
    tails = [[_tail(place + 1, action) for place in range(PAGE)] for action in _ACTION]
    return [
        f'{heads[r]}{document_id(d)}{tails[k][p]}{time}"}}'
        for r, p, k, d, time in zip(row.tolist(), rank.tolist(), kind.tolist(), document.tolist(), times, strict=True)
    ]


def _tail(ordinal: int, action: str) -> str:
    return (
        f'", "object_id_field": "product_uid"}}, "position": {{"ordinal": {ordinal}}}}}, '
        f'"action_name": "{action}", "timestamp": "'
    )
