"""Every command: what it does, what it needs, and where its code is; none of that code is loaded before it is used."""

import json
from dataclasses import dataclass, is_dataclass
from pkgutil import resolve_name
from typing import Any, get_type_hints


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command of the command line; a stage's name is its command's.

    `file`: in flows/commands. `extras`: those of clicktower that it needs, for an image installed with others; none:
    all. `on_engine`: it runs Beam, whose options follow a bare `--`. `without_pandas`: it keeps out what Arrow would
    import (beam_jobs), as those on Beam do. As "module:name" below clicktower: `settings`, the class of its settings
    (`--set`); `headline` takes the JSON of its result and gives a line.
    """

    file: str
    help: str
    extras: tuple[str, ...] = ()
    on_engine: bool = False
    without_pandas: bool = False
    settings: str = ""
    headline: str = ""


_BEAM, _TRAIN, _PUBLISH = ("beam",), ("train",), ("publish",)
_ALL_STAGES = ("beam", "train", "publish", "flows")
_CORE, _OTHER = "flows.report.run_blocks", "flows.report.headlines"
COMMANDS = {
    "demo": Command(
        file="simulate", help="Simulate a log and run everything from it to a searchable release.", extras=_ALL_STAGES
    ),
    "run": Command(
        file="pipelines", help="Run the whole pipeline that a TOML file describes.", extras=_ALL_STAGES,
        settings="flows.config.pipeline_config:PipelineConfig",
    ),
    "backfill": Command(file="backfill", help="Run it for a range of dates: missed nights, or the past."),
    "simulate": Command(
        file="simulate", help="Make a search log with known truth, labelled simulated.",
        settings="flows.simulation.simulation_config:SimulationConfig", headline=f"{_OTHER}:simulate",
    ),
    "check": Command(
        file="check", help="Report what a log contains and what looks wrong with it, from a sample.", extras=_BEAM
    ),
    "ingest": Command(
        file="stages", help="Read a search log into a private daily aggregate.", extras=_BEAM, on_engine=True,
        settings="beam_jobs.ingest.ingest_stage:IngestConfig", headline=f"{_CORE}:ingest_headline",
    ),
    "build": Command(
        file="stages", help="Turn days and documents into training shards, behind the privacy gate.", extras=_BEAM,
        on_engine=True, settings="beam_jobs.build.build_stage:BuildConfig", headline=f"{_CORE}:build_headline",
    ),
    "build-labelled": Command(
        file="labels", help="Turn labelled pairs or texts into shards, split so that no sentence leaks.",
        extras=_BEAM, on_engine=True, settings="beam_jobs.labelled.labelled_rows:LabelledConfig",
        headline=f"{_OTHER}:build_labelled",
    ),
    "texts": Command(
        file="models", help="Write the texts that training meets, for your own teacher to encode.", extras=_TRAIN
    ),
    "train": Command(
        file="stages", help="Train the twin towers on shards.", extras=_TRAIN,
        settings="training.model.recipe:Recipe", headline=f"{_CORE}:train_headline",
    ),
    "import-encoder": Command(
        file="models", help="Bring a transformer, to stand in the place of a model or beside one.",
        extras=("encoders",), headline=f"{_OTHER}:import_encoder",
    ),
    "combine": Command(
        file="models", help="Make an ensemble of models.", extras=_TRAIN, headline=f"{_OTHER}:combine"
    ),
    "sweep": Command(
        file="sweep", help="Train many variants of a recipe, and rank them on held-out data.", extras=_TRAIN,
        settings="flows.config.sweep_config:SweepConfig", headline=f"{_OTHER}:sweep",
    ),
    "judgments": Command(
        file="labels", help="Derive graded judgments from the clicks of a later period.", extras=_BEAM,
        on_engine=True, settings="beam_jobs.judgments.judge_clicks:JudgmentsConfig", headline=f"{_OTHER}:judgments",
    ),
    "evaluate": Command(
        file="stages", help="Evaluate a model by NDCG, compared with BM25 and a random order.",
        extras=_TRAIN, settings="training.evaluation.row:EvaluateConfig",
        headline=f"{_CORE}:evaluate_headline",
    ),
    "evaluate-labelled": Command(
        file="labels", help="Evaluate a model on labelled texts, beside lexical baselines.",
        extras=("train", "compare"),
        settings="training.evaluation.evaluate_labelled_stage:EvaluateLabelledConfig",
        headline=f"{_OTHER}:evaluate_labelled",
    ),
    "compare": Command(
        file="compare", help="Compare all rows of the paper's table on your data, with intervals and tests.",
        extras=("train", "compare"), headline="flows.report.comparison_page:comparison_headline",
    ),
    "publish": Command(
        file="stages", help="Encode all documents into a release and make it the live one.", extras=_PUBLISH,
        settings="flows.config.guard_rules:PublishConfig", headline=f"{_CORE}:publish_headline",
    ),
    "releases": Command(
        file="releases", help="List the releases that are kept: which is live, and why a candidate is not."
    ),
    "rollback": Command(
        file="releases", help="Make the previous release live again, or any that is kept.",
        headline=f"{_OTHER}:rollback",
    ),
    "export": Command(
        file="releases", help="Export the live release as Parquet, for OpenSearch, a hub or trec_eval.",
        headline=f"{_OTHER}:export",
    ),
    "explain": Command(
        file="explain", help="Show what makes the score of a query and a title, or what a recurrent model reads in a"
        " text.", extras=_TRAIN, settings="training.analysis.keywords:CountingRule",
    ),
    "nearest-words": Command(
        file="explain", help="List the nearest words of a word, by Doc2Vec or by a trained tower."
    ),
    "search": Command(
        file="serve", help="Rank the documents of the live release for a query.", extras=_PUBLISH, without_pandas=True
    ),
    "serve": Command(
        file="serve", help="Answer searches over HTTP from the live release, with a search page.", extras=("serve",),
        without_pandas=True,
    ),
    "preference": Command(
        file="serve", help="Say which of two interleaved releases people prefer, from their clicks.", extras=_PUBLISH
    ),
    "encode": Command(file="models", help="Turn lines of text into vectors.", extras=_TRAIN),
    "erase": Command(
        file="erase", help="Erase people, on their request, from the private days of a store.", extras=_BEAM
    ),
    "prune": Command(
        file="prune", help="Remove old days and models, and what dead processes left, from a store.", extras=_BEAM
    ),
    "verify": Command(file="releases", help="Check every byte of an output against its manifest."),
    "settings": Command(
        file="settings", help="List every setting of a command, with its type, default and meaning."
    ),
    "doctor": Command(
        file="doctor",
        help="Report whether this machine can run everything, which path training takes, and what to fix.",
    ),
}  # fmt: skip


OPTIONS = "--options"  # they are a JSON object on standard input: how a flow calls a command


def code(place: str) -> Any:
    """What a "module:name" below clicktower names; this imports it."""
    return resolve_name(f"clicktower.{place}")


def function_of(command: str) -> str:
    """Where a command's function is."""
    return f"flows.commands.{COMMANDS[command].file}:{command.replace('-', '_')}"


def call_command(command: str, options: str) -> object:
    """What a command's function returns for a JSON object of its options, by the names of its parameters and of the
    fields of those that are a group; they are checked already.
    """
    from clicktower.schemas.section import take_fields  # pydantic takes time to load

    function, values = code(function_of(command)), json.loads(options)
    kinds = get_type_hints(function).items()
    groups = {name: take_fields(kind, values) for name, kind in kinds if isinstance(kind, type) and is_dataclass(kind)}
    return function(**groups, **values)
