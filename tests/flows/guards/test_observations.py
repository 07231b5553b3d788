"""What is read out of the stages' results, on manifests as the stages write them, with figures worked by hand."""

import json
from pathlib import Path

import pytest

from clicktower.flows.config.pipeline_config import DocumentsSection, JudgmentsSection, LogSection, PipelineConfig
from clicktower.flows.guards.drift import observe
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import run_stage

DATE = "2026-09-01"


def config(store, files: str = "logs/{date}.gz") -> PipelineConfig:
    return PipelineConfig(
        log=LogSection(files=(files,)), documents=DocumentsSection(file="d"),
        judgments=JudgmentsSection(queries="q", qrels="r"), store=str(store),
    )  # fmt: skip


def stage(
    store, name: str, asked: dict | None = None, inputs: dict | None = None, files: dict | None = None, **outcome
):
    """The JSON result of a stage that was made up, committed as a real one is."""

    def produce(folder: str) -> Outcome:
        for file, value in (files or {}).items():
            Path(folder, file).write_text(json.dumps(value))
        return Outcome(**outcome)

    request = Request(stage=name, stage_version=1, config=asked or {}, inputs=inputs or {})
    return run_stage(str(store), request, produce).to_json()


def ingested(store, number: int, lines: dict[str, int]) -> dict:
    ledger = Ledger(total=sum(lines.values()), lines=lines)
    return stage(store, "ingest", {"date": DATE}, {"logs": [number]}, counts={"searches": 10 * number}, ledger=ledger)


@pytest.fixture
def day(tmp_path) -> dict:
    """A date of two ingests: the result is of the late file alone."""
    first = ingested(tmp_path, 1, {"day_click": 80, "bot_behaviour": 10, "unreadable_field": 10})
    late = ingested(tmp_path, 2, {"day_click": 60, "bot_user_agent": 30, "bot_crowd": 10})
    return {**late, "day": {"date": DATE, "version": 2, "parts": [{"ingest": r["digest"]} for r in (first, late)]}}


def test_a_date_with_late_files_counts_whole(tmp_path, day):
    seen = observe(config(tmp_path), DATE, {"ingest": day})
    assert (seen.key, seen.when, seen.dated) == (DATE, DATE, True)
    assert seen.values == {"lines": 200, "searches": 30, "unreadable": 10 / 200, "bots": 50 / 200}


def test_a_log_without_a_date_is_known_by_its_ingest(tmp_path, day):
    seen = observe(config(tmp_path, "logs/all.gz"), DATE, {"ingest": {k: v for k, v in day.items() if k != "day"}})
    assert seen.key == f"ingest-{day['digest']}"
    assert not seen.dated
    assert seen.values["lines"] == 100


def test_the_date_is_no_setting_and_everything_else_is(tmp_path, day):
    def asked(**settings) -> str:
        other = stage(tmp_path, "ingest", settings, counts={"searches": 1}, ledger=Ledger(total=0))
        return observe(config(tmp_path), DATE, {"ingest": other}).asked["lines"]

    assert asked(date=DATE, format="ubi") == asked(date="2026-09-02", format="ubi")
    assert asked(date=DATE, format="ubi") != asked(date=DATE, format="orcas")


def test_build_evaluation_and_promotion_add_what_they_know(tmp_path, day):
    ledger = Ledger(total=200, lines={"query_below_k": 30, "click_train": 90, "bot_behaviour": 80})
    window = {"window": {"versions": {DATE: 2, "2026-08-31": 1}}}
    counts = {"train_pairs": 40, "dev_pairs": 2, "documents": 7}
    results = {
        "ingest": day,
        "build": stage(tmp_path, "build", {"k": 5}, counts=counts, metrics=window, ledger=ledger),
        "train": stage(tmp_path, "train", {"recipe": "lstm-96"}),
        "evaluate": stage(
            tmp_path, "evaluate", {"gain": "linear"}, {"queries": "a", "qrels": "b"},
            {"per_query.json": {"best_score": [0.9, None, 0.5]}},
            metrics={"systems": {"model": {"ndcg@10": {"mean": 0.6}}}},
        ),
        "publish": {"metrics": {"decision": {"figures": {"case": "compared", "live": 0.55, "measure": "ndcg@10"}}}},
    }  # fmt: skip
    seen = observe(config(tmp_path), DATE, results)
    assert {name: seen.values[name] for name in ("below_k", "pairs", "documents", "quality", "live_quality")} == {
        "below_k": 30 / 120, "pairs": 42, "documents": 7, "quality": 0.6, "live_quality": 0.55,
    }  # fmt: skip
    assert (seen.num_days, seen.num_scores) == (2, 2)
    assert seen.scores == (0.5,) * 50 + (0.9,) * 50
    assert set(seen.asked) == {*seen.values, "scores"}
    for nothing in ({"decision": None}, {"decision": {"figures": {"case": "first"}}}):
        assert "live_quality" not in observe(config(tmp_path), DATE, results | {"publish": {"metrics": nothing}}).values


def test_fresh_judgments_from_clicks_are_compared_with_earlier_ones_and_other_judgments_are_not(tmp_path, day):
    def asked(qrels: str, labels: dict) -> str:
        evaluated = stage(
            tmp_path, "evaluate", {}, {"qrels": qrels, "labels": labels}, {"per_query.json": {"best_score": []}},
            metrics={"systems": {"model": {"ndcg@10": {"mean": 0.6}}}}, labels=labels,
        )  # fmt: skip
        results = {"ingest": day, "train": stage(tmp_path, "train"), "evaluate": evaluated}
        return observe(config(tmp_path), DATE, results).asked["quality"]

    clicks = {"judgments": "click-derived"}
    assert asked("monday", clicks) == asked("tuesday", clicks)
    assert asked("monday", {}) != asked("tuesday", {})
