"""clicktower search"""

from dataclasses import asdict

from rich.table import Table

from flows import console


def search(text: str, *, release: str, k: int = 10, json: bool = False) -> None:
    """Rank the documents of the live release for a query.

        clicktower search --release release "angle bracket"

    Parameters
    ----------
    text
        The query, as a person would type it.
    release
        The folder or URI that `publish` wrote to.
    k
        How many documents to show.
    json
        Print the hits as one JSON object.
    """
    from flows.search import search as run

    hits = run(release, text, k)
    console.emit({"stage": "search", "query": text, "hits": [asdict(hit) for hit in hits]}, json, _show)


def _show(result: dict) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", justify="right", style="dim")
    table.add_column("score", justify="right")
    table.add_column("title", overflow="fold")
    table.add_column("id", style="dim", no_wrap=True)
    for hit in result["hits"]:
        table.add_row(str(hit["rank"]), f"{hit['score']:.3f}", console.plain(hit["title"]), console.plain(hit["id"]))
    console.output.print(table)
