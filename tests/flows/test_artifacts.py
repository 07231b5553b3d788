"""What the artifacts of a run say. That they are on its page is read back in end_to_end/test_prefect_server.py."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from clicktower.flows import artifacts
from clicktower.flows.config.pipeline_config import DocumentsSection, JudgmentsSection, LogSection, PipelineConfig
from clicktower.flows.guards.drift import WatchedFigure
from clicktower.flows.report.markdown import markdown
from clicktower.flows.report.run_blocks import promotion
from clicktower.schemas.errors import StageError

CONFIG = PipelineConfig(
    log=LogSection(files=("log",)), documents=DocumentsSection(file="d"),
    judgments=JudgmentsSection(queries="q", qrels="r"), title="Größe & Co.: shop 2", report="https://here/report.html",
)  # fmt: skip
KEY = "gr-e-co-shop-2"
INTERVAL = {"mean": 0.5, "low": 0.4, "high": 0.6}
SYSTEMS = {name: {"ndcg@1": INTERVAL, "ndcg@10": INTERVAL} for name in ("model", "bm25", "random")}
SLICE = {"slice": "query length", "part": "1 word", "n": 60, "live": 0.5, "candidate": 0.4, "difference": -0.1,
         "limit": 0.02, "decides": True, "worse": True}  # fmt: skip
DECISION = {"promote": False, "reason": "It is worse | so the live model stays.",
            "figures": {"difference": INTERVAL,
                        "slices": [SLICE, SLICE | {"part": "2 words", "n": 9, "decides": False, "worse": False}],
                        "click_derived": True}}  # fmt: skip
ROWS = [
    WatchedFigure(figure="lines", words="lines of the log", value="10", usual="20", basis="4 Mondays", alarm="half",
            stops=True),
    WatchedFigure(figure="bots", words="share of bots", value="1%", usual="—", basis="no earlier day"),
]  # fmt: skip
ERROR = StageError("The disk is full.", "Make room.")


def results(release: Path) -> dict:
    def stage(name: str, **others) -> dict:
        return {"stage": name, "digest": f"d-{name}", "path": f"/store/{name}", "reused": False, "labels": {}, **others}

    ledger = {"total": 10, "lines": {"impression": 7, "query_below_k": 2, "unreadable_field": 1}}
    metrics = {"n": 400, "n_informative": 300, "systems": SYSTEMS, "confidence": 0.95,
               "gain": "exponential", "rules": {}, "warnings": [],
               "difference": {"measures": {"ndcg@10": INTERVAL | {"p": 0.01}}}}  # fmt: skip
    return {
        "ingest": stage("ingest", repaired=["queries-00000.arrow is missing"]),
        "build": stage("build", ledger=ledger, metrics={"privacy_gate": "k = 5 keeps 3 of 4 clicks"}),
        "evaluate": stage("evaluate", metrics=metrics),
        "publish": stage("publish", metrics={"live": False, "decision": DECISION}) | {"path": str(release)},
        "report": CONFIG.report,
    }


@pytest.fixture
def run_artifacts(tmp_path, monkeypatch) -> dict[str, dict]:
    """The artifacts of one run that fails at its end, by key: what was asked of Prefect."""
    (tmp_path / "README.md").write_text('---\ntags: ["x"]\n---\n\n# lstm-96\n\n---\nmore\n')
    found, asked = results(tmp_path), {}
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda *, key, **value: asked.update({key: value}))
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "a run")
    for name in ("ingest", "build", "evaluate", "publish"):
        artifacts.newest(CONFIG, {name: found[name]})
    artifacts.drift(CONFIG, ROWS)
    artifacts.links(CONFIG, found)
    artifacts.show_failure(CONFIG, ERROR)
    artifacts.show_failure(None, ERROR)
    return asked


def test_everything_has_a_stable_key(run_artifacts):
    assert set(run_artifacts) == {f"{KEY}-{name}" for name in artifacts.NAMES} | {"clicktower-failure"}


def test_the_ledger_is_a_table_of_every_fate(run_artifacts):
    text = run_artifacts[f"{KEY}-ledger"]["markdown"]
    for row in ("Kept | 7 | 70.0%", "Dropped by a rule | 2 | 20.0%", "Unreadable | 1 | 10.0%", "All lines | 10 |"):
        assert f"| {row}" in text
    assert "k = 5 keeps 3 of 4 clicks" in run_artifacts[f"{KEY}-ledger"]["description"]


def test_the_promotion_says_why_and_which_slices(run_artifacts):
    text = run_artifacts[f"{KEY}-promotion"]["markdown"]
    assert "**Kept as a candidate. It is worse" in text
    assert "| 1 word (query length) | 60 | 0.500 | 0.400 | -0.100 (too much worse) | -0.020 |" in text
    assert "too few to decide" in text
    assert "judged by clicks" in text


def test_drift_failure_links_and_card_say_what_they_are_for(run_artifacts):
    assert "- ⚠ half It stopped the run." in run_artifacts[f"{KEY}-drift"]["markdown"]
    assert run_artifacts[f"{KEY}-drift"]["description"] == "1 figure out of the usual"
    assert "The disk is full." in run_artifacts[f"{KEY}-failure"]["markdown"]
    assert "What to do: Make room" in run_artifacts["clicktower-failure"]["markdown"]
    assert "| report |  | https://here/report.html |" in run_artifacts[f"{KEY}-links"]["markdown"]
    assert "| ingest | was damaged and made again | /store/ingest |" in run_artifacts[f"{KEY}-links"]["markdown"]
    assert run_artifacts[f"{KEY}-model-card"]["markdown"].startswith("\n# lstm-96\n\n---\nmore")


def test_outside_of_a_run_nothing_is_made_and_nobody_is_asked(monkeypatch):
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda **_: pytest.fail("there is no page"))
    artifacts.show_failure(CONFIG, ERROR)


def test_a_server_that_is_away_does_not_end_the_run(monkeypatch, capsys):
    def away(**_):
        raise ConnectionError("the text of an error may quote data")

    monkeypatch.setattr(artifacts, "create_markdown_artifact", away)
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "a run")
    artifacts.show_failure(CONFIG, ERROR)
    output = capsys.readouterr().err
    assert "the run's page has no failure: ConnectionError" in output
    assert "quote" not in output


@pytest.mark.parametrize("title", ["Größe & Co.: shop 2", "店", "", "a--b", "Ends with -"])
def test_keys_are_as_prefect_takes_them(title):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", artifacts.key_of(replace(CONFIG, title=title), "ndcg"))


def test_every_row_of_a_markdown_table_has_the_columns_of_its_head():
    text = markdown(promotion({"live": False, **DECISION}, True))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


@pytest.mark.parametrize(
    ("metrics", "reused", "output"),
    [
        ({"live": True}, True, "was live already"),
        ({"live": True}, False, "went live; nothing was asked"),
        ({"live": True, "decision": {"promote": True, "reason": "Better.", "figures": {}}}, False, "**Live. Better.**"),
        ({"live": False, "decision": {"promote": False, "reason": "Worse.", "figures": {}}}, True, "candidate. Worse."),
    ],
)
def test_a_promotion_in_a_sentence(metrics, reused, output, tmp_path, monkeypatch):
    asked: dict[str, dict] = {}
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda *, key, **value: asked.update({key: value}))
    monkeypatch.setenv("PREFECT__RUNTIME__FLOW_RUN__ID", "a run")
    published = {"metrics": metrics, "reused": reused, "digest": "d", "path": str(tmp_path)}
    artifacts.newest(CONFIG, {"publish": published})
    assert output in asked[f"{KEY}-promotion"]["markdown"]
