"""The comparison: every row made or found in the store, measured, and compared.

    compare(all_rows(), shards="store/build/DIGEST", files=Judged(...), store="store")

A row is a stage of its own (measured_row), and so is each training: what is finished counts, and the
same command goes on with what is missing. A row that fails stops no other; the comparison is then shown but not kept,
and the same command tries that row again.

Writes to STORE/compare/DIGEST: comparison.json, and compare.md, what `render` makes of it for people.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from multiprocessing.connection import wait
from typing import Any

from schemas import storage
from schemas.documents import read_documents
from schemas.errors import StageError, UsageError, place
from schemas.judgments import Judged, are_click_derived, read_qrels, read_queries
from schemas.manifest import Outcome, Request
from schemas.stage import Progress, StageResult, find_finished, open_result, run_stage, silent
from training.compare.compare_table import comparison, difference
from training.compare.measured_row import EndedRow, best_model, hybrid_row, measure_request, write_row
from training.compare.rows import BASELINE, Row
from training.compare.system import Material, from_model, from_texts
from training.evaluate.evaluate_stage import EvaluateConfig
from training.evaluate.slices import Slice, read_frequencies, slices, training_clicks
from training.ranking.measure import judged_collection
from training.ranking.ndcg import CUTOFFS, gains_of, judged_pairs
from training.recipes.recipe import Recipe, changed
from training.run.launch import fingerprints, train_request
from training.sweep.trial_process import Told, TrialProcess, interrupts_held

# A row's towers: what the store has already, and the rest trained, each in a process of its own.
#
# A training that runs out of memory or diverges ends its process and its row, not the comparison.


_LISTEN_SECONDS = 0.5


def of_seeds(recipe: Recipe, seeds: Sequence[int]) -> list[Recipe]:
    """The recipe with each of some seeds; with its own where none is given."""
    return [changed(recipe, {"seed": seed}) for seed in seeds] or [recipe]


def requests(shards: str, recipes: Sequence[Recipe], where: Mapping[str, Any]) -> list[Request]:
    """What trains each recipe. `where`: device and path, as in launch.train_request."""
    built = open_result(shards)
    return [train_request(built, recipe, **where) for recipe in recipes]


def trained(
    shards: str,
    recipe: Recipe,
    *,
    store: str,
    judged: Judged,
    threads: int,
    where: Mapping[str, Any],
    progress: Progress,
) -> StageResult:
    """The trained model of a recipe.

    A training that watched the judgments of this comparison (as a pipeline's does) made the same bytes, and counts.
    Raises the training's own StageError.
    """
    built = open_result(shards)
    for watched in (None, judged):
        found, _ = find_finished(store, train_request(built, recipe, judged=fingerprints(watched), **where))
        if found:
            return found
    arguments = {"shards": shards, "store": store, "recipe": recipe, "threads": threads, **where}
    with interrupts_held() as let_interrupts_through, TrialProcess(arguments) as process:
        while True:
            let_interrupts_through()
            if not wait([process.pipe], _LISTEN_SECONDS):
                continue
            told = process.read()
            if isinstance(told, Told):
                progress(told.what, told.done, told.total)
            elif told.result:
                return told.result
            elif told.error:
                raise told.error


STAGE_VERSION = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """Where trainings run; device and path as in launch.train."""

    threads: int = 0  # 0: as many as there are cores
    device: str = "auto"
    path: str = "auto"

    @property
    def arithmetic(self) -> dict[str, str]:
        return {"device": self.device, "path": self.path}


@dataclass(frozen=True)
class Work:
    """What all rows share, read when the first of them needs it."""

    rows: Sequence[Row]
    shards: str
    files: Judged
    store: str
    config: EvaluateConfig
    seeds: tuple[int, ...]
    frequencies: str | None
    where: Where

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
    def material(self) -> Material:
        config = self.config
        documents = read_documents(self.files.documents)
        queries, qrels = read_queries(self.files.queries), read_qrels(self.files.qrels)
        collection = judged_collection(
            documents, queries, qrels, min_judged=config.min_judged, relevant_grade=config.relevant_grade
        )
        gains_of(judged_pairs(collection.qrels).grades, config.gain)  # a grade too high is told before anything is made
        return Material(documents=documents, collection=collection, training_queries=list(self.clicks), config=config)

    @cached_property
    def slices(self) -> dict[str, Slice]:
        counts = read_frequencies(self.frequencies) if self.frequencies else None
        return slices(self.material.collection, clicks=self.clicks, frequencies=counts)

    def request(self, against: str) -> Request:
        """What the comparison is: every row by what it is made from, so that it is known before any is made."""
        described = {row.name: self._request_of(row).digest for row in self.rows}
        return Request(
            stage="compare",
            stage_version=STAGE_VERSION,
            config={"rows": described, "against": against, "evaluate": asdict(self.config)},
            inputs={
                **self.judged,
                "shards": self.built.manifest.digest,
                "frequencies": storage.fingerprint(self.frequencies) if self.frequencies else None,
            },
            seed=self.config.seed,
        )

    def _request_of(self, row: Row) -> Request:
        return measure_request(row, {**self.judged, "from": self._made_from(row)}, self.config)

    def _made_from(self, row: Row) -> Any:
        """What identifies the source of a row's system."""
        if row.recipe:
            return [r.digest for r in requests(self.shards, of_seeds(row.recipe, self.seeds), self.where.arithmetic)]
        if row.family == "model" and row.source:
            return [open_result(row.source).manifest.digest]
        if row.source:
            return _fingerprint(row.source)
        return self.built.manifest.digest if row.name == "doc2vec" else None  # it learns from training queries too

    def end(self, row: Row, before: Sequence[EndedRow], progress: Progress) -> EndedRow:
        """A row made and measured, or why not. `before`: the rows that have ended. Only an interrupt comes through."""
        began = time.monotonic()
        try:
            ended = self._end(row, before, progress)
        except StageError as error:
            ended = EndedRow(row=row, state="failed", why=f"{error.found}; {error.do}")
        except MemoryError:
            ended = EndedRow(row=row, state="failed", why="the memory did not suffice")
        except Exception as error:
            why = f"something unexpected happened: {type(error).__name__} in {place(error)}"
            ended = EndedRow(row=row, state="failed", why=why)
        return replace(ended, seconds=time.monotonic() - began)

    def _end(self, row: Row, before: Sequence[EndedRow], progress: Progress) -> EndedRow:
        where = f"{len(before)} of {len(self.rows)} rows done, now {row.name}"

        def tell(what: str, done: int, total: int | None) -> None:
            progress(f"{where}\n{what}", done, total)

        if row.family == "hybrid":
            best = best_model(before)
            if best is None:
                return EndedRow(row=row, state="empty", why="it needs a finished row of a tower or a model")
            return hybrid_row(
                row, best, lambda: self._models(best.row, tell), self.material,
                store=self.store, inputs=self.judged, progress=tell,
            )  # fmt: skip
        if row.name == "skip-thought" and not row.source:
            return EndedRow(row=row, state="empty", why="no published weights were given (--skip-thought FOLDER)")
        return EndedRow(row=row, state="done", result=self._measured(row, tell))

    def _measured(self, row: Row, tell: Progress) -> StageResult:
        request = self._request_of(row)
        finished, _ = find_finished(self.store, request)
        if finished:
            return finished
        if row.recipe or row.family == "model":
            made = [from_model(row, model, self.material, tell) for model in self._models(row, tell)]
        else:
            made = [from_texts(row, self.material, tell)]
        return write_row(self.store, request, row, made)

    def _models(self, row: Row, tell: Progress) -> list[StageResult]:
        """The models of a row, one for each seed: those in the store, the others trained."""
        if row.family == "model":
            assert row.source
            return [open_result(row.source)]
        assert row.recipe
        threads = self.where.threads or len(os.sched_getaffinity(0))
        return [
            trained(self.shards, recipe, store=self.store, judged=self.files, threads=threads,
                    where=self.where.arithmetic, progress=tell)
            for recipe in of_seeds(row.recipe, self.seeds)
        ]  # fmt: skip


def _fingerprint(uri: str) -> Any:
    """Of a file, or of every file of a folder."""
    names = storage.list_files(uri)
    return {name: storage.fingerprint(storage.join(uri, name)) for name in names} if names else storage.fingerprint(uri)


__all__ = ["UnfinishedComparison", "Where", "compare"]

# Told of each row when it has ended: itself, how many have ended, of how many.
RowEnded = Callable[[EndedRow, int, int], None]


class UnfinishedComparison(StageError):
    """Some rows failed. `comparison`: of those that did not; `labels`: what must be said of it."""

    def __init__(self, *, comparison: Mapping[str, Any], labels: Mapping[str, Any], **facts: str) -> None:
        super().__init__(**facts)
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
    where: Where | None = None,
    progress: Progress = silent,
    row_ended: RowEnded = lambda *_: None,
    render: Callable[[Mapping[str, Any]], str] | None = None,
) -> StageResult:
    """The comparison of some rows (rows) on one set of judgments.

    `seeds`: of each tower; its values are the mean over them, its recipe's own seed where none is given. `against`: the
    row that the others are tested against. `frequencies`: a file of how often each query was asked.
    `render`: a page of the comparison's JSON, with its labels. Raises UsageError
    and StageError for inputs that cannot be measured; UnfinishedComparison where rows failed, once all others are done.
    """
    config, where = config or EvaluateConfig(), where or Where()
    if tuple(config.cutoffs) != CUTOFFS:
        raise UsageError(
            asked=f"NDCG was to be compared at {', '.join(map(str, config.cutoffs))}",
            found="the table is of NDCG at 1, 3 and 10, as the paper's",
            do="leave cutoffs as they are; `clicktower evaluate` takes others",
        )
    if against not in {row.name for row in rows}:
        raise UsageError(
            asked=f"the rows were to be set against {against}",
            found="that is not one of the rows to compare",
            do=f"add it to --rows, or set --against to one of {', '.join(row.name for row in rows)}",
        )
    work = Work(rows, shards, files, store, config, tuple(seeds), frequencies, where)
    request = work.request(against)

    def produce(attempt: str) -> Outcome:
        ended: list[EndedRow] = []
        progress("read the documents and the judgments", 0, len(rows))
        collection = work.material.collection  # what cannot be measured is told before anything is trained
        for row in sorted(rows, key=_when):
            ended.append(work.end(row, ended, progress))
            row_ended(ended[-1], len(ended), len(rows))
        ended.sort(key=lambda one: rows.index(one.row))
        progress("intervals and tests", 0, None)
        value = comparison(collection, ended, work.slices, config, against)
        value["difference"] = difference(collection, ended, against, config)
        labels = dict(work.built.manifest.outcome.labels)
        if are_click_derived(collection.qrels):
            labels["judgments"] = "click-derived"
        failed = [one for one in ended if one.state == "failed"]
        if failed:
            raise _unfinished(failed, len(ended), value, labels)
        content = json.dumps(value, indent=1, ensure_ascii=False).encode()
        storage.write_atomic(storage.join(attempt, "comparison.json"), content)
        if render:
            storage.write_atomic(storage.join(attempt, "compare.md"), render(value | {"labels": labels}).encode())
        counts = {"rows": len(ended), "rows_reused": sum(bool(one.result and one.result.reused) for one in ended)}
        return Outcome(counts={**collection.counts, **counts}, metrics=value, labels=labels)

    return run_stage(store, request, produce, progress)


def _when(row: Row) -> int:
    """What takes seconds first, then what is trained, then what is made from the others."""
    return 2 if row.family == "hybrid" else 1 if row.recipe else 0


def _unfinished(
    failed: Sequence[EndedRow], num_rows: int, value: Mapping[str, Any], labels: Mapping[str, Any]
) -> UnfinishedComparison:
    reasons = "; ".join(f"{one.row.name}: {one.why}" for one in failed)
    return UnfinishedComparison(
        comparison=value,
        labels=labels,
        asked=f"{num_rows} rows were to be compared",
        found=f"{len(failed)} failed: {reasons}",
        follows="the others are finished and kept, and the table above is without those that failed",
        do="mend that and run the same command again, which tries only those; or leave them out with --rows",
    )
