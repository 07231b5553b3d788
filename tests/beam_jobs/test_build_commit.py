import time
from dataclasses import asdict, replace

import pyarrow as pa
import pytest

from beam_jobs.build.build_commit import BuildCommit, commit_build
from beam_jobs.build.build_config import BuildConfig
from beam_jobs.build.click_pairs import CLICK_PAIRS
from beam_jobs.build.shard_writer import write_pool, write_shard
from beam_jobs.engine.tally import Tally
from schemas import manifest, storage
from schemas.documents import DOCUMENT
from schemas.errors import StageError
from schemas.ledger import Ledger
from schemas.manifest import Request
from schemas.stage import open_result, scratch_folder
from tests.beam_jobs.pools import pool_of

POOL = pool_of(pa.table([list("abcdefgh"), list("ABCDEFGH")], schema=DOCUMENT), 8)
PAIRS = pa.table([["q"], ["a"], [2], [False], [[0]]], schema=CLICK_PAIRS)
TALLY = Tally(
    fates={"search": 3, "click_train": 2},
    counts={"clicked_documents": 1, "titled_documents": 1, "queries_at_0": 1, "clicks_at_0": 2, "pairs_at_0": 1},
)


@pytest.fixture
def commit(tmp_path):
    folder = str(tmp_path / "build" / "digest")
    return BuildCommit(
        folder=folder,
        attempt="attempt-1",
        request=Request(stage="build", stage_version=1, config=asdict(BuildConfig()), inputs={}),
        started=time.time(),
        ledger=Ledger(total=7, lines={"repeat": 2, "day_search": 3, "day_click": 2}),
        labels={},
        documents="documents.tsv",
        asked="shards were to be built",
    )


def _made(commit) -> str:
    return scratch_folder(storage.join(commit.folder, commit.attempt))


@pytest.fixture
def pool(commit):
    return write_pool(POOL, storage.join(_made(commit), "pool-1"), "pool", table_rows=65_536)


def _write(commit, bundle: str):
    """The shard as one try of a bundle writes it."""
    folder = storage.join(_made(commit), f"train-00000-{bundle}")
    return write_shard(PAIRS, POOL, folder, "train-00000", num_negatives=4, seed=0, table_rows=65_536)


FILES = ["catalogue.json"] + [
    f"{folder}/{table}.arrow"
    for folder, tables in (
        ("pool", ("pool", "texts", "words")),
        ("train-00000", ("exclusions", "pairs", "texts", "words")),
    )
    for table in tables
]


def test_what_a_failed_bundle_left_is_not_part_of_the_result(commit, pool):
    _write(commit, "lost")
    commit_build([_write(commit, "won"), TALLY, pool], commit)
    result = open_result(commit.folder)
    assert storage.list_files(result.data) == FILES
    assert [file.path for file in result.manifest.files] == [f"attempt-1/{name}" for name in FILES]
    assert not manifest.damage(commit.folder, result.manifest, hashes=True)


def test_a_last_step_that_died_between_two_moves_ends_when_it_runs_again(commit, pool):
    made = _write(commit, "won")
    target = storage.join(commit.folder, "attempt-1", "train-00000")
    storage.write_atomic(
        storage.join(target, "pairs.arrow"), storage.read_bytes(storage.join(made.folder, "pairs.arrow"))
    )
    storage.remove(storage.join(made.folder, "pairs.arrow"))
    commit_build([TALLY, pool, made], commit)
    committed = storage.read_bytes(storage.join(commit.folder, manifest.FILE_NAME))
    assert storage.list_files(open_result(commit.folder).data) == FILES
    commit_build([TALLY, pool, made], commit)  # a late second run changes nothing
    assert storage.read_bytes(storage.join(commit.folder, manifest.FILE_NAME)) == committed


def test_a_line_that_was_lost_on_the_way_stops_the_commit(commit, pool):
    tally = replace(TALLY, fates={"search": 3, "click_train": 1})
    with pytest.raises(StageError, match="must account for all 7 lines"):
        commit_build([_write(commit, "won"), pool, tally], commit)
    assert not storage.exists(storage.join(commit.folder, manifest.FILE_NAME))


def test_a_build_without_a_pool_says_that_no_document_has_a_title(commit):
    with pytest.raises(StageError, match="None of its 12 documents has a title"):
        commit_build([_write(commit, "won"), replace(TALLY, counts={**TALLY.counts, "documents": 12})], commit)
