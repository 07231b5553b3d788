"""The nightly deployment on a real Prefect server and worker (tests/rehearsal.py kills what is there)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from clicktower.flows.pipeline import slot_name
from tests.end_to_end.prefect_server import ENDED, ROOT, PrefectServer, claim, running_stages
from tests.end_to_end.shop import make_shop
from tests.waiting import wait_until

pytestmark = pytest.mark.engine
DATE = "2026-09-01"
CLICKTOWER = [sys.executable, "-m", "clicktower.flows.cli"]
PIPELINE = """
title = "end to end"
store = "{name}"
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
epochs = {epochs}
optimiser.step = {step}
tower.cells = 16
micro_batch = 16
minibatch = 32
[limits]
retry_seconds = 1
[publish]
to = "{name}-release"
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make_shop(tmp_path_factory.mktemp("shop"), days=2)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[PrefectServer]:
    with PrefectServer(tmp_path_factory.mktemp("prefect"), PREFECT_FLOWS_HEARTBEAT_FREQUENCY="30") as started:
        yield started


def write(shop: Path, name: str, *, epochs: int = 2, step: float = 0.002, store: str = "") -> Path:
    """The TOML file of a run; `store` is another run's, by its name."""
    path = shop / f"{name}.toml"
    text = PIPELINE.format(name=name, epochs=epochs, step=step)
    path.write_text(text.replace(f'store = "{name}"', f'store = "{store or name}"'), encoding="utf-8")
    return path


def begun(store: Path, stage: str, server: PrefectServer, run: str) -> dict:
    """Who makes a stage, as soon as its work has begun."""

    def found() -> dict | None:
        made_by = claim(store, stage)
        if made_by and stage == "train":  # in the middle: the first checkpoint of an epoch is there
            made_by = made_by if list(store.glob("train/*/attempt-*/*")) else None
        return made_by if made_by and made_by["attempts"] else None

    return wait_until(found, lambda: f"{stage}: {server.logs_of(run)} {server.log('worker')}")


def test_the_nightly_deployment_runs_the_pipeline(server, shop):
    """While another run publishes to the same place; it waits for its turn."""
    deployment = server.deployment()
    assert [s["schedule"]["cron"] for s in deployment["schedules"]] == ["30 3 * * *"]
    form = deployment["parameter_openapi_schema"]["properties"]
    assert form["data_date"]["anyOf"][0]["format"] == "date"
    assert all(field["description"] for field in form.values())

    slot = slot_name(str(shop / "release"))
    server.ask("POST", "/v2/concurrency_limits/", {"name": slot, "limit": 1})
    server.ask("POST", "/v2/concurrency_limits/increment", {"names": [slot], "slots": 1})  # as if another published
    run = server.trigger(shop / "pipeline.toml", DATE)
    server.cli("automation", "create", "--from-file", "deploy/lost-runs.yaml")  # while that runs: is it accepted?
    names = sorted(found["name"] for found in server.ask("POST", "/automations/filter", {}))
    assert names == ["clicktower lost runs", "clicktower runs that do not begin"]
    waits = f"publish: takes the slot {slot}, and waits where another run has it"
    wait_until(lambda: waits in server.logs_of(run), lambda: f"publish: {server.logs_of(run)}")
    time.sleep(2)
    assert running_stages(shop / "release") == []
    assert not (shop / "release").exists(), "one run at a time publishes"
    server.ask("POST", "/v2/concurrency_limits/decrement", {"names": [slot], "slots": 1})
    assert server.end_of(run)["type"] == "COMPLETED", server.told(run)
    names = ["build", "compare", "evaluate", "ingest", "publish", "report", "train"]
    wait_until(lambda: sorted(n for n, s in server.tasks(run).items() if s == "COMPLETED") == names, "the tasks")
    assert (shop / "report.html").exists()
    assert (shop / "release/pointer.json").exists()
    said = server.logs_of(run)
    assert any(line.startswith("train: done, 2 epochs") for line in said), said
    shown = {artifact["key"]: str(artifact["data"]) for artifact in server.artifacts_of(run)}
    assert set(shown) == {
        f"end-to-end-{name}" for name in ("ledger", "ndcg", "drift", "promotion", "model-card", "links")
    }
    assert "Nothing was live yet, so the first release goes live." in shown["end-to-end-promotion"]
    assert "| lines of the log |" in shown["end-to-end-drift"]
    wait_until(lambda: "clicktower.release.live" in [e["event"] for e in server.events_of(run)], "the event of it")
    limits = server.ask("POST", "/v2/concurrency_limits/filter", {})
    assert [found["limit"] for found in limits if found["name"].startswith("clicktower-pointer-")] == [1]
    # Of every night that a folder is left the disk would fill; the worker's own one is there while it lives.
    wait_until(lambda: os.listdir(server.temporary) == ["runner_storage"], lambda: str(os.listdir(server.temporary)))


@pytest.mark.rehearsal
def test_a_publisher_waits_for_a_server_that_is_away_and_ends_without_it(server, tmp_path):
    holds = f"with pointer_slot({str(tmp_path)!r}): print('held'); input()"
    server.stop("server")
    command = [sys.executable, "-uc", f"from clicktower.flows.pipeline import pointer_slot\n{holds}"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=server.environment, cwd=ROOT, **streams) as publisher:
        time.sleep(6)
        server.start()
        held = publisher.stdout.readline()
        server.stop("server")
        _, said = publisher.communicate("\n")
        server.start()
    assert (held, publisher.returncode) == ("held\n", 0), said


def test_a_backfill_makes_runs_of_the_deployment_one_date_after_the_other(server, shop):
    """Two dates, and the log of the second is not there; then a date that is unlike those before it."""
    shutil.copytree(shop / "data/log", shop / "logs" / DATE)
    config = write(shop, "backfilled")
    config.write_text(config.read_text(encoding="utf-8").replace("data/log/", "logs/{date}/"), encoding="utf-8")
    command = [*CLICKTOWER, "backfill", str(config), "--from", DATE, "--to", "2026-09-02", "--ingest-only", "--server"]
    done = subprocess.run([*command, "--json"], env=server.environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    first, second = json.loads(done.stdout)["dates"]
    assert (first["date"], first["state"]) == (DATE, "done"), done.stderr
    assert (second["date"], second["state"]) == ("2026-09-02", "failed")
    assert "logs/2026-09-02" in second["error"]
    assert server.state(first["results"]["flow_run"])["type"] == "COMPLETED"
    assert server.flow_run(first["results"]["flow_run"])["parameters"]["data_date"] == DATE
    assert len(list((shop / "backfilled/ingest").iterdir())) == 1
    assert not (shop / "backfilled/build").exists(), "of two dates with a hole nothing is made"

    # Three nights before with twice the lines, and the same date again, where half of them is to stop a run. A file of
    # its day was lost meanwhile.
    observed = shop / "backfilled/observed"
    seen = json.loads((observed / f"{DATE}.json").read_text(encoding="utf-8"))
    for day in ("2026-08-29", "2026-08-30", "2026-08-31"):
        values = seen["values"] | {"lines": 2 * seen["values"]["lines"]}
        (observed / f"{day}.json").write_text(json.dumps(seen | {"key": day, "when": day, "values": values}))
    lost = next((shop / "backfilled/ingest").glob("*/attempt-*/queries-*.arrow"))
    lost.unlink()
    config.write_text(config.read_text(encoding="utf-8") + '[drift]\nstop = ["lines"]\n', encoding="utf-8")
    run = server.trigger(config, DATE)
    ended = server.end_of(run)
    assert ended["type"] == "FAILED"
    assert "(0.50 times, limits 0.67 and 1.5), from 3 days before" in ended["message"]
    assert f'accept = ["{DATE}"]' in ended["message"]
    wait_until(
        lambda: any("was damaged and made again" in line and lost.name in line for line in server.logs_of(run)),
        lambda: str(server.logs_of(run)),
    )
    shown = {artifact["key"]: str(artifact["data"]) for artifact in server.artifacts_of(run)}
    assert "0.50 times" in shown["end-to-end-drift"]
    assert "0.50 times" in shown["end-to-end-failure"]
    [event] = wait_until(
        lambda: [e for e in server.events_of(run) if e["event"] == "clicktower.run.drift"], "its event"
    )
    assert "(0.50 times, limits 0.67 and 1.5)" in event["payload"]["alarms"]


def test_a_run_waits_for_a_late_log_without_a_place_in_the_pool(server, shop):
    """Its process ends, and the worker starts it again to look; when the time is over, it fails."""
    config = write(shop, "late")
    text = config.read_text(encoding="utf-8").replace("data/log/", "late-logs/{date}/")
    config.write_text(text.replace("[documents]", "wait_minutes = 30\n[documents]"), encoding="utf-8")
    parameters = {"config": str(config), "data_date": DATE, "until": "ingest"}
    started = f"/deployments/{server.deployment()['id']}/create_flow_run"
    run = server.ask("POST", started, {"parameters": parameters})["id"]

    def looked_again() -> bool:
        state = server.state(run)
        assert state["type"] not in ENDED, server.told(run)
        is_told = f"The log of {DATE} is not there: nothing is at {shop}/late-logs/{DATE}" in (state["message"] or "")
        return is_told and state["name"] == "AwaitingRetry" and server.flow_run(run)["run_count"] > 1

    wait_until(looked_again, lambda: server.told(run))
    after_its_time = server.schedule(config, "2026-09-02")
    ended = server.end_of(after_its_time)  # in the pool's only place
    assert ended["type"] == "FAILED"
    assert "The log of 2026-09-02 is not there" in ended["message"]
    assert "backfill PIPELINE.toml --missing" in ended["message"]
    assert server.state(run)["type"] not in ENDED, server.told(run)

    shutil.copytree(shop / "data/log", shop / "late-logs" / DATE)
    assert server.end_of(run)["type"] == "COMPLETED", server.told(run)
    assert len(list((shop / "late/ingest").iterdir())) == 1


@pytest.mark.rehearsal
def test_a_stage_that_a_signal_ended_is_tried_again_and_a_cancelled_run_takes_its_stage_with_it(server, shop):
    """And a stage that takes longer than [limits] allows is ended, by the run and not by Prefect."""
    config, store = write(shop, "cancelled", epochs=2400), shop / "cancelled"
    run = server.trigger(config, DATE)
    first = begun(store, "train", server, run)
    os.kill(first["process"], signal.SIGKILL)
    wait_until(lambda: (claim(store, "train") or first)["process"] != first["process"], "another try")
    wait_until(  # the server hears of it a moment later
        lambda: any("was ended by SIGKILL" in line and "Retry 1/" in line for line in server.logs_of(run)),
        lambda: str(server.logs_of(run)),
    )

    second = begun(store, "train", server, run)
    server.set_state(run, "CANCELLING")
    wait_until(lambda: running_stages(store) == [], "the stage to end")
    assert server.end_of(run)["type"] == "CANCELLED"
    assert not Path(f"/proc/{second['process']}").exists()
    cancelled = {folder for folder in store.glob("train/*") if not (folder / "manifest.json").exists()}
    assert len(cancelled) == 1, "nothing under a final name"

    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("[limits]", "[limits]\ntimeout_minutes = {train = 0.05}"), encoding="utf-8")
    ended = server.end_of(server.trigger(config, DATE))
    assert ended["type"] == "FAILED"
    assert "after 0.05 minutes" in ended["message"]
    assert "raise train in [limits.timeout_minutes]" in ended["message"]
    wait_until(lambda: running_stages(store) == [], "the stage to end")


def test_a_run_that_fails_says_on_its_page_what_happened_and_what_to_do(server, shop):
    """A document twice; then an input that is not there."""
    config = write(shop, "corrupted", step=0.004, store="cancelled")
    documents = shop / "data/documents.tsv"
    (shop / "data/twice.tsv").write_bytes(documents.read_bytes() + documents.read_bytes().splitlines(True)[0])
    config.write_text(config.read_text(encoding="utf-8").replace("documents.tsv", "twice.tsv"), encoding="utf-8")
    run = server.trigger(config, DATE)
    ended = server.end_of(run)
    assert ended["type"] == "FAILED"
    assert "1 ids occur more than once" in ended["message"]
    wait_until(server.is_idle, "its process to end, and to hand over what it logs then")
    page = [ended["message"], *server.logs_of(run), *(str(a["data"]) for a in server.artifacts_of(run))]
    assert "Traceback" not in "\n".join(page)
    assert any("1 ids occur more than once" in str(a["data"]) for a in server.artifacts_of(run))

    gone = config.read_text(encoding="utf-8").replace("twice.tsv", "gone.tsv")
    config.write_text(gone, encoding="utf-8")
    ended = server.end_of(server.trigger(config, DATE))
    assert ended["type"] == "FAILED"
    assert "gone.tsv" in ended["message"]
    assert "Check the paths in the TOML file" in ended["message"]


class Received(BaseHTTPRequestHandler):
    """What a webhook on this machine is sent."""

    texts: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.texts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_people_hear_of_a_failure_of_drift_of_a_candidate_and_of_nothing_live(server, shop, tmp_path):
    """Of a real failure; the other events are those that runs were seen to emit above."""
    [kind] = server.ask("POST", "/block_types/filter", {"block_types": {"slug": {"any_": ["webhook"]}}})
    [schema] = server.ask("POST", "/block_schemas/filter", {"block_schemas": {"block_type_id": {"any_": [kind["id"]]}}})
    with HTTPServer(("127.0.0.1", 0), Received) as webhook:
        Thread(target=webhook.serve_forever, daemon=True).start()
        block = {
            "name": "clicktower", "block_type_id": kind["id"], "block_schema_id": schema["id"],
            "data": {"url": f"http://127.0.0.1:{webhook.server_port}"},
        }  # fmt: skip
        made = server.ask("POST", "/block_documents/", block)
        text = (ROOT / "deploy/alerts.yaml").read_text(encoding="utf-8")
        text = text.replace("00000000-0000-0000-0000-000000000000", made["id"]).replace("within: 172800", "within: 20")
        (tmp_path / "alerts.yaml").write_text(text, encoding="utf-8")
        server.cli("automation", "create", "--from-file", str(tmp_path / "alerts.yaml"))

        def hears(what: str) -> bool:
            return wait_until(
                lambda: any(what in text for text in Received.texts),
                lambda: f"{what}: {Received.texts} {server.log('server')}",
            )

        assert hears("no release went live")
        config = write(shop, "alerted")
        config.write_text(config.read_text(encoding="utf-8").replace("documents.tsv", "gone.tsv"), encoding="utf-8")
        run = server.trigger(config, DATE)
        assert server.end_of(run)["type"] == "FAILED"
        assert hears("Check the paths in the TOML file")
        server.emit("clicktower.run.drift", run, {"alarms": 'lines of the log: "few"'})
        assert hears('clicktower: lines of the log: "few"')
        server.emit("clicktower.release.kept", run, {"release": "abc", "reason": "It is worse."})
        assert hears("release abc was kept as a candidate. It is worse.")
        webhook.shutdown()
    for automation in server.ask("POST", "/automations/filter", {}):
        if "lost" not in automation["name"] and "begin" not in automation["name"]:
            server.api.delete(f"/automations/{automation['id']}")


@pytest.fixture(scope="module")
def taken_up_sooner(server, tmp_path_factory) -> int:
    """The seconds after which a lost run is taken up."""
    automations = (ROOT / "deploy/lost-runs.yaml").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("automations") / "sooner.yaml"
    path.write_text(automations.replace("within: 180", "within: 45"), encoding="utf-8")
    server.cli("automation", "create", "--from-file", str(path))
    return 45


@pytest.mark.rehearsal
def test_a_run_during_which_the_server_is_killed_is_not_begun_again_when_it_has_ended(server, shop, taken_up_sooner):
    run = server.trigger(shop / "pipeline.toml", DATE)
    wait_until(lambda: server.state(run)["type"] == "RUNNING", lambda: server.told(run))
    server.kill("server")
    server.start()
    assert server.end_of(run)["type"] == "COMPLETED", server.told(run)
    time.sleep(taken_up_sooner + 10)  # the server looks for what did not happen every few seconds
    assert server.flow_run(run)["run_count"] == 1, server.told(run)


@pytest.mark.rehearsal
@pytest.mark.parametrize("start", ["first", "second"])
def test_a_run_whose_worker_is_killed_before_it_begins_is_taken_up(server, shop, taken_up_sooner, start):
    """It would be pending for ever, in the pool's only place. A first start may not answer for the second."""
    run = server.trigger(shop / "pipeline.toml", DATE)
    if start == "second":
        wait_until(lambda: server.state(run)["type"] == "RUNNING", lambda: server.told(run))
        server.kill("worker")
        server.set_state(run, "SCHEDULED", "AwaitingRetry")
        server.start_worker()
    wait_until(lambda: server.state(run)["type"] == "PENDING", lambda: server.told(run))
    server.kill("worker")
    assert server.state(run)["type"] == "PENDING"
    server.start_worker()
    assert server.end_of(server.trigger(shop / "pipeline.toml", DATE))["type"] == "COMPLETED"
    assert server.end_of(run)["type"] == "COMPLETED", server.told(run)
