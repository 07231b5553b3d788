"""What is asked of a Flink cluster directly: whether it is there, to end a job, and whether somebody else ended it.

Its job server would wait for a minute for a cluster that is not there, only stops watching a job that it is told to
cancel, and calls one that was cancelled failed.
"""

import json
import time
import urllib.request
from typing import Any

from schemas.errors import StageError

TIMEOUT_SECONDS = 10.0
CANCEL_SECONDS = 60.0
_ENDED = {"CANCELED", "FAILED", "FINISHED"}


def require_cluster(master: str) -> None:
    """Nothing. Raises StageError where no cluster with a task manager answers at `master` (http://host:port)."""
    try:
        found = "" if _ask(f"{master}/overview", "GET")["taskmanagers"] else "the cluster there has no task manager"
    except (OSError, ValueError, KeyError):
        found = "nothing answers there"
    if found:
        raise StageError(
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


def was_cancelled(master: str, name: str) -> bool:
    """Whether the cluster says so of the job of that name. Raises OSError where it does not answer."""
    return any(job["name"] == name and job["state"] in ("CANCELED", "CANCELLING") for job in _jobs(master))


def _jobs(master: str) -> list[dict[str, Any]]:
    return _ask(f"{master}/jobs/overview", "GET")["jobs"]


def _ask(url: str, method: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)
