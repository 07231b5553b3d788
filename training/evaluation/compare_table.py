"""Finished rows -> the comparison: means with intervals, each row against a chosen one, slices, caveats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.judgments import Run, are_click_derived, read_run, trec_field
from clicktower.schemas.stage import StageResult
from clicktower.training.evaluation import TABLES
from clicktower.training.evaluation.evaluate_stage import RULES, EvaluateConfig, Slice, ranked_titles, warnings
from clicktower.training.evaluation.row import BM25_IN_THE_PAPER, JUDGED, Row, measures_of
from clicktower.training.ranking.measure import JudgedCollection
from clicktower.training.ranking.ndcg import CUTOFFS, percentiles, resample

SLICED_BY = "ndcg@10"
_PAPER = tuple(f"ndcg@{k}" for k in CUTOFFS)  # the paper's figures for each row

_RULES = {
    **RULES,
    "p": "two-sided paired randomisation test; p_holm is corrected, for each measure, over the rows of the table",
    "order": "Kendall's tau-b of the rows' means with the paper's figures; percentile bootstrap over queries",
    "seeds": "a row of several seeds has, for each query, the mean over them",
    "texts_per_second": "titles, from text to vector or to index, on the machine that measured the row",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRow:
    """How a row ended: with its result, or with a sentence that says why it has none.

    `state`: done, failed, or empty for a row whose input is missing.
    """

    row: Row
    state: str
    result: StageResult | None = None
    why: str | None = None
    seconds: float = 0.0
    made_from: Sequence[str] = ()  # the rows that a hybrid is made from

    @property
    def metrics(self) -> Mapping[str, Any]:
        return self.result.manifest.outcome.metrics if self.result else {}

    def per_query(self) -> dict[str, np.ndarray]:
        """Each measure of each query (row.measures_of)."""
        assert self.result
        return measures_of(self.result)

    def judged_run(self) -> Run:
        """The row's ranking of the judged documents."""
        assert self.result
        return read_run(storage.join(self.result.data, JUDGED))


def comparison(
    collection: JudgedCollection,
    ended: Sequence[EndedRow],
    slices: Mapping[str, Slice],
    config: EvaluateConfig,
    against: str,
) -> dict[str, Any]:
    """The comparison as JSON. `against`: the row that others are compared with."""
    finished = [ended_row for ended_row in ended if ended_row.state == "done"]
    per_query = {ended_row.row.name: ended_row.per_query() for ended_row in finished}
    measures = list(next(iter(per_query.values()))) if per_query else []
    values = _intervals(per_query, measures, config)
    differences = _against(per_query, measures, against, config)
    sliced = _sliced(per_query, slices, config)
    trained_once = any(ended_row.row.recipe and len(ended_row.metrics.get("by_seed", ())) == 1 for ended_row in ended)
    return {
        "n": len(collection.qrels),
        "n_informative": len(collection.qrels) - collection.counts["queries_of_one_grade"],
        "judgments": "click-derived" if are_click_derived(collection.qrels) else "assessors",
        "gain": config.gain,
        "confidence": config.confidence,
        "rules": _RULES,
        "warnings": warnings(collection) + ([_ONE_SEED] if trained_once else []),
        "against": against if against in per_query else None,
        "measures": measures,
        "rows": [_row(ended_row, values, differences, sliced) for ended_row in ended],
        "orders": orders([ended_row.row for ended_row in finished], per_query, config),
        "slices": {name: list(parts) for name, (parts, _) in slices.items()},
    }


def _row(row: EndedRow, values: Mapping, differences: Mapping, sliced: Mapping) -> dict[str, Any]:
    name, metrics = row.row.name, row.metrics
    of_two = row.row.table if row.row.recipe or row.row.table == "as printed" else None  # baselines are not tuned
    seeds = [by["ndcg@10"] for by in metrics.get("by_seed", ()) if "ndcg@10" in by]
    notes = list(metrics.get("notes", ()))
    if len(seeds) > 1:
        notes.append(f"NDCG@10 by seed: {', '.join(f'{value:.4f}' for value in seeds)}")
    return {
        "name": name,
        "title": f"{row.row.title}, {of_two}" if of_two else row.row.title,
        "family": row.row.family,
        "state": row.state,
        "why": row.why,
        "table": row.row.table,
        "paper_row": row.row.title if row.row.paper else None,
        "paper": dict(zip(_PAPER, row.row.paper, strict=True)) if row.row.paper else None,
        "paper_to_bm25": _paper_to_bm25(row.row),
        "values": values.get(name, {}),
        "to_against": differences.get(name),
        "parameters": metrics.get("parameters"),
        "dimensions": metrics.get("dimensions"),
        "train_seconds": metrics.get("train_seconds"),
        "texts_per_second": metrics.get("texts_per_second"),
        "reused": bool(row.result and row.result.reused),
        "digest": row.result.manifest.digest if row.result else None,
        "made_from": list(row.made_from),
        "notes": notes,
        "slices": sliced.get(name, {}),
    }


def _intervals(
    per_query: Mapping[str, Mapping[str, np.ndarray]], measures: Sequence[str], config: EvaluateConfig
) -> dict[str, dict[str, dict[str, float]]]:
    """By row and measure. One resampling serves all: M columns are all measures of all rows."""
    if not per_query:
        return {}
    intervals = iter(config.intervals(np.stack([of_row[m] for of_row in per_query.values() for m in measures], axis=1)))
    return {name: {measure: next(intervals) for measure in measures} for name in per_query}


def _against(
    per_query: Mapping[str, Mapping[str, np.ndarray]], measures: Sequence[str], against: str, config: EvaluateConfig
) -> dict[str, dict[str, dict[str, float]]]:
    """Each row's difference to the chosen one, by row and measure; Holm over the rows of a measure."""
    names = [name for name in per_query if name != against]
    if against not in per_query or not names:
        return {}
    chosen = per_query[against]
    difference = {name: {m: per_query[name][m] - chosen[m] for m in measures} for name in names}
    result = _intervals(difference, measures, config)
    for measure in measures:
        difference_QM = np.stack([difference[name][measure] for name in names], axis=1)
        for name, p in zip(names, config.p_values(difference_QM), strict=True):
            result[name][measure] |= p
    return result


def orders(
    rows: Sequence[Row], per_query: Mapping[str, Mapping[str, np.ndarray]], config: EvaluateConfig
) -> dict[str, dict[str, Any]]:
    """How similar the order of rows is to the paper's, in each of the two tables that has three rows or more."""
    tables = {table: [row for row in rows if row.paper and row.table in (None, table)] for table in TABLES}
    return {
        table: {"rows": [row.name for row in rows_of_table], **_order(rows_of_table, per_query, config)}
        for table, rows_of_table in tables.items()
        if len(rows_of_table) >= 3 and any(row.table for row in rows_of_table)
    }


def _order(
    rows: Sequence[Row], per_query: Mapping[str, Mapping[str, np.ndarray]], config: EvaluateConfig
) -> dict[str, dict[str, float]]:
    """Kendall's tau-b by measure. Each resample of the queries has means, and therefore an order, of its own."""
    papers_MR = np.array([row.paper for row in rows], np.float64).T
    values_MQR = np.array([[per_query[row.name][measure] for row in rows] for measure in _PAPER]).swapaxes(1, 2)
    num_queries = values_MQR.shape[1]

    def taus(times_SQ: np.ndarray) -> np.ndarray:
        means_MSR = times_SQ @ values_MQR / num_queries
        return np.stack([kendall(*of_measure) for of_measure in zip(means_MSR, papers_MR, strict=True)], axis=1)

    [tau_M] = taus(np.ones((1, num_queries)))
    resamples_RM = resample(taus, num_queries, num_resamples=config.num_resamples, seed=config.seed)
    figures = np.stack([tau_M, *percentiles(resamples_RM, config.confidence)], axis=1).tolist()
    return {
        m: dict(zip(("tau", "low", "high"), interval, strict=True)) for m, interval in zip(_PAPER, figures, strict=True)
    }


def _sliced(
    per_query: Mapping[str, Mapping[str, np.ndarray]], slices: Mapping[str, Slice], config: EvaluateConfig
) -> dict[str, dict[str, dict[str, Any]]]:
    """NDCG@10 by row, slice and part. A part without queries is left out."""
    result: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in per_query}
    for slice_name, (parts, part_of) in slices.items():
        for part in parts:
            rows = np.flatnonzero(np.array([part_of_query == part for part_of_query in part_of], bool))
            if not len(rows) or not per_query:
                continue
            values_QM = np.stack([of_row[SLICED_BY][rows] for of_row in per_query.values()], axis=1)
            for name, interval in zip(per_query, config.intervals(values_QM), strict=True):
                result[name].setdefault(slice_name, {})[part] = {"n": len(rows), SLICED_BY: interval}
    return result


_ONE_SEED = (
    "towers were trained with one seed: a seed alone moves NDCG@10 by some 0.004 and NDCG@1 by 0.01;"
    " --seeds 1 2 3 takes the mean over several"
)


_RANKS = 10


def difference(
    collection: JudgedCollection, ended: Sequence[EndedRow], against: str, config: EvaluateConfig
) -> dict[str, Any] | None:
    """The best row by NDCG@10 against the row that all are compared with; None if there are no two rows."""
    row_of = {ended_row.row.name: ended_row for ended_row in ended if ended_row.state == "done"}
    names = [name for name in row_of if name != against]
    if against not in row_of or not names:
        return None
    best = max(names, key=lambda name: row_of[name].metrics[SLICED_BY])
    of_Q, to_Q = (row_of[name].per_query()[SLICED_BY] for name in (best, against))
    runs = {name: row_of[name].judged_run() for name in (best, against)}
    half = max(1, config.num_examples // 2)
    query_ids = list(collection.qrels)
    order = np.lexsort((query_ids, to_Q - of_Q))  # gains first; equal ones by id
    gained = [i for i in order[:half] if of_Q[i] > to_Q[i]]
    lost = [i for i in order[::-1][:half] if of_Q[i] < to_Q[i]]
    queries = [
        {
            "query_id": query_ids[i],
            "query": collection.queries[query_ids[i]],
            "why": why,
            "of": float(of_Q[i]),
            "to": float(to_Q[i]),
            "rankings": {name: _ranking(collection, run, query_ids[i]) for name, run in runs.items()},
        }
        for why, rows in (("gain", gained), ("loss", lost))
        for i in rows
    ]
    return {"of": best, "to": against, "measure": SLICED_BY, "queries": queries}


def _ranking(collection: JudgedCollection, run: Run, query_id: str) -> list[dict[str, Any]]:
    """The best of the judged documents, in the run's order."""
    results = run.get(query_id, {})
    scores = {d: results[trec_field(d)] for d in collection.qrels[query_id] if trec_field(d) in results}
    ranked = sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True)
    return ranked_titles(collection, query_id, ranked[:_RANKS])


def _paper_to_bm25(row: Row) -> dict[str, float] | None:
    """The paper's figure of a row minus its figure of BM25, in points of NDCG by measure."""
    if row.paper is None:
        return None
    return {name: round(a - b, 1) for name, a, b in zip(_PAPER, row.paper, BM25_IN_THE_PAPER, strict=True)}


def kendall(values_SR: np.ndarray, reference_R: np.ndarray) -> np.ndarray:
    """Kendall's τ-b of each sample's order of R rows with a reference's, float64 [S]; 0 where all values are equal."""
    first, second = np.triu_indices(len(reference_R), k=1)
    reference_P = np.sign(reference_R[first] - reference_R[second])
    signs_SP = np.sign(np.round(values_SR[:, first] - values_SR[:, second], 12))  # equal sums may round differently
    untied_S = np.sqrt((signs_SP**2).sum(axis=1) * (reference_P**2).sum())
    return np.divide(signs_SP @ reference_P, untied_S, out=np.zeros(len(values_SR)), where=untied_S > 0)
