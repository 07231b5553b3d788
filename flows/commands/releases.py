"""clicktower releases"""

from rich.table import Table
from rich.text import Text

from flows.show import console

_STYLES = {"live": "bold green", "previous": "green", "candidate": "yellow", "damaged": "bold red"}


def releases(*, to: str, json: bool = False) -> None:
    """List the releases that are kept: which is live, and which was before.

    For a candidate it says why it is not live.

        clicktower releases --to release

    Parameters
    ----------
    to
        The folder or URI of the releases, as given to `publish`.
    json
        Print the list as one JSON object.
    """
    from flows.releases.kept_releases import list_releases

    kept = list_releases(to)
    live = next((one.digest for one in kept if one.state == "live"), None)
    result = {"stage": "releases", "digest": live, "path": to, "releases": [one.to_json() for one in kept]}
    console.emit(result, json, _show)


def _show(result: dict) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("release", no_wrap=True)
    table.add_column("made", no_wrap=True)
    table.add_column("documents", justify="right")
    table.add_column("NDCG@10", justify="right")
    for row in result["releases"]:
        style = _STYLES.get(row["state"], "dim")
        ndcg, documents = row["ndcg@10"], row["num_documents"]
        table.add_row(
            Text(row["state"], style=style),
            Text(row["digest"], style="bold" if row["state"] == "live" else ""),
            (row["created"] or "")[:16].replace("T", " "),
            f"{documents:,}" if documents is not None else "",
            f"{ndcg['mean']:.3f}" if ndcg else "",
        )
    console.output.print(table)
    for row in result["releases"]:
        if said := row["wrong"] or (row["decision"] or {}).get("reason"):
            console.output.print(Text(f"{row['digest']}: {console.plain(said)}", style="dim"), soft_wrap=True)
