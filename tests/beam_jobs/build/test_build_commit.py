import time
from dataclasses import asdict, replace

import pyarrow as pa
import pytest

from clicktower.beam_jobs.build.build_job import BuildJob, commit_build
from clicktower.beam_jobs.build.build_stage import BuildConfig
from clicktower.beam_jobs.build.click_shards import CLICK_PAIRS, write_pool, write_shard
from clicktower.beam_jobs.engine.beam_stage import Attempt, Tally
from clicktower.schemas import manifest, storage
from clicktower.schemas.documents import DOCUMENT, RowCounts
from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Request
from clicktower.schemas.stage import open_result
from tests.beam_jobs.build.pools import pool_of

POOL = pool_of(pa.table([list("abcdefgh"), list("ABCDEFGH")], schema=DOCUMENT), 8)
PAIRS = pa.table([["q"], ["a"], [2], [2000], [False], [[0]]], schema=CLICK_PAIRS)
TALLY = Tally(
    fates={"search": 3, "click_train": 2},
    counts={"clicked_documents": 1, "titled_documents": 1, "queries_at_0": 1, "clicks_at_0": 2, "pairs_at_0": 1},
)


@pytest.fixture
def job(tmp_path):
    config = BuildConfig()
    request = Request(stage="build", stage_version=1, config=asdict(config), inputs={})
    folder = str(tmp_path / "build" / "digest" / "attempt-1")
    return BuildJob(
        attempt=Attempt(request=request, folder=folder, scratch=None, num_buckets=4, started=time.time()),
        config=config,
        queries=(),
        exposures=(),
        clickers=(),
        documents="documents.tsv",
        documents_parts=(),
        judged_queries=None,
        adult_terms=(),
        ledger=Ledger(total=7, lines={"repeat": 2, "day_search": 3, "day_click": 2}),
        labels={},
        window={},
    )


def _folder(job) -> str:
    return job.attempt.folder.rpartition("/")[0]


@pytest.fixture
def pool(job):
    return write_pool(POOL, storage.join(job.attempt.work_folder, "pool-1"), "pool", table_rows=65_536)


def _write(job, bundle: str):
    """The shard as one try of a bundle writes it."""
    folder = storage.join(job.attempt.work_folder, f"train-00000-{bundle}")
    return write_shard(PAIRS, POOL, folder, "train-00000", num_negatives=4, seed=0, table_rows=65_536)


FILES = ["catalogue.json"] + [
    f"{folder}/{table}.arrow"
    for folder, tables in (
        ("pool", ("pool", "texts", "words")),
        ("train-00000", ("exclusions", "pairs", "texts", "words")),
    )
    for table in tables
]


def test_what_a_failed_bundle_left_is_not_part_of_the_result(job, pool):
    _write(job, "lost")
    commit_build([_write(job, "won"), TALLY, pool], job)
    result = open_result(_folder(job))
    assert storage.list_files(result.data) == FILES
    assert [file.path for file in result.manifest.files] == [f"attempt-1/{name}" for name in FILES]
    assert not manifest.damaged_files(_folder(job), result.manifest.files, hashes=True)


def test_a_last_step_that_died_between_two_moves_ends_when_it_runs_again(job, pool):
    made = _write(job, "won")
    target = storage.join(_folder(job), "attempt-1", "train-00000")
    storage.write_atomic(
        storage.join(target, "pairs.arrow"), storage.read_bytes(storage.join(made.folder, "pairs.arrow"))
    )
    storage.remove(storage.join(made.folder, "pairs.arrow"))
    commit_build([TALLY, pool, made], job)
    committed = storage.read_bytes(storage.join(_folder(job), manifest.FILE_NAME))
    assert storage.list_files(open_result(_folder(job)).data) == FILES
    commit_build([TALLY, pool, made], job)  # a late second run changes nothing
    assert storage.read_bytes(storage.join(_folder(job), manifest.FILE_NAME)) == committed


def test_a_line_that_was_lost_on_the_way_stops_the_commit(job, pool):
    tally = replace(TALLY, fates={"search": 3, "click_train": 1})
    with pytest.raises(StageError, match="of 7 lines"):
        commit_build([_write(job, "won"), pool, tally], job)
    assert not storage.exists(storage.join(_folder(job), manifest.FILE_NAME))


def test_a_build_without_a_pool_says_that_no_document_has_a_title(job):
    with pytest.raises(StageError, match=r"None of the 12 documents of .* has a title"):
        commit_build([_write(job, "won"), TALLY, RowCounts(documents=12)], job)
