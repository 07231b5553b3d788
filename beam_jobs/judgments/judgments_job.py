"""Job 3, judgments: days -> click-derived judgments in TREC's forms, under STORE/judgments/DIGEST.

    people of queries, exposures -> exchange by query -> content filters, privacy gate -> cells
              -> a sample of whole queries -> propensities, prior, scale of grades (one element)
              -> grades of every bucket, and the ranking that was shown -> its lines
              -> one last step: queries.tsv, qrels.txt, logged.run, propensities.json, the manifest

Whatever the runner, the number of workers and the cut of the days, the judgments are the same.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsIter, AsSingleton, TaggedOutput

from beam_jobs.build.build_job import Parts
from beam_jobs.engine.arrow_files import Record, explained, from_ipc, get, put, to_ipc
from beam_jobs.engine.beam_engine import carries_errors
from beam_jobs.engine.exchange import Bucket, JointExchange, Side
from beam_jobs.engine.progress import advance
from beam_jobs.engine.tally import Tally, add_up
from beam_jobs.ingest.days import DayFile, read_day_file
from beam_jobs.judgments.exposure_cells import gated_cells, logged_ranking, merge_samples, sample_of
from beam_jobs.judgments.judge_clicks import MeasuredClicks, judge, measure
from beam_jobs.judgments.judgments_commit import (
    JudgmentsCommit,
    WrittenPart,
    commit_judgments,
    require_impressions,
    write_part,
)
from beam_jobs.judgments.judgments_config import JudgmentsConfig
from schemas.day import EXPOSURES, QUERIES

READING, GRADING = "reading days (files)", "grading documents (buckets)"


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgmentsPlan:
    """What the job reads, and how it goes about it; `made` and `scratch` as in build_job."""

    queries: tuple[DayFile, ...]  # of day.QUERIES
    exposures: tuple[DayFile, ...]  # of day.EXPOSURES
    made: str
    scratch: str | None
    num_buckets: int
    config: JudgmentsConfig
    adult_terms: tuple[str, ...]
    asked: str
    told: str  # progress

    @property
    def steps(self) -> dict[str, int]:
        """The totals of what `told` is told."""
        return {READING: len(self.queries) + len(self.exposures)}


def judgments_pipeline(pipeline: beam.Pipeline, plan: JudgmentsPlan, commit: JudgmentsCommit) -> None:
    """The job, wired: cells by query behind the gate, what the log says of ranks, grades, commit."""
    queries = pipeline | "Query files" >> Parts(plan.queries) | "Read queries" >> beam.Map(_read, plan.told)
    exposures = pipeline | "Exposure files" >> Parts(plan.exposures) | "Read exposures" >> beam.Map(_read, plan.told)
    by_query = {"queries": Side(key="query", schema=QUERIES), "exposures": Side(key="query", schema=EXPOSURES)}
    cells = (
        {"queries": queries, "exposures": exposures}
        | JointExchange("By query", by_query, plan.num_buckets, plan.scratch)
        | "Pass the gate" >> beam.FlatMap(_gate, plan).with_outputs("tally", "sample", main="cells")
    )
    sample = cells.sample | "Sample queries" >> beam.CombineGlobally(_merge_samples, plan.config.sample_cells)
    measured = (
        sample
        | "Measure ranks" >> beam.Map(_measure, AsIter(cells.tally), plan.config, plan.asked)
        | "Measured once" >> beam.Reshuffle()
    )
    judged = cells.cells | "Grade" >> beam.FlatMap(_grade, AsSingleton(measured), plan).with_outputs(
        "tally", main="parts"
    )
    # As in build: only what reached the last step counts, whatever else retried bundles left behind.
    _ = (
        (cells.tally, judged.tally, measured, judged.parts)
        | "Results" >> beam.Flatten()
        | "On one key" >> beam.Map(_on_one_key)
        | "Gather" >> beam.GroupByKey()
        | "Commit" >> beam.Map(_commit, commit)
    )


@carries_errors
def _read(file: DayFile, told: str) -> pa.Table:
    table = read_day_file(file)
    advance(told, READING, 1)
    return table


@carries_errors
def _gate(bucket: Bucket, plan: JudgmentsPlan) -> Iterator[Any]:
    number, tables = bucket
    cells, counts = gated_cells(
        tables["queries"],
        tables["exposures"],
        k=plan.config.k,
        max_rank=plan.config.max_rank,
        adult_terms=plan.adult_terms,
    )
    yield TaggedOutput("tally", Tally(counts=counts))
    if len(cells):
        for record in put([cells], plan.scratch):
            yield number, record
        yield TaggedOutput("sample", to_ipc(merge_samples([sample_of(cells)], plan.config.sample_cells)))


def _merge_samples(samples: Iterable[bytes], max_cells: int) -> bytes:
    return to_ipc(merge_samples((from_ipc([sample]) for sample in samples), max_cells))


@carries_errors
def _measure(sample: bytes, tallies: Iterable[Tally], config: JudgmentsConfig, asked: str) -> MeasuredClicks:
    require_impressions(add_up(tallies), config, asked)
    return measure(from_ipc([sample]), config)


@carries_errors
def _grade(bucket: tuple[int, Record], measured: MeasuredClicks, plan: JudgmentsPlan) -> Iterator[Any]:
    number, record = bucket
    cells = get([record])
    judged, counts = judge(cells, measured, plan.config)
    logged = logged_ranking(cells, judged, min_impressions=plan.config.min_impressions)
    yield TaggedOutput("tally", Tally(counts={**counts, "logged_results": len(logged)}))
    if len(judged):
        name = f"{number:05d}-{uuid.uuid4().hex}"  # a bundle may run twice
        with explained(plan.made):
            yield write_part(judged, logged, plan.made, name, number)
    advance(plan.told, GRADING, 1)


def _on_one_key(result: Tally | MeasuredClicks | WrittenPart) -> tuple[str, Tally | MeasuredClicks | WrittenPart]:
    return "judgments", result


@carries_errors
def _commit(gathered: tuple[str, Iterable[Tally | MeasuredClicks | WrittenPart]], commit: JudgmentsCommit) -> None:
    with explained(commit.folder):
        commit_judgments(list(gathered[1]), commit)
