"""clicktower ingest, build, train, evaluate, publish: from a log to a release, a stage at a time."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import (
    AdultList,
    ComputeOptions,
    Documents,
    Into,
    Json,
    Model,
    Qrels,
    Queries,
    ReleaseUri,
    Set,
    Shards,
    log_files,
)
from clicktower.flows.config.toml_file import read_toml, recipe_named, with_fields, with_options
from clicktower.flows.show import console, present
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.stage import StageResult
from clicktower.training.model.recipe import DEFAULT, NO_SOURCES, ONE_WORKER, Sources

if TYPE_CHECKING:
    from clicktower.beam_jobs.ingest.days import Window
    from clicktower.schemas.judgments import Judged


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StageFlags:
    """What every stage on Beam takes.

    Args:
        beam_options: Options of the Beam runner; write them after a bare `--`.
    """

    into: Into
    set: Set = None
    beam_options: list[str] | None = None
    json: Json = False

    def run(self, name: str, stage: Callable[..., StageResult], *inputs: Any, **settings: Any) -> StageResult:
        """The result of a stage, while a bar shows how far it is."""
        options: tuple[str, ...] = ()
        if self.beam_options:
            from clicktower.beam_jobs.engine.engines import with_engines
            from clicktower.flows.config.settings import Settings

            options = with_engines(self.beam_options, Settings().engines)
        with console.progress_bar(name) as progress:
            return stage(*inputs, store=self.into, beam_options=options, progress=progress, **settings)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WindowFlags:
    """The dates of a store that are read.

    Args:
        first: First date of the window (2026-09-01); by default the store's first.
        until: Last date of the window; by default the store's newest.
        last: The number of dates up to the last one, instead of a first one.
        allow_missing_days: Continue although the store has nothing for some dates of the window: for so many, or any
            number without one. The manifest names them.
    """

    first: Annotated[str | None, Parameter(name="--from")] = None
    until: Annotated[str | None, Parameter(name="--to")] = None
    last: int | None = None
    allow_missing_days: bool | int = False

    def window(self) -> "Window":
        from clicktower.beam_jobs.ingest.days import Window

        return Window(first=self.first, until=self.until, last=self.last, allow_missing=self.allow_missing_days)


ALL_DATES = WindowFlags()


def ingest(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    date: str | None = None,
    format: str | None = None,
    mapping: str | None = None,
    person_key: str | None = None,
    renew_key: bool = False,
    replace_day: bool = False,
    flags: StageFlags,
) -> None:
    """Read a search log into a private daily aggregate.

    Drops exact repeats, bots and empty queries, joins searches and events, and
    counts people by keyed hashes. Every input line has one fate in the ledger.
    Unreadable lines are listed as file, offset and reason.

        clicktower ingest logs/2026-09-01/*.ndjson.gz --date 2026-09-01 --into store
        clicktower ingest aol/*.txt.gz --format delimited --mapping aol.toml --into store
        clicktower ingest logs/ --into store -- --direct_running_mode=multi_processing --direct_num_workers=2

    Args:
        logs: Files, patterns, folders or URIs (s3://, gs://) of the log, plain or compressed with gzip or zstd; `-` for
            standard input.
        date: The day of the log (2026-09-01). Ingest a late file alone, with the same date: it makes a new version of
            that day. A file that has grown replaces what it was before.
        format: The format of the log: ubi (OpenSearch User Behavior Insights 1.0-1.3, JSON lines; the default), orcas
            (TSV of query id, query, document, url), or delimited, jsonl, parquet, whose columns a mapping names.
        mapping: TOML file that says what the columns are (docs/data.md has examples). For ubi: which actions are
            clicks.
        person_key: File with the key that people are hashed by; by default one is made in the store's private folder.
        renew_key: If the store's key has expired, make a new one. This begins a new window, which cannot be combined
            with the old one. `--set key_overlap=30` instead: keys renew themselves in time for windows of 30 days, and
            expired ones are removed.
        replace_day: Make the date from these files alone; whatever it was made from before is superseded.
    """
    from clicktower.beam_jobs.ingest import ingest_stage
    from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
    from clicktower.beam_jobs.ingest.person_key import key_state
    from clicktower.beam_jobs.sources.mapping import Mapping

    options = {
        "format": format,
        "mapping": asdict(read_toml(mapping, Mapping, subject="mapping", see="docs/data.md")) if mapping else None,
        "person_key": person_key or None,
        "date": date or None,
        "renew_key": renew_key or None,
        "replace_day": replace_day or None,
    }
    config = with_options(IngestConfig(), options, flags.set)
    with log_files(logs) as files:
        result = flags.run("ingest", ingest_stage.ingest_log, files, config=config)
    details: dict[str, Any] = {}
    if ingested := result.manifest.request.config.get("date"):
        from clicktower.schemas.day_version import newest_version, version_uri

        if version := newest_version(flags.into, ingested):
            details["day"] = version.to_json() | {"path": version_uri(flags.into, version)}
    if not config.person_key:
        details["person_key"] = key_state(flags.into, renews=bool(config.renew_key or config.key_overlap))
    console.emit(result.to_json() | details, flags.json, present.stage_with_details)


def build(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    documents: Documents,
    dates: WindowFlags = ALL_DATES,
    k: int | None = None,
    pool: Literal["documents", "clicked"] | None = None,
    judged_queries: str | None = None,
    adult_list: str | None = None,
    flags: StageFlags,
) -> None:
    """Turn daily aggregates and documents into training shards, behind the privacy
    gate.

    A query leaves the private aggregate only if at least k distinct people
    issued it. Clicked titles become pairs, each with n random unclicked titles;
    a keyed share of the queries is held out.

        clicktower build --days store --documents documents.tsv --k 5 --into store
        clicktower build --days store --last 30 --documents documents.tsv --into store

    Args:
        days: A store, or folders that `ingest` printed. For a store: the newest version of every date, and everything
            ingested without a date; with --from, --to or --last only the dates of that window.
        k: How many distinct people must have issued a query, by default 5. 1 is for a team that trains on its own log
            in private.
        pool: What unclicked titles are drawn from: all documents, by default, or only those that training pairs
            clicked.
        judged_queries: Queries (`id<TAB>text`) that are kept out of training, because the model is evaluated on them.
        adult_list: Your own list of adult words, one per line, instead of the built-in one.
    """
    from clicktower.beam_jobs.build import build_stage
    from clicktower.beam_jobs.build.build_stage import BuildConfig

    config = with_options(BuildConfig(), {"k": k, "pool": pool, "adult_list": adult_list or None}, flags.set)
    result = flags.run(
        "build", build_stage.build_shards, days, documents,
        config=config, window=dates.window(), judged_queries=judged_queries,
    )  # fmt: skip
    console.emit(result.to_json(), flags.json, present.stage_with_details)


def train(
    *,
    shards: Shards,
    into: Into,
    recipe: str = DEFAULT,
    sources: Annotated[Sources, Parameter(name="*")] = NO_SOURCES,
    epochs: int | None = None,
    reduction: Literal["exact", "fast"] | None = None,
    compute: ComputeOptions = ONE_WORKER,
    documents: str | None = None,
    queries: Queries | None = None,
    qrels: Qrels | None = None,
    adult_list: AdultList = None,
    loss_after_epoch: bool | None = None,
    set: list[str] | None = None,
    report: str | None = None,
    json: Json = False,
) -> None:
    """Train towers on shards; a killed run continues from its last checkpoint.

    The shards of `build` train twin towers on clicks; those of `build-labelled`
    train a classifier of texts or pairs, where the recipe's objective is classify.

    One worker trains in this process, several as processes of this machine; in a Ray
    cluster or job (RAY_ADDRESS) Ray Train starts them. With the exact reduction the weights are the
    same, bit for bit, for any number of workers and threads.

        clicktower train --shards store/build/DIGEST --into store
        clicktower train --shards store/build/DIGEST --into store --workers 2 --set optimiser.step=0.001 --epochs 20

    Args:
        recipe: The tower and its settings. The default is lstm-pool-192-words, whose gates `clicktower explain` shows;
            bag-pool-512-words trains faster and has none. As the paper prints them: paper-lstm-96, paper-lstm-64,
            paper-lstm-32, paper-lstm-96-n2, paper-lstm-96-n6, paper-lstm-96-n8, paper-bilstm-96, paper-rnn-288,
            paper-dssm, paper-clsm-1, paper-clsm-3, paper-clsm-5. Tuned: lstm-96, lstm-64, lstm-32, lstm-full-96,
            bilstm-96, rnn-288, dssm, clsm-1, clsm-3, clsm-5. Not in the paper: lstm-pool-192, lstm-pool-96,
            lstm-long-96, bag-pool-512, bag-512, self-attentive, max-pooled, variational (benchmarks/README.md compares
            them). From labels (docs/model.md): siamese-lstm, siamese-max, siamese-gru, siamese-cnn, siamese-swem,
            gated-attention, var-siamese, attentive-texts; with the sizes that Lin et al. and Deudon print
            (docs/model.md): lin-yelp, lin-age, lin-max, lin-cnn, lin-snli, lin-yelp-pruned, lin-age-pruned,
            lin-snli-pruned, deudon-vae, deudon-vae-repeat, deudon. Or a TOML file: the best.toml of a sweep, or your
            own, with `objective` classify (labels) or generate (reconstruction, paraphrase) among its settings.
        epochs: Epochs, instead of the recipe's.
        reduction: How workers' gradients are summed: exact (the same bytes for any number of workers) or fast.
        documents: With queries and qrels: report NDCG on judgments after every epoch. It is shown, and chooses nothing.
        loss_after_epoch: Measure the training pairs' loss once more when each epoch has ended, as the paper's Fig. 7
            has it: one more pass. The curve of training is the mean of an epoch's pairs as they train.
        set: field=value for any field of the recipe (`clicktower settings train`); may be repeated.
        report: The file for a page about the training, with its curves (self-contained HTML).
    """
    from clicktower.flows.config.settings import Surroundings
    from clicktower.training.trainer import launch

    base, word_vectors = recipe_named(recipe)
    with console.progress_bar("train", share=True) as progress:
        result = launch.train(
            shards,
            store=into,
            recipe=with_options(
                base, {"epochs": epochs, "reduction": reduction, "objective.loss_after_epoch": loss_after_epoch}, set
            ),
            compute=compute,
            sources=replace(sources, word_vectors=sources.word_vectors or word_vectors),
            in_cluster=bool(Surroundings().ray_address),
            judged=judged_files(documents, queries, qrels, adult_list),
            progress=progress,
        )
    value = result.to_json()
    if report:
        from clicktower.flows.report.training_page import write_training_page

        write_training_page(report, value)
    console.emit(value, json, present.stage_with_details)


def judged_files(
    documents: str | None, queries: str | None, qrels: str | None, adult_list: str | None
) -> "Judged | None":
    """The judged files of options that go together; None without them. Raises UsageError for only some of them."""
    if documents and queries and qrels:
        from clicktower.schemas.judgments import Judged

        return Judged(documents=documents, queries=queries, qrels=qrels, adult_list=adult_list)
    if documents or queries or qrels:
        raise UsageError(
            "NDCG is measured by three files, and only some of them are given.",
            "Give --documents, --queries and --qrels together, or none.",
        )
    return None


def evaluate(
    *,
    model: Model,
    documents: Documents,
    queries: Queries,
    qrels: Qrels,
    adult_list: AdultList = None,
    into: Into,
    min_judged: int | None = None,
    frequencies: str | None = None,
    set: Set = None,
    json: Json = False,
) -> None:
    """Evaluate a model by NDCG@1/3/10, compared with BM25 and a random order.

    TREC run files of all of them are written, too, so that others can check the figures.

        clicktower evaluate --model store/train/DIGEST --documents documents.tsv --queries queries.tsv \\
            --qrels qrels.txt --into store

    Args:
        min_judged: Skip queries with fewer judged documents than this, by default 1; the output says how many.
        frequencies: How often each query was asked, `id<TAB>count`: adds the slices head, torso and tail.
    """
    from clicktower.training.evaluation import evaluate_stage
    from clicktower.training.evaluation.evaluate_stage import EvaluateConfig
    from clicktower.training.model.model_folder import language_of

    config = with_options(EvaluateConfig(), {"min_judged": min_judged}, set)
    # A release has the terms of its language, unless --set says otherwise.
    if not any(field.partition("=")[0].strip() == "language" for field in set or []):
        config = replace(config, language=language_of(model))
    with console.progress_bar("evaluate") as progress:
        result = evaluate_stage.evaluate(
            model, documents=documents, queries=queries, qrels=qrels, adult_list=adult_list, store=into, config=config,
            frequencies=frequencies, progress=progress,
        )  # fmt: skip
    run_file = storage.join(result.data, result.manifest.outcome.metrics["run_files"]["model"])
    console.emit({**result.to_json(), "run_file": run_file}, json, present.stage_with_details)


def publish(
    *,
    model: str,
    documents: Documents,
    to: ReleaseUri,
    evaluation: str | None = None,
    candidate: bool = False,
    if_better: bool = False,
    queries: str | None = None,
    qrels: str | None = None,
    adult_list: str | None = None,
    frequencies: str | None = None,
    into: str | None = None,
    rule: list[str] | None = None,
    workers: int = 1,
    set: Set = None,
    json: Json = False,
) -> None:
    """Encode all documents into a release and make it the live one.

    Titles that an earlier release of the same model has encoded are reused. The
    release is read back and its index checked against exact search before the
    pointer is swapped in one step; until then, and if anything fails, the old
    release stays live.

        clicktower publish --model store/train/DIGEST --documents documents.tsv --to release

    Args:
        model: The folder that `train` printed.
        evaluation: The folder that `evaluate` printed; its table becomes part of the release.
        candidate: Make the release but leave the live one unchanged; `rollback --release` makes it live.
        if_better: Make it live only if its model is better than the live one by the rules of promotion; otherwise it is
            kept as a candidate, and the reason is printed. Needs --evaluation.
        queries: With --if-better, --qrels and --into: the queries on which the live model is evaluated again, if it was
            evaluated on other judgments or documents than this one.
        qrels: The judgments of those queries.
        adult_list: Your own list of adult words, if the evaluation was given it.
        frequencies: How often each query was asked, if the evaluation was given it.
        into: The store for the evaluation of the live model.
        rule: field=value for any rule of the promotion (measure=ndcg@3, max_slice_drop=0.05); may be repeated.
        workers: Workers that encode: 1 is this machine with all its cores; more are tasks of a Ray cluster, the one
            that RAY_ADDRESS names or one started here.
    """
    from clicktower.flows.config.guard_rules import PublishConfig
    from clicktower.flows.releases import publish as publishing

    config = with_fields(PublishConfig(), set or [])
    with console.progress_bar("publish") as progress:
        decide = None
        if if_better:
            from clicktower.flows.guards.promotion import decide_if_better

            decide = decide_if_better(
                rule or [], to, evaluation, documents, queries, qrels, frequencies, into, progress,
                adult_list=adult_list,
            )  # fmt: skip
        result = publishing.publish(
            model, documents=documents, to=to, config=config, evaluation=evaluation, candidate=candidate,
            decide=decide, workers=workers, progress=progress,
        )  # fmt: skip
    console.emit(result.to_json(), json, present.stage_with_details)
