"""The work on the rows of one comparison: what they share, read when the first needs it, and each row to its end."""

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from schemas import storage
from schemas.documents import read_documents
from schemas.errors import StageError, place
from schemas.judgments import read_qrels, read_queries
from schemas.manifest import Request
from schemas.stage import Progress, StageResult, find_finished, open_result
from training.compare.hybrid_row import best_model, hybrid_row
from training.compare.measured_row import Ended, measure_request, write_row
from training.compare.rows import Row
from training.compare.slices import Slice, read_frequencies, slices, training_clicks
from training.compare.system import Material, from_model, from_texts
from training.compare.towers import of_seeds, requests, trained
from training.evaluate import EvaluateConfig
from training.judged_files import Judged
from training.launch import fingerprints
from training.ranking.judged_collection import judged_collection
from training.ranking.ndcg import gains_of, judged_pairs

STAGE_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Where:
    """Where trainings run; device and path as in training.launch.train."""

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

    def end(self, row: Row, before: Sequence[Ended], progress: Progress) -> Ended:
        """A row made and measured, or why not. `before`: the rows that have ended. Only an interrupt comes through."""
        began = time.monotonic()
        try:
            ended = self._end(row, before, progress)
        except StageError as error:
            ended = Ended(row=row, state="failed", why=f"{error.found}; {error.do}")
        except MemoryError:
            ended = Ended(row=row, state="failed", why="the memory did not suffice")
        except Exception as error:
            why = f"something unexpected happened: {type(error).__name__} in {place(error)}"
            ended = Ended(row=row, state="failed", why=why)
        return replace(ended, seconds=time.monotonic() - began)

    def _end(self, row: Row, before: Sequence[Ended], progress: Progress) -> Ended:
        where = f"{len(before)} of {len(self.rows)} rows done, now {row.name}"

        def tell(what: str, done: int, total: int | None) -> None:
            progress(f"{where}\n{what}", done, total)

        if row.family == "hybrid":
            best = best_model(before)
            if best is None:
                return Ended(row=row, state="empty", why="it needs a finished row of a tower or a model")
            return hybrid_row(
                row, best, lambda: self._models(best.row, tell), self.material,
                store=self.store, inputs=self.judged, progress=tell,
            )  # fmt: skip
        if row.name == "skip-thought" and not row.source:
            return Ended(row=row, state="empty", why="no published weights were given (--skip-thought FOLDER)")
        return Ended(row=row, state="done", result=self._measured(row, tell))

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
