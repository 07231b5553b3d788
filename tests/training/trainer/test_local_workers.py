"""Workers of this machine that are lost, and what is left of them when their stage ends: the same bytes as of one."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError
from clicktower.training.trainer import local_workers
from clicktower.training.trainer.checkpoint import list_updates
from tests.recipes import recipe_with
from tests.training.small_shards import shop, write_build
from tests.training.trainings import train
from tests.waiting import wait_until

pytestmark = pytest.mark.engine
SMALL = recipe_with(name="small", cells=16, epochs=2)
LONG = recipe_with(name="long", cells=16, epochs=4, minibatch=32, micro_batch=8)


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    pairs, pool = shop(320)
    return write_build(str(tmp_path_factory.mktemp("build")), {"train-00000": pairs}, pool)


def weights(result) -> bytes:
    return storage.read_bytes(f"{result.data}/model.safetensors")


def processes() -> list[psutil.Process]:
    """The forking process, then its workers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if local_workers.__name__ in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return sorted(found, key=lambda process: process.ppid() != os.getpid())


class _While(threading.Thread):
    """Acts when a training has made so many updates."""

    def __init__(self, store: Path, update: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._store, self._update, self._act = store, update, act

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.join()

    def run(self) -> None:
        def updates() -> list[int]:
            return [n for folder in self._store.glob("**/checkpoints") for n in list_updates(str(folder))]

        wait_until(lambda: max(updates(), default=0) >= self._update)
        self._act()


def test_several_workers_give_the_bytes_of_one(shards, tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.training.trainer.launch.count_gpus", lambda: 2)
    alone = train(shards, store=str(tmp_path / "1"), recipe=SMALL, threads=1, device="cpu")
    together = train(shards, store=str(tmp_path / "2"), recipe=SMALL, workers="auto", threads=1, device="cpu")
    assert together.manifest.outcome.metrics["workers"] == 2
    assert weights(alone) == weights(together)
    assert processes() == []


@pytest.mark.slow
def test_a_worker_that_is_killed_ends_the_others_and_all_go_on_from_the_last_checkpoint(shards, tmp_path):
    expected = weights(train(shards, store=str(tmp_path / "1"), recipe=LONG, threads=1, device="cpu"))
    said: list[str] = []
    with _While(tmp_path, 3, lambda: processes()[1].send_signal(signal.SIGKILL)):
        result = train(
            shards, store=str(tmp_path / "2"), recipe=LONG, workers=2, threads=1, device="cpu", checkpoint_seconds=0.0,
            progress=lambda what, done, total: said.append(what),
        )  # fmt: skip
    assert "a worker was lost: all start again from the last checkpoint" in said
    assert [start["workers"] for start in result.manifest.outcome.metrics["resumed"]] == [2]
    assert weights(result) == expected


@pytest.mark.slow
def test_the_end_of_the_process_that_starts_them_ends_the_workers(shards, tmp_path):
    with (
        _While(tmp_path, 3, lambda: processes()[0].send_signal(signal.SIGKILL)),
        pytest.raises(TransientError, match="checkpoint is kept"),
    ):
        train(shards, store=str(tmp_path), recipe=LONG, workers=2, threads=1, device="cpu", checkpoint_seconds=0.0)
    wait_until(lambda: not processes())


def test_an_error_that_another_start_would_meet_again_is_raised_at_once(shards, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    with pytest.raises(StageError, match=r"file.* could not be|no folder|Not a directory|cannot") as caught:
        train(shards, store=str(tmp_path), recipe=LONG, workers=2, threads=1, device="cpu", word_vectors=str(blocked))
    assert not isinstance(caught.value, TransientError)
