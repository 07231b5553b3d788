"""What a plan says of a run: the reasons in words, the time of last time, and what it leaves alone."""

import json
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import ensure_store_key, key_paths
from clicktower.flows.cli import run
from clicktower.flows.plan import _earlier_releases, _last_seconds, differences
from clicktower.flows.releases.publish import publish
from clicktower.flows.show import store_results
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.release import read_pointer
from clicktower.schemas.stage import WouldRun, commit, planning, stage_folder
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.trained_model import trained_stage

LOG, OTHER_LOG = "a" * 64, "b" * 64
BEFORE = Request(
    stage="train",
    stage_version=2,
    config={"recipe": {"epochs": 2, "tower": {"kind": "lstm", "cells": 96}}, "workers": "any"},
    inputs={"shards": "0" * 24, "logs": [LOG], "window": {"to": "2026-09-01"}, "start": None},
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"stage_version": 3}, ["version of the stage 2 → 3"]),
        ({"seed": 7}, ["seed 0 → 7"]),
        ({"config": {**BEFORE.config, "workers": 3}}, ["workers any → 3"]),
        (
            {"config": {"recipe": {"epochs": 3, "tower": {"kind": "rnn", "window": 5}}, "workers": "any"}},
            ["epochs 2 → 3", "tower.kind lstm → rnn", "tower.window unset → 5", "tower.cells 96 → unset"],
        ),
        ({"inputs": {**BEFORE.inputs, "shards": "1" * 24}}, ["shards"]),
        ({"inputs": {**BEFORE.inputs, "start": "1" * 24}}, ["start"]),
        ({"inputs": {**BEFORE.inputs, "logs": [LOG, OTHER_LOG]}}, ["logs (1 new)"]),
        ({"inputs": {**BEFORE.inputs, "logs": [OTHER_LOG]}}, ["logs (1 new, 1 gone)"]),
        ({"inputs": {**BEFORE.inputs, "window": {"to": "2026-09-02"}}}, ["window.to 2026-09-01 → 2026-09-02"]),
    ],
)
def test_a_reason_names_what_changed_with_values_that_a_person_can_read(changes, expected):
    assert differences(BEFORE, replace(BEFORE, **changes)) == expected


def test_last_time_is_that_of_the_evaluated_model_and_not_of_a_comparison_s_newer_one(tmp_path):
    now = time.time()

    def finish(stage: str, seconds: int, created: str = "2026-09-01", **inputs: str) -> str:
        request = Request(stage=stage, stage_version=1, config={"seconds": seconds}, inputs=inputs)
        folder = stage_folder(str(tmp_path), request)
        (Path(folder) / "attempt-a").mkdir(parents=True)
        commit(folder, request, "attempt-a", Outcome(), now - seconds)
        value = json.loads(Path(folder, "manifest.json").read_bytes())
        Path(folder, "manifest.json").write_text(json.dumps(value | {"created": created}))
        return request.digest

    shards = finish("build", 50)
    model = finish("train", 500, shards=shards)
    finish("evaluate", 100, model=model)
    finish("train", 20, "2026-09-02", shards=shards)
    seconds = _last_seconds(str(tmp_path), str(tmp_path / "release"))
    assert {stage: round(number or 0, -1) for stage, number in seconds.items()} == {
        "build": 50, "train": 500, "evaluate": 100,
    }  # fmt: skip


def test_a_plan_makes_no_key_of_people_and_removes_none(tmp_path):
    log, store, first_day = tmp_path / "log.ndjson", str(tmp_path / "store"), date(2026, 9, 1)
    log.write_text("{}\n")

    def plan(today: date, **settings: bool | int) -> str:
        with planning(), pytest.raises(WouldRun) as would:
            ingest_log([str(log)], store=store, config=IngestConfig(**settings), today=today)
        return would.value.request.inputs["person_key"]

    planned = plan(first_day)
    assert not (tmp_path / "store").exists()
    _, key = ensure_store_key(store, renew=False, today=first_day)
    assert plan(first_day) == key.id != planned
    for days, settings in ((80, {"key_overlap": 30}), (200, {"key_overlap": 30}), (200, {"renew_key": True})):
        assert plan(first_day + timedelta(days=days), **settings) == planned, "a key that a run would make"
    assert len(key_paths(store)) == 1


@pytest.mark.slow
def test_a_planned_release_moves_no_pointer(tmp_path):
    model, to = trained_stage(str(tmp_path / "store"), seed=1), str(tmp_path / "release")
    documents = write_documents(tmp_path / "documents.tsv")
    with planning(), pytest.raises(WouldRun):
        publish(model, documents=documents, to=to, config=CONFIG)
    assert not (tmp_path / "release").exists()
    candidate = publish(model, documents=documents, to=to, config=CONFIG, candidate=True)
    with planning():
        answer = publish(model, documents=documents, to=to, config=CONFIG)
    assert (answer.release.digest, answer.reused, answer.is_live) == (candidate.release.digest, True, False)
    assert read_pointer(to) is None
    seconds = candidate.release.duration_seconds
    assert 0 < seconds <= candidate.duration_seconds
    assert answer.duration_seconds == _last_seconds(str(tmp_path), to)["publish"] == seconds
    with planning(), pytest.raises(WouldRun) as would:
        publish(model, documents=documents, to=to, config=replace(CONFIG, recall_at=5))
    [before] = _earlier_releases(to, would.value.request)
    assert differences(before, would.value.request) == ["recall_at 10 → 5"]


def test_a_person_reads_what_runs_why_and_how_long_and_that_a_time_is_unknown(capsys):
    train = {"stage": "train", "runs": True, "because": "epochs 2 → 3", "seconds": 185.0, "digest": None}
    publish = {"stage": "publish", "runs": True, "because": "train runs", "seconds": None, "digest": None}
    build = {"stage": "build", "runs": False, "because": "", "seconds": 4.7, "digest": "d"}
    store_results.plan({"plan": [build, train, publish], "seconds": 185.0, "unknown": ["publish"]})
    shown = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "build reused 4.7 s" in lines
    assert "train runs epochs 2 → 3 3 min 05 s" in lines
    assert "publish runs train runs unknown" in lines
    assert "2 of 3 stages would run: 3 min 05 s and an unknown time for publish." in shown.replace(" \n", " ")
    store_results.plan({"plan": [build], "seconds": 0.0, "unknown": []})
    assert "No stage would run" in capsys.readouterr().out


def test_a_plan_is_no_run_to_tell_of(capsys):
    assert run(["run", "pipeline.toml", "--plan", "--json-logs"]) == 2
    assert "--plan runs nothing" in capsys.readouterr().err
