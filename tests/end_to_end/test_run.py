"""`clicktower run` as a user types it, on real engines: everything new, everything reused, only what changed."""

import doctest
import gzip
import html
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clicktower import api
from clicktower.flows.config.guard_rules import DriftRules
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.guards import drift
from clicktower.flows.guards.drift import alarms, alarms_of_newest, watch_figures
from clicktower.flows.guards.usual_figures import require_usual
from clicktower.schemas.errors import StageError
from clicktower.training.model.recipe import DEFAULT
from tests.end_to_end.shop import clicktower, make_shop, write_pipeline
from tests.imported import ENGINES, TOLD, imported

STAGES = ("ingest", "build", "train", "evaluate", "compare", "publish")


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    return make_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def temporary(tmp_path_factory) -> Path:
    """The folder of temporary files of the first run."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def first(shop, temporary) -> dict:
    return run(shop, env=os.environ | {"TMPDIR": str(temporary)})


def run(shop: Path, **options) -> dict:
    done = ended_well(shop, **options)
    return json.loads(done.stdout)


def ended_well(shop: Path, **options) -> subprocess.CompletedProcess:
    done = clicktower("run", str(shop / "pipeline.toml"), "--json", **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def reused(results: dict) -> list[str]:
    return [stage for stage in STAGES if results[stage]["reused"]]


@pytest.mark.engine
def test_a_run_ends_in_a_release_that_answers_and_a_report(shop, first):
    assert reused(first) == []
    lines = sum(1 for file in (shop / "data/log").iterdir() for _ in _lines(file))
    assert first["build"]["ledger"]["total"] == sum(first["build"]["ledger"]["lines"].values()) == lines
    found = clicktower("search", "--release", str(shop / "release"), "hammer", "--json")
    hits = json.loads(found.stdout)["hits"]
    assert [hit["rank"] for hit in hits] == list(range(1, 11))
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert "<html" in (shop / "report.html").read_text(encoding="utf-8")


@pytest.mark.engine
def test_a_run_leaves_nothing_among_temporary_files(temporary, first):
    assert os.listdir(temporary) == []


@pytest.mark.engine
def test_the_comparison_takes_the_model_that_the_run_trained(shop, first):
    rows = {row["name"]: row for row in first["compare"]["metrics"]["rows"]}
    ours = first["evaluate"]["metrics"]["systems"]["model"]["ndcg@10"]["mean"]
    assert rows[DEFAULT]["values"]["ndcg@10"]["mean"] == pytest.approx(ours)
    assert len(list((shop / "store/train").iterdir())) == 1, "nothing was trained a second time"
    assert "a tower and BM25" in (shop / "report.html").read_text(encoding="utf-8")


@pytest.mark.engine
def test_what_comes_from_a_simulated_log_says_so_to_the_end(shop, first):
    assert all(first[stage]["labels"]["simulated"] for stage in STAGES)
    assert "simulated" in (shop / "report.html").read_text(encoding="utf-8").lower()


@pytest.mark.engine
def test_the_first_release_goes_live_and_the_report_says_why(shop, first):
    assert first["publish"]["metrics"]["live"]
    assert first["publish"]["metrics"]["decision"]["reason"] in _text(shop / "report.html")


@pytest.mark.engine
def test_what_a_run_observed_is_what_the_next_is_compared_with(shop, first, tmp_path):
    """Three earlier logs of twice the lines, put into a store of its own: the run would stop before training."""
    config = replace(read_pipeline(str(shop / "pipeline.toml")), store=str(tmp_path))
    done = {name: first[name] for name in ("ingest", "build")}
    seen = drift.observe(config, "2026-09-01", {**done, "train": first["train"], "evaluate": first["evaluate"]})
    ledger = first["build"]["ledger"]["lines"]
    assert seen.values["lines"] == first["build"]["ledger"]["total"]
    assert seen.values["bots"] == pytest.approx(
        (ledger["bot_user_agent"] + ledger["bot_behaviour"]) / seen.values["lines"]
    )
    assert seen.values["pairs"] == sum(first["build"]["counts"][name] for name in ("train_pairs", "dev_pairs"))
    assert seen.num_scores == 400
    assert [row["figure"] for row in first["drift"]][:2] == ["lines", "searches"]
    assert len(list((shop / "store/observed").iterdir())) == 1

    for day in range(3):
        values = {**seen.values, "lines": 2 * seen.values["lines"]}
        drift.write(str(tmp_path), replace(seen, key=f"ingest-{day}", when=f"2026-09-0{day + 1}", values=values))
    rows = watch_figures(config, "2026-09-01", done)
    assert [row.figure for row in alarms(rows)] == ["lines"]
    require_usual(config, "2026-09-01", done, alarms_of_newest(rows, done))
    stopping = replace(config, drift=DriftRules(stop=("lines",)))
    ingested = {"ingest": first["ingest"]}
    unusual = alarms_of_newest(watch_figures(stopping, "2026-09-01", ingested), ingested)
    with pytest.raises(StageError, match=f'accept = ."ingest-{first["ingest"]["digest"]}"'):
        require_usual(stopping, "2026-09-01", ingested, unusual)
    unusual = alarms_of_newest(watch_figures(stopping, "2026-09-01", done), done)
    require_usual(stopping, "2026-09-01", done, unusual)  # told after the ingest already


@pytest.mark.engine
def test_the_same_run_again_is_reused_whole_and_loads_no_engine(shop, first):
    done = ended_well(shop, env=TOLD)
    assert imported(done.stderr) & {*ENGINES, "prefect"} == set()
    assert "pyarrow" in imported(done.stderr), "what was imported is told"
    again = json.loads(done.stdout)
    assert reused(again) == list(STAGES)
    assert [again[s]["digest"] for s in STAGES] == [first[s]["digest"] for s in STAGES]


def planned(shop: Path, *options: str) -> tuple[dict[str, str], dict]:
    """What each stage would do, `reused` or why it runs, and the whole answer; nothing is written meanwhile."""

    def files() -> dict[Path, int]:
        return {path: path.lstat().st_mtime_ns for path in shop.rglob("*")}

    before = files()
    done = clicktower("run", str(shop / "pipeline.toml"), "--plan", *options, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert files() == before
    answer = json.loads(done.stdout)
    return {row["stage"]: row["because"] if row["runs"] else "reused" for row in answer["plan"]}, answer


@pytest.mark.engine
def test_a_plan_says_what_would_run_and_why_and_touches_nothing(shop, first):
    unchanged, answer = planned(shop)
    assert unchanged == dict.fromkeys(STAGES, "reused")
    assert [row["digest"] for row in answer["plan"]] == [first[stage]["digest"] for stage in STAGES]
    assert (answer["seconds"], answer["unknown"]) == (0, [])

    setting, answer = planned(shop, "--set", "train.set.epochs=3")
    assert setting == {
        **dict.fromkeys(("ingest", "build", "compare"), "reused"),
        "train": "epochs 2 → 3",
        **dict.fromkeys(("evaluate", "publish"), "train runs"),
    }
    release = json.loads((shop / "release/releases" / first["publish"]["digest"] / "release.json").read_text())
    took = [first["train"]["duration_seconds"], first["evaluate"]["duration_seconds"], release["duration_seconds"]]
    assert answer["seconds"] == pytest.approx(sum(took))
    assert answer["unknown"] == []

    log = next((shop / "data/log").iterdir())
    whole = log.read_bytes()
    log.write_bytes(gzip.compress(gzip.decompress(whole) + b"{}\n"))
    changed_log, _ = planned(shop)
    log.write_bytes(whole)
    assert changed_log["ingest"] == "logs (1 new, 1 gone)"
    assert changed_log["build"] == "ingest runs"
    assert "reused" not in changed_log.values()

    empty, answer = planned(shop, "--set", "store=nothing", "--set", "publish.to=nowhere")
    assert empty["ingest"] == "nothing of it is there yet"
    assert "reused" not in empty.values()
    assert answer["unknown"] == list(STAGES)


@pytest.mark.engine
def test_a_run_tells_programs_of_itself_and_leaves_in_the_store_what_it_needs(shop, first):
    """JSON lines, figures for Prometheus, and the removal at its end, which finds a half-made training of last week."""
    text = (shop / "pipeline.toml").read_text(encoding="utf-8")
    watched = shop / "watched.toml"
    watched.write_text(text + '[metrics]\ntextfile = "clicktower.prom"\n[keep]\n', encoding="utf-8")
    half_made = shop / "store/train" / ("a" * 24)
    (half_made / "checkpoints").mkdir(parents=True)
    (half_made / "checkpoints/update-000000001.json").write_bytes(b"{}")
    for path in (half_made / "checkpoints/update-000000001.json", half_made / "checkpoints"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    done = clicktower("run", str(watched), "--json", "--json-logs")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert reused(results) == list(STAGES)
    told = [json.loads(line) for line in done.stderr.splitlines()]
    ended = {line["stage"]: line["digest"] for line in told if line["event"] == "reused"}
    assert ended == {stage: first[stage]["digest"] for stage in STAGES}
    assert told[-1]["event"] == "done"
    queries = {line.split("\t")[1] for line in (shop / "data/judgments/queries.dev.tsv").read_text().splitlines()}
    assert not any(query in done.stderr for query in queries if " " in query)
    figures = {
        (sample.name, sample.labels.get("measure")): sample.value
        for family in text_string_to_metric_families((shop / "clicktower.prom").read_text(encoding="utf-8"))
        for sample in family.samples
        if sample.labels.get("system", "model") == "model"
    }
    mean = first["evaluate"]["metrics"]["systems"]["model"]["ndcg@10"]["mean"]
    assert figures["clicktower_ndcg", "ndcg@10"] == mean
    assert figures["clicktower_log_lines", None] == first["ingest"]["ledger"]["total"]
    assert [gone["digest"] for gone in results["prune"]["removed"]] == ["a" * 24]
    assert not half_made.exists()
    assert reused(run(shop)) == list(STAGES)


@pytest.mark.engine
def test_the_examples_of_the_python_api_are_true(shop, first, monkeypatch):
    """Its doctests, where "DIGEST" stands for the run's own."""
    monkeypatch.chdir(shop)
    for stage in ("build", "train"):
        (shop / "store" / stage / "DIGEST").symlink_to(first[stage]["path"], target_is_directory=True)
    try:
        tried = doctest.testmod(api, raise_on_error=True)
    finally:
        for stage in ("build", "train"):
            (shop / "store" / stage / "DIGEST").unlink()
    assert tried.attempted >= 10


@pytest.mark.engine
def test_another_learning_rate_reruns_training_and_what_follows_only(shop, first):
    write_pipeline(shop, step=0.003)
    try:
        changed = run(shop)
        assert reused(changed) == ["ingest", "build"]
        decision = changed["publish"]["metrics"]["decision"]
        assert decision["figures"]["case"] == "compared"
        assert decision["promote"] == changed["publish"]["metrics"]["live"]
        assert decision["reason"] in _text(shop / "report.html")
    finally:
        write_pipeline(shop)


@pytest.mark.engine
def test_a_truncated_output_is_noticed_and_made_again(shop, first):
    words = next(Path(first["build"]["data"]).glob("train-*/words.arrow"))
    os.truncate(words, words.stat().st_size - 1)
    again = run(shop)
    assert "words.arrow" in again["build"]["repaired"][0]
    assert again["build"]["logical_digest"] == first["build"]["logical_digest"]


@pytest.mark.engine
def test_a_run_that_fails_tells_it_once_and_without_a_traceback(shop, first):
    documents = shop / "data/documents.tsv"
    whole = documents.read_bytes()
    documents.write_bytes(whole + whole.splitlines(keepends=True)[0])
    try:
        done = clicktower("run", str(shop / "pipeline.toml"))
    finally:
        documents.write_bytes(whole)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("1 ids occur more than once") == 1


@pytest.mark.engine
def test_verify_finds_a_flipped_byte(shop, first):
    assert clicktower("verify", str(shop / "store")).returncode == 0
    weights = Path(first["train"]["data"], "model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    done = clicktower("verify", str(shop / "store"))
    assert done.returncode == 1
    assert "model.safetensors" in done.stderr
    content[-1] ^= 1
    weights.write_bytes(content)


def _text(page: Path) -> str:
    return html.unescape(page.read_text(encoding="utf-8"))


def _lines(file: Path) -> list[bytes]:
    return gzip.decompress(file.read_bytes()).splitlines()
