"""clicktower releases, rollback, verify, export: what is done with releases that are there."""

from rich.text import Text

from clicktower.flows.commands.options import Json, ReleaseUri
from clicktower.flows.report.blocks import Cell, Table
from clicktower.flows.show import console
from clicktower.schemas.errors import StageError

_TONES = {"live": "better", "previous": "better", "candidate": "open", "damaged": "worse"}


def releases(*, to: ReleaseUri, json: Json = False) -> None:
    """List the releases that are kept: which is live, and which was before.

    For a candidate it says why it is not live.

        clicktower releases --to release
    """
    from clicktower.flows.releases.kept_releases import list_releases

    kept = list_releases(to)
    live = next((row["digest"] for row in kept if row["state"] == "live"), None)
    result = {"stage": "releases", "digest": live, "path": to, "releases": kept}
    console.emit(result, json, _show_releases)


def _show_releases(result: dict) -> None:
    rows = []
    for row in result["releases"]:
        state = Cell(text=row["state"], tone=_TONES.get(row["state"], "quiet"))
        created, documents = (row["created"] or "")[:16].replace("T", " "), row["num_documents"]
        ndcg = f"{row['ndcg@10']['mean']:.3f}" if row["ndcg@10"] else ""
        rows.append([state, row["digest"], created, f"{documents:,}" if documents is not None else "", ndcg])
    live = [at for at, row in enumerate(result["releases"]) if row["state"] == "live"]
    header = ("", "release", "made", "documents", "NDCG@10")
    console.show([Table(caption="", header=header, rows=rows, left=(0, 1, 2), strong=live)])
    for row in result["releases"]:
        if reason := row["wrong"] or (row["decision"] or {}).get("reason"):
            console.output.print(Text(f"{row['digest']}: {console.plain(reason)}", style="dim"), soft_wrap=True)


def rollback(*, to: ReleaseUri, release: str | None = None, json: Json = False) -> None:
    """Make the previous release live again, or any that is kept.

    Nothing is encoded or copied: every byte of the release is checked, and the
    pointer is swapped in one step. Rolling back twice returns to the start.

        clicktower rollback --to release
        clicktower rollback --to release --release DIGEST

    Args:
        release: The digest of a release or candidate that `clicktower releases` lists; by default the release that was
            live before.
    """
    from clicktower.flows.releases.kept_releases import rollback
    from clicktower.flows.show import present

    result = rollback(to, release=release)
    console.emit(result.to_json(), json, present.stage_with_details)


def verify(folder: str, *, json: Json = False) -> None:
    """Check every byte of a stage's output, of a whole store, or of a release.

    Each file is compared with the hash that was recorded when it was made.

        clicktower verify store
        clicktower verify release

    Args:
        folder: A folder that a stage printed, a store, or a release.
    """
    from clicktower.flows.releases import kept_releases

    with console.progress_bar("verify") as progress:
        findings = kept_releases.verify(folder, progress=progress)
    if findings:
        shown = "; ".join(finding.rstrip(".") for finding in findings[:10])
        raise StageError(
            f"What {folder} holds differs from what was written: {shown}.",
            "Run the stage again (it notices and makes the output anew), or restore the files.",
        )
    console.emit(
        {"stage": "verify", "path": folder, "findings": []},
        json,
        lambda _: console.output.print(f"[green]✓[/] every byte of {console.plain(folder)} is as it was written"),
    )


def export(
    *, release: ReleaseUri, form: str, into: str, queries: str | None = None, k: int = 100, json: Json = False
) -> None:
    """Export the live release in a format that another system reads.

    parquet: a file of id, title and vector. lancedb: a folder with a table of
    them. opensearch: a folder with the definition of an index, bulk bodies, and
    a search of vectors and terms. trec: the run of a file of queries, ranked as
    the release ranks. hub: a folder for a model hub, which sentence-transformers
    opens. The last line says what the vectors reach alone. Existing files are
    not overwritten.

        clicktower export --release release --form parquet --into titles.parquet
        clicktower export --release release --form trec --queries queries.tsv --into titles.run

    Args:
        form: parquet, lancedb, opensearch, trec or hub.
        into: The file to write; for lancedb, opensearch and hub, the folder.
        queries: For trec: queries as `id<TAB>text` lines.
        k: For trec: documents per query.
    """
    from clicktower.flows.releases.export_release import export
    from clicktower.flows.show import present

    with console.progress_bar("export") as progress:
        result = export(release, form=form, into=into, queries=queries, k=k, progress=progress)
    console.emit(result, json, present.stage_with_details)
