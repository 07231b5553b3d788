"""How well click judgments find the true order of documents, beside the raw share of clicks and the logged order.

    python benchmarks/click_judgments.py --work /tmp/judgments [--seeds 1 2 3] [--searches 100000] [--record]

Three kinds of log with known truth:
- the project's simulated shop (`clicktower simulate`), through ingest and judgments as a user types them;
- logs drawn here by a position-based model, whose engine orders documents at random, a little by relevance, or well;
- with CLICKTOWER_DATA, the simulated log over real queries and real grades of homedepot.

Of the documents with min_impressions for their query: how often, of two with different true grades, the estimate puts
the better one first (a tie is half; Kendall's tau is twice this less 1), of any two (`order`) and of two of one query,
as a mean over queries (`in_query`); NDCG@10 of the documents of a query in the order of the estimate; and how often the
grade that comes out is the true one, raw shares being graded by the same rule. `--record` writes
benchmarks/results/click_judgments.json.
"""

import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.stats import kendalltau

from clicktower.beam_jobs.ingest.days import day_files, open_window, read_day_file
from clicktower.beam_jobs.judgments.judge_clicks import (
    CELLS,
    JudgmentsConfig,
    attractiveness,
    gated_cells,
    measure,
    merge_samples,
    number_groups,
    sample_of,
)
from clicktower.flows.simulation.simulated_searches import ATTRACTION, EXAMINED
from clicktower.flows.simulation.simulated_shop import document_id, draw_catalogue, draw_intents, grades
from clicktower.schemas.content_filters import ADULT_ENGLISH, shipped_list
from clicktower.schemas.judgments import read_qrels, read_queries
from clicktower.schemas.text_contract import normalise

RESULTS = Path(__file__).parent / "results" / "click_judgments.json"
MEASURES = ("order", "in_query", "ndcg@10", "same_grade")
Truth = Mapping[tuple[str, str], float]  # (normalised query, document id) -> true grade


def clicktower(*arguments: str) -> dict:
    """The JSON result of a command."""
    command = [sys.executable, "-m", "clicktower.flows.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def compare(cells: pa.Table, truth: Truth, config: JudgmentsConfig) -> dict:
    """The measures of every estimate on one log; `cells` as the job has them behind the gate."""
    reported: dict = {}
    for name, changes in {"pbm": {}, "pbm, prior of query alone": {"prior": "query"}}.items():
        with_prior = JudgmentsConfig(**{**_fields(config), **changes})
        measured = measure(merge_samples([sample_of(cells)], config.sample_cells), with_prior)
        usable = cells.filter(pa.array(np.isin(cells["rank"].to_numpy(), measured.ranks))).combine_chunks()
        pairs, impressions, alpha = attractiveness(usable, measured)
        reported[name] = (alpha, measured.typical_attractiveness)
    pair, _ = number_groups(usable["query"], usable["document_id"])
    clicks = np.bincount(pair, usable["clicks"].to_numpy())
    share = clicks / impressions
    reported["raw share of clicks"] = (share, typical(share[impressions >= config.min_impressions]))
    ranks = np.bincount(pair, usable["rank"].to_numpy() * usable["impressions"].to_numpy()) / impressions
    reported["logged order"] = (-ranks, None)

    keys = zip(pairs["query"].to_pylist(), pairs["document_id"].to_pylist(), strict=True)
    grade = np.array([truth.get(key, np.nan) for key in keys])
    kept = (impressions >= config.min_impressions) & np.isfinite(grade)
    query, _ = number_groups(pairs["query"])
    return {
        "pairs": int(kept.sum()),
        "queries": len(np.unique(query[kept])),
        "propensities": dict(zip(measured.ranks, np.round(measured.propensities, 4).tolist(), strict=True)),
        "prior_strength": measured.prior.strength,
        "estimates": {
            name: _measures(estimate[kept], grade[kept], query[kept], scale, config)
            for name, (estimate, scale) in reported.items()
        },
    }


def typical(shares: np.ndarray) -> float:
    """What grades are measured by, as beam_jobs.judgments.judge_clicks has it."""
    return float((shares**2).sum() / shares.sum())


def _fields(config: JudgmentsConfig) -> dict:
    return {name: getattr(config, name) for name in config.__dataclass_fields__}


def _measures(
    estimate: np.ndarray, grade: np.ndarray, query: np.ndarray, scale: float | None, config: JudgmentsConfig
) -> dict:
    order = np.argsort(query, kind="stable")
    orders, ndcgs = [], []
    for rows in np.split(order, np.flatnonzero(np.diff(query[order])) + 1):
        if len(np.unique(grade[rows])) > 1:
            orders.append(_right_order(estimate[rows], grade[rows]))
            ndcgs.append(_ndcg(estimate[rows], grade[rows]))
    derived = None if scale is None else np.searchsorted(config.grade_shares, estimate / scale, side="right")
    return {
        "order": _right_order(estimate, grade),
        "in_query": float(np.mean(orders)),
        "ndcg@10": float(np.mean(ndcgs)),
        "same_grade": None if derived is None else float(np.mean(derived == np.round(grade))),
        "queries_with_two_grades": len(orders),
    }


def _right_order(estimate: np.ndarray, grade: np.ndarray) -> float:
    """The share of pairs with different grades that the estimate orders as the grades do, ties counted half."""
    tau_b = kendalltau(estimate, grade).statistic
    if np.isnan(tau_b):
        return 0.5  # all estimates the same
    # tau_b = (right - wrong) / sqrt(pairs untied in the estimate * pairs untied in the grade)
    untied_estimate, untied_grade = (_untied(values) for values in (estimate, grade))
    return float(0.5 + 0.5 * tau_b * np.sqrt(untied_estimate / untied_grade))


def _untied(values: np.ndarray) -> float:
    _, times = np.unique(values, return_counts=True)
    return len(values) * (len(values) - 1) / 2 - float((times * (times - 1.0) / 2).sum())


def _ndcg(estimate: np.ndarray, grade: np.ndarray) -> float:
    gain, discount = 2**grade - 1, 1 / np.log2(np.arange(2, 12))
    best = np.argsort(-estimate, kind="stable")[:10]
    ideal = np.sort(gain)[::-1][:10]
    return float((gain[best] * discount[: len(best)]).sum() / (ideal * discount[: len(ideal)]).sum())


def cells_of(days: Sequence[str], config: JudgmentsConfig) -> pa.Table:
    """All cells behind the gate, of days small enough to be held in memory."""
    opened = open_window(days).ingests
    queries, exposures = (
        pa.concat_tables(map(read_day_file, day_files(opened, kind))) for kind in ("queries", "exposures")
    )
    terms = shipped_list(ADULT_ENGLISH).terms
    return gated_cells(queries, exposures, k=config.k, max_rank=config.max_rank, adult_terms=terms)[0]


def shop_truth(folder: Path, cells: pa.Table) -> dict[tuple[str, str], float]:
    """The mean grade, over all searches for that query, of each pair of query and document in `cells`."""
    made = json.loads((folder / "SIMULATED.json").read_text(encoding="utf-8"))
    catalogue = draw_catalogue(made["config"]["seed"], made["counts"]["documents"], made["config"]["shared_titles"])
    number_of = {document_id(number): number for number in range(len(catalogue))}
    searches = pq.read_table(folder / "truth/searches.parquet", columns=["query_id", "intent"]).to_pydict()
    intent_of = dict(zip(searches["query_id"], searches["intent"], strict=True))
    intents: dict[str, Counter] = {}
    for query_id, text in _searches(folder / "log"):
        if intent_of.get(query_id) is not None:
            intents.setdefault(normalise(text), Counter())[intent_of[query_id]] += 1
    rows = [
        (query, document, intent, number_of[document], searches)
        for query, document in set(zip(cells["query"].to_pylist(), cells["document_id"].to_pylist(), strict=True))
        if document in number_of
        for intent, searches in intents.get(query, {}).items()
    ]
    drawn = draw_intents(catalogue, np.array([row[2] for row in rows]))
    grade = grades(drawn, catalogue, np.array([row[3] for row in rows])[:, None])[:, 0]
    sums: dict[tuple[str, str], list[float]] = {}
    for (query, document, _, _, searches), value in zip(rows, grade.tolist(), strict=True):
        of_pair = sums.setdefault((query, document), [0, 0])
        of_pair[0] += value * searches
        of_pair[1] += searches
    return {pair: total / number for pair, (total, number) in sums.items()}


def _searches(log: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(log.iterdir()):
        with gzip.open(file, "rb") as lines:
            for line in lines:
                if b'"user_query"' in line:
                    with suppress(ValueError, KeyError, TypeError):  # lines that are broken on purpose
                        value = json.loads(line)
                        yield value["query_id"], str(value["user_query"])


def drawn_log(seed: int, skill: float) -> tuple[pa.Table, dict[tuple[str, str], float]]:
    """CELLS and truth of a log drawn by the shop's click model; the engine orders by skill * grade + noise."""
    draw = np.random.default_rng(seed)
    num_queries, num_documents, num_ranks = 400, 15, len(EXAMINED)
    grade = draw.choice(4, size=(num_queries, num_documents), p=(0.4, 0.3, 0.2, 0.1))
    own = draw.normal(size=grade.shape)  # the engine's lasting errors
    shown = np.zeros((num_queries, num_documents, num_ranks), int)
    clicked = np.zeros_like(shown)
    for query, searches in enumerate(np.maximum(10, (3000 / np.arange(1, num_queries + 1) ** 0.7).astype(int))):
        for _ in range(searches):
            page = np.argsort(-(skill * grade[query] + own[query] + draw.normal(size=num_documents)))[:num_ranks]
            shown[query, page, np.arange(num_ranks)] += 1
            is_clicked = draw.random(num_ranks) < EXAMINED * np.array(ATTRACTION)[grade[query, page]]
            clicked[query, page[is_clicked], np.flatnonzero(is_clicked)] += 1
    query, document, rank = np.nonzero(shown)
    columns = [
        [f"query {number:04d}" for number in query],
        [f"d{number:02d}" for number in document],
        pa.array(rank + 1, pa.int32()),
        shown[query, document, rank],
        clicked[query, document, rank],
    ]
    truth = {(f"query {q:04d}", f"d{d:02d}"): float(grade[q, d]) for q, d in np.ndindex(grade.shape)}
    return pa.table(columns, schema=CELLS), truth


def homedepot_truth(data: Path) -> dict[tuple[str, str], float]:
    texts = read_queries(str(data / "homedepot/queries.train.tsv"))
    qrels = read_qrels(str(data / "homedepot/qrels.train.txt"))
    return {(normalise(texts[q]), d): float(grade) for q, of_query in qrels.items() for d, grade in of_query.items()}


def shop(work: Path, seed: int, searches: int, config: JudgmentsConfig) -> dict:
    folder, store = work / f"shop-{seed}-{searches}", str(work / f"store-{seed}-{searches}")
    clicktower("simulate", str(folder), "--searches", str(searches), "--seed", str(seed))
    day = clicktower("ingest", str(folder / "log"), "--into", store)
    judged = clicktower("judgments", "--days", day["path"], "--into", store)
    cells = cells_of([day["path"]], config)
    found = compare(cells, shop_truth(folder, cells), config)
    of_stage = {row["rank"]: round(row["propensity"], 4) for row in judged["metrics"]["propensities"]}
    if of_stage != found["propensities"]:
        raise AssertionError("the stage and this measurement estimate different propensities")
    true = EXAMINED / EXAMINED[0]
    errors = [found["propensities"][rank] / true[rank - 1] - 1 for rank in found["propensities"]]
    return found | {"judgments": judged["counts"], "largest_propensity_error": float(np.abs(errors).max())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for logs and stores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--searches", type=int, default=100_000, help="of the simulated shop")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS}")
    options = parser.parse_args()
    work, config = Path(options.work), JudgmentsConfig()
    work.mkdir(parents=True, exist_ok=True)

    logs: dict[str, Callable[[int], dict]] = {
        f"simulated shop, {options.searches:,} searches": lambda seed: shop(work, seed, options.searches, config),
        "engine orders at random": lambda seed: compare(*drawn_log(seed, 0.0), config),
        "engine orders a little by relevance": lambda seed: compare(*drawn_log(seed, 0.4), config),
        "engine orders well": lambda seed: compare(*drawn_log(seed, 2.0), config),
    }
    results = {name: [run(seed) for seed in options.seeds] for name, run in logs.items()}
    if data := os.environ.get("CLICKTOWER_DATA"):
        day = clicktower("ingest", str(Path(data) / "homedepot_log"), "--into", str(work / "homedepot"))
        found = compare(cells_of([day["path"]], config), homedepot_truth(Path(data)), config)
        results["homedepot_log"] = [found]
    for name, runs in results.items():
        print(f"\n{name} ({len(runs)} seeds, {np.mean([run['pairs'] for run in runs]):,.0f} pairs)")
        print(f"{'':<28}" + "".join(f"{measure:>14}" for measure in MEASURES))
        for estimate in runs[0]["estimates"]:
            values = [[run["estimates"][estimate][measure] for run in runs] for measure in MEASURES]
            shown = ["-" if None in of else f"{np.mean(of):.4f}" for of in values]
            print(f"{estimate:<28}" + "".join(f"{text:>14}" for text in shown))
    if options.record:
        value = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "seeds": options.seeds,
            "logs": results,
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
