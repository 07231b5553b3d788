"""Interleaving: one list of hits from two releases, and which of them the clicks prefer.

Offline NDCG asks judges; an interleaving asks the people who search. Team draft (Radlinski, Kurup and Joachims, CIKM
2008, section 4.2): the release with fewer hits so far adds its best document that is not in the list yet, and a coin
decides where both have as many. A click counts for the release that added the document, so equal releases win equally
often, wherever people look first.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from clicktower.flows.releases.search import Hit, OpenRelease, require_search
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.search_log import not_null
from clicktower.schemas.text_contract import MARKS_OF_NOTHING, ids
from clicktower.schemas.text_file import ending, lines, read_text

CLICK = not_null(query_id=pa.string(), release=pa.string())
_RESAMPLES = 10_000


def interleaved_search(
    live: OpenRelease, rival: OpenRelease, key: str, text: str, k: int, *, offset: int = 0, **how: Any
) -> list[Hit]:
    """The k hits of a search of both releases after the first `offset`; `release` of a hit names the one that added it.

    key: the coins, such as a query id: the same key gives the same list. how: as in OpenRelease.search, and it raises
    as that does.
    """
    require_search(text, k, "hybrid", None, offset=offset)
    of_teams = [opened.search(text, offset + k, **how) for opened in (live, rival)]
    hit_of = [{hit.id: hit for hit in hits} for hits in of_teams]
    names = live.release.digest, rival.release.digest
    drafted = team_draft([[hit.id for hit in hits] for hits in of_teams], offset + k, "/".join((*names, key)))
    return [
        replace(hit_of[team][id], rank=rank, release=names[team])
        for rank, (id, team) in enumerate(drafted[offset:], offset + 1)
    ]


def team_draft(rankings: Sequence[Sequence[str]], k: int, key: str) -> list[tuple[str, int]]:
    """(id, the number of the ranking that added it) of at most k documents of two rankings, best first."""
    coin = random.Random(key)
    queues = [iter(ranking) for ranking in rankings]
    drafted: dict[str, int] = {}
    num_drafted = [0, 0]
    while len(drafted) < k:
        behind = num_drafted[0] - num_drafted[1]
        team = int(behind > 0) if behind else coin.getrandbits(1)
        for each in (team, 1 - team):  # the other where a ranking has ended
            pick = next((id for id in queues[each] if id not in drafted), None)
            if pick is not None:
                drafted[pick] = each
                num_drafted[each] += 1
                break
        else:
            break
    return list(drafted.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class Preference:
    """How many queries prefer each of two releases, by more clicks on what it added; `ties` prefer neither. Clicks on
    hits that were `not_interleaved` are left out.

    `lead`: the share of queries that prefer the first release minus that of the second; `low`, `high`: its 95% interval
    over queries; `p`: of a sign test.
    """

    releases: tuple[str, str]
    wins: tuple[int, int]
    ties: int
    not_interleaved: int
    lead: float
    low: float
    high: float
    p: float


def preference(uri: str) -> Preference:
    """The preference of a file's clicks, the preferred release first: a row for each click on a hit.

    Its columns `query_id` and `release` are in JSON lines, Parquet, or delimited text with a header; a hit that was not
    interleaved has no release. Raises UsageError for another file, StageError for clicks on other than two releases.
    """
    clicks, not_interleaved = _read_clicks(uri)
    releases = sorted(clicks["release"].unique().to_pylist())
    if len(releases) != 2:
        more = f" ({not_interleaved:,} more are on hits that were not interleaved)" if not_interleaved else ""
        raise StageError(
            f"The clicks in {uri} are on hits of {len(releases)} releases, not of two{more}.",
            "Give the clicks of one interleaving.",
        )
    of_query = clicks["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    is_first = pc.equal(clicks["release"], releases[0]).to_numpy()
    balance_Q = np.bincount(of_query, weights=np.where(is_first, 1, -1))
    first, second = int((balance_Q > 0).sum()), int((balance_Q < 0).sum())
    if second > first:
        first, second, releases = second, first, releases[::-1]
    num_queries, decided = len(balance_Q), first + second
    rng = np.random.default_rng(0)
    parts = np.array([first, second, num_queries - decided]) / num_queries
    drawn = rng.multinomial(num_queries, parts, size=_RESAMPLES)  # a bootstrap of the queries
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / num_queries, [0.025, 0.975])
    by_chance = np.abs(2 * rng.binomial(decided, 0.5, _RESAMPLES) - decided) >= first - second
    return Preference(
        releases=(releases[0], releases[1]), wins=(first, second), ties=num_queries - decided,
        not_interleaved=not_interleaved,
        lead=(first - second) / num_queries, low=float(low), high=float(high),
        p=(1 + int(by_chance.sum())) / (_RESAMPLES + 1),
    )  # fmt: skip


def _read_clicks(uri: str) -> tuple[pa.Table, int]:
    """(CLICK of the clicks on interleaved hits, each id as it is written: 007 is not 7; the number of other clicks)."""
    try:
        if ending(uri) == ".parquet":
            with storage.open_read(uri) as file:
                table = pq.read_table(file, columns=CLICK.names)
        elif ending(uri) in (".jsonl", ".json"):
            of_lines = [json.loads(line, parse_int=str, parse_float=str) for _, line in lines(read_text(uri))]
            table = pa.table({name: _values(of_lines, name) for name in CLICK.names})
        else:
            table = pa.csv.read_csv(
                pa.BufferReader(read_text(uri).encode()),
                parse_options=pa.csv.ParseOptions(delimiter="," if ending(uri) == ".csv" else "\t"),
                convert_options=pa.csv.ConvertOptions(
                    column_types=CLICK, include_columns=CLICK.names, strings_can_be_null=False
                ),
            )
        columns = [ids(table[name].combine_chunks().cast(pa.string())) for name in CLICK.names]
        clicks = pa.table(columns, names=CLICK.names)
        nothing = pa.array([None, *MARKS_OF_NOTHING], pa.string())
        interleaved = clicks.filter(pc.invert(pc.is_in(clicks["release"], value_set=nothing)))
        if pc.any(pc.is_in(interleaved["query_id"], value_set=nothing)).as_py():
            raise ValueError("a click on an interleaved hit names no query")
        return interleaved.cast(CLICK), len(clicks) - len(interleaved)
    except FileNotFoundError:
        raise UsageError(f"There is no such file: {uri}.", "Check the path of the clicks.") from None
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"The file {uri} has no clicks with query_id and release ({str(error).splitlines()[0][:160]}).",
            "Give JSON lines, Parquet or delimited text with a header, with these columns.",
        ) from None


def _values(of_lines: Sequence[dict[str, Any]], name: str) -> list[str | None]:
    """A field in lines of JSON, numbers as they are written; None where it is null or missing."""
    if not any(name in of_line for of_line in of_lines):
        raise KeyError(name)
    values = [of_line.get(name) for of_line in of_lines]
    values = [json.dumps(id) if isinstance(id, bool) else id for id in values]
    if not all(value is None or isinstance(value, str) for value in values):
        raise TypeError("an id is neither text nor a number")
    return values
