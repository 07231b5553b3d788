"""Every call by which a stage changes the disk: what happens where it is the last one of a killed process, or fails.

    python -m tests.crash_points [--every N] [--stage NAME ...] [--on disk|s3] [--mode MODE ...]

A small night is ingested, built, trained, evaluated, published twice and erased from; then the person who was erased
comes once more, and the store is pruned as if the night were long ago and another model newer. Each command runs
undisturbed to number its calls (Python's audit events: open for writing, rename, link, remove, mkdir, rmdir). Then,
from the same state, it runs once for each Nth call and is killed there, and once more and gets an I/O error from it.
After that the same command has to succeed, with the digests, ledgers and files of the undisturbed run, and to leave
nothing but a claim that nobody holds. Processes are forked from this one, which has imported everything and started no
thread.

On a real S3 server the calls are requests that write (PUT, POST, DELETE), seen by a proxy: the command is killed before
one is forwarded or before it is answered, the answer to one is lost, or every request from one on is answered 503.
"""

import argparse
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path

from clicktower.flows import cli
from clicktower.schemas import object_store, removal
from clicktower.schemas.process import use_scratch

# What the commands load: here once, and not anew in every forked process.
MODULES = (
    "clicktower.beam_jobs.build.build_job", "clicktower.beam_jobs.ingest.erase",
    "clicktower.beam_jobs.ingest.ingest_job", "clicktower.flows.releases.publish",
    "clicktower.flows.retention", "clicktower.training.evaluation.evaluate_stage", "clicktower.training.model.model",
    "clicktower.training.trainer.worker",
)  # fmt: skip
S3_MODULES = ("s3fs", "clicktower.flows.releases.kept_releases")
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}
KILLED = 137
FORGOTTEN_SECONDS = 2.0
GROWN = '{"query_id": "s2", "client_id": "c7", "user_query": "wood screw", "timestamp": "2026-09-01T10:01:00Z"}\n'
LINE = '{"query_id": "s1", "client_id": "c7", "user_query": "angle bracket", "timestamp": "2026-09-01T10:00:00Z"}\n'
SMALL = ["--recipe", "lstm-32", "--epochs", "2", "--set", "minibatch=32", "--set", "micro_batch=16"]
# Names that differ from run to run.
_RANDOM = re.compile(r"attempt-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{24}|tfevents[\w.]+")
_CLAIM = re.compile(r"claim(-\d{6})?\.json")
_SAME_BYTES = (".arrow", ".safetensors", ".run")


def forked(command: list[str], output: Path, prepare: Callable[[], None]) -> int:
    """The process of a command, forked from this one. `output`: what it prints."""
    if process := os.fork():
        return process
    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    use_scratch()  # as of a command: what a killed one leaves in the folder of temporary files goes with the next one
    prepare()
    code = 1
    try:
        code = cli.run(command)
    finally:
        sys.stdout.flush()
        os._exit(code)


def run(command: list[str], folder: Path, output: Path, *, mode: str = "", at: int = 0) -> int:
    """The exit code of a command in a process of its own, disturbed at call number `at`. `output`: what it prints."""

    def prepare() -> None:
        calls = os.open(output.with_suffix(".calls"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        number, last, owner = 0, ("", ""), os.getpid()

        def hook(event: str, arguments: tuple) -> None:
            nonlocal number, last
            if event != "open" and event not in CHANGES:
                return
            path = str(arguments[0])
            writes = event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not writes or not path.startswith(str(folder)) or (event, path) == last or os.getpid() != owner:
                return
            number, last = number + 1, (event, path)
            os.write(calls, f"{event} {path[len(str(folder)) :]}\n".encode())
            if number == at and mode == "kill":
                os._exit(KILLED)
            if number == at and mode == "fail":
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        sys.addaudithook(hook)

    return os.waitstatus_to_exitcode(os.waitpid(forked(command, output, prepare), 0)[1])


def state(folder: Path) -> tuple[Counter, Counter]:
    """(files, by name and, where a run gives the same bytes, content; what manifests say), without random names."""
    files, manifests = Counter(), Counter()
    for path in folder.rglob("*"):
        if not path.is_file() or _CLAIM.fullmatch(path.name):
            continue
        if path.name == "pointer.json" and (path.parent / "swaps").exists():
            continue  # readers look for the swaps behind it, so it may lag until the next one
        content = path.read_bytes() if path.suffix in _SAME_BYTES and path.name != "lines.arrow" else b""
        name = _RANDOM.sub("#", str(path.relative_to(folder)))
        files[f"{name} {hashlib.sha256(content).hexdigest()[:12]}"] += 1
        if path.name == "manifest.json":
            outcome = json.loads(path.read_bytes())["outcome"]
            manifests[json.dumps([outcome[name] for name in ("logical_digest", "ledger", "counts")])] += 1
    return files, manifests


def night(folder: Path, shop: Path, uri: str) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Each stage's command, made when those before it have run. `uri`: of the folder, for the commands."""
    store, release = f"{uri}/store", f"{uri}/release"
    documents, judged = str(shop / "documents.tsv"), shop / "judgments"

    def of(stage: str) -> str:
        return f"{store}/{stage}/{next(path for path in (folder / 'store' / stage).iterdir()).name}"

    files = ["--queries", str(judged / "queries.dev.tsv"), "--qrels", str(judged / "qrels.dev.txt")]
    yield "ingest", lambda: ["ingest", str(shop / "log"), "--into", store]
    yield "build", lambda: ["build", "--days", store, "--documents", documents, "--k", "1", "--into", store]
    yield "train", lambda: ["train", "--shards", of("build"), *SMALL, "--into", store]
    yield "evaluate", lambda: ["evaluate", "--model", of("train"), "--documents", documents, *files, "--into", store]
    publish = ["publish", "--documents", documents, "--to", release]
    yield "publish", lambda: [*publish, "--model", of("train"), "--evaluation", of("evaluate")]
    yield "prune", lambda: [*publish, "--model", of("train"), "--set", "keep=0"]
    yield "erase", lambda: ["erase", "--store", store, "--client-ids-file", str(shop / "ids.txt")]
    yield "grown", lambda: ["ingest", str(shop / "grown.ndjson"), "--into", store]
    yield "prune-store", lambda: ["prune", store, "--keep-days", "1", "--keep-models", "1"]


def date_back(store: Path) -> None:
    """Let every output of a store be of a year ago."""
    for path in store.glob("*/*/manifest.json"):
        dated = re.sub(r'(?<="created": ")\d{4}', "2025", path.read_text())
        path.unlink()  # with the checksum that a server keeps beside it
        path.write_text(dated)


class Disk:
    """Commands on a local folder."""

    modes = ("kill", "fail")

    def __init__(self, root: Path) -> None:
        self.folder, self.output = root / "work", root / "output"
        self.folder.mkdir()
        self.uri = str(self.folder)

    def run(self, command: list[str], mode: str = "", at: int = 0) -> int:
        return run(command, self.folder, self.output, mode=mode, at=at)

    def calls(self) -> list[str]:
        """Of the last command."""
        return self.output.with_suffix(".calls").read_text().splitlines()


class Bucket:
    """Commands on a real S3 server, through a proxy in a process of its own, which the file `plan` tells what to do."""

    modes = ("kill before", "kill after", "lose")  # and "refuse", which takes a minute and a half of repeated requests
    writes = ("PUT", "POST", "DELETE")

    def __init__(self, root: Path) -> None:
        from tests.s3_server import S3Server

        self.output, self.plan = root / "output", root / "plan.json"
        self.server = S3Server(root)
        self.server.start()
        self.folder, self.uri = root / "data" / "bucket", "s3://bucket"
        os.environ |= self.server.environment
        # A holder that is gone is taken for dead sooner: these tests have no slow holder.
        object_store.BEAT_SECONDS, object_store.TAKE_OVER_SECONDS, object_store.LOOK_SECONDS = 0.3, 1.0, 0.1
        removal.FORGOTTEN_SECONDS = FORGOTTEN_SECONDS
        read, write = os.pipe()
        self.proxy = os.fork()
        if not self.proxy:
            self._serve(write)
        self.environment = {"AWS_ENDPOINT_URL": f"http://{os.read(read, 100).decode()}"}

    def _serve(self, write: int) -> None:
        from tests.bad_line import BadLine

        number, current, one_at_a_time = 0, {}, threading.Lock()

        def fault(method: str, path: str, headers: dict[str, str]) -> str:
            nonlocal number, current
            with one_at_a_time:
                plan = json.loads(self.plan.read_bytes())
                if plan != current:
                    number, current = 0, plan
                if method not in self.writes:
                    return "slow_down" if plan["mode"] == "refuse" and number >= plan["at"] > 0 else ""
                number += 1
                with self.output.with_suffix(".calls").open("a") as calls:
                    calls.write(f"{method} {path}\n")
                if plan["mode"] == "refuse":
                    return "slow_down" if number >= plan["at"] > 0 else ""
                if number != plan["at"]:
                    return ""
                if plan["mode"] == "kill before":
                    os.kill(plan["process"], signal.SIGKILL)
                    return "lost_request"
                if plan["mode"] == "kill after":
                    threading.Timer(0.05, os.kill, (plan["process"], signal.SIGKILL)).start()
                return "lost_answer"

        with BadLine(server=self.server.address, fault=fault) as line:
            os.write(write, line.address.encode())
            signal.pause()

    def run(self, command: list[str], mode: str = "", at: int = 0) -> int:
        go, started = os.pipe()

        def prepare() -> None:
            os.environ.update(self.environment)
            os.read(go, 1)

        process = forked(command, self.output, prepare)
        self.output.with_suffix(".calls").write_bytes(b"")
        self.plan.write_text(json.dumps({"mode": mode, "at": at, "process": process}))
        os.write(started, b".")
        os.close(started)
        os.close(go)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        return KILLED if code == -signal.SIGKILL else code

    calls = Disk.calls

    def close(self) -> None:
        os.kill(self.proxy, signal.SIGTERM)
        self.server.kill()


def enumerate_calls(
    root: Path, place: Disk | Bucket, every: int, stages: list[str], modes: Sequence[str]
) -> dict[str, dict]:
    """By stage: `calls`, `tried` (calls in each mode), and `wrong`, a sentence for each of those that went wrong."""
    folder, shop, output = place.folder, root / "shop", place.output
    store = f"{place.uri}/store"
    assert place.run(["simulate", str(shop), "--searches", "60", "--seed", "3"]) == 0, output.read_text()
    (shop / "ids.txt").write_text("c7\n")
    (shop / "grown.ndjson").write_text(LINE + GROWN)
    (root / "one.ndjson").write_text(LINE)  # its ingest makes the key, by which all later ones hash alike
    assert place.run(["ingest", str(root / "one.ndjson"), "--into", store]) == 0, output.read_text()
    shutil.rmtree(folder / "store" / "ingest")
    results = {}
    for stage, command in night(folder, shop, place.uri):
        if stage == "erase":  # somebody who is in the store
            assert place.run(["ingest", str(root / "one.ndjson"), "--into", store]) == 0, output.read_text()
        if stage == "prune-store":
            date_back(folder / "store")
            [shards] = (path.name for path in (folder / "store/build").iterdir())
            another = ["train", "--shards", f"{store}/build/{shards}", *SMALL, "--set", "seed=2", "--into", store]
            assert place.run(another) == 0, output.read_text()
        shutil.copytree(folder, root / "before")
        arguments = command()
        assert place.run(arguments) == 0, output.read_text()
        calls = place.calls()
        expected = state(folder)
        shutil.copytree(folder, root / "after")
        tried, wrong = 0, []
        for at in range(1, len(calls) + 1, every) if stage in stages else ():
            for mode in modes:
                _replace(folder, root / "before")
                first = place.run(arguments, mode, at)
                printed = output.read_text()
                if stage == "prune-store" and isinstance(place, Bucket):
                    time.sleep(FORGOTTEN_SECONDS)  # until then what a dead process may have read stays
                again = place.run(arguments)
                tried += 1
                now = state(folder)
                if again != 0 or now != expected or "Traceback" in printed or first not in (0, 1, KILLED):
                    extra, missing = (list(a[0] - b[0]) for a, b in ((now, expected), (expected, now)))
                    wrong.append(f"{mode} at {calls[at - 1]}: {first}, {again}, {extra=}, {missing=}, {printed[-300:]}")
        results[stage] = {"calls": len(calls), "tried": tried, "wrong": wrong}
        _replace(folder, root / "after")
        shutil.rmtree(root / "before")
        shutil.rmtree(root / "after")
    return results


def _replace(folder: Path, source: Path) -> None:
    """Make the content of a folder that of another. The folder itself stays: a server may have it open."""
    for path in folder.iterdir():
        shutil.rmtree(path)
    shutil.copytree(source, folder, dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [stage for stage, _ in night(Path(), Path(), "")]
    parser.add_argument("--every", type=int, default=1, help="try each Nth call")
    parser.add_argument("--stage", nargs="*", default=names, choices=names)
    parser.add_argument("--mode", nargs="*", help="by default all but `refuse`")
    parser.add_argument("--on", default="disk", choices=("disk", "s3"))
    arguments = parser.parse_args()
    for module in (*MODULES, *(S3_MODULES if arguments.on == "s3" else ())):
        import_module(module)
    with tempfile.TemporaryDirectory() as root:
        place = Bucket(Path(root)) if arguments.on == "s3" else Disk(Path(root))
        try:
            modes = arguments.mode or place.modes
            results = enumerate_calls(Path(root), place, arguments.every, arguments.stage, modes)
            json.dump(results, sys.stdout, indent=1)
        finally:
            if isinstance(place, Bucket):
                place.close()


if __name__ == "__main__":
    main()
