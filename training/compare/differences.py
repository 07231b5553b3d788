"""Two rows query by query: where one gained most over the other and where it lost most, both rankings side by side."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from schemas.judgments import Run
from training.compare.measured_row import Ended
from training.compare.table import SLICED_BY
from training.evaluate import EvaluateConfig
from training.ranking.judged_collection import JudgedCollection

_RANKS = 10


def difference(
    collection: JudgedCollection, ended: Sequence[Ended], against: str, config: EvaluateConfig
) -> dict[str, Any] | None:
    """The row that is best by NDCG@10 beside the one that all are set against; None where there are no two rows."""
    done = {one.row.name: one for one in ended if one.state == "done"}
    others = [name for name in done if name != against]
    if against not in done or not others:
        return None
    best = max(others, key=lambda name: done[name].metrics[SLICED_BY])
    of_Q, to_Q = (done[name].per_query()[SLICED_BY] for name in (best, against))
    runs = {name: done[name].judged_run() for name in (best, against)}
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
    ranked = sorted(run.get(query_id, {}).items(), key=lambda item: (item[1], item[0]), reverse=True)[:_RANKS]
    return [
        {
            "rank": rank,
            "id": document_id,
            "title": collection.titles[collection.row_of[document_id]] if document_id in collection.row_of else "",
            "score": score,
            "grade": collection.qrels[query_id].get(document_id),
        }
        for rank, (document_id, score) in enumerate(ranked, start=1)
    ]
