"""Every path in a pipeline.toml or sweep.toml is relative to that file, also in the tables of stages' settings."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig
from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.flows.chain import build, ingest
from clicktower.flows.config.pipeline_config import PipelineConfig, check_inputs, read_pipeline
from clicktower.flows.config.sweep_config import SweepConfig, read_sweep
from clicktower.flows.releases.publish import PublishConfig
from clicktower.schemas.section import SectionFamily
from clicktower.schemas.section_fields import uri_fields
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig
from clicktower.training.model.recipe import Recipe

# The texts of these settings are no paths. Whoever adds a text decides: here, or as a Uri.
NO_PATHS = {
    "PipelineConfig.title", "PipelineConfig.beam_options", "LogSection.format", "LogSection.date",
    "CompareSection.rows", "CompareSection.against", "DriftRules.stop", "DriftRules.accept", "PromotionRules.measure",
    "SweepConfig.recipe", "SweepConfig.measure",
    "IngestConfig.format", "IngestConfig.date", "BuildConfig.split_salt", "PublishConfig.columns",
    "Recipe.name", "Generate.paraphrase", "Pretraining.paraphrase",
}  # fmt: skip
# These are a path or a name, and have a rule of their own.
PATH_OR_NAME = {"TrainSection.recipe", "TrainSection.start"}


def texts(kind: Any, seen: set[Any]) -> set[str]:
    """The fields of a config and of its sections that hold a text, and no Uri. A mapping's texts are of the log."""
    if kind in seen or kind.__module__ == "clicktower.beam_jobs.sources.mapping":
        return set()
    seen.add(kind)
    found: set[str] = set()
    uris = uri_fields(kind)
    hints = get_type_hints(kind)
    for name in (field.name for field in fields(kind)):
        hint = hints[name]
        if name != "kind" and name not in uris and holds_text(hint):
            found.add(f"{kind.__name__}.{name}")
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner):
                of_family = inner.all_kinds().values() if issubclass(inner, SectionFamily) else ()
                for section in (inner, *of_family):
                    found |= texts(section, seen)
    return found


def holds_text(hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return False
    values = get_args(hint)[1:] if get_origin(hint) is Mapping else get_args(hint)  # keys are names
    return hint is str or any(map(holds_text, values))


def test_every_text_of_a_config_is_a_path_or_known_to_be_none():
    configs = (PipelineConfig, SweepConfig, IngestConfig, BuildConfig, EvaluateConfig, PublishConfig, Recipe)
    found = set[str]().union(*(texts(config, set()) for config in configs))
    assert found == NO_PATHS | PATH_OR_NAME


def test_tables_that_are_read_as_they_are_hold_no_path():
    """Recipes are plain: paths in them would be the working directory's."""
    assert not uri_fields(Recipe)


PIPELINE = """
store = "s"
report = "p.html"
mlflow = "m"
[log]
files = ["l/{date}/*.gz"]
[documents]
file = "d.tsv"
[judgments]
queries = "q.tsv"
qrels = "r.txt"
frequencies = "f.tsv"
[ingest]
person_key = "keys/our.key"
[build]
adult_list = "lists/adult.txt"
[train]
recipe = "best.toml"
start = "s/train/abc"
teacher = "v.parquet"
word_vectors = "w.txt"
[compare]
logged = "shown.run"
frequencies = "g.tsv"
[publish]
to = "out"
[metrics]
textfile = "run.prom"
"""


def test_all_of_a_pipeline(tmp_path, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    (place / "pipeline.toml").write_text(PIPELINE, encoding="utf-8")
    (place / "best.toml").write_text('[train]\nrecipe = "dssm"\nword_vectors = "w2.txt"\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = read_pipeline("place/pipeline.toml")
    train, compare = config.train, config.compare
    assert compare
    assert config.metrics
    paths = (
        config.store, config.report, config.mlflow, *config.log.files, config.documents.file, config.judgments.queries,
        config.judgments.qrels, config.judgments.frequencies, config.ingest.person_key, config.build.adult_list,
        train.recipe, train.start, train.teacher, train.word_vectors, compare.logged, compare.frequencies,
        config.publish.to, config.metrics.textfile,
    )  # fmt: skip
    assert [str(path).removeprefix(f"{place}/") for path in paths] == [
        "s", "p.html", "m", "l/{date}/*.gz", "d.tsv", "q.tsv", "r.txt", "f.tsv", "keys/our.key", "lists/adult.txt",
        "best.toml", "s/train/abc", "v.parquet", "w.txt", "shown.run", "g.tsv", "out", "run.prom",
    ]  # fmt: skip
    assert len(paths) == len(uri_fields(PipelineConfig)) + len(PATH_OR_NAME)


def test_all_of_a_sweep(tmp_path, monkeypatch):
    text = """
shards = "b"
into = "s"
word_vectors = "w"
start = "t"
teacher = "v"
mlflow = "m"
judged = {documents = "d", queries = "q", qrels = "r", adult_list = "a"}
seeds = [1, 2]
"""
    (tmp_path / "sweep.toml").write_text(text, encoding="utf-8")
    config = read_sweep(str(tmp_path / "sweep.toml"))
    judged = config.judged
    assert judged
    paths = (
        config.shards, config.into, config.word_vectors, config.start, config.teacher, config.mlflow,
        judged.documents, judged.queries, judged.qrels, judged.adult_list,
    )  # fmt: skip
    assert [str(path).removeprefix(f"{tmp_path}/") for path in paths] == list("bswtvmdqra")
    assert len(paths) == len(uri_fields(SweepConfig))


def test_the_stages_of_a_run_from_elsewhere_take_the_files_beside_the_pipeline(tmp_path, monkeypatch):
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    (place / "keys").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for name, text in (
        ("log.ndjson", "{}\n"), ("documents.tsv", "d1\tRed hammer\n"), ("queries.tsv", "q1\tred hammer\n"),
        ("qrels.txt", "q1 0 d1 1\n"), ("adult.txt", "term\n"), ("keys/our.key", "key\n"),
    ):  # fmt: skip
        (place / name).write_text(text, encoding="utf-8")
    (place / "pipeline.toml").write_text(
        '[log]\nfiles = ["log.ndjson"]\n[documents]\nfile = "documents.tsv"\n'
        '[judgments]\nqueries = "queries.tsv"\nqrels = "qrels.txt"\n'
        '[ingest]\nperson_key = "keys/our.key"\nbots = {searches_per_hour = 90}\n[build]\nadult_list = "adult.txt"\n',
        encoding="utf-8",
    )
    config = read_pipeline("../place/pipeline.toml")
    check_inputs(config, "2026-09-01")
    commands: list[Mapping[str, Any]] = []

    def run(stage, options, **_):
        commands.append(options)
        return {"stage": stage, "path": "DAY", "counts": {"queries": 0}, "ledger": {"total": 0, "lines": {}}}

    monkeypatch.setattr("clicktower.flows.chain.run_stage_command", run)
    monkeypatch.setattr("clicktower.flows.show.present.stage_result", lambda result: None)
    monkeypatch.setattr("clicktower.flows.show.present.headline", lambda result: "")
    build(config, ingest(config, "2026-09-01"), "2026-09-01")
    assert commands[0]["set"] == IngestConfig(person_key=f"{place}/keys/our.key", bots=BotRules(searches_per_hour=90))
    assert commands[1]["set"] == BuildConfig(adult_list=f"{place}/adult.txt")


@pytest.mark.parametrize("line", ['[build]\nadult_list = ""', "[build]\nadult_list = 5", '[train]\nteacher = ""'])
def test_what_is_no_path_is_refused(tmp_path, line):
    text = PIPELINE.partition("[ingest]")[0] + line
    (tmp_path / "pipeline.toml").write_text(text, encoding="utf-8")
    with pytest.raises(Exception, match=r"must be a (path|valid string)"):
        read_pipeline(str(tmp_path / "pipeline.toml"))
