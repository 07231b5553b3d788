"""What the sections of a pipeline become: the options of the stages' commands."""

import json
import shutil
from dataclasses import replace
from threading import Timer
from typing import Any

import pytest

from clicktower.flows import chain, run_options
from clicktower.flows.config.pipeline_config import LateLog, read_pipeline
from clicktower.flows.releases.publish import PublishConfig, publish
from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.evaluation.row import EvaluateConfig
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.trained_model import trained_stage

PIPELINE = """
store = "store"
[log]
files = ["log.ndjson"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "qrels.txt"
[publish]
to = "release"
[train]
{train}
"""


@pytest.fixture
def commands(monkeypatch) -> list[dict[str, Any]]:
    """The stage and the options of every command that ran."""
    ran: list[dict[str, Any]] = []

    def run_stage_command(stage, options, **_):
        ran.append({"stage": stage, **options})
        return {"stage": stage, "path": "p", "metrics": {}, "counts": {}}

    monkeypatch.setattr(chain, "run_stage_command", run_stage_command)
    monkeypatch.setattr(chain.present, "stage_result", lambda _: None)
    monkeypatch.setattr(chain.present, "headline", lambda _: "")
    return ran


def pipeline(tmp_path, train: str):
    (tmp_path / "pipeline.toml").write_text(PIPELINE.format(train=train))
    return read_pipeline(str(tmp_path / "pipeline.toml"))


def test_a_scheduled_training_asks_for_gpus_workers_a_start_and_a_teacher(tmp_path, commands):
    config = pipeline(
        tmp_path,
        'device = "cuda"\nworkers = "auto"\nmin_workers = 2\nstart = "store/train/a"\nteacher = "vectors.parquet"\n'
        'threads = 3\n[compare]\nrows = ["bm25", "lstm-96"]',
    )
    chain.train(config, {"path": "shards", "digest": "d"})
    chain.compare(config, {"path": "shards"})
    trained, compared = commands
    where = {"device": "cuda", "workers": "auto", "min_workers": 2, "threads": 3, "path": "auto"}
    assert trained.items() >= where.items()
    assert compared.items() >= where.items()
    assert trained["start"] == str(tmp_path / "store/train/a")
    assert trained["teacher"] == str(tmp_path / "vectors.parquet")
    assert not {"start", "teacher"} & compared.keys()


@pytest.mark.parametrize("language", [None, "german"])
def test_the_language_of_the_documents_is_that_of_every_stage_that_reads_their_terms(tmp_path, commands, language):
    config = pipeline(tmp_path, "[compare]\n[evaluate]\nmin_judged = 3")
    if language:
        config = replace(config, documents=replace(config.documents, language=language))
    chain.evaluate(config, {"path": "model"})
    chain.compare(config, {"path": "shards"})
    chain.publish(config, {"path": "model"}, {"path": "evaluation"})
    evaluated, compared, published = commands
    assert evaluated["set"] == compared["evaluate"] == EvaluateConfig(min_judged=3, language=language or "english")
    assert published["set"] == PublishConfig(language=language or "english")


def test_the_list_of_adult_words_is_that_of_every_stage_that_measures_queries(tmp_path, commands):
    config = pipeline(tmp_path, '[compare]\n[build]\nadult_list = "words.txt"')
    chain.train(config, {"path": "shards", "digest": "d"})
    chain.evaluate(config, {"path": "model"})
    chain.compare(config, {"path": "shards"})
    chain.publish(config, {"path": "model"}, {"path": "evaluation"})
    assert [command["adult_list"] for command in commands] == [str(tmp_path / "words.txt")] * 4


@pytest.mark.parametrize("wrong", ['device = "tpu"', 'workers = "many"', 'min_workers = "two"', "devices = 1"])
def test_a_training_that_no_command_takes_is_refused_before_anything_runs(tmp_path, wrong):
    with pytest.raises(UsageError, match=r"train\.(device|workers|min_workers)"):
        pipeline(tmp_path, wrong)


def test_a_run_starts_from_the_live_model_and_repeated_from_where_that_began(tmp_path, commands, capsys):
    config, documents = pipeline(tmp_path, 'start = "live"'), write_documents(tmp_path / "documents.tsv")
    shards = {"path": "shards", "digest": "tonight"}

    def start(shards: dict = shards) -> str | None:
        chain.train(config, shards)
        return commands[-1]["start"]

    def said() -> str:
        return " ".join(capsys.readouterr().err.split())

    assert start() is None
    assert said() == 'start = "live": nothing is live yet, so this training starts from random numbers'
    first = trained_stage(config.store, seed=1, inputs={"shards": "yesterday", "start": None})
    publish(first, documents=documents, to=config.publish.to, config=CONFIG)
    assert start() == first
    assert not said()
    assert start({"path": "shards", "digest": "yesterday"}) is None
    assert "trained on these very shards, from random numbers too, so this training starts from random" in said()
    first_digest = json.loads((tmp_path / first / "manifest.json").read_text())["digest"]
    second = trained_stage(config.store, seed=2, inputs={"shards": "tonight", "start": first_digest})
    publish(second, documents=documents, to=config.publish.to, config=CONFIG)
    assert start() == first, "the live model was made by this very run"
    assert not said()
    shutil.rmtree(tmp_path / first)
    assert start() is None
    assert "what it started from is not in the store, so" in said()
    shutil.rmtree(tmp_path / second)
    assert start() is None
    assert "the training of the live model is not in the store" in said()


def test_judgments_that_join_nothing_stop_a_run_before_its_first_stage(tmp_path, commands):
    config = pipeline(tmp_path, "")
    write_documents(tmp_path / "documents.tsv")
    (tmp_path / "log.ndjson").write_text("{}\n")
    (tmp_path / "queries.tsv").write_text("q1\tsteel angle\n")
    (tmp_path / "qrels.txt").write_text("q2 0 d1 1\n")
    with pytest.raises(StageError, match="None of the query ids of the 1 judged queries"):
        chain.run(config, "2026-09-01")
    assert not commands


DATED = PIPELINE.format(train="").replace("log.ndjson", "logs/{date}.ndjson")


def test_a_run_waits_for_a_log_that_is_late_and_no_longer_than_it_may(tmp_path, monkeypatch):
    (tmp_path / "pipeline.toml").write_text(DATED.replace("[documents]", "wait_minutes = 5\n[documents]"))
    config, log = read_pipeline(str(tmp_path / "pipeline.toml")), tmp_path / "logs/2026-09-01.ndjson"
    monkeypatch.setattr(run_options, "LOOK_SECONDS", 0.01)
    with pytest.raises(LateLog, match="The log of 2026-09-01 is not there"):
        run_options.wait_for_log(config, "2026-09-01", 0.0)
    with pytest.raises(LateLog):
        run_options.wait_for_log(config, "2026-09-01", 0.05 / 60)
    log.parent.mkdir()
    delivery = Timer(0.2, log.touch)
    delivery.start()
    run_options.wait_for_log(config, "2026-09-01", config.log.wait_minutes)
    assert log.exists()
    delivery.join()


@pytest.mark.parametrize("wait", [True, False])
def test_only_a_run_that_may_wait_does(tmp_path, monkeypatch, commands, wait):
    write_documents(tmp_path / "documents.tsv")
    (tmp_path / "queries.tsv").write_text("q1\tsteel angle\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\n")
    (tmp_path / "pipeline.toml").write_text(DATED.replace("[documents]", "wait_minutes = 5\n[documents]"))
    waited = []
    monkeypatch.setattr(run_options, "wait_for_log", lambda config, date, minutes: waited.append(minutes))
    monkeypatch.setattr(chain, "require_log", lambda config, date: waited.append(0.0))
    monkeypatch.setattr(chain, "_compare_with_earlier_runs", lambda *_: [])
    chain.run(read_pipeline(str(tmp_path / "pipeline.toml")), "2026-09-01", "ingest", wait=wait)
    assert waited == [5.0 if wait else 0.0]
    assert [command["stage"] for command in commands] == ["ingest"]
