"""What is compared between engines: everything of both jobs' results that does not name a folder or a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.engine.engines import with_engines
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.flows.config.settings import Settings
from clicktower.schemas import storage
from clicktower.schemas.stage import StageResult

BUILD = BuildConfig(k=2, num_negatives=3, pairs_per_shard=250)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    day_digest: str
    shards_digest: str
    day: Any  # counts, metrics and ledger of the day ...
    shards: Any  # ... and of the shards


def run_ingest(shop: Path, store: Path, options: Sequence[str] = ()) -> StageResult:
    return ingest_log([str(shop / "log")], store=str(store), config=IngestConfig(), beam_options=_filled_in(options))


def run_build(day: StageResult, shop: Path, store: Path, options: Sequence[str] = ()) -> StageResult:
    documents = str(shop / "documents.tsv")
    return build_shards([day.folder], documents, store=str(store), config=BUILD, beam_options=_filled_in(options))


def run_both_jobs(shop: Path, store: Path, options: Sequence[str] = ()) -> Outcome:
    day = run_ingest(shop, store, options)
    shards = run_build(day, shop, store, options)
    for result in (day, shards):
        assert_holds_its_manifest_and_nothing_else(result)
    return outcome_of(day, shards)


def outcome_of(day: StageResult, shards: StageResult) -> Outcome:
    day_digest, shards_digest = (str(result.manifest.outcome.logical_digest) for result in (day, shards))
    return Outcome(day_digest=day_digest, shards_digest=shards_digest, day=_facts(day), shards=_facts(shards))


def assert_holds_its_manifest_and_nothing_else(result: StageResult) -> None:
    """No file lies under a final name that the manifest does not know, and nothing unfinished lies beside it."""
    listed = {file.path for file in result.manifest.files}
    found = {f"{result.manifest.attempt}/{name}" for name in storage.list_files(result.data)}
    assert found == listed
    assert storage.list_folders(result.folder) == [result.manifest.attempt]


def _facts(result: StageResult) -> Any:
    outcome = result.manifest.outcome
    return {"counts": dict(outcome.counts), "metrics": dict(outcome.metrics), "ledger": outcome.ledger}


def _filled_in(options: Sequence[str]) -> tuple[str, ...]:
    return with_engines(options, Settings().engines)
