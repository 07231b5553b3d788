"""The life of a stage's output: made once, reused, damaged, made again, raced for."""

import json
import os
import threading
from contextlib import nullcontext

import pytest

from clicktower.schemas import manifest as manifests
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UnknownVersionError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import (
    WouldRun,
    claimed,
    commit,
    find_finished,
    open_result,
    planning,
    run_stage,
    scratch_folder,
    silent,
    stage_folder,
)


def request(**changes) -> Request:
    values = {"stage": "build", "stage_version": 1, "config": {"k": 5}, "inputs": {"log": "abc"}, "seed": 0}
    return Request(**(values | changes))


def produce(folder: str) -> Outcome:
    storage.write_atomic(storage.join(folder, "part", "a.bin"), b"0123456789")
    return Outcome(counts={"rows": 10}, ledger=Ledger(total=3, lines={"repeat": 1, "search": 2}))


def fail_if_called(folder: str) -> Outcome:
    raise AssertionError("the stage ran again")


@pytest.fixture
def no_claims(monkeypatch) -> None:
    """As on a network file system that is mounted without locks, or where a holder was taken for dead."""
    monkeypatch.setattr("clicktower.schemas.stage.claimed", lambda folder, progress, reads: nullcontext())


@pytest.mark.parametrize(
    "change", [{"stage_version": 2}, {"config": {"k": 4}}, {"inputs": {"log": "abd"}}, {"seed": 1}]
)
def test_any_change_of_a_request_changes_its_digest(change):
    assert request().digest != request(**change).digest


def test_the_digest_of_a_request_is_pinned():
    # A changed digest would recompute everybody's year of logs: change it on purpose or not at all.
    assert request().digest == "af981b637501d79332640a37"


def test_the_same_request_is_reused(tmp_path):
    first = run_stage(str(tmp_path), request(), produce)
    second = run_stage(str(tmp_path), request(), fail_if_called)
    assert (first.reused, second.reused) == (False, True)
    assert second.manifest.to_json() == first.manifest.to_json()
    assert second.to_json()["ledger"]["total"] == 3


def flip(path: str) -> None:
    """Another byte in its place."""
    with open(path, "r+b") as file:
        file.write(b"X")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (os.unlink, "is missing"),
        (lambda path: os.truncate(path, 4), "has 4 bytes and should have 10"),
        (flip, "has other bytes than were written"),
    ],
)
def test_a_lost_truncated_or_changed_file_is_noticed_and_made_again(tmp_path, harm, words):
    first = run_stage(str(tmp_path), request(), produce)
    harm(os.path.join(first.data, "part/a.bin"))
    finished, wrong = find_finished(str(tmp_path), request())
    assert finished is None
    assert words in wrong[0]
    again = run_stage(str(tmp_path), request(), produce)
    assert not again.reused
    assert words in again.repaired[0]
    assert manifests.damaged_files(again.folder, again.manifest.files, hashes=True) == []


def test_of_a_large_output_only_hashes_find_a_flipped_byte(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.schemas.stage.SMALL_BYTES", 9)
    result = run_stage(str(tmp_path), request(), produce)
    flip(os.path.join(result.data, "part/a.bin"))
    assert find_finished(str(tmp_path), request())[1] == []
    assert manifests.damaged_files(result.folder, result.manifest.files) == []
    assert "other bytes" in manifests.damaged_files(result.folder, result.manifest.files, hashes=True)[0]


def test_a_failed_stage_leaves_nothing_behind(tmp_path):
    def fail(folder: str) -> Outcome:
        produce(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        run_stage(str(tmp_path), request(), fail)
    assert storage.list_files(str(tmp_path)) == []


def test_a_thread_that_is_late_does_not_bring_an_attempt_back(tmp_path):
    """After Ctrl-C the threads of a job in this process go on to write until the process has ended."""
    places = []

    def interrupted(folder: str) -> Outcome:
        places.extend([folder, scratch_folder(folder)])
        for place in places:
            storage.write_atomic(f"{place}/part/a.bin", b"in time")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(str(tmp_path), request(), interrupted)
    for place in places:
        for write in storage.open_new, storage.write_atomic, storage.make_folder:
            with pytest.raises(FileNotFoundError, match="has ended"):
                write(f"{place}/part/a.bin")
    assert [path.name for path in tmp_path.rglob("*")] == ["build"]


def committed(folder: str) -> None:
    """As the last step of a job does in a thread of its own."""
    below, _, attempt = folder.rpartition("/")
    commit(below, request(), attempt, produce(folder), started=0.0)


def test_an_interrupt_right_after_the_commit_keeps_the_output(tmp_path):
    def interrupted(folder: str) -> None:
        committed(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(str(tmp_path), request(), interrupted)
    again = run_stage(str(tmp_path), request(), fail_if_called)
    assert (again.reused, again.repaired) == (True, ())


def test_an_attempt_that_an_interrupt_removed_is_not_committed(tmp_path):
    """A thread that had seen all files just before."""
    folders = []

    def interrupted(folder: str) -> None:
        folders.append(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(str(tmp_path), request(), interrupted)
    (folder,) = folders
    storage.make_folder(folder)
    with pytest.raises(StageError, match="has ended"):
        committed(folder)
    assert find_finished(str(tmp_path), request())[0] is None


def test_what_a_killed_attempt_left_is_cleared_by_the_next(tmp_path):
    killed = tmp_path / "build" / request().digest / "attempt-000000000000"
    killed.mkdir(parents=True)
    (killed / "half.arrow").write_bytes(b"half")
    result = run_stage(str(tmp_path), request(), produce)
    assert not killed.exists()
    assert manifests.damaged_files(result.folder, result.manifest.files) == []


def test_a_half_written_manifest_of_a_killed_process_goes_when_the_output_is_next_asked_for(tmp_path):
    """Killed after another had committed, or between the manifest's two names."""
    made = run_stage(str(tmp_path), request(), produce)
    stray = f"{made.folder}/{manifests.FILE_NAME}.{'0' * 32}.partial"
    storage.write_atomic(stray, b"{")
    assert run_stage(str(tmp_path), request(), fail_if_called).reused
    assert not storage.exists(stray)


def test_an_attempt_whose_files_a_faster_one_cleared_away_answers_with_that_one_s(no_claims, tmp_path):
    def overtaken(folder: str) -> Outcome:
        run_stage(str(tmp_path), request(stage="overtaken"), produce)
        raise FileNotFoundError(folder)

    result = run_stage(str(tmp_path), request(stage="overtaken"), overtaken)
    assert result.reused
    assert result.manifest.outcome.counts == {"rows": 10}


def test_a_ledger_that_does_not_add_up_publishes_nothing(tmp_path):
    def lose_a_line(folder: str) -> Outcome:
        return Outcome(ledger=Ledger(total=4, lines={"search": 3}))

    with pytest.raises(StageError, match="3 of 4 lines"):
        run_stage(str(tmp_path), request(), lose_a_line)
    assert find_finished(str(tmp_path), request()) == (None, [])


def test_of_two_attempts_at_once_one_wins_and_both_answer_the_same(no_claims, tmp_path):
    barrier = threading.Barrier(2)

    def together(folder: str) -> Outcome:
        outcome = produce(folder)
        barrier.wait(10)
        return outcome

    results = []
    threads = [
        threading.Thread(target=lambda: results.append(run_stage(str(tmp_path), request(stage="raced"), together)))
        for _ in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.reused for r in results) == [False, True]
    assert results[0].data == results[1].data
    assert len(storage.list_folders(results[0].folder)) == 1


def test_a_manifest_of_another_major_version_is_refused(tmp_path):
    result = run_stage(str(tmp_path), request(), produce)
    where = storage.join(result.folder, manifests.FILE_NAME)
    value = json.loads(storage.read_bytes(where)) | {"schema_version": "2.0"}
    storage.write_atomic(where, json.dumps(value).encode())
    with pytest.raises(UnknownVersionError, match=r"version 2\.0"):
        open_result(result.folder)


def test_a_folder_without_a_manifest_says_what_to_do(tmp_path):
    with pytest.raises(StageError, match="that stage never finished"):
        open_result(str(tmp_path))


def test_stages_run_on_any_fsspec_store():
    store = "memory://stage-test"
    assert not run_stage(store, request(), produce).reused
    assert run_stage(store, request(), fail_if_called).reused


def test_a_planned_stage_answers_with_what_is_there_and_touches_nothing(tmp_path):
    store, wanted = tmp_path / "store", request()
    with planning(), pytest.raises(WouldRun) as missing:
        run_stage(str(store), wanted, fail_if_called)
    assert missing.value.request == wanted
    assert not missing.value.wrong
    assert not store.exists()
    result = run_stage(str(store), wanted, produce)
    storage.write_atomic(f"{result.folder}/attempt-orphan/data", b"1")
    with planning():
        assert run_stage(str(store), wanted, fail_if_called).reused
        os.truncate(f"{result.data}/part/a.bin", 9)
        with pytest.raises(WouldRun) as damaged:
            run_stage(str(store), wanted, fail_if_called)
    assert "9 bytes and should have 10" in damaged.value.wrong[0]
    assert len(storage.list_folders(result.folder)) == 2, "what another attempt left is the next run's to remove"
    assert run_stage(str(store), wanted, produce).repaired, "outside a plan it is made again"


@pytest.mark.parametrize(
    "while_waiting", [False, True], ids=["before it is asked for", "while its claim is waited for"]
)
def test_what_a_job_left_that_outlived_its_client_goes_when_its_output_is_next_asked_for(tmp_path, while_waiting):
    request = Request(stage="orphan", stage_version=1, config={}, inputs={})
    folder = stage_folder(str(tmp_path), request)
    storage.write_atomic(f"{folder}/attempt-a/data", b"1")
    storage.write_atomic(f"{folder}/attempt-a-scratch/part", b"2")
    held, waiting = threading.Event(), threading.Event()

    def hold_the_claim() -> None:
        with claimed(folder, silent):
            held.set()
            assert waiting.wait(60)
            commit(folder, request, "attempt-a", Outcome(), 0.0)

    if while_waiting:
        holder = threading.Thread(target=hold_the_claim)
        holder.start()
        assert held.wait(60)
    else:
        commit(folder, request, "attempt-a", Outcome(), 0.0)
    assert run_stage(str(tmp_path), request, fail_if_called, lambda *_: waiting.set()).reused
    assert storage.list_folders(folder) == ["attempt-a"]
