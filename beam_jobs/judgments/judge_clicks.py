"""Cells -> what the log says of ranks and of documents -> grades: the arithmetic of click judgments."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_jobs.judgments.click_model import (
    TINY,
    Cells,
    Prior,
    ShownPairs,
    add_up,
    fit_levels,
    fit_propensities,
    fit_strength,
    informative,
    most_probable_attractiveness,
    relative_errors,
)
from beam_jobs.judgments.exposure_cells import numbered
from beam_jobs.judgments.judgments_config import JudgmentsConfig
from schemas.errors import StageError
from schemas.judgments import CLICK_DERIVED

# Judgments of a bucket, in ascending order of query id and document.
JUDGED = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("grade", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredClicks:
    """What was estimated from the whole log, and is needed to grade a part of it.

    `errors`: relative standard errors, against the rank `reference`. `unmeasured`: ranks of which the log says too
    little. `typical_attractiveness`: the mean of what would be clicked if all documents that can be judged were looked
    at alike (sum of alpha^2 / sum of alpha): what grades are measured by.
    """

    ranks: tuple[int, ...]
    propensities: tuple[float, ...]
    errors: tuple[float, ...]
    reference: int
    unmeasured: tuple[int, ...]
    prior: Prior
    typical_attractiveness: float
    num_cells: int  # of the sample
    num_iterations: int
    converged: bool


def measure(sample: pa.Table, config: JudgmentsConfig) -> MeasuredClicks:
    """The propensities, the prior and the scale of grades, from exposure_cells.SAMPLE.

    Raises StageError where the log cannot tell the propensities of at least two ranks.
    """
    every_rank = np.unique(sample["rank"].to_numpy())
    cells, query_of_pair = _cells_of(sample, every_rank, "query", "document")
    iterations, converged = 0, True
    if config.click_model == "ctr":
        ranks, propensities, reference = every_rank, np.ones(len(every_rank)), every_rank[0] if len(every_rank) else 0
        errors = np.zeros(len(ranks))
    else:
        enough = cells.sum_of_pair(cells.impressions) >= config.min_impressions
        telling = cells.where(enough)
        telling = telling.where(informative(telling))
        fit = fit_propensities(telling, len(every_rank))
        errors, at = relative_errors(telling, fit.propensities)
        is_measured = errors <= config.max_propensity_error
        if is_measured.sum() < 2:
            raise _ranks_hardly_vary(telling, every_rank, errors, config)
        ranks, reference = every_rank[is_measured], every_rank[at]
        propensities = fit.propensities[is_measured] / fit.propensities[is_measured].max()
        errors, iterations, converged = errors[is_measured], len(fit.log_likelihoods), fit.converged
        cells, query_of_pair = _cells_of(sample.filter(pa.array(np.isin(sample["rank"].to_numpy(), ranks))), ranks,
                                         "query", "document")  # fmt: skip
    pairs = add_up(cells, query_of_pair, ranks, propensities)
    levels = fit_levels(pairs, ranks, by_rank=config.prior == "query_and_rank")
    prior = Prior(ranks=_plain(ranks), levels=_plain(levels), strength=1.0)
    prior = Prior(
        ranks=prior.ranks,
        levels=prior.levels,
        strength=fit_strength(cells, propensities, prior.expected(pairs)),
    )
    alpha = _attractiveness(cells, pairs, propensities, prior)
    enough = cells.sum_of_pair(cells.impressions) >= config.min_impressions
    judgeable = alpha[enough]
    return MeasuredClicks(
        ranks=_plain(ranks),
        propensities=_plain(propensities),
        errors=_plain(errors),
        reference=int(reference),
        unmeasured=_plain(np.setdiff1d(every_rank, ranks)),
        prior=prior,
        typical_attractiveness=float((judgeable**2).sum() / max(judgeable.sum(), TINY)),
        num_cells=len(sample),
        num_iterations=iterations,
        converged=converged,
    )


def attractiveness(cells: pa.Table, measured: MeasuredClicks) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """(the first cell of each pair, its impressions, its attractiveness) of CELLS at measured ranks alone."""
    ranks, propensities = np.array(measured.ranks), np.array(measured.propensities)
    numbers, query_of_pair = _cells_of(cells, ranks, "query", "document_id")
    pairs = add_up(numbers, query_of_pair, ranks, propensities)
    alpha = _attractiveness(numbers, pairs, propensities, measured.prior)
    _, first = numbered(cells["query"], cells["document_id"])
    return cells.take(pa.array(first)), numbers.sum_of_pair(numbers.impressions), alpha


def judge(cells: pa.Table, measured: MeasuredClicks, config: JudgmentsConfig) -> tuple[pa.Table, Counter[str]]:
    """JUDGED of exposure_cells.CELLS that hold all cells of their queries, and counts as `gated_cells` has.

    Further counts: `queries_judged`, `judgments` and `grade_G`.
    """
    counts = Counter[str]()
    is_measured = np.isin(cells["rank"].to_numpy(), measured.ranks)
    _count(counts, "rank_unmeasured", cells.filter(pa.array(~is_measured)))
    cells = cells.filter(pa.array(is_measured)).combine_chunks()
    pair, _ = numbered(cells["query"], cells["document_id"])
    pairs, impressions, alpha = attractiveness(cells, measured)
    grade = np.searchsorted(config.grade_shares, alpha / max(measured.typical_attractiveness, TINY), side="right")

    is_seen = impressions >= config.min_impressions
    query, _ = numbered(pairs["query"])
    num_queries = int(query.max(initial=-1)) + 1
    num_judged = np.bincount(query[is_seen], minlength=num_queries)
    lowest, highest = np.full(num_queries, 127), np.full(num_queries, -1)
    np.minimum.at(lowest, query[is_seen], grade[is_seen])
    np.maximum.at(highest, query[is_seen], grade[is_seen])
    is_telling = (num_judged >= config.min_documents) & (lowest < highest)
    is_judged = is_seen & is_telling[query]
    _count(counts, "too_few_impressions", cells.filter(pa.array(~is_seen[pair])))
    _count(counts, "query_too_plain", cells.filter(pa.array((is_seen & ~is_judged)[pair])))
    _count(counts, "judged", cells.filter(pa.array(is_judged[pair])))
    counts["queries_judged"] = int(np.count_nonzero(is_telling))
    counts["judgments"] = int(is_judged.sum())
    for value, number in enumerate(np.bincount(grade[is_judged], minlength=len(config.grade_shares) + 1).tolist()):
        counts[f"grade_{value}"] = number

    kept = pairs.filter(pa.array(is_judged))
    texts = kept["query"].combine_chunks().dictionary_encode()
    ids = pa.array([query_id(text, config.id_salt) for text in texts.dictionary.to_pylist()], pa.string())
    columns = [ids.take(texts.indices), kept["query"], kept["document_id"], pa.array(grade[is_judged], pa.int32())]
    judged = pa.table(columns, schema=JUDGED)
    return judged.sort_by([("query_id", "ascending"), ("document_id", "ascending")]), counts


def query_id(query: str, salt: str) -> str:
    """The id of a normalised query: the same on every day, and it says what its judgments are."""
    digest = hashlib.blake2b(query.encode(), digest_size=8, key=salt.encode(), person=b"judged query")
    return CLICK_DERIVED + digest.hexdigest()


def _attractiveness(cells: Cells, pairs: ShownPairs, propensities: np.ndarray, prior: Prior) -> np.ndarray:
    expected = prior.expected(pairs)
    return most_probable_attractiveness(cells, propensities, prior.strength * expected, prior.strength * (1 - expected))


def _cells_of(table: pa.Table, ranks: np.ndarray, query: str, document: str) -> tuple[Cells, np.ndarray]:
    """Rows in ascending order as Cells, and the query of each pair."""
    pair, first = numbered(table[query], table[document])
    query_of_row, _ = numbered(table[query])
    cells = Cells(
        pair=pair,
        rank=np.searchsorted(ranks, table["rank"].to_numpy()),
        impressions=table["impressions"].to_numpy().astype(float),
        clicks=table["clicks"].to_numpy().astype(float),
    )
    return cells, query_of_row[first]


def _count(counts: Counter[str], fate: str, cells: pa.Table) -> None:
    for what in ("impressions", "clicks"):
        counts[f"{what}:{fate}"] += int(cells[what].to_numpy().sum())


def _plain(values: Iterable) -> tuple:
    return tuple(np.asarray(values).tolist())


def _ranks_hardly_vary(telling: Cells, ranks: np.ndarray, errors: np.ndarray, config: JudgmentsConfig) -> StageError:
    best = np.sort(errors)[1] if len(errors) > 1 else np.inf
    known = f"; the best known ratio of two has a relative error of {best:.0%}" if np.isfinite(best) else ""
    return StageError(
        asked=f"the propensities of ranks were to be estimated to within {config.max_propensity_error:.0%}",
        found=f"{len(ranks)} ranks occur, and {telling.num_pairs:,} pairs of query and document with at least"
        f" {config.min_impressions} impressions and a click were shown at more than one of them{known}",
        follows="clicks caused by the rank and by the document itself cannot be separated",
        do="add days to the window, or set click_model=ctr for judgments from the plain share of clicks, which lean to"
        " the logged order and are labelled so",
    )
