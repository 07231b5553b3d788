"""The comparison: every row made or found in the store, measured, and set side by side.

    compare(all_rows(), shards="store/build/DIGEST", files=Judged(...), store="store")

A row is a stage of its own (training.compare.measured_row), and so is each training: what is finished counts, and the
same command goes on with what is missing. A row that fails stops no other; the comparison is then shown but not kept,
and the same command tries that row again.

Writes to STORE/compare/DIGEST: comparison.json, and compare.md, the same for people.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.judgments import are_click_derived
from schemas.manifest import Outcome
from schemas.stage import Progress, StageResult, run_stage, silent
from training.compare.differences import difference
from training.compare.measured_row import Ended
from training.compare.page import page
from training.compare.rows import BASELINE, Row
from training.compare.table import comparison
from training.compare.work import Where, Work
from training.evaluate import EvaluateConfig
from training.judged_files import Judged
from training.ranking.ndcg import CUTOFFS

__all__ = ["Unfinished", "Where", "compare"]

# Told of each row when it has ended: itself, how many have ended, of how many.
RowEnded = Callable[[Ended, int, int], None]


class Unfinished(StageError):
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
) -> StageResult:
    """The comparison of some rows (training.compare.rows) on one set of judgments.

    `seeds`: of each tower; its values are the mean over them, its recipe's own seed where none is given. `against`: the
    row that the others are tested against. `frequencies`: a file of how often each query was asked. Raises UsageError
    and StageError for inputs that cannot be measured; Unfinished where rows failed, once all others are done.
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
        ended: list[Ended] = []
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
        storage.write_atomic(storage.join(attempt, "compare.md"), page(value).encode())
        counts = {"rows": len(ended), "rows_reused": sum(bool(one.result and one.result.reused) for one in ended)}
        return Outcome(counts={**collection.counts, **counts}, metrics=value, labels=labels)

    return run_stage(store, request, produce, progress)


def _when(row: Row) -> int:
    """What takes seconds first, then what is trained, then what is made from the others."""
    return 2 if row.family == "hybrid" else 1 if row.recipe else 0


def _unfinished(
    failed: Sequence[Ended], num_rows: int, value: Mapping[str, Any], labels: Mapping[str, Any]
) -> Unfinished:
    reasons = "; ".join(f"{one.row.name}: {one.why}" for one in failed)
    return Unfinished(
        comparison=value,
        labels=labels,
        asked=f"{num_rows} rows were to be compared",
        found=f"{len(failed)} failed: {reasons}",
        follows="the others are finished and kept, and the table above is without those that failed",
        do="mend that and run the same command again, which tries only those; or leave them out with --rows",
    )
