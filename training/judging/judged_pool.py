"""The best documents of several systems, each pair of query and document once, in an order that tells nothing of them.

So the paper's test set was made, and TREC's: what no system found is not judged, and counts as not relevant.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import chain

import numpy as np

from schemas.errors import StageError
from schemas.judgments import CLICK_DERIVED, Run


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One document to judge for one query."""

    query_id: str
    query: str
    document_id: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedPool:
    """What there is to judge. `counts` says of the results of all runs how many repeat another run's, and how many
    pairs were judged before."""

    items: Sequence[Item]
    counts: Mapping[str, int]


def pooled(
    runs: Mapping[str, Run],
    queries: Mapping[str, str],
    titles: Mapping[str, str],
    *,
    depth: int = 10,
    judged: Mapping[str, Collection[str]] | None = None,
    num_queries: int | None = None,
    seed: int = 0,
) -> JudgedPool:
    """The `depth` best documents of each run and query, without those `judged` already.

    Queries come in the order of a keyed hash, so that the first of them are a sample, and `num_queries` draws so many
    of those that have something left to judge; the documents of a query too, so that no place tells a system or a
    rank. Judgments of people must not look like those of clicks: where the ids of queries say `click-derived-`, those
    of the items do not. Raises StageError for queries and documents that are not in the files, and where nothing is
    left to judge.
    """
    asked = f"the best {depth:,} documents of {len(runs):,} runs were to be judged"
    best: dict[str, list[str]] = {}
    for name, run in runs.items():
        _require_known(asked, name, "queries", run, queries)
        of_run = {query_id: _best(results, depth) for query_id, results in run.items()}
        _require_known(asked, name, "documents", chain.from_iterable(of_run.values()), titles)
        for query_id, document_ids in of_run.items():
            best.setdefault(query_id, []).extend(document_ids)
    _require_one_kind(asked, best)
    items: list[Item] = []
    counts = Counter[str](runs=len(runs))
    for query_id in sorted(best, key=lambda query_id: _draw(seed, query_id)):
        if counts["queries"] == num_queries:
            break
        new_id = query_id.removeprefix(CLICK_DERIVED)
        distinct = sorted(set(best[query_id]), key=lambda document_id: _draw(seed, query_id, document_id))
        left = [document_id for document_id in distinct if document_id not in (judged or {}).get(new_id, ())]
        items += [Item(query_id=new_id, query=queries[query_id], document_id=d, title=titles[d]) for d in left]
        counts += Counter(
            queries=int(bool(left)),
            pairs=len(left),
            results=len(best[query_id]),
            found_by_several=len(best[query_id]) - len(distinct),
            judged_before=len(distinct) - len(left),
        )
    if not items:
        raise StageError(
            asked=asked,
            found=f"all {counts['judged_before']:,} pairs of a query and a document among them are judged already",
            do="raise --depth, or add runs",
        )
    told = ("queries", "pairs", "runs", "results", "found_by_several", "judged_before")
    return JudgedPool(items=items, counts={name: counts[name] for name in told})


def _best(results: Mapping[str, float], depth: int) -> list[str]:
    """The ids of the best results: scores as 32-bit floats, ties by descending id, as trec_eval orders them."""
    with np.errstate(over="ignore"):  # beyond the range of 32 bits is infinite there too
        scores = np.array(list(results.values()), np.float64).astype(np.float32).tolist()
    return [document_id for _, document_id in nlargest(depth, zip(scores, results, strict=True))]


def _draw(seed: int, *ids: str) -> bytes:
    """What an item is ordered by: nothing that a rank or a system could be seen in."""
    key = seed.to_bytes(8, "big", signed=True)
    return hashlib.blake2b("\0".join(ids).encode(), digest_size=16, key=key, person=b"pool").digest()


def _require_known(asked: str, run: str, what: str, ids: Iterable[str], known: Collection[str]) -> None:
    unknown = sorted({identity for identity in ids if identity not in known})
    if unknown:
        raise StageError(
            asked=asked,
            found=f"{len(unknown):,} {what} of {run} are not in the {what} file ({', '.join(unknown[:3])})",
            follows="an assessor could not be shown what to judge",
            do=f"give the {what} that the run was made with",
        )


def _require_one_kind(asked: str, query_ids: Collection[str]) -> None:
    derived = sum(query_id.startswith(CLICK_DERIVED) for query_id in query_ids)
    if 0 < derived < len(query_ids):
        raise StageError(
            asked=asked,
            found=f"of their {len(query_ids):,} queries {derived:,} are those of click-derived judgments",
            follows="a query could be judged under two ids",
            do="pool them apart from the others",
        )
