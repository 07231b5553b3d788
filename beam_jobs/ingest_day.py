"""Job 1: a search log -> the private daily aggregate (schemas.day), under STORE/ingest/DIGEST.

    files -> blocks of lines -> LOG_ROW batches
          -> exchange by query id  -> repeats dropped, events joined to searches
          -> exchange by client    -> bots, broadcast
          -> content filters, partial sums -> exchange by query -> queries-*.arrow, exposures-*.arrow
          -> one last step: rejects.arrow, the ledger, the manifest

Every line ends in exactly one fate. Where several apply, the first in this order counts: unreadable, bulk action
line, exact repeat, other action, no document, repeated search, unknown search, bot (by user agent, then by
behaviour), content (empty, adult, spam), kept. None of them depends on the order of lines, on files or on workers.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsIter, TaggedOutput

from beam_jobs import commit_day
from beam_jobs.aggregate_day import aggregate_joined, merge_bucket
from beam_jobs.bot_rules import BotRules
from beam_jobs.bots import Bots, client_statistics, find_bots, merge_bots
from beam_jobs.engine import carries_errors
from beam_jobs.exchange import Exchange, from_ipc, num_buckets_for, to_ipc
from beam_jobs.ingest_config import IngestConfig
from beam_jobs.join_search_events import join_search_events
from beam_jobs.person_key import worker_key
from beam_jobs.progress import advance
from beam_jobs.read_lines import Plan, Unit, read_blocks
from beam_jobs.sources.ubi import ParsedBlock, parse_block
from beam_jobs.tally import Tally
from schemas.log_row import REJECT, SIMULATED_APPLICATION
from schemas.manifest import Request

TALLIES, REJECTS = "tallies", "rejects"
PARSERS: dict[str, Callable[[bytes], ParsedBlock]] = {"ubi": parse_block}


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run of the pipeline, writing below `folder`."""

    plan: Plan
    request: Request
    config: IngestConfig
    folder: str
    key_path: str
    key_id: str
    adult_terms: tuple[str, ...]
    started: float  # seconds since the epoch
    progress_token: str

    def build(self, pipeline: beam.Pipeline) -> None:
        """The whole graph, in the order of the data."""
        config, num_buckets = self.config, num_buckets_for(self.plan.estimated_bytes)
        lines = (
            pipeline
            | "Name what to read" >> beam.Create(list(self.plan.units))
            | "Spread over workers" >> beam.Reshuffle()
            | "Read lines"
            >> beam.FlatMap(_read, config.format, self.progress_token).with_outputs(TALLIES, REJECTS, main="rows")
        )
        joined = (
            lines.rows
            | Exchange("Group by query id", "query_id", num_buckets)
            | "Join events to searches"
            >> beam.FlatMap(_join, self.key_path, self.key_id).with_outputs(TALLIES, main="joined")
        )
        bots = (
            joined.joined
            | "Count per client" >> beam.Map(_count_clients)
            | Exchange("Group by client", "person", num_buckets)
            | "Tell bots" >> beam.Map(_tell_bots, config.bots)
        )
        partial = joined.joined | "Filter and add up" >> beam.FlatMap(
            _aggregate, AsIter(bots), self.adult_terms
        ).with_outputs(TALLIES, main="partial")
        buckets = (
            partial.partial
            | Exchange("Group by query", "query", num_buckets)
            | "Write the day" >> beam.Map(_write_bucket, self.folder)
        )
        tallies = (lines.tallies, joined.tallies, partial.tallies) | "All tallies" >> beam.Flatten()
        _ = (
            pipeline
            | "Once" >> beam.Create([None])
            | "Commit"
            >> beam.Map(
                _commit,
                self.folder,
                self.request,
                config.max_unreadable_share,
                self.started,
                AsIter(tallies),
                AsIter(lines.rejects),
                AsIter(bots),
                AsIter(buckets),
            )
        )


# What Beam hands around. A function with tagged outputs returns Any: Beam takes annotations for the types of its main
# output.


@carries_errors
def _read(unit: Unit, log_format: str, progress_token: str) -> Iterator[Any]:
    parse = PARSERS[log_format]
    for block in read_blocks(unit):
        parsed = parse(block.data)
        yield TaggedOutput(TALLIES, _tally_of(parsed, block.num_lines))
        if parsed.reject_reasons:
            offsets = pa.array(parsed.reject_offsets + block.offset)
            files = pa.array([unit.file] * len(offsets))
            yield TaggedOutput(REJECTS, to_ipc(pa.table([files, offsets, parsed.reject_reasons], schema=REJECT)))
        if parsed.rows.num_rows:
            yield parsed.rows
        advance(progress_token, block.stored_bytes)


@carries_errors
def _join(bucket: tuple[int, pa.Table], key_path: str, key_id: str) -> Iterator[Any]:
    joined, dropped = join_search_events(bucket[1], worker_key(key_path, key_id))
    yield TaggedOutput(TALLIES, Tally(fates=dropped))
    yield to_ipc(joined)


def _count_clients(joined: bytes) -> pa.Table:
    return client_statistics(from_ipc([joined]))


def _tell_bots(bucket: tuple[int, pa.Table], rules: BotRules) -> Bots:
    return find_bots(bucket[1], rules)


@carries_errors
def _aggregate(joined: bytes, bots: Iterable[Bots], adult_terms: tuple[str, ...]) -> Iterator[Any]:
    partial, dropped = aggregate_joined(from_ipc([joined]), merge_bots(bots), adult_terms)
    yield TaggedOutput(TALLIES, Tally(fates=dropped))
    yield partial


@carries_errors
def _write_bucket(bucket: tuple[int, pa.Table], folder: str) -> commit_day.WrittenBucket:
    return commit_day.write_bucket(folder, bucket[0], *merge_bucket(bucket[1]))


@carries_errors
def _commit(
    _once: None,
    folder: str,
    request: Request,
    max_unreadable_share: float,
    started: float,
    tallies: Iterable[Tally],
    rejects: Iterable[bytes],
    bots: Iterable[Bots],
    buckets: Iterable[commit_day.WrittenBucket],
) -> None:
    commit_day.commit_day(
        folder,
        request,
        max_unreadable_share=max_unreadable_share,
        started=started,
        tallies=tallies,
        rejects=rejects,
        bots=merge_bots(bots),
        buckets=buckets,
    )


def _tally_of(parsed: ParsedBlock, num_lines: int) -> Tally:
    fates = {reason: parsed.reject_reasons.count(reason) for reason in set(parsed.reject_reasons)}
    span = pc.min_max(parsed.rows["time"].cast(pa.int64())).as_py()
    simulated = pc.sum(pc.equal(parsed.rows["application"].dictionary_decode(), SIMULATED_APPLICATION)).as_py() or 0
    return Tally(
        lines=num_lines,
        fates={**fates, "action_line": parsed.num_action_lines},
        counts={"simulated_lines": simulated},
        first_ms=span["min"],
        last_ms=span["max"],
    )
