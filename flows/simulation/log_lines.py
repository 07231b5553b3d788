"""Searches and their pages -> the lines of the log in UBI's form, with everything that goes wrong in real logs.

The fate of a line is the one that ingest should give it: what cannot be read comes first, then exact repeats, other
actions, events without a document, events whose search is lost, bots, queries that must not be learned from.
"""

import gzip
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from flows.simulation.people import CLICKING_BOT, CROWD_BOT, DECLARED_BOT, HUMAN, SLOW_BOT, UNDECLARED_BOT, Population
from flows.simulation.searches import ADULT, EMPTY, INTENT, PAGE, PRIVATE, SPAM, WHAT, Pages, Searches
from flows.simulation.simulated_catalogue import document_id, unknown_document_id
from flows.simulation.simulation_config import SimulationConfig, bits_of, uniform_of
from schemas.ledger import FATES
from schemas.log_row import SIMULATED_APPLICATION

FATE_NAMES = tuple(FATES)
FATE = {name: number for number, name in enumerate(FATE_NAMES)}
NO_FATE = -1
SEARCH, IMPRESSION, CLICK = range(3)
_DAY = np.array([FATE["day_search"], FATE["day_impression"], FATE["day_click"]])
_HEAD = f'{{"application": "{SIMULATED_APPLICATION}", "query_id": "'


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """L lines, without line ends. Every character is one byte; a lone surrogate stands for a byte that is not UTF-8.

    `then` is the fate that `build` brings a line of the daily aggregate to where the truth alone decides it.
    """

    text: list[str]
    fate: np.ndarray  # int8 (L), numbers of FATE_NAMES
    then: np.ndarray  # int8 (L), NO_FATE where undecided


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
    mishap = _mishaps(config, kind, uniform_of(seed, "mishap", number, slot))
    detail = bits_of(seed, "mishap's detail", number, slot)
    document = np.where(kind == SEARCH, -1, pages.documents[row, rank])
    times = _times(seed, searches, row, rank, kind, slot)

    text = _search_lines(population, searches, times[:num])
    text += _event_lines(searches, population, row[num:], rank[num:], kind[num:], document[num:], times[num:])
    fate, then = _fates(searches, row, kind)
    extra: list[tuple[str, int]] = []  # text, fate
    lost = np.zeros(num, bool)  # searches whose search line cannot be read
    for i in np.flatnonzero(mishap != _NONE):
        what, bits, before = mishap[i], int(detail[i]), text[i]
        if what == _BROKEN:
            text[i], fate[i] = _break(before, kind[i], bits)
            then[i] = NO_FATE
            lost[row[i]] |= kind[i] == SEARCH
        elif what == _REPEATED:
            extra.append((before, FATE["repeat"]))
        elif what == _UNKNOWN_SEARCH:
            text[i] = before.replace(query_id(number[i]), f"x{bits % 10**8:08d}", 1)
            fate[i], then[i] = FATE["search_unknown"], NO_FATE
        elif what == _UNKNOWN_DOCUMENT:
            text[i] = before.replace(document_id(document[i]), unknown_document_id(bits % 10**8), 1)
            if fate[i] in _DAY and then[i] == NO_FATE:
                then[i] = FATE["document_unknown"]
        elif kind[i] == SEARCH:  # the same search logged again a moment later
            later = _stamp(_parse(times[i]) + 40 + bits % 400)
            extra.append((before.replace(times[i], later, 1), FATE["search_repeated"]))
        elif bits % 2:
            text[i] = before.replace(f'"{_ACTION[kind[i]]}"', '"add_to_cart"', 1)
            fate[i], then[i] = FATE["other_action"], NO_FATE
        else:
            text[i] = before.replace(f'"object_id": "{document_id(document[i])}", ', "", 1)
            fate[i], then[i] = FATE["document_missing"], NO_FATE
    # An event whose search line was broken leads nowhere, whatever else it is, unless it cannot be read itself.
    led_nowhere = lost[row] & (kind != SEARCH) & (fate >= FATE["search_unknown"]) & (fate != FATE["document_missing"])
    fate[led_nowhere], then[led_nowhere] = FATE["search_unknown"], NO_FATE
    return Lines(
        text=text + [line for line, _ in extra],
        fate=np.concatenate([fate, [what for _, what in extra]]).astype(np.int8),
        then=np.concatenate([then, np.full(len(extra), NO_FATE)]).astype(np.int8),
    )


_NONE, _BROKEN, _REPEATED, _UNKNOWN_SEARCH, _UNKNOWN_DOCUMENT, _OTHER = range(6)
_ACTION = ("", "impression", "click")


def _mishaps(config: SimulationConfig, kind: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """At most one mishap for each line: _NONE mostly."""
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


def _break(line: str, kind: int, bits: int) -> tuple[str, int]:
    """A line that cannot be read, and the fate that says why."""
    way, bits = bits % (5 if kind == SEARCH else 4), bits >> 8
    if way == 0:
        return line[: len(line) * (30 + bits % 65) // 100], FATE["unreadable_not_json"]
    if way == 1:
        return f"[{line}]", FATE["unreadable_not_json"]
    if way == 2:
        return line.replace('"query_id"', '"qid"', 1), FATE["unreadable_no_query_id"]
    if way == 3:
        return line.replace(SIMULATED_APPLICATION, SIMULATED_APPLICATION + "\udcff", 1), FATE["unreadable_not_utf8"]
    value = json.loads(line)
    return json.dumps({**value, "user_query": bits % 100}), FATE["unreadable_field"]


def _fates(searches: Searches, row: np.ndarray, kind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(fate, then) of lines to which nothing happened."""
    of_search = np.full(len(searches.numbers), NO_FATE)
    of_search[searches.what == EMPTY] = FATE["query_empty"]
    for roles, name in (
        ((UNDECLARED_BOT, SLOW_BOT, CLICKING_BOT), "bot_behaviour"),
        ((CROWD_BOT,), "bot_crowd"),
        ((DECLARED_BOT,), "bot_user_agent"),
    ):
        of_search[np.isin(searches.who.role, roles)] = FATE[name]
    fate = np.where(of_search[row] == NO_FATE, _DAY[kind], of_search[row])
    then = np.full(len(searches.numbers), NO_FATE)
    for what, name in ((SPAM, "query_spam"), (ADULT, "query_adult"), (PRIVATE, "query_below_k")):
        then[searches.what == what] = FATE[name]
    return fate, np.where(of_search == NO_FATE, then, NO_FATE)[row]


def _times(
    seed: int, searches: Searches, row: np.ndarray, rank: np.ndarray, kind: np.ndarray, slot: np.ndarray
) -> list[str]:
    """When each line was logged: impressions at once, people's clicks some seconds later, bots' at once as well."""
    unit = uniform_of(seed, "delay", searches.numbers[row], slot)
    is_human = np.isin(searches.who.role[row], (*HUMAN, CROWD_BOT))
    delay = np.where(
        kind == IMPRESSION, 60 + 200 * unit, 100 + 150 * unit + is_human * (1_500 + rank * 900 + 20_000 * unit)
    )
    at = searches.who.time_ms[row] + np.where(kind == SEARCH, 0, delay).astype(np.int64)
    return [f"{stamp}Z" for stamp in np.datetime_as_string(at.astype("datetime64[ms]")).tolist()]


def _stamp(ms: int) -> str:
    return f"{np.datetime64(ms, 'ms')}Z"


def _parse(stamp: str) -> int:
    return int(np.datetime64(stamp[:-1], "ms").astype(np.int64))


def _client(population: Population, searches: Searches) -> list[str]:
    """The client_id field of each search's lines, empty for the few that have none."""
    return [
        f'"client_id": "{population.client(actor)}", ' if known else ""
        for actor, known in zip(searches.who.actor.tolist(), searches.has_client.tolist(), strict=True)
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


# By number, as in people.
ROLES = (
    "person",
    "heavy_person",
    "declared_bot",
    "undeclared_bot",
    "slow_bot",
    "clicking_bot",
    "crowd_bot",
    "professional",
)
_NAME = pa.dictionary(pa.int8(), pa.string())
# `line` counts from 1, `offset` in bytes of the uncompressed file. `then`: see simulation.lines.Lines.
LINES = pa.schema(
    [("file", pa.int32()), ("line", pa.int64()), ("offset", pa.int64()), ("fate", _NAME), ("then", _NAME)]
)
SEARCHES = pa.schema(
    [
        ("query_id", pa.string()),
        ("client_id", pa.string()),
        ("role", _NAME),
        ("what", _NAME),
        ("intent", pa.int64()),
        ("form", pa.int8()),
        ("understood", pa.bool_()),
        ("misspelled", pa.bool_()),
        ("odd_case", pa.bool_()),
        ("odd_spaces", pa.bool_()),
    ]
)


def file_name(number: int) -> str:
    return f"ubi-{number:05d}.ndjson.gz"


class LogFiles:
    """`log/` and the two Parquet files of `truth/` below a folder.

    A block's lines are shuffled over all files, so that a search and its events are in different ones.
    """

    def __init__(self, folder: Path, num_files: int, open_files: ExitStack) -> None:
        self._files = []
        for number in range(num_files):
            raw = open_files.enter_context((folder / "log" / file_name(number)).open("wb"))
            # Without name and time in the header, the same lines are the same bytes.
            zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0)
            open_files.callback(zipped.close)
            self._files.append(zipped)
        truth = folder / "truth"
        self._lines = open_files.enter_context(
            pq.ParquetWriter(
                truth / "lines.parquet",
                LINES,
                use_dictionary=["fate", "then"],
                column_encoding=dict.fromkeys(("file", "line", "offset"), "DELTA_BINARY_PACKED"),
            )
        )
        self._searches = open_files.enter_context(pq.ParquetWriter(truth / "searches.parquet", SEARCHES))
        self._num_lines, self._num_bytes = [0] * num_files, [0] * num_files
        self._turn = 0

    def write(self, population: Population, searches: Searches, lines: Lines, order: np.ndarray) -> None:
        """Append a block: its searches as they are, its lines in `order`."""
        self._searches.write_table(_searches_table(population, searches))
        shares = enumerate(np.array_split(order, len(self._files)))
        truth = [self._write_lines((number + self._turn) % len(self._files), lines, rows) for number, rows in shares]
        self._lines.write_table(pa.concat_tables(truth))  # at once: each row group costs memory until the end
        self._turn += 1

    def _write_lines(self, at: int, lines: Lines, rows: np.ndarray) -> pa.Table:
        """Append lines to file `at`: what is true of them."""
        dealt = [lines.text[row] for row in rows.tolist()]
        self._files[at].write("".join(f"{line}\n" for line in dealt).encode("utf-8", "surrogateescape"))
        sizes = np.array([len(line) + 1 for line in dealt], np.int64)
        ends = np.cumsum(sizes) + self._num_bytes[at]
        then = lines.then[rows]
        columns = [
            np.full(len(rows), at, np.int32),
            np.arange(len(rows)) + self._num_lines[at] + 1,
            ends - sizes,
            pa.DictionaryArray.from_arrays(pa.array(lines.fate[rows]), pa.array(FATE_NAMES)),
            pa.DictionaryArray.from_arrays(pa.array(then, mask=then == NO_FATE), pa.array(FATE_NAMES)),
        ]
        self._num_lines[at] += len(rows)
        self._num_bytes[at] += int(sizes.sum())
        return pa.table(columns, schema=LINES)


def _searches_table(population: Population, searches: Searches) -> pa.Table:
    who = searches.who
    known = zip(who.actor.tolist(), searches.has_client.tolist(), strict=True)
    columns = [
        [query_id(number) for number in searches.numbers.tolist()],
        [population.client(actor) if has_client else None for actor, has_client in known],
        pa.DictionaryArray.from_arrays(pa.array(who.role.astype(np.int8)), pa.array(ROLES)),
        pa.DictionaryArray.from_arrays(pa.array(searches.what), pa.array(WHAT)),
        pa.array(searches.intents.number, mask=searches.what != INTENT),
        searches.form.astype(np.int8),
        searches.understood,
        *searches.altered.T,
    ]
    return cast(pa.Table, pa.table(columns, schema=SEARCHES))
