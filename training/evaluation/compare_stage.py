"""The comparison: every row made or found in the store, evaluated, and compared.

    compare(all_rows(), shards="store/build/DIGEST", files=Judged(...), store="store")

A row is a stage of its own (measured_row), and so is each training: finished ones count, and the same command continues
with the rest. A failed row stops no other; the comparison is then shown but not kept, and the same command tries that
row again.

Writes to STORE/compare/DIGEST: comparison.json, and compare.md, the output of `render` for people.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing.connection import wait
from typing import Any, Literal

import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.content_filters import adult_list
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError, place
from clicktower.schemas.judgments import Judged, are_click_derived, read_qrels, read_queries
from clicktower.schemas.manifest import Outcome, Request, to_bytes
from clicktower.schemas.process import raise_if_asked_to_end, signals_held
from clicktower.schemas.section import changed
from clicktower.schemas.shard import PAIRS, TEXTS, open_table
from clicktower.schemas.stage import Progress, Stage, StageResult, find_finished, open_result, run_stage, silent
from clicktower.schemas.text_contract import normalise, words
from clicktower.training.evaluation.compare_table import EndedRow, comparison, difference
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, Slice, read_frequencies, slices
from clicktower.training.evaluation.measured_row import evaluate_baseline, evaluate_hybrid, evaluate_model
from clicktower.training.evaluation.row import BASELINE, ComparisonInputs, Row, measure_request, write_row
from clicktower.training.evaluation.rows import HYBRID
from clicktower.training.model.objective_settings import Fixed
from clicktower.training.model.recipe import ONE_WORKER, Compute, Recipe
from clicktower.training.ranking.measure import JudgedCollection, judged_collection
from clicktower.training.ranking.ndcg import CUTOFFS, gains_of, judged_pairs
from clicktower.training.sweep.trial_process import TrialProcess, TrialStatus
from clicktower.training.trainer.launch import fingerprints, train_request, workers_device
from clicktower.training.trainer.shard_data import local_folder

COMPARE = Stage("compare", version=7)
_LISTEN_SECONDS = 0.5

# Called with each finished row, the number of finished rows, and the total.
RowEnded = Callable[[EndedRow, int, int], None]


class UnfinishedComparison(StageError):
    """Some rows failed. `comparison`: of the other rows; `labels`: those of the result."""

    def __init__(self, problem: str, fix: str, *, comparison: Mapping[str, Any], labels: Mapping[str, Any]) -> None:
        super().__init__(problem, fix)
        self.comparison, self.labels = comparison, labels


def compare(
    rows: Sequence[Row],
    *,
    shards: str,
    files: Judged,
    store: str,
    config: EvaluateConfig | None = None,
    seeds: Sequence[int] = (),
    against: str = BASELINE,
    frequencies: str | None = None,
    compute: Compute = ONE_WORKER,
    in_cluster: bool = False,
    progress: Progress = silent,
    row_ended: RowEnded = lambda *_: None,
    render: Callable[[Mapping[str, Any]], str] | None = None,
) -> StageResult:
    """The comparison of some rows (rows) on one set of judgments.

    `seeds`: of each tower; its values are the mean over them, its recipe's own seed where none is given. `against`: the
    row that the others are tested against. `frequencies`: a file of how often each query was asked.
    `compute`, `in_cluster`: of each training, as in launch.train. `render`: a page of the comparison's JSON, with its
    labels. Raises UsageError and StageError for inputs that cannot be measured; UnfinishedComparison where rows failed,
    once all others are done.
    """
    config = config or EvaluateConfig()
    if tuple(config.cutoffs) != CUTOFFS:
        raise UsageError(
            "The comparison is a table of NDCG at 1, 3 and 10, as the paper's, and not at"
            f" {', '.join(map(str, config.cutoffs))}.",
            "Leave cutoffs as they are; `clicktower evaluate` takes others.",
        )
    if against not in {row.name for row in rows}:
        raise UsageError(
            f"There is no row {against} to test the others against.",
            f"Add it to --rows, or set --against to one of {', '.join(row.name for row in rows)}.",
        )
    compute = replace(compute, device=workers_device(compute.device, in_cluster, compute.path))
    work = _Work(rows, shards, files, store, config, tuple(seeds), frequencies, compute, in_cluster)

    def produce(attempt: str) -> Outcome:
        ended: list[EndedRow] = []
        progress("read the documents and the judgments", 0, len(rows))
        collection = work.inputs.collection  # inputs that cannot be evaluated are refused before training
        for row in sorted(rows, key=_row_order):
            ended.append(work.end(row, ended, progress))
            row_ended(ended[-1], len(ended), len(rows))
        ended.sort(key=lambda ended_row: rows.index(ended_row.row))
        progress("intervals and tests", 0, None)
        value = comparison(collection, ended, work.slices, config, against)
        value["difference"] = difference(collection, ended, against, config)
        labels = dict(work.built.manifest.outcome.labels)
        if are_click_derived(collection.qrels):
            labels["judgments"] = "click-derived"
        failed = [ended_row for ended_row in ended if ended_row.state == "failed"]
        if failed:
            reasons = " ".join(f"{row.row.name}: {row.why}" for row in failed)
            raise UnfinishedComparison(
                f"{len(failed)} of {len(ended)} rows failed: {reasons} The table above is without them; the others are"
                " finished and kept.",
                "Correct that and run the same command again, which tries only those; or leave them out with --rows.",
                comparison=value,
                labels=labels,
            )
        storage.write_atomic(storage.join(attempt, "comparison.json"), to_bytes(value))
        if render:
            storage.write_atomic(storage.join(attempt, "compare.md"), render(value | {"labels": labels}).encode())
        counts = {
            "rows": len(ended),
            "rows_reused": sum(bool(ended_row.result and ended_row.result.reused) for ended_row in ended),
        }
        return Outcome(counts={**collection.counts, **counts}, metrics=value, labels=labels)

    return run_stage(store, work.request(against), produce, progress)


def _row_order(row: Row) -> int:
    """The order: rows that take seconds first, then trained ones, then those made from others."""
    return 2 if row.name == HYBRID else 1 if row.recipe else 0


@dataclass(frozen=True)
class _Work:
    """The rows, and their shared inputs, read when the first row needs them."""

    rows: Sequence[Row]
    shards: str
    files: Judged
    store: str
    config: EvaluateConfig
    seeds: tuple[int, ...]
    frequencies: str | None
    compute: Compute  # of each training
    in_cluster: bool

    @cached_property
    def built(self) -> StageResult:
        return open_result(self.shards)

    @cached_property
    def judged(self) -> dict[str, str]:
        return fingerprints(self.files) or {}

    @cached_property
    def clicks(self) -> dict[str, int]:
        return training_clicks(self.shards)

    @cached_property
    def inputs(self) -> ComparisonInputs:
        config = self.config
        documents = read_documents(self.files.documents)
        queries, qrels = read_queries(self.files.queries), read_qrels(self.files.qrels)
        collection = judged_collection(
            documents, queries, qrels, min_judged=config.min_judged, relevant_grade=config.relevant_grade,
            adult_terms=adult_list(self.files.adult_list).terms,
        )  # fmt: skip
        gains_of(judged_pairs(collection.qrels).grades, config.gain)  # it refuses bad grades before anything is made
        clicked = list(training_clicks(self.shards, "clicked"))
        return ComparisonInputs(
            documents=documents, collection=collection, config=config, training_queries=list(self.clicks),
            training_titles=clicked,
        )  # fmt: skip

    @cached_property
    def slices(self) -> dict[str, Slice]:
        counts = read_frequencies(self.frequencies) if self.frequencies else None
        return slices_by_training(self.inputs.collection, self.clicks, counts)

    def request(self, against: str) -> Request:
        """The comparison's request: every row is identified by its inputs, so the request is known before any row is
        made.
        """
        rows = {row.name: self._request_of(row).digest for row in self.rows}
        inputs = {
            **self.judged,
            "shards": self.built.manifest.digest,
            "frequencies": storage.fingerprint(self.frequencies) if self.frequencies else None,
        }
        settings = {"rows": rows, "against": against, "evaluate": self.config}
        return COMPARE.request(settings, inputs, seed=self.config.seed)

    def end(self, row: Row, before: Sequence[EndedRow], progress: Progress) -> EndedRow:
        """A finished row, or the reason why it failed. `before`: the rows that have ended. Only an interrupt is
        raised.
        """
        began = time.monotonic()
        where = f"{len(before)} of {len(self.rows)} rows done, now {row.name}"

        def tell(activity: str, count: int, total: int | None) -> None:
            progress(f"{where}\n{activity}", count, total)

        try:
            ended = self._end(row, before, tell)
        except StageError as error:
            ended = EndedRow(row=row, state="failed", why=str(error))
        except MemoryError:
            ended = EndedRow(row=row, state="failed", why="the memory did not suffice")
        except Exception as error:
            why = f"something unexpected happened: {type(error).__name__} in {place(error)}"
            ended = EndedRow(row=row, state="failed", why=why)
        return replace(ended, seconds=time.monotonic() - began)

    def _end(self, row: Row, before: Sequence[EndedRow], tell: Progress) -> EndedRow:
        best, request = None, self._request_of(row)
        if needs := row.needs or self._negatives_missing(row):
            return EndedRow(row=row, state="empty", why=needs)
        if row.name == HYBRID:
            best = _best_model(before)
            if not (best and best.result):
                return EndedRow(row=row, state="empty", why="it needs a finished row of a tower or a model")
            made_from = {"best": best.result.manifest.digest, "second": BASELINE}
            request = measure_request(row, {**self.judged, "from": made_from}, self.config)
        result, _ = find_finished(self.store, request)
        if result is None:
            if best:
                systems = evaluate_hybrid(row, best.row.name, self._models(best.row, tell), self.inputs, tell)
            elif row.recipe or row.family == "model":
                systems = [evaluate_model(row, model, self.inputs, tell) for model in self._models(row, tell)]
            else:
                systems = [evaluate_baseline(row, self.inputs, tell)]
            result = write_row(self.store, request, row, systems)
        return EndedRow(row=row, state="done", result=result, made_from=(best.row.name, BASELINE) if best else ())

    def _negatives_missing(self, row: Row) -> str:
        """Why a tower cannot be trained on these shards' own negatives; empty if it can, or needs none."""
        n = row.recipe.clicks.num_negatives if row.recipe and isinstance(row.recipe.clicks.negatives, Fixed) else 0
        held = self.built.manifest.request.config.get("num_negatives", n)
        problem = f"the shards hold {held} negatives for each pair, and it takes {n}"
        return f"{problem} (`clicktower build --set num_negatives={n}`)" if held < n else ""

    def _request_of(self, row: Row) -> Request:
        return measure_request(row, {**self.judged, "from": self._system_source(row)}, self.config)

    def _system_source(self, row: Row) -> Any:
        """What identifies the source of a row's system."""
        if row.recipe:
            return [self._train_request(recipe).digest for recipe in self._seed_recipes(row.recipe)]
        if row.source and row.family == "model":
            return [open_result(row.source).manifest.digest]
        if row.source:
            names = storage.list_files(row.source)
            of_files = {name: storage.fingerprint(storage.join(row.source, name)) for name in names}
            return of_files or storage.fingerprint(row.source)
        return self.built.manifest.digest if row.learns_from_shards else None

    def _models(self, row: Row, tell: Progress) -> list[StageResult]:
        """The models of a row, one for each seed: those in the store, the others trained."""
        if row.recipe:
            return [self._trained(recipe, tell) for recipe in self._seed_recipes(row.recipe)]
        assert row.source
        return [open_result(row.source)]

    def _train_request(self, recipe: Recipe, judged: Mapping[str, str] | None = None) -> Request:
        return train_request(self.built, recipe, self.compute, judged=judged)

    def _seed_recipes(self, recipe: Recipe) -> list[Recipe]:
        return [changed(recipe, {"seed": seed}) for seed in self.seeds] or [recipe]

    def _trained(self, recipe: Recipe, tell: Progress) -> StageResult:
        """The trained model of a recipe: from the store, or trained now in a process of its own.

        A training that watched the judgments of this comparison (as a pipeline's does) made the same bytes, and counts.
        A training that runs out of memory or diverges ends its process and its row, not the comparison. Raises the
        training's own StageError.
        """
        for watched in (None, self.judged):
            finished, _ = find_finished(self.store, self._train_request(recipe, judged=watched))
            if finished:
                return finished
        arguments = {"shards": self.shards, "store": self.store, "recipe": recipe}
        arguments |= {"compute": self.compute, "in_cluster": self.in_cluster}
        with signals_held(), TrialProcess(arguments) as process:
            while True:
                raise_if_asked_to_end()
                if not wait([process.pipe], _LISTEN_SECONDS):
                    continue
                message = process.read()
                if isinstance(message, TrialStatus):
                    tell(message.activity, message.count, message.total)
                elif message.result:
                    return message.result
                elif message.error:
                    raise message.error


def _best_model(ended: Sequence[EndedRow]) -> EndedRow | None:
    """The tower or model with the highest NDCG@10."""
    candidates = [
        ended_row for ended_row in ended if ended_row.state == "done" and ended_row.row.family in ("tower", "model")
    ]
    return max(candidates, key=lambda ended_row: ended_row.metrics["ndcg@10"], default=None)


def slices_by_training(
    collection: JudgedCollection, clicks: Mapping[str, int], frequencies: Mapping[str, int] | None
) -> dict[str, Slice]:
    """As `slices`, with trained queries separated from new ones.

    `clicks`: `training_clicks`; without `frequencies` they also say how often a query was asked.
    """
    queries = [collection.queries[query_id] for query_id in collection.qrels]
    by_click = {q: clicks.get(normalise(query), 0) for q, query in zip(collection.qrels, queries, strict=True)}
    result = slices(collection, frequencies or by_click)
    in_thirds = result.pop("frequency", None)  # comes last
    parts = ["trained on", "not trained on"]
    of_query = [parts[normalise(query) not in clicks] if words(query) else None for query in queries]
    result["training"] = parts, of_query
    return result | {"frequency": in_thirds} if in_thirds else result


def training_clicks(shards: str, side: Literal["query", "clicked"] = "query") -> dict[str, int]:
    """The clicks of each query, or each clicked title, normalised, in the training shards of a build.

    Raises StageError if they are unreadable.
    """
    built = open_result(shards)
    clicks: Counter[str] = Counter()
    try:
        folder = local_folder(built.data)
        for name in sorted(name for name in os.listdir(folder) if name.startswith("train-")):
            texts = open_table(f"{folder}/{name}/texts.arrow", TEXTS)["text"]
            pairs = open_table(f"{folder}/{name}/pairs.arrow", PAIRS)
            summed = pairs.group_by(side).aggregate([("clicks", "sum")])
            clicks.update(
                dict(zip(texts.take(summed[side]).to_pylist(), summed["clicks_sum"].to_pylist(), strict=True))
            )
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise StageError(
            f"The queries of the shards in {shards} cannot be read: a file is missing or unreadable"
            f" ({type(error).__name__}).",
            "Run `clicktower build` again.",
        ) from None
    return dict(clicks)
