"""Sections [promotion] and [drift] of a pipeline.toml: what they hold arrives where it decides."""

from dataclasses import asdict

import pytest

from clicktower.flows import chain
from clicktower.flows.config.guard_rules import DriftRules, PromotionRules
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.config.toml_file import with_fields
from clicktower.schemas.errors import UsageError

LEAST = """
[log]
files = ["logs/*.gz"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "qrels.txt"
frequencies = "asked.tsv"
"""
RULES = """
[promotion]
rule = "better"
measure = "collection_ndcg@10"
min_gain = -0.005
slice_limits = {"1 word" = 0.05, "no word in any title" = 0.1}
first = "above bm25"
"""


def read(folder, text: str):
    (folder / "pipeline.toml").write_text(LEAST + text, encoding="utf-8")
    return read_pipeline(str(folder / "pipeline.toml"))


@pytest.mark.parametrize("text", ["", RULES])
def test_the_rules_of_the_file_are_those_that_publish_is_given(tmp_path, monkeypatch, text):
    config, commands = read(tmp_path, text), []

    def run(stage, options, **_):
        commands.append(options)
        return {"stage": stage}

    monkeypatch.setattr(chain, "run_stage_command", run)
    monkeypatch.setattr(chain.present, "stage_result", lambda result: None)
    monkeypatch.setattr(chain.present, "headline", lambda result: "")
    chain.publish(config, {"path": "MODEL"}, {"path": "EVALUATION"})
    (options,) = commands
    assert with_fields(PromotionRules(), asdict(options["rule"])) == config.promotion
    assert options["if_better"]
    for option, value in (("qrels", "qrels.txt"), ("frequencies", "asked.tsv"), ("into", "store")):
        assert options[option] == str(tmp_path / value)


def test_without_a_section_a_release_has_to_be_better_and_nothing_stops_a_run(tmp_path):
    config = read(tmp_path, "")
    assert config.promotion == PromotionRules(rule="better", first="always", min_gain=0.0)
    assert config.drift == DriftRules(stop=())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[promotion]\nrule = 'sometimes'", "promotion.rule"),
        ("[promotion]\nmin_gain = 2", "promotion.min_gain is wrong"),
        ("[promotion]\nmargin = 0.1", "promotion.margin is unknown"),
        ("[drift]\nstop = ['volume']", "stop names volume; it can hold lines, searches"),
        ("[drift]\ndays = 'many'", "drift.days"),
    ],
)
def test_a_section_that_means_nothing_is_refused_by_name(tmp_path, text, found):
    with pytest.raises(UsageError, match=found):
        read(tmp_path, text)
