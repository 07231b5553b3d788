"""Job 3, judgments: days -> click-derived judgments in TREC's forms, under STORE/judgments/DIGEST.

    people of queries, exposures -> exchange by query -> content filters, privacy gate -> cells
              -> a sample of whole queries -> propensities, prior, scale of grades (one element)
              -> grades of every bucket, and the ranking that was shown -> its lines
              -> one last step: the files and the manifest

The judgments do not depend on the runner, the number of workers or how the days are split into files. The files:

    queries.tsv        query id TAB query
    qrels.txt          query id, 0, document id, grade
    logged.run         the ranking that was shown for these queries: query id, Q0, document id, rank, score, tag
    propensities.json  the click model, its propensities with their errors, the prior, the scale of grades
    query_set.json, judgment_list.json    queries and grades for OpenSearch's Search Relevance Workbench
"""

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, AsSingleton, TaggedOutput

from clicktower.beam_jobs.engine.arrow_files import Record, from_ipc, get, put, to_ipc, writing_errors
from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors
from clicktower.beam_jobs.engine.beam_stage import Attempt, FolderMade, Tally, add_up, advance
from clicktower.beam_jobs.engine.exchange import Bucket, CommitAll, JointExchange, Side, read_parts
from clicktower.beam_jobs.ingest.days import DayFile, read_day_file
from clicktower.beam_jobs.judgments import judge_clicks as judging
from clicktower.beam_jobs.judgments.click_model import odds_to_share
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import CLICK_DERIVED, run_lines
from clicktower.schemas.manifest import Outcome
from clicktower.schemas.search_log import EXPOSURES, QUERIES
from clicktower.schemas.shard import LogicalDigest

QUERIES_FILE, QRELS_FILE, LOGGED_FILE = "queries.tsv", "qrels.txt", "logged.run"
PROPENSITIES_FILE = "propensities.json"
QUERY_SET_FILE, JUDGMENT_LIST_FILE = "query_set.json", "judgment_list.json"
# What the lists of the Search Relevance Workbench begin with; an entry per query follows, and "]}".
_WORKBENCH = {
    QUERY_SET_FILE: '{"name": "%s", "description": "", "sampling": "manual", "querySetQueries": [',
    JUDGMENT_LIST_FILE: '{"name": "%s", "description": "", "type": "IMPORT_JUDGMENT", "judgmentRatings": [',
}
NAMES = {"pbm": "position-based model", "ctr": "share of clicks, not corrected for exposure"}
READING, GRADING = "reading days (files)", "grading documents (buckets)"


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgmentsJob:
    """One run of the pipeline: its inputs, and what its last step needs."""

    attempt: Attempt
    config: judging.JudgmentsConfig
    queries: tuple[DayFile, ...]  # of search_log.QUERIES
    exposures: tuple[DayFile, ...]  # of search_log.EXPOSURES
    adult_terms: tuple[str, ...]
    labels: Mapping[str, Any]
    span: Mapping[str, Any]  # first_time, last_time and days of the window

    @property
    def steps(self) -> dict[str, int]:
        """The totals of each step."""
        return {READING: len(self.queries) + len(self.exposures), GRADING: self.attempt.num_buckets}

    def build(self, pipeline: beam.Pipeline) -> None:
        """The whole graph: cells by query behind the gate, what the log says of ranks, grades, commit."""
        attempt = self.attempt
        queries = (
            pipeline | "Query files" >> read_parts(self.queries) | "Read queries" >> beam.Map(_read, attempt.notes)
        )
        exposures = (
            pipeline
            | "Exposure files" >> read_parts(self.exposures)
            | "Read exposures" >> beam.Map(_read, attempt.notes)
        )
        by_query = {"queries": Side(key="query", schema=QUERIES), "exposures": Side(key="query", schema=EXPOSURES)}
        cells = (
            {"queries": queries, "exposures": exposures}
            | JointExchange("By query", by_query, attempt.num_buckets, attempt.scratch)
            | "Pass the gate" >> beam.FlatMap(_gate, self).with_outputs("tally", "sample", main="cells")
        )
        sample = cells.sample | "Sample queries" >> beam.CombineGlobally(_merge_samples, self.config.sample_cells)
        measured = (
            sample
            | "Measure ranks" >> beam.Map(_measure, AsIter(cells.tally), self.config)
            | "Measured once" >> beam.Reshuffle()
        )
        judged = cells.cells | "Grade" >> beam.FlatMap(_grade, AsSingleton(measured), self).with_outputs(
            "tally", main="parts"
        )
        results = (cells.tally, judged.tally, measured, judged.parts)
        _ = results | CommitAll(self.commit, attempt.folder)

    def commit(self, results: Sequence[Tally | judging.MeasuredClicks | FolderMade]) -> None:
        """Write the files and, last, the manifest.

        It can run again after a failure at any point. Raises StageError if no judgment is left.
        """
        if self.attempt.has_committed():
            return
        tally = add_up(result for result in results if isinstance(result, Tally))
        measured = next(result for result in results if isinstance(result, judging.MeasuredClicks))
        parts = {result.name: result for result in results if isinstance(result, FolderMade)}
        fates = _fates(tally.counts)
        if not parts:
            raise StageError(
                f"No judgment is left: of the impressions, {_count_sentence(tally.counts)}.",
                "Add days to the window, or lower min_impressions or --k.",
            )
        attempt = self.attempt.folder
        digest = LogicalDigest()
        for part in parts.values():
            digest.merge(part.logical_digest)
        for file in (QUERIES_FILE, QRELS_FILE, LOGGED_FILE):
            with storage.open_new(storage.join(attempt, file)) as joined:
                for name in sorted(parts):
                    with storage.open_read(storage.join(parts[name].folder, file)) as lines:
                        shutil.copyfileobj(lines, joined)
        name = f"{CLICK_DERIVED}{self.attempt.request.digest}"
        for file, head in _WORKBENCH.items():
            with storage.open_new(storage.join(attempt, file)) as joined:
                joined.write((head % name).encode())
                for number, (_, part_folder) in enumerate(sorted(parts.items())):
                    joined.write(b",\n" if number else b"\n")
                    with storage.open_read(storage.join(part_folder.folder, file)) as entries:
                        shutil.copyfileobj(entries, joined)
                joined.write(b"\n]}\n")
        model = describe(measured, self.config)
        content = json.dumps({"labels": dict(self.labels), **model}, indent=1, allow_nan=False).encode()
        storage.write_atomic(storage.join(attempt, PROPENSITIES_FILE), content)
        grades = {name: number for name, number in sorted(tally.counts.items()) if name.startswith("grade_")}
        self.attempt.commit(
            Outcome(
                counts={
                    "queries": tally.counts["queries_judged"],
                    "judgments": tally.counts["judgments"],
                    **grades,
                    "logged_results": tally.counts["logged_results"],
                    "queries_of_log": tally.counts["queries"],
                    "queries_at_k": tally.counts["queries_at_k"],
                    "clicks_without_impression": tally.counts["clicks_unseen"],
                },
                metrics={
                    **model,
                    **self.span,
                    "fates": fates,
                    "files": {
                        "queries": QUERIES_FILE,
                        "qrels": QRELS_FILE,
                        "logged": LOGGED_FILE,
                        "propensities": PROPENSITIES_FILE,
                        "query_set": QUERY_SET_FILE,
                        "judgment_list": JUDGMENT_LIST_FILE,
                    },
                },
                labels=self.labels,
                logical_digest=digest.hexdigest(),
            )
        )


@relay_stage_errors
def _read(file: DayFile, notes: str) -> pa.Table:
    table = read_day_file(file)
    advance(notes, READING, 1)
    return table


@relay_stage_errors
def _gate(bucket: Bucket, job: JudgmentsJob) -> Iterator[Any]:
    number, tables = bucket
    cells, counts = judging.gated_cells(
        tables["queries"],
        tables["exposures"],
        k=job.config.k,
        max_rank=job.config.max_rank,
        adult_terms=job.adult_terms,
    )
    yield TaggedOutput("tally", Tally(counts=counts))
    if len(cells):
        for record in put([cells], job.attempt.scratch):
            yield number, record
        yield TaggedOutput("sample", to_ipc(judging.merge_samples([judging.sample_of(cells)], job.config.sample_cells)))


def _merge_samples(samples: Iterable[bytes], max_cells: int) -> bytes:
    return to_ipc(judging.merge_samples((from_ipc([sample]) for sample in samples), max_cells))


@relay_stage_errors
def _measure(sample: bytes, tallies: Iterable[Tally], config: judging.JudgmentsConfig) -> judging.MeasuredClicks:
    require_impressions(add_up(tallies), config)
    return judging.measure(from_ipc([sample]), config)


@relay_stage_errors
def _grade(bucket: tuple[int, Record], measured: judging.MeasuredClicks, job: JudgmentsJob) -> Iterator[Any]:
    number, record = bucket
    cells = get([record])
    judged, counts = judging.judge(cells, measured, job.config)
    logged = judging.logged_ranking(cells, judged, min_impressions=job.config.min_impressions)
    yield TaggedOutput("tally", Tally(counts={**counts, "logged_results": len(logged)}))
    if len(judged):
        folder = storage.join(job.attempt.work_folder, f"{number:05d}-{uuid.uuid4().hex}")  # a bundle may run twice
        with writing_errors(job.attempt.work_folder):
            yield _write_part(judged, logged, folder, f"{number:05d}")
    advance(job.attempt.notes, GRADING, 1)


def _write_part(judged: pa.Table, logged: pa.Table, folder: str, name: str) -> FolderMade:
    """Write the lines of JUDGED (judge_clicks) and LOGGED (logged_ranking) below a folder of their own."""
    _, first = judging.number_groups(judged["query_id"])
    queries = judged.take(pa.array(first)).select(["query_id", "query"]).to_pylist()
    run: dict[str, dict[str, float]] = {}  # scores that give these places, the first the largest
    for row in logged.to_pylist():
        run.setdefault(row["query_id"], {})[row["document_id"]] = -float(row["place"])
    lines = {
        QUERIES_FILE: [f"{row['query_id']}\t{row['query']}\n" for row in queries],
        QRELS_FILE: [f"{row['query_id']} 0 {row['document_id']} {row['grade']}\n" for row in judged.to_pylist()],
        LOGGED_FILE: list(run_lines(run, "logged")),
    }
    digest = LogicalDigest()
    for file, of_file in lines.items():
        digest.add(f"{file}\n{line}".encode() for line in of_file)
        storage.write_atomic(storage.join(folder, file), "".join(of_file).encode())
    ratings: dict[str, list[dict[str, str]]] = {}
    for row in judged.to_pylist():
        ratings.setdefault(row["query"], []).append({"docId": row["document_id"], "rating": str(row["grade"])})
    entries: dict[str, list[dict[str, Any]]] = {
        QUERY_SET_FILE: [{"queryText": query} for query in ratings],
        JUDGMENT_LIST_FILE: [{"query": query, "ratings": of_query} for query, of_query in ratings.items()],
    }
    for file, of_queries in entries.items():
        content = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in of_queries)
        storage.write_atomic(storage.join(folder, file), content.encode())
    return FolderMade(folder=folder, name=name, files=tuple(lines), counts={}, logical_digest=digest.hexdigest())


def require_impressions(tally: Tally, config: judging.JudgmentsConfig) -> None:
    """Raise StageError if the window has no clicks, impressions or queries to estimate from."""
    counts = tally.counts
    queries, at_k = counts.get("queries", 0), counts.get("queries_at_k", 0)
    impressions, clicks = counts.get("impressions:all", 0), counts.get("clicks:all", 0)
    if not clicks:
        raise StageError(f"There is no click in {impressions:,} impressions.", "Give days with clicks.")
    if not impressions:
        raise StageError(
            f"The days hold {clicks:,} clicks and not one impression, so there is no click-through rate.",
            "Log impressions with their rank (`action_name` impression), and ingest days that have them.",
        )
    unseen = counts.get("clicks_unseen", 0)
    if unseen > config.max_unseen_clicks * clicks:
        raise StageError(
            f"{unseen:,} of {clicks:,} clicks lack an impression of that document at that rank; at most"
            f" {config.max_unseen_clicks:.0%} may, since shares of clicks come out too high without.",
            "Leave out days without impressions, or raise max_unseen_clicks.",
        )
    if not at_k:
        raise StageError(
            f"0 of {queries:,} queries passed k = {config.k}, so there is no query to judge.",
            "Lower --k, or add days to the window.",
        )
    left = impressions - sum(counts.get(f"impressions:{fate}", 0) for fate in judging.FATES)
    if not left:
        raise StageError(
            f"Of {impressions:,} impressions none is left: {_count_sentence(counts)}.",
            "Log the rank of impressions, raise max_rank, lower --k, or add days to the window.",
        )


def describe(measured: judging.MeasuredClicks, config: judging.JudgmentsConfig) -> dict[str, Any]:
    """The click model and its estimates, for people and for propensities.json."""
    return {
        "click_model": config.click_model,
        "click_model_name": NAMES[config.click_model],
        "propensities": [
            {"rank": rank, "propensity": round(propensity, 6), "relative_error": round(error, 6)}
            for rank, propensity, error in zip(measured.ranks, measured.propensities, measured.errors, strict=True)
        ],
        "reference_rank": measured.reference,
        "unmeasured_ranks": list(measured.unmeasured),
        "prior": {
            "of": config.prior,
            "levels": [
                {"rank": rank, "attractiveness": round(float(share), 6)}
                for rank, share in zip(
                    measured.prior.ranks, odds_to_share(np.array(measured.prior.levels)), strict=True
                )
            ],
            "strength_examined_impressions": measured.prior.strength,
        },
        "grades": {
            "typical_attractiveness": round(measured.typical_attractiveness, 6),
            "from_share_of_that": [round(share, 6) for share in config.grade_shares],
        },
        "estimation": {
            "sample_cells": measured.num_cells,
            "iterations": measured.num_iterations,
            "converged": measured.converged,
        },
    }


def _fates(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Impressions and clicks by fate. Raises AssertionError where they do not add up."""
    fates = {
        unit: {fate: counts[f"{unit}:{fate}"] for fate in judging.FATES if counts.get(f"{unit}:{fate}")}
        for unit in ("impressions", "clicks")
    }
    # An impression implied by a click is counted with its cell, in addition to those in the log.
    raised = sum(fates["impressions"].values()) - counts["impressions:all"]
    if sum(fates["clicks"].values()) != counts["clicks:all"] or not 0 <= raised <= counts["clicks_unseen"]:
        raise AssertionError(f"impressions and clicks do not add up: {dict(counts)}")
    return fates


def _count_sentence(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{counts[f'impressions:{fate}']:,} {words}"
        for fate, words in judging.FATES.items()
        if counts.get(f"impressions:{fate}")
    )
