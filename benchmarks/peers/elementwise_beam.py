"""The job of `ingest` and `build` up to the pairs, as Beam is usually written: one Python object per line.

    python -m benchmarks.peers.elementwise_beam --log 'log/*.ndjson.gz' --documents documents.tsv --out pairs.parquet

Lines are grouped by their text (repeats), rows by query id (the join), clients by what they did (bots), lines by query
(people, gate). It runs on FnApiRunner, the runner that the pipeline has by default: in memory, or with `--processes N`
in so many worker processes. It is the pipeline's equal in what it finds, a tie between two searches of one id in the
same millisecond apart.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import blake2b
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsDict, AsSingleton
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from benchmarks.peers import verdicts
from benchmarks.peers.strict_line import Row, read_line
from clicktower.schemas.content_filters import ADULT_ENGLISH, by_first_run, content_fate, shipped_list
from clicktower.schemas.text_contract import normalise

ADULT = by_first_run(shipped_list(ADULT_ENGLISH).terms)
PAIR = pa.schema([("query", pa.string()), ("title", pa.string()), ("clicks", pa.int64()), ("dev", pa.bool_())])
Event = dict[str, Any]  # a line with its search: kind, person, searcher, query, names_bot, document, position, time


def write_pairs(log: str, documents: str, k: int, out: str, processes: int = 1) -> None:
    mode = "in_memory" if processes == 1 else "multi_processing"
    options = PipelineOptions([f"--direct_running_mode={mode}", f"--direct_num_workers={processes}"])
    with beam.Pipeline(runner=FnApiRunner(), options=options) as pipeline:
        joined = (
            pipeline
            | "Read lines" >> beam.io.ReadFromText(log, coder=BytesCoder())
            | "Drop repeats" >> beam.Distinct()
            | "Parse" >> beam.FlatMap(parse)
            | "By query id" >> beam.GroupByKey()
            | "Join" >> beam.FlatMap(join)
        )
        bots = (
            joined
            | "Known clients" >> beam.Filter(lambda event: event["person"] is not None)
            | "What a client did" >> beam.Map(statistic_of)
            | "Add up" >> beam.CombinePerKey(add_up)
            | "All clients" >> beam.combiners.ToList()
            | "Tell bots" >> beam.Map(tell_bots)
        )
        titles = (
            pipeline
            | "Read documents" >> beam.io.ReadFromText(documents)
            | "Title" >> beam.Map(title_of)
            | "Titled" >> beam.Filter(lambda document: document[1] is not None)
        )
        _ = (
            joined
            | "Drop bots" >> beam.Filter(is_of_people, AsSingleton(bots))
            | "Key by query" >> beam.FlatMap(by_query)
            | "By query" >> beam.GroupByKey()
            | "Gate" >> beam.FlatMap(pairs_of_query, k, AsDict(titles))
            | "Write" >> beam.io.WriteToParquet(out, PAIR, shard_name_template="")
        )


def parse(line: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    row: Row | None = read_line(line)
    if row is not None:
        yield row.query_id, row._asdict()


def join(group: tuple[str, Iterable[dict[str, Any]]]) -> Iterator[Event]:
    """Of a query id the earliest search and the events of it."""
    rows = list(group[1])
    searches = [row for row in rows if row["kind"] == "search"]
    if not searches:
        return
    search = min(searches, key=lambda row: (row["time"] is None, row["time"] or 0))
    for row in rows:
        if row is search or (row["kind"] != "search" and row["document"] is not None):
            yield {
                "kind": row["kind"],
                "person": row["client"] or search["client"],
                "searcher": search["client"],
                "query": search["query"],
                "names_bot": is_bot_agent(search["agent"]),
                "document": row["document"],
                "position": row["position"],
                "time": row["time"],
            }


def statistic_of(event: Event) -> tuple[tuple[int, int, int, int], tuple[int, ...]]:
    """((person, hour, position, query), (first_ms, searches, asked, impressions, clicks, named)) of one line."""
    person, time = number_of(event["person"]), event["time"]
    if event["kind"] == "search":
        hour = -1 if time is None else time // verdicts.MS_PER_HOUR % verdicts.MAX_HOURS
        first_ms = verdicts.NO_TIME if time is None else time
        return (person, hour, -1, published(event["query"])[1]), (first_ms, 1, 1, 0, 0, int(event["names_bot"]))
    if event["kind"] == "impression":
        return (person, -1, -1, verdicts.NO_QUERY), (verdicts.NO_TIME, 0, 0, 1, 0, 0)
    rank = min(event["position"], verdicts.RANKS)
    return (person, -1, rank, verdicts.NO_QUERY), (verdicts.NO_TIME, 0, 0, 0, 1, 0)


def add_up(counts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    first_ms, *sums = zip(*counts, strict=True)
    return (min(first_ms), *map(sum, sums)) if first_ms else ()


def tell_bots(statistics: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> set[int]:
    rows = np.array([key + counts for key, counts in statistics], np.int64).reshape(-1, 10)
    names = ("person", "hour", "position", "query", "first_ms", "searches", "asked", "impressions", "clicks", "named")
    columns = dict(zip(names, rows.T, strict=True))
    columns |= {name: columns[name].astype(np.uint64) for name in ("person", "query")}  # the same 64 bits
    return set(verdicts.bots_among(pa.table(columns)).astype(np.int64).tolist())


def is_of_people(event: Event, bots: set[int]) -> bool:
    return not event["names_bot"] and bots.isdisjoint(
        number_of(client) for client in (event["person"], event["searcher"]) if client is not None
    )


def by_query(event: Event) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Of a search (search, its client), of a click (click, its document)."""
    if event["kind"] != "impression" and (query := published(event["query"])[0]) is not None:
        yield query, (event["kind"], event["person"] if event["kind"] == "search" else event["document"])


def pairs_of_query(
    group: tuple[str, Iterable[tuple[str, str | None]]], k: int, titles: dict[str, str]
) -> Iterator[dict[str, Any]]:
    query, people, clicks = group[0], set(), Counter[str]()
    for kind, value in group[1]:
        if value is None:
            continue
        if kind == "search":
            people.add(value)
        elif value in titles:
            clicks[titles[value]] += 1
    if len(people) >= k:
        dev = verdicts.is_dev([query])[0]
        for title, count in clicks.items():
            yield {"query": query, "title": title, "clicks": count, "dev": dev}


def title_of(line: str) -> tuple[str, str | None]:
    document, _, title = line.partition("\t")
    return document, normalise(title) or None


@cache
def published(spelling: str) -> tuple[str | None, int]:
    """(the query to learn from, if any; the hash of its form)"""
    query = normalise(spelling)
    number = int.from_bytes(blake2b(query.encode(), digest_size=8).digest(), "little") or 1
    return None if content_fate(query, ADULT) else query, signed(number)


@cache
def number_of(client: str) -> int:
    return signed(int.from_bytes(blake2b(client.encode(), digest_size=8).digest()))


def signed(bits: int) -> int:
    """64 bits as Beam's coder takes them."""
    return bits - (1 << 64) if bits >> 63 else bits


@cache
def is_bot_agent(agent: str | None) -> bool:
    return agent is not None and verdicts.is_bot_agent([agent])[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True, help="the files of the log, as a pattern")
    parser.add_argument("--documents", required=True, help="id<TAB>title lines")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--out", required=True, help="the Parquet file to write")
    parser.add_argument("--processes", type=int, default=1, help="worker processes")
    options = parser.parse_args()
    write_pairs(options.log, options.documents, options.k, options.out, options.processes)
    print(json.dumps({}))


if __name__ == "__main__":
    from benchmarks.peers import elementwise_beam  # worker processes know its functions by this name

    elementwise_beam.main()
