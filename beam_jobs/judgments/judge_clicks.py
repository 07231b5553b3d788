"""Click judgments: days -> cells behind the privacy gate -> estimates for ranks and documents -> grades.

The settings come first, and what identifies the result.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from clicktower.beam_jobs.build.click_shards import Salt, count_people
from clicktower.beam_jobs.compiled.log_library import keyed_hashes
from clicktower.beam_jobs.judgments import click_model as model
from clicktower.schemas.content_filters import content_fates
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import CLICK_DERIVED
from clicktower.schemas.search_log import PEOPLE_CAP, not_null
from clicktower.schemas.section import Part, Unnamed, Uri, section

# Grade g if the attractiveness, as a share of the typical one (judge_clicks), is at least the g-th of these: where 1 +
# 7 * share, the gain 2^grade of NDCG if a share of 1 is to gain 2^3 - 1, passes 2^(g - 1/2).
GRADE_SHARES = ((2**0.5 - 1) / 7, (2**1.5 - 1) / 7, (2**2.5 - 1) / 7)


@section
class JudgmentsConfig:
    """The settings that determine the judgments (docs/results.md).

    Args:
        k: As in `build`.
        click_model: pbm, or ctr, the plain click rate, for a log whose ranks hardly vary.
        prior: What is expected of a document before its clicks count: by query and rank, or by query, without the
            logged order.
        min_impressions: The impressions of a document for a query below which it has no judgment and no say in
            propensities.
        min_documents: The minimum of judged documents per query.
        max_propensity_error: The largest relative standard error of a usable propensity.
        max_rank: Deeper ranks are ignored.
        max_unseen_clicks: The share of clicks without an impression above which the run fails.
        grade_shares: The shares of the typical attractiveness from which on a document gets grade 1, 2 and so on.
        sample_cells: About how many rows of query, document and rank are sampled to estimate propensities and prior.
        id_salt: The key of the query ids.
        adult_list: A file of adult terms, one per line, in place of the built-in list.
    """

    k: Annotated[int, Field(ge=0, le=PEOPLE_CAP)] = 5
    click_model: Literal["pbm", "ctr"] = "pbm"
    prior: Literal["query_and_rank", "query"] = "query_and_rank"
    min_impressions: Annotated[int, Field(ge=1, le=2**31)] = 10
    min_documents: Annotated[int, Field(ge=1, le=2**31)] = 2
    max_propensity_error: Annotated[float, Field(ge=0.001, le=10)] = 0.25
    max_rank: Annotated[int, Field(ge=1, le=200)] = 50
    max_unseen_clicks: Part = 0.1
    grade_shares: tuple[float, ...] = GRADE_SHARES
    sample_cells: Annotated[int, Field(ge=1_000, le=20_000_000)] = 1_000_000
    id_salt: Salt = "clicktower"
    adult_list: Annotated[Uri | None, Unnamed()] = None

    def __post_init__(self) -> None:
        shares = (0.0, *self.grade_shares)
        if len(shares) < 2 or any(a >= b for a, b in pairwise(shares)):
            raise UsageError(
                f"grade_shares = {self.grade_shares} are not positive and ascending.",
                "Give for example [0.06, 0.26, 0.67] for the grades 1, 2 and 3.",
            )


# Days -> cells behind the privacy gate.
#
# In ascending order of query, document and rank. A click without an impression counts as one: a person who clicked has
# seen.


CELLS = not_null(query=pa.string(), document_id=pa.string(), rank=pa.int32(), impressions=pa.int64(), clicks=pa.int64())

# Cells of whole queries without their text, in ascending order of `query` (a keyed hash), `document` (its index among
# the documents of the query) and rank.
SAMPLE = not_null(query=pa.uint64(), document=pa.int32(), rank=pa.int32(), impressions=pa.int64(), clicks=pa.int64())

# The fates of the impressions and the clicks of a window.
FATES = {
    "content": "of a query that is empty, adult or spam",
    "below_k": "of a query that fewer than k people issued",
    "rank_unknown": "without a rank",
    "rank_too_deep": "deeper than max_rank",
    "id_with_space": "of a document whose id has white space or control characters, which qrels cannot hold",
    "rank_unmeasured": "at a rank whose propensity cannot be estimated from the log",
    "too_few_impressions": "of a document with fewer than min_impressions for its query",
    "query_too_plain": "of a query whose judged documents are too few, or all of one grade",
    "judged": "behind a judgment",
}


def gated_cells(
    queries: pa.Table, exposures: pa.Table, *, k: int, max_rank: int, adult_terms: tuple[str, ...]
) -> tuple[pa.Table, Counter[str]]:
    """CELLS of the queries that at least k people issued, and counts.

    `queries`, `exposures`: all rows of each of their queries, from any number of days (search_log). The counts are
    `impressions:FATE` and `clicks:FATE` of dropped lines; `impressions:all`, `clicks:all`; `clicks_unseen`, those
    beyond the impressions of their row, of all queries; `queries`, and `queries_at_k`, those behind the gate.
    """
    people = count_people(queries)
    content = np.array([fate is not None for fate in content_fates(people["query"].to_pylist(), adult_terms)], bool)
    is_hidden = people["num_people"].to_numpy() < k
    at = pc.index_in(exposures["query"], value_set=people["query"]).combine_chunks()
    if at.null_count:
        raise AssertionError("a day holds exposures of a query that it does not hold")
    query = at.to_numpy()
    rank = exposures["position"].to_numpy()
    has_space = pc.match_substring_regex(exposures["document_id"], r"[\p{Z}\p{Cc}]").to_numpy()
    impressions, clicks = exposures["impressions"].to_numpy(), exposures["clicks"].to_numpy()
    reasons = {
        "content": content[query],
        "below_k": is_hidden[query],
        "rank_unknown": rank < 0,
        "rank_too_deep": rank > max_rank,
        "id_with_space": has_space,
    }
    counts = Counter[str]({"impressions:all": int(impressions.sum()), "clicks:all": int(clicks.sum())})
    kept = np.ones(len(clicks), bool)
    for fate, applies in reasons.items():  # the first reason counts
        rows = kept & applies
        counts[f"impressions:{fate}"], counts[f"clicks:{fate}"] = int(impressions[rows].sum()), int(clicks[rows].sum())
        kept &= ~applies
    counts["queries"], counts["queries_at_k"] = len(people), int((~content & ~is_hidden).sum())
    counts["clicks_unseen"] = int(np.maximum(clicks - impressions, 0).sum())

    keys = ["query", "document_id", "position"]  # of all days together; impressions are raised to the clicks
    sums = exposures.filter(pa.array(kept)).group_by(keys).aggregate([("impressions", "sum"), ("clicks", "sum")])
    raised = pc.max_element_wise(sums["impressions_sum"], sums["clicks_sum"])
    cells = pa.table([*(sums[key] for key in keys), raised, sums["clicks_sum"]], schema=CELLS)
    return cells.sort_by([(name, "ascending") for name in ("query", "document_id", "rank")]).combine_chunks(), counts


def sample_of(cells: pa.Table) -> pa.Table:
    """SAMPLE of all queries of a bucket."""
    number, start = number_groups(cells["query"])
    pair, _ = number_groups(cells["query"], cells["document_id"])
    texts = cells["query"].take(pa.array(start)).combine_chunks()
    hashes = keyed_hashes(texts, key=b"clicktower", person=b"click model")
    document = pair - pair[start][number] if len(pair) else pair
    columns = [pa.array(hashes[number], pa.uint64()), pa.array(document, pa.int32())]
    return pa.table([*columns, cells["rank"], cells["impressions"], cells["clicks"]], schema=SAMPLE)


def merge_samples(samples: Iterable[pa.Table], max_cells: int) -> pa.Table:
    """SAMPLE of the queries with the smallest hashes: whole queries, until there are `max_cells` cells.

    Cutting parts and then their union gives the same queries: what a part keeps already fills `max_cells` cells of the
    union.
    """
    keys = [(name, "ascending") for name in ("query", "document", "rank")]
    united = pa.concat_tables([SAMPLE.empty_table(), *samples]).sort_by(keys).combine_chunks()
    if len(united) <= max_cells:
        return united
    query = united["query"].to_numpy()
    return united.slice(0, int(np.searchsorted(query, query[max_cells - 1], side="right")))


def number_groups(*columns: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """(the group of each row, counted from 0; the first row of each group), int64, for rows sorted by these columns."""
    num_rows = len(columns[0])
    differs = np.zeros(num_rows, bool)
    differs[:1] = True
    for column in columns:
        differs[1:] |= pc.not_equal(column.slice(1), column.slice(0, max(num_rows - 1, 0))).to_numpy()
    return np.cumsum(differs) - 1, np.flatnonzero(differs)


# Cells -> the ranking that the search engine showed, as one more system beside a model.
#
# A document's place follows from its *exposure* for the query: 1 / log2(rank + 2), summed over its impressions. That
# falls with the rank like the discount of NDCG, also in a log that counts ranks from 0. Of two documents shown equally
# often, the one shown higher is first; and one that a few people saw at the top does not pass one that everybody saw
# just below it, as it would if mean ranks were compared. Only places are published: an exposure would reveal how often
# something was shown.


# In ascending order of query id and place. `place`: 1 has the most exposure; equal exposures share the first of their
# places.
LOGGED = not_null(query_id=pa.string(), document_id=pa.string(), place=pa.int32())


def logged_ranking(cells: pa.Table, judged: pa.Table, *, min_impressions: int) -> pa.Table:
    """LOGGED: for each query of `judged`, the documents shown for it at least `min_impressions` times.

    `cells`: CELLS, all cells of their queries; `judged`: JUDGED.
    """
    pair, first = number_groups(cells["query"], cells["document_id"])
    shown = cells["impressions"].to_numpy()
    exposure = np.bincount(pair, shown / np.log2(cells["rank"].to_numpy() + 2.0), minlength=len(first))
    is_seen = np.bincount(pair, shown, minlength=len(first)) >= min_impressions
    pairs = cells.take(pa.array(first)).select(["query", "document_id"]).append_column("exposure", pa.array(exposure))
    id_of = judged.select(["query", "query_id"]).group_by(["query", "query_id"]).aggregate([])
    keys = [("query_id", "ascending"), ("exposure", "descending"), ("document_id", "descending")]
    ranked = pairs.filter(pa.array(is_seen)).join(id_of, "query", join_type="inner").sort_by(keys).combine_chunks()

    query, start = number_groups(ranked["query_id"])
    _, first_of_equals = number_groups(ranked["query_id"], ranked["exposure"])
    row = np.arange(len(ranked))
    leader = first_of_equals[np.searchsorted(first_of_equals, row, side="right") - 1]
    place = leader - start[query] + 1
    return pa.table([ranked["query_id"], ranked["document_id"], pa.array(place, pa.int32())], schema=LOGGED)


# Cells -> judgments of a bucket, in ascending order of query id and document.


JUDGED = not_null(query_id=pa.string(), query=pa.string(), document_id=pa.string(), grade=pa.int32())


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredClicks:
    """Estimates from the whole log that grading a part of it needs.

    `errors`: relative standard errors, against the rank `reference`. `unmeasured`: ranks with too few data.
    `typical_attractiveness`: the expected attractiveness of a click if all documents that can be judged were looked at
    equally (sum of alpha^2 / sum of alpha): the scale of grades.
    """

    ranks: tuple[int, ...]
    propensities: tuple[float, ...]
    errors: tuple[float, ...]
    reference: int
    unmeasured: tuple[int, ...]
    prior: model.Prior
    typical_attractiveness: float
    num_cells: int  # of the sample
    num_iterations: int
    converged: bool


def measure(sample: pa.Table, config: JudgmentsConfig) -> MeasuredClicks:
    """The propensities, the prior and the scale of grades, from SAMPLE.

    Raises StageError if the log gives propensities for fewer than two ranks.
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
        telling = telling.where(model.informative(telling))
        fit = model.fit_propensities(telling, len(every_rank))
        errors, at = model.relative_errors(telling, fit.propensities)
        is_measured = errors <= config.max_propensity_error
        if is_measured.sum() < 2:
            raise _ranks_hardly_vary(telling, every_rank, errors, config)
        ranks, reference = every_rank[is_measured], every_rank[at]
        propensities = fit.propensities[is_measured] / fit.propensities[is_measured].max()
        errors, iterations, converged = errors[is_measured], len(fit.log_likelihoods), fit.converged
        at_measured = sample.filter(pa.array(np.isin(sample["rank"].to_numpy(), ranks)))
        cells, query_of_pair = _cells_of(at_measured, ranks, "query", "document")
    pairs = model.add_up(cells, query_of_pair, ranks, propensities)
    levels = model.fit_levels(pairs, ranks, by_rank=config.prior == "query_and_rank")
    prior = model.Prior(ranks=_plain(ranks), levels=_plain(levels), strength=1.0)
    prior = replace(prior, strength=model.fit_strength(cells, propensities, prior.expected(pairs)))
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
        typical_attractiveness=float((judgeable**2).sum() / max(judgeable.sum(), model.TINY)),
        num_cells=len(sample),
        num_iterations=iterations,
        converged=converged,
    )


def attractiveness(cells: pa.Table, measured: MeasuredClicks) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """(the first cell of each pair, its impressions, its attractiveness) of CELLS at measured ranks alone."""
    ranks, propensities = np.array(measured.ranks), np.array(measured.propensities)
    numbers, query_of_pair = _cells_of(cells, ranks, "query", "document_id")
    pairs = model.add_up(numbers, query_of_pair, ranks, propensities)
    alpha = _attractiveness(numbers, pairs, propensities, measured.prior)
    _, first = number_groups(cells["query"], cells["document_id"])
    return cells.take(pa.array(first)), numbers.sum_of_pair(numbers.impressions), alpha


def judge(cells: pa.Table, measured: MeasuredClicks, config: JudgmentsConfig) -> tuple[pa.Table, Counter[str]]:
    """JUDGED of CELLS that hold all cells of their queries, and counts as in `gated_cells`.

    It adds the counts `queries_judged`, `judgments` and `grade_G`.
    """
    counts = Counter[str]()
    is_measured = np.isin(cells["rank"].to_numpy(), measured.ranks)
    _count(counts, "rank_unmeasured", cells.filter(pa.array(~is_measured)))
    cells = cells.filter(pa.array(is_measured)).combine_chunks()
    pair, _ = number_groups(cells["query"], cells["document_id"])
    pairs, impressions, alpha = attractiveness(cells, measured)
    grade = np.searchsorted(config.grade_shares, alpha / max(measured.typical_attractiveness, model.TINY), side="right")

    is_seen = impressions >= config.min_impressions
    query, _ = number_groups(pairs["query"])
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
    """The id of a normalised query: the same on every day, with the prefix that marks click-derived judgments."""
    digest = hashlib.blake2b(query.encode(), digest_size=8, key=salt.encode(), person=b"judged query")
    return CLICK_DERIVED + digest.hexdigest()


def _attractiveness(
    cells: model.Cells, pairs: model.ShownPairs, propensities: np.ndarray, prior: model.Prior
) -> np.ndarray:
    expected = prior.expected(pairs)
    return model.most_probable_attractiveness(
        cells, propensities, prior.strength * expected, prior.strength * (1 - expected)
    )


def _cells_of(table: pa.Table, ranks: np.ndarray, query: str, document: str) -> tuple[model.Cells, np.ndarray]:
    """Rows in ascending order as Cells, and the query of each pair."""
    pair, first = number_groups(table[query], table[document])
    query_of_row, _ = number_groups(table[query])
    cells = model.Cells(
        pair=pair,
        rank=np.searchsorted(ranks, table["rank"].to_numpy()),
        impressions=table["impressions"].to_numpy().astype(float),
        clicks=table["clicks"].to_numpy().astype(float),
    )
    return cells, query_of_row[first]


def _count(counts: Counter[str], fate: str, cells: pa.Table) -> None:
    for unit in ("impressions", "clicks"):
        counts[f"{unit}:{fate}"] += int(cells[unit].to_numpy().sum())


def _plain(values: Iterable) -> tuple:
    return tuple(np.asarray(values).tolist())


def _ranks_hardly_vary(
    telling: model.Cells, ranks: np.ndarray, errors: np.ndarray, config: JudgmentsConfig
) -> StageError:
    best = np.sort(errors)[1] if len(errors) > 1 else np.inf
    remark = f"; the best known ratio of two has a relative error of {best:.0%}" if np.isfinite(best) else ""
    return StageError(
        f"The propensities of ranks cannot be estimated to within {config.max_propensity_error:.0%}: {len(ranks)}"
        f" ranks occur, and {telling.num_pairs:,} pairs of query and document with at least {config.min_impressions}"
        f" impressions and a click were shown at more than one of them{remark}. Clicks caused by the rank and by the"
        " document itself cannot be told apart.",
        "Add days to the window, or set click_model=ctr for judgments from the plain share of clicks, which lean to"
        " the logged order and are labelled so.",
    )
