"""Every command of a user's first days in unusual surroundings: it succeeds, or says in one sentence why not."""

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clicktower.flows import cli
from tests.documented import ROOT
from tests.end_to_end.shop import make_shop, write_pipeline

READS = """
doctor
check data/log --documents data/documents.tsv
search --release release hämmer
releases --to release
verify release
verify store
explain --model {train} hammer hämmer
encode --model {train} --side query
nearest-words hammer --shards {build} --model {train}
export --release release --form parquet --into EXPORTED
"""
WRITES = """
ingest data/log --into store
build --days store --documents data/documents.tsv --k 1 --into store
train --shards {build} --into store --epochs 1 --set tower.cells=8 --set micro_batch=16 --set minibatch=32
evaluate --model {train} --documents data/documents.tsv --queries data/judgments/queries.dev.tsv --qrels data/judgments/qrels.dev.txt --into store
judgments --days store --k 2 --into store --set click_model=ctr
publish --model {train} --documents data/documents.tsv --to release --set index=none
rollback --to release
erase --store store --client-ids-file ids.txt
"""  # noqa: E501
ALL = f"run pipeline.toml\n{READS}{WRITES}"
CAP_DAC_OVERRIDE, PR_CAPBSET_DROP = 1, 24


@dataclass(frozen=True)
class Surroundings:
    """`folder`: the name of the working folder. `environment`: None removes a variable. `limits`: set in the process.
    `before`: done to the folder of a shop that has run already; without it the shop runs here for the first time.
    """

    folder: str = "shop"
    environment: dict[str, str | None] = field(default_factory=dict)
    limits: Callable[[], None] | None = None
    before: Callable[[Path], None] | None = None
    commands: str = ALL
    may_fail: str = ""


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _obey_permissions() -> None:
    ctypes.CDLL(None).prctl(
        PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0
    )  # root, too, may not write where it is forbidden


def _forbid_writing(shop: Path) -> None:
    for path in [shop / "store", shop / "release", *shop.glob("store/**/*"), *shop.glob("release/**/*")]:
        path.chmod(path.stat().st_mode & ~0o222)


def _from_tomorrow(shop: Path) -> None:
    """As a store looks after the clock went back a day."""
    tomorrow = time.time() + 86_400
    for path in [*shop.glob("store/**/*"), *shop.glob("release/**/*")]:
        os.utime(path, (tomorrow, tomorrow))


SURROUNDINGS = {
    "no home": Surroundings(environment={"HOME": None, "XDG_CACHE_HOME": None, "XDG_CONFIG_HOME": None}),
    "the C locale": Surroundings(
        environment={"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ),
    "a folder with spaces, quotes and Chinese": Surroundings(folder='it\'s a "shop" für 电钻 {x} %s'),
    "64 open files": Surroundings(limits=_few_files),
    "no temporary folder": Surroundings(environment={"TMPDIR": "/nowhere"}),
    "a clock that went back": Surroundings(before=_from_tomorrow),
    "a store that cannot be written": Surroundings(
        before=_forbid_writing, limits=_obey_permissions, commands=READS + WRITES, may_fail=WRITES
    ),
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A shop that has not run; to be copied."""
    folder = make_shop(tmp_path_factory.mktemp("shop"), searches=400, days=10)
    write_pipeline(folder, k=1, epochs=1)
    (folder / "ids.txt").write_text("c7\n")
    (folder / "query.txt").write_text("red hammer\n")
    return folder


@pytest.fixture(scope="module")
def shop_that_ran(shop, tmp_path_factory):
    """The same after `run`; to be copied."""
    folder = tmp_path_factory.mktemp("ran") / "shop"
    shutil.copytree(shop, folder)
    assert_fine(_run(folder, Surroundings(commands="run pipeline.toml")), Surroundings())
    return folder


def _run(folder: Path, around: Surroundings) -> list:
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | around.environment
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=folder,
        env={name: value for name, value in variables.items() if value is not None},
        input=json.dumps([line for line in around.commands.splitlines() if line]),
        preexec_fn=around.limits,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_fine(results: list, around: Surroundings) -> None:
    for line, code, text in results:
        assert "Traceback" not in text, (line, text)
        assert "this defect" not in text, (line, text)
        assert code == 0 or (code in (1, 2) and line in around.may_fail.splitlines()), (line, code, text)


@pytest.mark.rehearsal
@pytest.mark.engine
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_each_command_succeeds_or_says_why_not(name, request, tmp_path):
    around = SURROUNDINGS[name]
    folder = tmp_path / around.folder
    shutil.copytree(request.getfixturevalue("shop_that_ran" if around.before else "shop"), folder)
    if around.before:
        around.before(folder)
    before = _content(folder)
    results = _run(folder, around)
    assert_fine(results, around)
    if around.may_fail:
        assert sum(code for _, code, _ in results) > 3, results
        assert _content(folder) == before


def _content(shop: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes() for name in ("store", "release") for path in shop.glob(f"{name}/**/*") if path.is_file()
    }


def main() -> None:
    """Run the command lines that stand in standard input, in this process; write (line, exit code, output) of each."""
    results, output = [], Path("output.txt")
    answer = os.fdopen(os.dup(1), "w")
    for line in json.load(sys.stdin):
        for number, (name, flags) in enumerate((("query.txt", 0), (output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))):
            descriptor = os.open(name, flags)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.dup2(1, 2)
        outputs = {folder.parent.name: folder for folder in Path("store").glob("*/*")}
        try:
            cli.main([word.format_map(defaultdict(str, outputs)) for word in line.split()])
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        results.append((line, code, output.read_text(encoding="utf-8", errors="replace")))
    json.dump(results, answer)
    answer.close()


if __name__ == "__main__":
    main()
