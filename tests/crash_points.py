"""Every call by which a stage changes the disk: what happens where it is the last one of a killed process, or fails.

    python -m tests.crash_points [--every N] [--stage NAME ...]

A small night is ingested, built, trained, evaluated, published twice and erased from. Each command runs undisturbed to
number its calls (Python's audit events: open for writing, rename, link, remove, mkdir, rmdir). Then, from the same
state, it runs once for each Nth call and is killed there, and once more and gets an I/O error from it. After that the
same command has to succeed, with the digests, ledgers and files of the undisturbed run, and to leave nothing but a
claim that nobody holds. Processes are forked from this one, which has imported everything and started no thread.
"""

import argparse
import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from flows import cli

# What the commands load: here once, and not anew in every forked process.
MODULES = (
    "beam_jobs.build.build_job", "beam_jobs.ingest.erase", "beam_jobs.ingest.ingest_job", "flows.releases.publish",
    "training.evaluation.evaluate_stage", "training.model.model", "training.trainer.worker",
)  # fmt: skip
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"}
MODES = ("kill", "fail")
KILLED = 137
LINE = '{"query_id": "s1", "client_id": "c7", "user_query": "angle bracket", "timestamp": "2026-09-01T10:00:00Z"}\n'
# Names that differ from run to run.
_RANDOM = re.compile(r"attempt-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{24}|tfevents[\w.]+")
_SAME_BYTES = (".arrow", ".safetensors", ".run")


def run(command: list[str], folder: Path, output: Path, *, mode: str = "", at: int = 0) -> int:
    """The exit code of a command in a process of its own, disturbed at call number `at`. `output`: what it prints."""
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    calls = os.open(output.with_suffix(".calls"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    printed = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
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
    code = 1
    try:
        code = cli.run(command)
    finally:
        os._exit(code)


def state(folder: Path) -> tuple[Counter, Counter]:
    """(files, by name and, where a run gives the same bytes, content; what manifests say), without random names."""
    files, manifests = Counter(), Counter()
    for path in folder.rglob("*"):
        if not path.is_file() or path.name == "claim.json" or "documents.lance" in path.parts:
            continue
        content = path.read_bytes() if path.suffix in _SAME_BYTES and path.name != "lines.arrow" else b""
        name = _RANDOM.sub("#", str(path.relative_to(folder)))
        files[f"{name} {hashlib.sha256(content).hexdigest()[:12]}"] += 1
        if path.name == "manifest.json":
            outcome = json.loads(path.read_bytes())["outcome"]
            manifests[json.dumps([outcome[name] for name in ("logical_digest", "ledger", "counts")])] += 1
    return files, manifests


def night(folder: Path, shop: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Each stage's command, made when those before it have run."""
    store, release = str(folder / "store"), str(folder / "release")
    documents, judged = str(shop / "documents.tsv"), shop / "judgments"

    def of(stage: str) -> str:
        return str(next(path for path in (folder / "store" / stage).iterdir()))

    small = ["--recipe", "lstm-32", "--epochs", "2", "--set", "minibatch=32", "--set", "micro_batch=16"]
    files = ["--queries", str(judged / "queries.dev.tsv"), "--qrels", str(judged / "qrels.dev.txt")]
    yield "ingest", lambda: ["ingest", str(shop / "log"), "--into", store]
    yield "build", lambda: ["build", "--days", store, "--documents", documents, "--k", "1", "--into", store]
    yield "train", lambda: ["train", "--shards", of("build"), *small, "--into", store]
    yield "evaluate", lambda: ["evaluate", "--model", of("train"), "--documents", documents, *files, "--into", store]
    publish = ["publish", "--documents", documents, "--to", release]
    yield "publish", lambda: [*publish, "--model", of("train"), "--evaluation", of("evaluate")]
    yield "prune", lambda: [*publish, "--model", of("train"), "--set", "keep=0"]
    yield "erase", lambda: ["erase", "--store", store, "--client-ids-file", str(shop / "ids.txt")]


def enumerate_calls(root: Path, every: int, stages: list[str]) -> dict[str, dict]:
    """By stage: `calls`, `tried` (calls in each mode), and `wrong`, a sentence for each of those that went wrong."""
    folder, shop, output = root / "work", root / "shop", root / "output"
    folder.mkdir()
    assert run(["simulate", str(shop), "--searches", "60", "--seed", "3"], folder, output) == 0, output.read_text()
    (shop / "ids.txt").write_text("c7\n")
    (root / "one.ndjson").write_text(LINE)  # its ingest makes the key, by which all later ones hash alike
    assert run(["ingest", str(root / "one.ndjson"), "--into", str(folder / "store")], folder, output) == 0
    shutil.rmtree(folder / "store" / "ingest")
    results = {}
    for stage, command in night(folder, shop):
        if stage == "erase":  # somebody who is in the store
            log = run(["ingest", str(root / "one.ndjson"), "--into", str(folder / "store")], folder, output)
            assert log == 0, output.read_text()
        shutil.copytree(folder, root / "before")
        arguments = command()
        assert run(arguments, folder, output) == 0, output.read_text()
        calls = output.with_suffix(".calls").read_text().splitlines()
        expected = state(folder)
        shutil.move(folder, root / "after")
        tried, wrong = 0, []
        for at in range(1, len(calls) + 1, every) if stage in stages else ():
            for mode in MODES:
                shutil.copytree(root / "before", folder)
                first = run(arguments, folder, output, mode=mode, at=at)
                said = output.read_text()
                again = run(arguments, folder, output)
                tried += 1
                now = state(folder)
                if again != 0 or now != expected or "Traceback" in said or first not in (0, 1, KILLED):
                    extra, missing = (list(a[0] - b[0]) for a, b in ((now, expected), (expected, now)))
                    wrong.append(f"{mode} at {calls[at - 1]}: {first}, {again}, {extra=}, {missing=}, {said[-300:]}")
                shutil.rmtree(folder)
        results[stage] = {"calls": len(calls), "tried": tried, "wrong": wrong}
        shutil.rmtree(root / "before")
        shutil.move(root / "after", folder)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [stage for stage, _ in night(Path(), Path())]
    parser.add_argument("--every", type=int, default=1, help="try each Nth call")
    parser.add_argument("--stage", nargs="*", default=names, choices=names)
    arguments = parser.parse_args()
    for module in MODULES:
        import_module(module)
    with tempfile.TemporaryDirectory() as root:
        json.dump(enumerate_calls(Path(root), arguments.every, arguments.stage), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
