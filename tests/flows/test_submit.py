"""A stage as a process of its own: its errors arrive as what they were, its progress as lines, its time is limited."""

import os
import signal
import threading
import time

import pytest

from clicktower.flows.progress_relay import ProgressRelay
from clicktower.flows.submit import _result, progress_to, run_stage_command
from clicktower.schemas.errors import Diverged, StageError, TransientError, UsageError
from tests.end_to_end.prefect_server import running_stages

ERROR = '{"stage": "train", "error": {"kind": "%s", "problem": "A. B.", "fix": "D."}}'


@pytest.mark.parametrize("kind", [StageError, UsageError, Diverged, TransientError])
def test_the_error_of_a_stage_is_rebuilt_as_its_kind(kind):
    with pytest.raises(StageError) as caught:
        _result("train", ERROR % kind.__name__, kind.exit_code)
    assert type(caught.value) is kind
    assert str(caught.value) == "A. B. D."


def test_a_stage_that_is_not_possible_says_so_through_its_process(tmp_path):
    with pytest.raises(StageError) as caught:
        run_stage_command("evaluate", {"model": str(tmp_path), "documents": "d", "queries": "q", "qrels": "r",
                                       "into": str(tmp_path)})  # fmt: skip
    assert "manifest.json" in caught.value.problem
    assert not isinstance(caught.value, TransientError), "trying again would not help"


def test_options_may_be_longer_than_an_argument_of_the_system(tmp_path):
    logs = [str(tmp_path / f"log-{number:05}.ndjson") for number in range(5_000)]
    assert len("".join(logs)) > 128 << 10
    with pytest.raises(UsageError, match=r"log-00000\.ndjson"):
        run_stage_command("ingest", {"logs": logs, "into": str(tmp_path / "store")})


@pytest.mark.slow
def test_a_stage_that_takes_too_long_is_ended_with_a_sentence(tmp_path):
    with pytest.raises(StageError, match="why it is slow") as caught:
        run_stage_command("simulate", {"out": str(tmp_path / "data"), "searches": 900_000}, timeout_seconds=1.0)
    assert "Stage simulate timed out after 0.01667 minutes" in caught.value.problem
    assert running_stages(tmp_path / "data") == []


def test_a_stage_that_a_signal_ends_may_be_tried_again(tmp_path):
    def kill_it() -> None:
        while not (found := running_stages(tmp_path / "data")):
            time.sleep(0.02)
        os.kill(found[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_it)
    killer.start()
    with pytest.raises(TransientError, match="process of the stage simulate was ended by SIGKILL"):
        run_stage_command("simulate", {"out": str(tmp_path / "data"), "searches": 900_000})
    killer.join()


def test_progress_is_told_in_whole_lines_and_what_else_is_said_is_not(capsys):
    reported = []
    with progress_to(reported.append), ProgressRelay("train", reported.append) as progress:
        progress.target.write(b"train: epoch 1\ntrain: epo")
        progress.target.flush()
        progress.relay()
        assert reported == ["train: epoch 1"]
        progress.target.write(b"ch 2\nWARNING of a library, which may quote anything\n")
        progress.target.flush()
    assert reported == ["train: epoch 1", "train: epoch 2"]
    assert "may quote anything" in capsys.readouterr().err
