"""Canaries: what is private in a log is planted in it, and then looked for in everything that a run leaves or says."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.beam_jobs.engine.arrow_files import read_table
from tests.end_to_end.every_byte import files_with, hashes_of, places_of
from tests.end_to_end.planted_log import (
    CLIENTS,
    DOCUMENTS,
    EVERYWHERE_FORBIDDEN,
    OF_FEW,
    OF_NAMES,
    PUBLIC,
    PUBLISHED,
    planted_log,
)

pytestmark = pytest.mark.slow

PRIVATE_FILE = re.compile(r"/store/ingest/[0-9a-f]+/attempt-[0-9a-f]+/(queries|exposures)-\d{5}\.arrow$")
TWO_PROCESSES = ("--", "--direct_running_mode=multi_processing", "--direct_num_workers=2")
EVERYTHING_PRIVATE = [*OF_FEW, *EVERYWHERE_FORBIDDEN]
PIPELINE = """
title = "canaries"
store = "store"
[log]
files = ["{given}/log.ndjson"]
[documents]
file = "{given}/documents.tsv"
[judgments]
queries = "{given}/queries.tsv"
qrels = "{given}/qrels.txt"
[train]
threads = 1
[train.set]
epochs = 2
tower.cells = 8
micro_batch = 16
minibatch = 32
"""


# The run as a Prefect flow, with a server of its own that keeps what it logs and shows.
AS_A_FLOW = """
import os
os.environ |= {"PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true", "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600"}
from clicktower.flows.pipeline import pipeline
pipeline("pipeline.toml")
"""


# Runs commands in one process, each with its limit on the size of files (0: none), and prints their exit codes.
SEVERAL = """
import json, resource, signal, sys
from clicktower.flows.cli import run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
free = resource.getrlimit(resource.RLIMIT_FSIZE)
codes = []
for limit, *command in json.loads(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit or free[0], free[1]))
    codes.append(run(command))
resource.setrlimit(resource.RLIMIT_FSIZE, free)
print(codes)
"""


class Made(NamedTuple):
    """A place with what ingest and build made in it, and what they printed."""

    place: Path
    day: dict
    built: dict


def _place(folder: Path) -> Path:
    """input/ holds what is given, work/ what is left: the store, the temporary folder, what was said."""
    for name in ("input", "work/tmp", "work/said"):
        (folder / name).mkdir(parents=True)
    log = planted_log()
    (folder / "input" / "log.ndjson").write_bytes(b"".join(line + b"\n" for line in log.lines))
    (folder / "input" / "documents.tsv").write_bytes(DOCUMENTS)
    return folder


def _make(place: Path, engine: tuple[str, ...] = ()) -> Made:
    given = ("--documents", str(place / "input/documents.tsv"), "--into", "store", "--json")
    day = json.loads(_run(place, "ingest", str(place / "input" / "log.ndjson"), "--into", "store", "--json", *engine))
    built = json.loads(_run(place, "build", "--days", day["path"], *given, *engine))
    _run(place, "verify", day["path"])
    _run(place, "verify", built["path"])
    return Made(place, day, built)


@pytest.fixture
def place(tmp_path) -> Path:
    return _place(tmp_path)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory) -> Made:
    """What one process made; to be read or copied."""
    return _make(_place(tmp_path_factory.mktemp("made")))


def _run(place: Path, *arguments: str) -> str:
    """What a command prints that succeeds; also kept below work/said, with what it printed on stderr."""
    return _said(place, ["-m", "clicktower.flows.cli", *arguments])


def _assert_all_fail(place: Path, *commands: tuple[int | str, ...]) -> None:
    """Each of the commands, written behind its limit on the size of files in bytes, ends with exit code 1."""
    codes = _said(place, ["-B", "-c", SEVERAL, json.dumps(commands)]).splitlines()[-1]
    assert json.loads(codes) == [1] * len(commands)


def _said(place: Path, command: list[str]) -> str:
    temporary = str(place / "work" / "tmp")
    environment = os.environ | {
        "TMPDIR": temporary,
        "PREFECT_HOME": f"{temporary}/prefect",
        "PYTHONPATH": str(Path.cwd()),
    }
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, cwd=place / "work", env=environment, check=False, timeout=300
    )
    said = place / "work" / "said"
    number = len(list(said.iterdir()))
    (said / f"{number:02d}.txt").write_bytes(done.stdout + b"\n" + done.stderr)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.decode()


def _assert_nothing_private(place: Path) -> set[tuple[str, str]]:
    """Nothing private is below work/ but queries of people in the private aggregate: where these are."""
    places = places_of(EVERYTHING_PRIVATE, [place / "work"])
    assert {(needle, path) for needle, path in places if needle in EVERYWHERE_FORBIDDEN} == set()
    assert {(needle, path) for needle, path in places if not PRIVATE_FILE.search(path)} == set()
    clients = [part for client in CLIENTS[:15] for part in hashes_of(client)]
    assert files_with(clients, [place / "work"]) == set()
    return places


@pytest.mark.parametrize(
    "engine", [pytest.param((), id="in memory"), pytest.param(TWO_PROCESSES, id="two", marks=pytest.mark.engine)]
)
def test_nothing_private_is_found_outside_the_private_aggregate(finished_run, tmp_path, engine):
    place, day, built = _make(_place(tmp_path), engine) if engine else finished_run
    # the rules caught whom they should, so there was something to hide
    caught = day["metrics"]["bots"]
    assert caught.keys() >= {"user_agent", "pace", "clicks_everything", "around_the_clock", "crowd", "unsure_pace"}
    assert day["counts"]["rejects"] == 8
    assert built["ledger"]["lines"]["query_below_k"] > 0

    found = _assert_nothing_private(place)
    assert {needle for needle, _ in found} == set(OF_FEW)  # the search finds what is there
    shards = {path for _, path in places_of([PUBLISHED], [place / "work/store/build"])}
    assert any(path.endswith(".arrow") for path in shards)


@pytest.mark.rehearsal
@pytest.mark.engine
def test_a_whole_run_to_release_and_report_and_what_reads_it_say_nothing_private(place):
    """Training, evaluation, release, report, Prefect's database; then judgments, check and a search."""
    (place / "input" / "queries.tsv").write_text(f"q0\t{PUBLIC[0]}\nq1\t{PUBLIC[1]}\n")
    (place / "input" / "qrels.txt").write_text("".join(f"q{n % 2} 0 D{n} {n % 4}\n" for n in range(40)))
    (place / "work" / "pipeline.toml").write_text(PIPELINE.format(given=place / "input"))
    _said(place, ["-c", AS_A_FLOW])  # and as `clicktower run` does without a server
    results = json.loads(_run(place, "run", "pipeline.toml", "--json"))
    assert results["build"]["reused"]
    assert results["build"]["counts"]["train_pairs"] > 50
    _run(place, "judgments", "--days", "store", "--into", "store", "--set", "click_model=ctr", "--min-impressions", "1")
    _run(place, "check", str(place / "input" / "log.ndjson"))
    _run(place, "search", "--release", "release", "red hammer")
    _assert_nothing_private(place)
    for finished_run in ("release", "report.html", "tmp/prefect"):
        assert (place / "work" / finished_run).exists()
    seen = {Path(path).name for _, path in places_of([PUBLIC[1]], [place / "work"])}
    assert "report.html" in seen  # the search finds what may be there


def test_failing_runs_say_nothing_private_and_leave_nothing(place, finished_run):
    log, documents = str(place / "input" / "log.ndjson"), str(place / "input" / "documents.tsv")
    cut = place / "input" / "cut.ndjson.gz"
    cut.write_bytes(gzip.compress(Path(log).read_bytes())[:-500])
    _assert_all_fail(
        place,
        (0, "ingest", log, "--into", "store", "--set", "max_unreadable_share=0.0001"),
        (100_000, "ingest", log, "--into", "store"),  # what a full disk does
        (0, "ingest", str(cut), "--into", "store"),
        (0, "ingest", documents, "--into", "store"),
    )
    assert _assert_nothing_private(place) == set()

    for store in ("store", "damaged/store"):
        shutil.copytree(finished_run.place / "work/store/ingest", place / "work" / store / "ingest", dirs_exist_ok=True)
    day = Path(finished_run.day["path"]).relative_to("store")
    victim = next((place / "work/damaged" / finished_run.day["data"]).glob("queries-*.arrow"))
    victim.write_bytes(victim.read_bytes()[:-200])
    other = place / "input" / "other.tsv"
    other.write_bytes(b"E1\tAnother catalogue\n")
    _assert_all_fail(
        place,
        (3_000, "build", "--days", f"store/{day}", "--documents", documents, "--into", "store"),
        (0, "build", "--days", f"store/{day}", "--documents", str(other), "--into", "store"),
        (0, "build", "--days", f"damaged/store/{day}", "--documents", documents, "--into", "store"),
    )
    _assert_nothing_private(place)


def test_text_of_a_log_that_stands_where_names_would_be_is_not_said(place):
    """The first line of a log without a header, keys of JSON, columns of Parquet, values of the event column."""
    given, name = place / "input", OF_NAMES
    (given / "plain.csv").write_text(f"query,url,{name['first line']}\nlamp,D1,c1\nlamp,D2,c2\n")
    nested = {"user_agent": "x", name["nested key"]: "x"}
    line = {"query": "lamp", "sku": "D1", name["key"]: 1, "context": nested, name["outer key"]: {"user_id": "c1"}}
    (given / "keys.ndjson").write_text(f"{json.dumps(line)}\n" * 9)
    rows = [{"query": "lamp", name["column"]: "c1", "hit": {name["member"]: "D1"}, "hits": [{name["member"]: "D1"}]}]
    pq.write_table(pa.Table.from_pylist(rows * 9), given / "rows.parquet")
    click = {"query_id": "q1", "user_query": "lamp", "client_id": "c1", "action_name": f"click {name['event']}"}
    (given / "log.ndjson").write_text(f"{json.dumps(click)}\n" * 9)
    for column, wrong in (("named", "urls"), ("near", "canary"), ("number", 3)):
        mapping = f'delimiter = ","\n[columns]\nquery = "query"\ndocument_id = {json.dumps(wrong)}\n'
        (given / f"{column}.toml").write_text(mapping)
        (given / f"{column}-text.toml").write_text(mapping.partition("\n")[2])
    (given / "list.toml").write_text('[columns]\nquery = "query"\ndocument_id = "hits"\n')
    commands = []
    for log, log_format in (("plain.csv", "delimited"), ("keys.ndjson", "jsonl"), ("rows.parquet", "parquet")):
        commands += [(0, "check", str(given / log), *more) for more in ((), ("--json",))]
        for column in ("named", "near", "number"):
            mapping = given / (f"{column}.toml" if log_format == "delimited" else f"{column}-text.toml")
            how = (str(given / log), "--format", log_format, "--mapping", str(mapping))
            commands += [(0, "check", *how), (0, "ingest", *how, "--into", "store")]
    how = (str(given / "rows.parquet"), "--format", "parquet", "--mapping", str(given / "list.toml"))
    commands += [(0, "ingest", *how, "--into", "store"), (0, "check", str(given / "log.ndjson"))]
    codes = json.loads(_said(place, ["-B", "-c", SEVERAL, json.dumps(commands)]).splitlines()[-1])
    assert {1, 2} <= set(codes) <= {0, 1, 2}
    said = place / "work" / "said"
    assert places_of(list(name.values()), [said]) == set()
    assert places_of(["not named here", "is not shown", "did you mean 'url'"], [said])  # there was something to hide


def test_rejected_lines_are_named_by_their_places_alone(finished_run):
    content = (finished_run.place / "input" / "log.ndjson").read_bytes()
    broken = set(planted_log().broken)
    rejected = set()
    for path in (finished_run.place / "work" / finished_run.day["data"]).glob("rejects-*.arrow"):
        for row in read_table(str(path)).to_pylist():
            rejected.add(content[row["offset"] : content.index(b"\n", row["offset"])])
            assert row.keys() == {"file", "offset", "reason"}
    assert rejected == broken
