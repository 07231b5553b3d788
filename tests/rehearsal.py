"""Two nights of the scheduled deployment with everything remote, on one machine, while processes are killed at random.

    make rehearsal                                       # ten runs of two nights, five kills in each
    .venv/bin/python -m tests.rehearsal --runs 1 --kills 5 --seed 7

A Prefect server and worker, a Ray head and two nodes, a Flink job manager and two task managers, and an S3 server with
the store and the release. At random moments any process of all these, the run's own among them, gets `kill -9`; a
supervisor starts services again after some seconds, as an init system does, and the automation of lost-runs.yaml takes
up lost runs. After each run the digests and the ledgers must be those of both nights run undisturbed, in one process on
a local disk, and nothing may be left: no job, process, claim or temporary file.

It needs `make engines`.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from clicktower.flows.config.settings import Settings
from clicktower.schemas import storage
from tests.beam_jobs.engine.standalone_flink import Cluster
from tests.end_to_end.prefect_server import PrefectServer, words_of
from tests.end_to_end.shop import clicktower, make_shop
from tests.ray_cluster import RayCluster
from tests.s3_server import S3Server
from tests.services import Services
from tests.waiting import wait_until

NIGHTS = ("2026-09-01", "2026-09-02")
KEY = "store/private/person-key.json"
STAGES = ("ingest", "build", "train", "evaluate")
HEARTBEAT_SECONDS = 30  # the least that Prefect takes
LOST_SECONDS = 75  # instead of the three minutes of lost-runs.yaml
AWAY_SECONDS = 6.0  # a killed service is back after at most so long
NIGHT_SECONDS = 1800.0  # a night that takes longer does not end
LOOK_SECONDS = 0.3
SAME_BYTES = (".arrow", ".safetensors", ".txt")  # others have times or paths in them
OURS = ("flow", "stage", "left behind")  # of these nothing is left in the end
PERSON_SECONDS = 15.0  # after which a person looks at a crashed run
FIRST_SECONDS = 120.0  # that a night takes, as long as nobody knows better
OF_SERVICES = ("prefect-workspace-", "runner_storage", "ray", "tmp", "pymp-")  # what Prefect and Ray leave of their own
KEPT = "clicktower-kept-"  # what an engine wrote whose job failed: the error names it, and it goes after a week
PIPELINE = """
title = "Rehearsal"
store = "{root}/store"
report = "{name}.html"
beam_options = {beam_options}
[log]
files = ["logs/{{date}}/*.ndjson.gz"]
[documents]
file = "data/documents.tsv"
[judgments]
queries = "data/judgments/queries.dev.tsv"
qrels = "data/judgments/qrels.dev.txt"
[build]
k = 1
[train]
workers = {workers}
threads = 1
[train.set]
epochs = 30
tower.cells = 16
micro_batch = 32
minibatch = 128
[promotion]
rule = "always"
[limits]
retries = 20
retry_seconds = 2
[publish]
to = "{root}/release"
"""


class Broken(Exception):
    """A promise that did not hold."""


@dataclass
class Site:
    """All that runs, who was killed, and what was seen."""

    work: Path
    shop: Path
    s3: S3Server
    ray: RayCluster
    flink: Cluster
    prefect: PrefectServer
    chance: random.Random
    away: dict[str, float] = field(default_factory=dict)  # services that have ended, and when each comes back
    seen: set[psutil.Process] = field(default_factory=set)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)  # of Flink, by id, as they were seen last
    kills: list[str] = field(default_factory=list)
    taken_up: int = 0  # runs that a person took up again

    def __iter__(self) -> Iterator[tuple[Services, str]]:
        for services in (self.s3, self.ray, self.flink, self.prefect):
            for name in services.names:
                yield services, name

    def processes(self) -> dict[str, list[psutil.Process]]:
        """All that run now, by what they are; a service, a flow and a stage each with what they started."""
        found: dict[str, list[psutil.Process]] = {name: services.processes(name) for services, name in self}
        started = found["worker"]
        found |= {"worker": started[:1], "flow": [], "stage": [], "left behind": []}
        services = {one for kind in found.values() for one in kind}
        for one in {*started, *self._orphans(), *self.seen} - services:
            with suppress(psutil.NoSuchProcess):
                lineage = [words_of(parent) for parent in (one, *one.parents())]
                if any("clicktower.flows.cli" in words for words in lineage):
                    found["stage"].append(one)
                elif any("prefect.engine" in words for words in lineage):
                    found["flow"].append(one)
                elif one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                    found["left behind"].append(one)
        self.seen = {one for kind in found.values() for one in kind}
        return found

    def _orphans(self) -> Iterator[psutil.Process]:
        """Flows and stages whose worker was killed."""
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.environ().get("CLICKTOWER_REHEARSAL") == str(self.work) and one.pid != os.getpid():
                    yield one

    def kill_one(self) -> None:
        """kill -9 of any process, of one of the kinds that were killed least often."""
        alive = {kind: some for kind, some in self.processes().items() if some}
        least = min(map(self.kills.count, alive))
        kind = self.chance.choice([kind for kind in sorted(alive) if self.kills.count(kind) == least])
        one = self.chance.choice(sorted(alive[kind], key=lambda process: process.pid))
        with suppress(psutil.NoSuchProcess):
            words = " ".join(" ".join(words_of(one)).split())[:100]
            one.kill()
            self.kills.append(kind)
            say(f"  killed: {kind} ({words})")

    def heal(self) -> None:
        """Start again what has ended, a moment later."""
        for services, name in self:
            if services.has_ended(name):
                back = self.away.setdefault(name, time.monotonic() + self.chance.uniform(0, AWAY_SECONDS))
                if time.monotonic() >= back:
                    del self.away[name]
                    services.start_again(name)

    def look(self) -> None:
        """Note what the engine says of its jobs. Raises Broken where one thing is made twice at the same time."""
        with suppress(OSError):
            listed = {job["jid"]: job for job in self.flink.jobs()}
            lost = {jid: job | {"state": "LOST"} for jid, job in self.jobs.items() if job["state"] == "RUNNING"}
            self.jobs |= lost | listed  # a job manager that was killed takes its jobs with it
            running = Counter(job["name"] for job in listed.values() if job["state"] == "RUNNING")
            if twice := [name for name, number in running.items() if number > 1]:
                raise Broken(f"two jobs make the same at once: {twice}")


@contextmanager
def everything(work: Path, seed: int) -> Iterator[Site]:
    """The whole site, ended with the block."""
    engines = Path(Settings().engines)
    for needed in ("s3-server", "flink", "flink-job-server", "python-worker"):
        if not (engines / needed).exists():
            raise SystemExit(f"there is no {engines / needed}: run `make engines`")
    shop = work / "shop"
    make_shop(shop, searches=1_000, days=2)
    for night in NIGHTS:
        (shop / "logs" / night).mkdir(parents=True)
    files = [shop / "logs" / night / "log.ndjson.gz" for night in NIGHTS]
    with gzip.open(files[0], "wb") as first, gzip.open(files[1], "wb") as second:
        for path in sorted((shop / "data/log").iterdir()):
            for line in gzip.decompress(path.read_bytes()).splitlines(keepends=True):
                (second if f'"{NIGHTS[1]}T'.encode() in line else first).write(line)
    for folder in ("tmp", "s3", "flink", "prefect"):
        (work / folder).mkdir()
    os.environ |= {"TMPDIR": str(work / "tmp"), "CLICKTOWER_REHEARSAL": str(work)}
    with ExitStack() as stack:
        s3 = stack.enter_context(S3Server(work / "s3"))
        os.environ |= s3.environment
        nodes = {"node-1": 1, "node-2": 1}
        ray = stack.enter_context(RayCluster(work / "ray", nodes, RAY_gcs_rpc_server_reconnect_timeout_s="15"))
        flink = stack.enter_context(Cluster(work / "flink", engines))
        heartbeat = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(HEARTBEAT_SECONDS)}
        given = ray.environment | heartbeat | {"RAY_ADDRESS": ray.address, "TMPDIR": os.environ["TMPDIR"]}
        prefect = stack.enter_context(PrefectServer(work / "prefect", **given))
        automation = (Path(__file__).parents[1] / "deploy" / "lost-runs.yaml").read_text(encoding="utf-8")
        (work / "lost-runs.yaml").write_text(automation.replace("within: 180", f"within: {LOST_SECONDS}"))
        prefect.cli("automation", "create", "--from-file", str(work / "lost-runs.yaml"))
        yield Site(work, shop, s3, ray, flink, prefect, random.Random(seed))


def write_config(shop: Path, name: str, root: str, beam_options: Sequence[str] = (), workers: int = 1) -> Path:
    path = shop / f"{name}.toml"
    options = json.dumps(list(beam_options))
    path.write_text(PIPELINE.format(name=name, root=root, beam_options=options, workers=workers), encoding="utf-8")
    return path


def run_undisturbed(shop: Path, root: Path, nights: Sequence[str]) -> dict[str, Any]:
    """What the nights make on a local disk, where nothing is remote."""
    config = write_config(shop, "undisturbed", str(root))
    for date in nights:
        done = clicktower("run", str(config), "--date", date)
        if done.returncode:
            raise Broken(f"undisturbed: {done.stderr}")
    return run_outputs(root)


def run_night(site: Site, name: str, date: str, kills: int, pace: float) -> float:
    """The seconds that a night takes, while a process is killed at least every `pace` seconds."""
    config = write_config(site.shop, name, f"s3://bucket/{name}", site.flink.options, workers=2)
    began = time.monotonic()
    run = patiently(site, lambda: site.prefect.schedule(config, date))
    crashed = 0.0
    due = began + site.chance.uniform(0, pace)
    while True:
        site.heal()
        site.look()
        if kills and time.monotonic() >= due:
            site.kill_one()
            kills, due = kills - 1, time.monotonic() + site.chance.uniform(0, pace)
        state: dict[str, Any] = {"type": ""}
        with suppress(httpx.HTTPError):
            state = site.prefect.api.get(f"/flow_runs/{run}", timeout=5).raise_for_status().json()["state"]
        if state["type"] == "COMPLETED":
            return time.monotonic() - began
        crashed = crashed or time.monotonic() if state["type"] == "CRASHED" else 0.0
        if crashed and time.monotonic() > crashed + PERSON_SECONDS:  # the worker saw its process end: no lost run
            say("  crashed; a person takes it up again")
            patiently(site, lambda: site.prefect.set_state(run, "SCHEDULED", "AwaitingRetry"))
            site.taken_up += 1
        elif state["type"] in ("FAILED", "CANCELLED") or time.monotonic() - began > NIGHT_SECONDS:
            raise Broken(f"the night of {date} did not pass: {site.prefect.told(run)}")
        time.sleep(LOOK_SECONDS)


def patiently(site: Site, ask: Any) -> Any:
    """What the server says, as soon as it is there."""
    while True:
        with suppress(httpx.HTTPError):
            return ask()
        site.heal()
        time.sleep(LOOK_SECONDS)


def settle(site: Site) -> None:
    """Everything is up again, and nothing else is left. Raises Broken otherwise."""

    def quiet() -> bool:
        site.heal()
        site.look()
        return not site.away and not any(site.processes()[kind] for kind in OURS) and not open_runs()

    def open_runs() -> list[str]:
        with suppress(httpx.HTTPError):
            return site.prefect.open_runs()
        return ["unknown"]

    try:
        wait_until(quiet)
    except AssertionError:
        left = [(one.pid, words_of(one)) for kind in OURS for one in site.processes()[kind]]
        lost = f"services that do not come back: {sorted(site.away)}; runs that do not end: {open_runs()}"
        raise Broken(f"processes are left: {left}; {lost}") from None
    if running := [job["name"] for job in site.jobs.values() if job["state"] == "RUNNING"]:
        raise Broken(f"jobs are left on Flink: {running}")
    finished = Counter(job["name"] for job in site.jobs.values() if job["state"] == "FINISHED")
    if twice := [name for name, number in finished.items() if number > 1]:
        raise Broken(f"two jobs made the same: {twice}")
    if running := [job["Entrypoint"] for job in site.ray.jobs() if not job["IsDead"]]:
        raise Broken(f"jobs are left on Ray: {running}")


def run_outputs(root: Path) -> dict[str, Any]:
    """What a run made: of each stage, by the digest of what was asked, its rows' digest, its ledger and its files."""
    found: dict[str, Any] = {}
    for path in sorted(root.glob("store/*/*/manifest.json")):
        stage, asked = path.parts[-3:-1]
        manifest = json.loads(path.read_text())
        if stage in STAGES:
            outcome = {name: manifest["outcome"][name] for name in ("counts", "ledger", "logical_digest")}
            files = {file["path"].partition("/")[2]: file["sha256"] for file in manifest["files"]}
            same = {file: digest for file, digest in files.items() if file.endswith(SAME_BYTES)}
            found[f"{stage}/{asked}"] = outcome | same
    found["release"] = sorted(path.name for path in root.glob("release/releases/*"))
    return found


def left_over(site: Site, root: Path) -> list[str]:
    """Objects of a run that no manifest knows (claims, half-made outputs), and temporary files."""
    left = list(root.rglob("claim-*"))
    for folder in root.glob("store/*/*/attempt-*"):
        manifest = folder.parent / "manifest.json"
        if not manifest.exists() or json.loads(manifest.read_text())["attempt"] != folder.name:
            left.append(folder)
    left += [path for path in (site.work / "tmp").iterdir() if not path.name.startswith((*OF_SERVICES, KEPT))]
    return [str(path) for path in left]


def rehearse(
    site: Site, name: str, nights: Sequence[str], expected: dict[str, Any], kills: int, expected_seconds: float
) -> float:
    """The seconds of a run of the nights with so many kills. Raises Broken where a promise did not hold."""
    root = site.work / "s3/data/bucket" / name
    site.jobs.clear()
    storage.write_new(f"s3://bucket/{name}/{KEY}", (site.work / "undisturbed" / KEY).read_bytes())
    killed, pace = len(site.kills), expected_seconds / max(kills, 1)
    kills_of_nights = [(kills + number) // len(nights) for number in range(len(nights))]
    seconds = sum(run_night(site, name, date, kills, pace) for date, kills in zip(nights, kills_of_nights, strict=True))
    settle(site)
    if (found := run_outputs(root)) != expected:
        raise Broken(f"{name}: not what the undisturbed run made: {differences(expected, found)}")
    if left := left_over(site, root):
        raise Broken(f"{name}: left behind: {left}")
    jobs = Counter(job["state"] for job in site.jobs.values())
    say(f"{name}: {seconds:.0f} s, {len(site.kills) - killed} kills, the same digests; jobs on Flink {dict(jobs)}")
    return seconds


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=10, help="[10]")
    arguments.add_argument("--nights", type=int, default=2, choices=(1, 2), help="of each run [2]")
    arguments.add_argument("--kills", type=int, default=6, help="in each run [6]")
    arguments.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of what is killed when")
    arguments.add_argument("--work", type=Path, help="a folder that is kept; with a short path, for Ray's sockets")
    given = arguments.parse_args()

    work = given.work or Path(tempfile.mkdtemp(prefix="rehearsal-", dir="/tmp"))
    work.mkdir(parents=True, exist_ok=True)
    say(f"seed {given.seed}, in {work}")
    with everything(work, given.seed) as site:
        nights = NIGHTS[: given.nights]
        expected = run_undisturbed(site.shop, work / "undisturbed", nights)
        say(f"undisturbed: {', '.join(expected)}")
        seconds = FIRST_SECONDS * given.nights
        for number in range(given.runs):
            seconds = rehearse(site, f"run-{number}", nights, expected, given.kills, seconds)
    say(f"{len(site.kills)} kills: {dict(Counter(site.kills).most_common())}; {site.taken_up} runs taken up by hand")
    if not given.work:
        shutil.rmtree(work)


def differences(expected: dict[str, Any], found: dict[str, Any]) -> str:
    keys = [key for key in expected | found if expected.get(key) != found.get(key)]
    return "; ".join(f"{key}: {expected.get(key)} and {found.get(key)}" for key in keys)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started ends with this
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except Broken as broken:
        sys.exit(f"✗ {broken}")
