"""The pipeline with its store and its release on a real S3 server, which is killed, and of which secrets are kept."""

import gzip
import json
import os
import random
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.bad_line import FAULTS, BadLine, at_random
from tests.end_to_end.shop import make_shop, pipeline
from tests.object_server import ObjectServer
from tests.s3_server import KEY_ID, SECRET, S3Server
from tests.waiting import SECONDS, wait_until

pytestmark = pytest.mark.engine
CLICKTOWER = str(Path(sys.executable).parent / "clicktower")
DATE = "2026-09-01"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[S3Server]:
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
    (shop / f"{name}.toml").write_text(pipeline(f"s3://bucket/{name}", report=name), encoding="utf-8")
    return f"{name}.toml"


def finished(server: S3Server, name: str) -> list[Path]:
    """The manifests of a store; of rows that evaluations share there are several."""
    return [path for path in server.files() if path.name == "manifest.json" and f"/bucket/{name}/store/" in str(path)]


def manifests(server: S3Server, name: str) -> dict[str, dict]:
    """The manifest of each stage that is finished."""
    return {path.parent.parent.name: json.loads(path.read_text()) for path in finished(server, name)}


def sizes(server: S3Server, name: str, stage: str) -> dict[str, tuple[int, str]]:
    manifest = manifests(server, name)[stage]
    return {file["path"].split("/", 1)[1]: (file["size_bytes"], file["sha256"]) for file in manifest["files"]}


def require_whole(server: S3Server, shop: Path, uri: str, reported: object = "") -> None:
    """That verify finds a store or a release as it was written; on a busy machine its progress comes first."""
    assert said(start(server, shop, "verify", uri)).splitlines()[-1].startswith("✓"), reported


def require_the_same(server: S3Server, shop: Path, name: str, reported: object = "") -> None:
    """That a store and its release hold what the first ones hold, whole, and nothing beside it."""
    for stage in ("build", "train", "evaluate"):
        names = {name for name in sizes(server, "first", stage) if name.endswith((".arrow", ".safetensors", ".txt"))}
        assert {file: sizes(server, name, stage)[file] for file in names} == {
            file: sizes(server, "first", stage)[file] for file in names
        }, reported
    for place in ("store", "release"):
        require_whole(server, shop, f"s3://bucket/{name}/{place}", reported)
    attempt = re.compile(rf"/{name}/store/\w+/\w+/(attempt-[^/]+)/")
    attempts = {found[1] for path in server.files() if (found := attempt.search(str(path)))}
    assert len(attempts) == len(finished(server, name)), "what was half-made is gone"


@pytest.fixture(scope="module")
def first_run(server, shop) -> str:
    """The output of a whole run."""
    return said(start(server, shop, "run", write_pipeline(shop, "first"), "--date", DATE))


def test_a_run_is_searched_listed_reused_and_verified_and_holds_no_secret(server, shop, first_run):
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
    assert SECRET not in first_run + again


def test_without_credentials_or_without_a_server_it_is_said_what_to_do(server, shop, first_run):
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    refused = start(server, shop, "run", "first.toml", "--date", DATE, **nobody)
    assert "has no credentials that it can use" in refused.communicate(timeout=SECONDS)[0]
    assert refused.returncode == 1
    away = start(server, shop, "verify", "s3://bucket/first/release", "--json", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    error = json.loads(away.communicate(timeout=SECONDS)[0].splitlines()[-1])["error"]
    assert error["kind"] == "TransientError", "which a scheduler tries again"
    assert "did not answer" in error["problem"]


@pytest.mark.rehearsal
def test_of_two_runs_at_once_one_makes_each_stage_and_the_other_takes_it(server, shop, first_run):
    configs = [write_pipeline(shop, "both"), "too.toml"]
    (shop / "too.toml").write_text((shop / "both.toml").read_text().replace("both.html", "too.html"))
    outputs = [said(run) for run in [start(server, shop, "run", config, "--date", DATE) for config in configs]]
    for stage in ("ingest", "build", "train", "evaluate"):
        lines = [next(line for line in output.splitlines() if line.startswith(f"✓ {stage}")) for output in outputs]
        assert sum("reused" in line for line in lines) == 1, lines
    require_the_same(server, shop, "both")
    assert not [path for path in server.files() if path.name.startswith("claim-")], "claims are given back"


@pytest.mark.rehearsal
def test_through_a_bad_line_a_run_makes_the_same(server, shop, first_run):
    """503s, late answers, connections cut in the middle of a request or an answer, answers lost: of one in twelve."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    config = write_pipeline(shop, "bad")
    with BadLine(server=server.address, fault=at_random(seed, 1 / 12)) as line:
        endpoint = {"AWS_ENDPOINT_URL": f"http://{line.address}"}
        while (run := start(server, shop, "run", config, "--date", DATE, **endpoint)).wait(SECONDS):
            output = run.communicate()[0]
            assert "is a defect" not in output, (seed, output)
            assert "un the same command again" in output, (seed, output)
        assert " 1  " in said(start(server, shop, "search", "--release", "s3://bucket/bad/release", "hose", **endpoint))
    assert min(line.faults[fault] for fault in FAULTS) > 0, line.faults
    require_the_same(server, shop, "bad", seed)


@pytest.mark.rehearsal
def test_a_writer_killed_in_the_middle_of_a_large_object_leaves_nothing_under_its_name(server, shop, first_run):
    """A model of 107 MB is uploaded in parts of 50 MiB."""
    shards = f"s3://bucket/first/store/build/{manifests(server, 'first')['build']['digest']}"
    into, sets = "s3://bucket/large/store", ("--set", "epochs=1", "--set", "tower.cells=136")
    train = ("train", "--shards", shards, "--recipe", "lstm-96", "--threads", "1", *sets, "--into", into)

    def kill(method: str, path: str, headers: dict[str, str]) -> str:
        if "partNumber=2" not in path:
            return ""
        killed.kill()
        return "cut_request"

    with BadLine(server=server.address, fault=kill) as line:
        killed = start(server, shop, *train, AWS_ENDPOINT_URL=f"http://{line.address}")
        assert killed.wait(SECONDS) == -signal.SIGKILL
        killed.communicate()
    fs = pytest.importorskip("s3fs").S3FileSystem(
        key=KEY_ID, secret=SECRET, endpoint_url=server.environment["AWS_ENDPOINT_URL"]
    )
    begun = [upload["Key"] for upload in fs.list_multipart_uploads("bucket")]
    assert len(begun) == 1
    assert begun[0].endswith("/model.safetensors")
    assert not [path for path in server.files() if str(path).endswith(begun[0])]
    assert "✓ train" in said(start(server, shop, *train))
    require_whole(server, shop, into)


SWEEP = """
shards = "{shards}"
into = "s3://bucket/first/sweep"
threads = 1
at_once = 2
epochs = 1
[set]
tower.cells = 8
[fields]
"optimiser.step" = [0.02, 0.001]
"""


@pytest.mark.rehearsal
def test_a_sweep_on_s3_and_a_service_that_follows_publish_rollback_and_prune(server, shop, first_run):
    found = manifests(server, "first")
    shards = f"s3://bucket/first/store/build/{found['build']['digest']}"
    (shop / "sweep.toml").write_text(SWEEP.format(shards=shards))
    sweep = json.loads(said(start(server, shop, "sweep", "sweep.toml", "--json")).splitlines()[-1])
    trials = [row["trials"][0]["digest"] for row in sweep["metrics"]["rows"]]
    train = ("train", "--recipe", sweep["best"], "--shards", shards, "--into", "s3://bucket/first/sweep", "--json")
    best = json.loads(said(start(server, shop, *train)).splitlines()[-1])
    assert (best["digest"], best["reused"]) == (trials[0], True)

    to = "s3://bucket/served"
    models = [f"s3://bucket/first/store/train/{found['train']['digest']}"]
    models += [f"s3://bucket/first/sweep/train/{trial}" for trial in trials]

    def publish(model: str) -> str:
        words = ("publish", "--model", model, "--documents", "data/documents.tsv", "--to", to, "--set", "keep=0")
        return json.loads(said(start(server, shop, *words, "--json")).splitlines()[-1])["digest"]

    def kept() -> dict[str, str]:
        listed = json.loads(said(start(server, shop, "releases", "--to", to, "--json")))["releases"]
        return {release["digest"]: release["state"] for release in listed}

    def answer() -> str:
        body = json.dumps({"query": "garden hose"}).encode()
        request = urllib.request.Request(f"{url}/v1/search", body, {"Content-Type": "application/json"})
        found = json.load(urllib.request.urlopen(request, timeout=SECONDS))
        assert found["hits"]
        return found["release"]

    one = publish(models[0])
    service = start(server, shop, "serve", "--release", to, "--port", "0", "--poll-seconds", "0.2", "--json")
    try:
        url = json.loads(service.stdout.readline())["url"]
        wait_until(lambda: answers(url))
        assert answer() == one
        two = publish(models[1])
        wait_until(lambda: answer() == two)
        said(start(server, shop, "rollback", "--to", to))
        wait_until(lambda: answer() == one)
        three = publish(models[2])
        wait_until(lambda: answer() == three)
    finally:
        service.kill()
        service.communicate()
    assert kept() == {three: "live", one: "previous"}, "the other is cleared away"
    require_whole(server, shop, to)


def answers(url: str) -> bool:
    with suppress(OSError):
        return urllib.request.urlopen(f"{url}/healthz", timeout=SECONDS).status == 200
    return False


@pytest.mark.rehearsal
def test_days_are_backfilled_as_on_a_disk_and_people_erased_from_them(server, shop):
    dates = [f"2026-09-0{day}" for day in (1, 2)]
    lines = [
        line
        for log in sorted((shop / "data/log").glob("*.gz"))
        for line in gzip.decompress(log.read_bytes()).splitlines(True)
    ]
    for number, date in enumerate(dates):
        (shop / f"logs/{date}").mkdir(parents=True)
        stamped = (re.sub(rb'("timestamp": ")\d{4}-\d\d-\d\d', rb"\g<1>" + date.encode(), line) for line in lines)
        of_day = [
            line for line in stamped if int((re.findall(rb'"query_id": "\w*?(\d)"', line) or [0])[0]) % 2 == number
        ]
        (shop / f"logs/{date}/log.ndjson").write_bytes(b"".join(of_day))
    for name, store in (("days", "s3://bucket/days/store"), ("on-disk", "on-disk/store")):
        config = pipeline(f"s3://bucket/{name}", report=name).replace("data/log/*.ndjson.gz", "logs/{date}/*")
        (shop / f"{name}.toml").write_text(config.replace(f"s3://bucket/{name}/store", store))
    days = ("--from", dates[0], "--to", dates[-1])
    done = json.loads(said(start(server, shop, "backfill", "days.toml", *days, "--json")).splitlines()[-1])
    assert [one["state"] for one in done["dates"]] == ["done", "done"]
    key = next(path for path in server.files() if str(path).endswith("days/store/private/person-key.json"))
    (shop / "on-disk/store/private").mkdir(parents=True, mode=0o700)
    (shop / "on-disk/store/private/person-key.json").touch(0o600)
    (shop / "on-disk/store/private/person-key.json").write_bytes(key.read_bytes())
    words = ("backfill", "on-disk.toml", *days, "--ingest-only", "--json")
    on_disk = json.loads(said(start(server, shop, *words)).splitlines()[-1])
    for one, other in zip(done["dates"], on_disk["dates"], strict=True):
        assert one["results"]["ingest"]["logical_digest"] == other["results"]["ingest"]["logical_digest"]

    client = next(re.findall(rb'"client_id": "(\w+)"', line)[0].decode() for line in lines if b"user_query" in line)
    (shop / "ids.txt").write_text(client)
    erased = {}
    for store in ("s3://bucket/days/store", "on-disk/store"):
        words = ("erase", "--store", store, "--client-ids-file", "ids.txt", "--json")
        erased[store] = json.loads(said(start(server, shop, *words)).splitlines()[-1])
    one, other = erased.values()
    assert one["counts"] == other["counts"]
    assert one["counts"]["ingests_changed"] > 0
    assert one["days"] == other["days"]
    assert {first_run["stage"] for first_run in one["made_before"]} == {"build", "train", "evaluate"}
    require_whole(server, shop, "s3://bucket/days/store")
    again = json.loads(said(start(server, shop, *words[:2], "s3://bucket/days/store", *words[3:])).splitlines()[-1])
    assert again["reused"], "nobody is left"


TAKES_TURNS = """
import os, sys, time
from clicktower.schemas import object_store, stage
object_store.BEAT_SECONDS, object_store.LOOK_SECONDS, object_store.TAKE_OVER_SECONDS = 0.2, 0.1, 10.0
with stage.claimed("BUCKET/turns", lambda *told: print(*told)):
    for step in ("in", "out"):
        with open(sys.argv[1], "a") as log:
            log.write(f"{os.getpid()} {step}\\n")
        time.sleep(0.3)
"""


@pytest.mark.rehearsal
def test_processes_take_turns_at_a_claim_and_one_of_them_takes_over_that_of_a_dead_one(server, tmp_path):
    require_turns(server, tmp_path)


def require_turns(server: ObjectServer, tmp_path: Path) -> None:
    """Six processes at once, on a claim that somebody signed and did not live to give back, take turns at it."""
    (server.folder / "data" / "bucket" / "turns").mkdir()
    claim = f"{server.bucket}/turns/claim-000001.json"
    dead = f"from clicktower.schemas import storage; storage.write_new('{claim}', b'{{}}')"
    environment, log = os.environ | server.environment, tmp_path / "log"
    subprocess.run([sys.executable, "-c", dead], env=environment, check=True)
    command = [sys.executable, "-c", TAKES_TURNS.replace("BUCKET", server.bucket), str(log)]
    takers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    reported = [said(taker) for taker in takers]
    assert all("another process is making this: waiting" in one for one in reported)
    turns = [line.split() for line in log.read_text().splitlines()]
    assert [step for _, step in turns] == ["in", "out"] * 6
    assert all(one == other for (one, _), (other, _) in zip(turns[::2], turns[1::2], strict=True))
    assert not list((server.folder / "data" / "bucket" / "turns").glob("claim-*"))
