"""clicktower search"""

from dataclasses import asdict
from typing import Literal

from rich.table import Table

from flows.show import console


def search(
    text: str,
    *,
    release: str,
    k: int = 10,
    mode: Literal["vector", "bm25", "hybrid"] = "vector",
    weight: float | None = None,
    rerank: int | None = None,
    json: bool = False,
) -> None:
    """Rank the documents of the live release for a query.

    By vector unless --mode says otherwise: bm25 ranks by shared words, hybrid by both.

        clicktower search --release release "angle bracket"
        clicktower search --release release --mode hybrid --weight 0.02 "angle bracket"
        clicktower search --release questions --rerank 100 "how do I learn to cook"

    Parameters
    ----------
    text
        The query, as a person would type it.
    release
        The folder or URI that `publish` wrote to.
    k
        How many documents to show.
    mode
        vector: by cosine, or by distance if the model compares by it. bm25: by the words that query
        and title share. hybrid: cosine (or minus the distance) + weight * BM25.
    weight
        The weight of BM25 in a hybrid, 0.02 by default; `compare` reports the one that your judgments choose.
    rerank
        Rerank this many of the nearest by the confidence of the model's own classifier that they are of the query's
        class, for example duplicates. For a model that was trained on labelled pairs.
    json
        Print the hits as one JSON object.
    """
    from flows.releases.search import WEIGHT
    from flows.releases.search import search as run

    hits = run(release, text, k, mode, weight=WEIGHT if weight is None else weight, rerank=rerank)
    result = {"stage": "search", "query": text, "mode": mode, "hits": [asdict(hit) for hit in hits]}
    console.emit(result, json, _show)


def _show(result: dict) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", justify="right", style="dim")
    by_distance = any(hit["distance"] is not None for hit in result["hits"])
    near, hybrid = "distance" if by_distance else "cosine", result["mode"] == "hybrid"
    # A distance is shown as it is, and not as the score that it makes.
    by = near if by_distance and not hybrid else "score"
    again = any(hit["confidence"] is not None for hit in result["hits"])
    if again:
        table.add_column("confidence", justify="right")
    table.add_column(by, justify="right", style="dim" if again else "")
    if hybrid:
        table.add_column(near, justify="right", style="dim")
        table.add_column("BM25", justify="right", style="dim")
    table.add_column("title", overflow="fold")
    table.add_column("id", style="dim", no_wrap=True)
    for hit in result["hits"]:
        parts = [f"{hit[near]:.3f}", f"{hit['bm25']:.2f}"] if hybrid else []
        title, name = console.plain(hit["title"]), console.plain(hit["id"])
        sure = [f"{hit['confidence']:.3f}"] if again else []
        table.add_row(str(hit["rank"]), *sure, f"{hit[by]:.3f}", *parts, title, name)
    console.output.print(table)
