"""The pipeline with its store and its release on a real S3 server, which is killed, and of which secrets are kept."""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.shop import make_shop
from tests.s3_server import SECRET, S3Server
from tests.waiting import SECONDS, wait_until

pytestmark = pytest.mark.engine
CLICKTOWER = str(Path(sys.executable).parent / "clicktower")
DATE = "2026-09-01"
PIPELINE = """
title = "On an object store"
store = "s3://bucket/{name}/store"
report = "{name}.html"
[log]
files = ["data/log/*.ndjson.gz"]
[documents]
file = "data/documents.tsv"
[judgments]
queries = "data/judgments/queries.dev.tsv"
qrels = "data/judgments/qrels.dev.txt"
[build]
k = 2
[train]
threads = 1
[train.set]
epochs = 2
cells = 16
[publish]
to = "s3://bucket/{name}/release"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[S3Server]:
    pytest.importorskip("s3fs")
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make_shop(tmp_path_factory.mktemp("shop") / "shop")


def start(server: S3Server, shop: Path, *words: str, **other: str) -> subprocess.Popen:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return subprocess.Popen(
        [CLICKTOWER, *words], cwd=shop, env=environment | server.environment | other,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def said(process: subprocess.Popen) -> str:
    """What a command that must succeed said."""
    output = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0, output
    return output


def write_pipeline(shop: Path, name: str) -> str:
    (shop / f"{name}.toml").write_text(PIPELINE.format(name=name), encoding="utf-8")
    return f"{name}.toml"


def manifests(server: S3Server, name: str) -> dict[str, dict]:
    """The manifest of each stage that is finished."""
    found = [path for path in server.files() if path.name == "manifest.json" and f"/bucket/{name}/store/" in str(path)]
    return {path.parent.parent.name: json.loads(path.read_text()) for path in found}


def sizes(server: S3Server, name: str, stage: str) -> dict[str, tuple[int, str]]:
    manifest = manifests(server, name)[stage]
    return {file["path"].split("/", 1)[1]: (file["size_bytes"], file["sha256"]) for file in manifest["files"]}


def require_the_same(server: S3Server, shop: Path, name: str, told: object = "") -> None:
    """That a store and its release hold what the first ones hold, whole, and nothing beside it."""
    for stage in ("build", "train", "evaluate"):
        names = {name for name in sizes(server, "first", stage) if name.endswith((".arrow", ".safetensors", ".txt"))}
        assert {file: sizes(server, name, stage)[file] for file in names} == {
            file: sizes(server, "first", stage)[file] for file in names
        }, told
    for place in ("store", "release"):
        assert said(start(server, shop, "verify", f"s3://bucket/{name}/{place}")).startswith("✓"), told
    attempt = re.compile(rf"/{name}/store/\w+/\w+/(attempt-[^/]+)/")
    attempts = {found[1] for path in server.files() if (found := attempt.search(str(path)))}
    assert len(attempts) == len(manifests(server, name)), "what was half-made is gone"


@pytest.fixture(scope="module")
def made(server, shop) -> str:
    """The output of a whole run."""
    return said(start(server, shop, "run", write_pipeline(shop, "first"), "--date", DATE))


def test_a_run_is_searched_listed_reused_and_verified_and_holds_no_secret(server, shop, made):
    release = "s3://bucket/first/release"
    live = json.loads(said(start(server, shop, "releases", "--to", release, "--json")))
    assert len(live["releases"]) == 1
    assert " 1  " in said(start(server, shop, "search", "--release", release, "garden hose"))
    again = said(start(server, shop, "run", "first.toml", "--date", DATE))
    assert again.count("reused") == 5
    require_the_same(server, shop, "first")
    assert not [path for path in server.files() if path.name.startswith("claim-")], "claims are given back"
    for path in [*server.files(), *(shop / name for name in ("first.toml", "first.html"))]:
        assert SECRET.encode() not in path.read_bytes(), path
    assert SECRET not in made + again


def test_without_credentials_or_without_a_server_it_is_said_what_to_do(server, shop, made):
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    refused = start(server, shop, "run", "first.toml", "--date", DATE, **nobody)
    assert "has no credentials that it can use" in refused.communicate(timeout=SECONDS)[0]
    assert refused.returncode == 1
    away = start(server, shop, "verify", "s3://bucket/first/release", "--json", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    error = json.loads(away.communicate(timeout=SECONDS)[0].splitlines()[-1])["error"]
    assert error["kind"] == "TransientError", "which a scheduler tries again"
    assert "did not answer" in error["found"]


def test_a_server_that_is_killed_in_every_stage_loses_nothing(server, shop, made):
    """Down for as long as it takes to start again: the clients' own retries. Or longer: the same command goes on."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    config = write_pipeline(shop, "killed")
    finished, kills = "", 0
    while not finished:
        run = start(server, shop, "run", config, "--date", DATE)
        while run.poll() is None and kills < 4:
            before = len(server.files())
            wait_until(lambda before=before, run=run: len(server.files()) != before or run.poll() is not None)
            time.sleep(chance.uniform(0, 1.5))
            if run.poll() is None:
                server.kill()
                kills += 1
                time.sleep(chance.choice((0, 0, 6)))
                server.start()
        output = run.communicate(timeout=SECONDS)[0]
        if run.returncode == 0:
            finished = output
        else:
            assert "is a defect" not in output, (seed, output)
    require_the_same(server, shop, "killed", seed)


def test_of_two_runs_at_once_one_makes_each_stage_and_the_other_takes_it(server, shop, made):
    configs = [write_pipeline(shop, "both"), "too.toml"]
    (shop / "too.toml").write_text((shop / "both.toml").read_text().replace("both.html", "too.html"))
    outputs = [said(run) for run in [start(server, shop, "run", config, "--date", DATE) for config in configs]]
    for stage in ("ingest", "build", "train", "evaluate"):
        lines = [next(line for line in output.splitlines() if line.startswith(f"✓ {stage}")) for output in outputs]
        assert sum("reused" in line for line in lines) == 1, lines
    require_the_same(server, shop, "both")
    assert not [path for path in server.files() if path.name.startswith("claim-")], "claims are given back"


TAKES_TURNS = """
import os, sys, time
from schemas import claim
claim.BEAT_SECONDS, claim.LOOK_SECONDS, claim.TAKE_OVER_SECONDS = 0.2, 0.1, 3.0
with claim.claimed("s3://bucket/turns", lambda *told: print(*told)):
    for step in ("in", "out"):
        with open(sys.argv[1], "a") as log:
            log.write(f"{os.getpid()} {step}\\n")
        time.sleep(0.3)
"""


def test_processes_take_turns_at_a_claim_and_one_of_them_takes_over_that_of_a_dead_one(server, tmp_path):
    """Six at once, on a claim that somebody signed and did not live to give back."""
    (server.folder / "data" / "bucket" / "turns").mkdir()
    dead = "import json; from schemas import storage; storage.write_new('s3://bucket/turns/claim-000001.json', b'{}')"
    environment, log = os.environ | server.environment, tmp_path / "log"
    subprocess.run([sys.executable, "-c", dead], env=environment, check=True)
    command = [sys.executable, "-c", TAKES_TURNS, str(log)]
    takers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    told = [said(taker) for taker in takers]
    assert all("another process is making this: waiting" in one for one in told)
    turns = [line.split() for line in log.read_text().splitlines()]
    assert [step for _, step in turns] == ["in", "out"] * 6
    assert all(one == other for (one, _), (other, _) in zip(turns[::2], turns[1::2], strict=True))
    assert not list((server.folder / "data" / "bucket" / "turns").glob("claim-*"))
