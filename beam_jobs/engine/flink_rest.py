"""What is asked of a Flink cluster directly: whether it is there, what becomes of a job, to end it, and who ended it.

Its job server would wait for a minute for a cluster that is not there, only stops watching a job that it is told to
cancel, and calls one that was cancelled failed.
"""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from schemas.errors import TransientError

TIMEOUT_SECONDS = 10.0
CANCEL_SECONDS = 60.0
SILENCE_SECONDS = 60.0  # how long a cluster may not answer while a job on it is waited for
_ENDED = {"CANCELED", "FAILED", "FINISHED"}


def require_cluster(master: str) -> None:
    """Nothing. Raises TransientError where no cluster with a task manager answers at `master` (http://host:port)."""
    try:
        found = "" if _ask(f"{master}/overview", "GET")["taskmanagers"] else "the cluster there has no task manager"
    except (OSError, ValueError, KeyError):
        found = "nothing answers there"
    if found:
        raise TransientError(
            asked=f"the job was to run on the Flink cluster at {master}",
            found=found,
            follows="the job was not submitted",
            do="start the cluster (deploy/flink/start), or give the address of its page with --flink_master",
        )


def cancel_job(master: str, name: str) -> None:
    """Nothing, when no job of that name runs on the cluster at `master` (http://host:port) any more.

    Raises OSError where the cluster does not answer, TimeoutError where the job does not end.
    """
    until = time.monotonic() + CANCEL_SECONDS
    while running := [job["jid"] for job in _jobs(master) if job["name"] == name and job["state"] not in _ENDED]:
        if time.monotonic() > until:
            raise TimeoutError(f"the job did not end in {CANCEL_SECONDS:.0f} s")
        for job in running:
            _ask(f"{master}/jobs/{job}?mode=cancel", "PATCH")
        time.sleep(1)


def wait_for_job(master: str, name: str, tell: Callable[[str], None]) -> None:
    """Nothing, when no job of that name runs on the cluster (any more).

    Raises TransientError where no cluster answers, or it falls silent while the job runs.
    """
    require_cluster(master)
    running, heard = True, time.monotonic()
    while running:
        try:
            jobs = [job for job in _jobs(master) if job["name"] == name and job["state"] not in _ENDED]
            running, heard = bool(jobs), time.monotonic()
        except OSError:
            if time.monotonic() - heard > SILENCE_SECONDS:
                raise _silent(name) from None
        if running:
            tell(f"it runs on the cluster already, as {name}: waiting for it")
            time.sleep(1)


def _silent(name: str) -> TransientError:
    return TransientError(
        asked=f"the job {name} was found running on the cluster and waited for",
        found=f"nothing was heard of the cluster for {SILENCE_SECONDS:.0f} s",
        follows="the job may go on there and commit its result",
        do="run the same command again when the cluster answers",
    )


def was_cancelled(master: str, name: str) -> bool:
    """Whether the cluster says so of the newest job of that name. Raises OSError where it does not answer."""
    states = [job["state"] for job in _jobs(master) if job["name"] == name]
    return states[-1:] in (["CANCELED"], ["CANCELLING"])


def _jobs(master: str) -> list[dict[str, Any]]:
    """All of them, the newest last."""
    return sorted(_ask(f"{master}/jobs/overview", "GET")["jobs"], key=lambda job: job["start-time"])


def _ask(url: str, method: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)
