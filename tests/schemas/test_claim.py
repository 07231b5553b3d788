"""Two processes are asked for the same output: one makes it, the other waits, or takes over from a dead one."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clicktower.schemas import stage
from clicktower.schemas.manifest import Outcome
from clicktower.schemas.stage import run_stage, stage_folder
from tests.schemas.claim_holder import REQUEST
from tests.waiting import SECONDS, wait_until


class Holder:
    """A process that makes REQUEST in a store, and is at it until it is let go."""

    def __init__(self, store: Path) -> None:
        self.begun = store / "begun"
        self._let_go = store / f"let-go-{time.monotonic_ns()}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.schemas.claim_holder", str(store), str(self._let_go), str(self.begun)],
            stdout=subprocess.PIPE, stderr=(store / f"told-{time.monotonic_ns()}").open("w+"), text=True,
            start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.told = sorted(store.glob("told-*"))[-1]

    def let_go(self) -> None:
        self._let_go.touch()

    def answer(self) -> str:
        self.let_go()
        return self._process.communicate(timeout=SECONDS)[0].strip()

    def kill(self) -> None:
        """The process alone: what it started lives on."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def hold(tmp_path) -> Iterator:
    holders = []

    def start() -> Holder:
        holders.append(Holder(tmp_path))
        return holders[-1]

    yield start
    for holder in holders:
        holder.end()


def has_begun(holder: Holder, times: int = 1) -> bool:
    return holder.begun.exists() and len(holder.begun.read_text().splitlines()) == times


@pytest.mark.slow
def test_the_second_waits_for_the_first_says_so_and_answers_reused(tmp_path, hold):
    first = hold()
    wait_until(lambda: has_begun(first))
    second = hold()
    wait_until(lambda: f"waiting (process {first.pid} on" in second.told.read_text())
    assert sorted([first.answer(), second.answer()]) == ["made", "reused"]
    assert has_begun(first), "the work was done once"
    folder = Path(stage_folder(str(tmp_path), REQUEST))
    assert sorted(path.name for path in folder.iterdir() if path.name != "manifest.json")[0].startswith("attempt-")
    assert len(list(folder.iterdir())) == 2, "the claim is gone with its holder"


@pytest.mark.slow
def test_a_killed_holder_s_claim_is_free_though_what_it_started_and_forked_lives_on(tmp_path, hold):
    first = hold()
    wait_until(lambda: has_begun(first))
    second = hold()
    wait_until(lambda: "waiting" in second.told.read_text())
    first.kill()
    assert second.answer() == "made"
    assert has_begun(first, times=2)
    assert len(list(Path(stage_folder(str(tmp_path), REQUEST)).iterdir())) == 2, "what was half-made is gone"


@pytest.mark.slow
def test_a_holder_that_fails_gives_way_to_the_one_that_waits(tmp_path, hold):
    waiting = []

    def fail_once_somebody_waits(folder: str) -> Outcome:
        waiting.append(hold())
        wait_until(lambda: f"waiting (process {os.getpid()} on" in waiting[0].told.read_text())
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run_stage(str(tmp_path), REQUEST, fail_once_somebody_waits)
    assert waiting[0].answer() == "made"


def test_the_claim_names_its_holder_for_people_and_nothing_else_is_left_of_it(tmp_path):
    file = Path(stage_folder(str(tmp_path), REQUEST), "claim.json")
    seen = []

    def look(folder: str) -> Outcome:
        seen.append(json.loads(file.read_text()))
        return Outcome()

    run_stage(str(tmp_path), REQUEST, look)
    assert seen[0]["process"] == os.getpid()
    assert not file.exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_works_without_claims(tmp_path, monkeypatch, number):
    def refuse(*_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not run_stage(str(tmp_path), REQUEST, lambda folder: Outcome()).reused
    assert run_stage(str(tmp_path), REQUEST, lambda folder: Outcome()).reused


def test_another_failure_of_the_lock_is_an_error(tmp_path, monkeypatch):
    def refuse(*_: int) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=os.strerror(errno.ESTALE)):
        run_stage(str(tmp_path), REQUEST, lambda folder: Outcome())


def test_a_folder_that_the_last_holder_removes_meanwhile_is_made_again(tmp_path, monkeypatch):
    acquire, calls = stage.FileLock.acquire, []

    def acquire_second(lock, *arguments, **options):
        calls.append(lock)
        if len(calls) == 1:
            raise FileNotFoundError
        return acquire(lock, *arguments, **options)

    monkeypatch.setattr(stage.FileLock, "acquire", acquire_second)
    holds = []
    run_stage(str(tmp_path), REQUEST, lambda folder: holds.append(calls[-1].is_locked) or Outcome())
    assert holds == [True]
