"""clicktower export"""

from flows.show import console, present


def export(*, release: str, form: str, into: str, queries: str | None = None, k: int = 100, json: bool = False) -> None:
    """Export the live release in a format that another system reads.

    parquet: a file of id, title and vector. opensearch: a folder with the
    definition of a k-NN index and bulk bodies. trec: the run of a file of
    queries, as the release answers them. Existing files are not overwritten.

        clicktower export --release release --form parquet --into titles.parquet
        clicktower export --release release --form trec --queries queries.tsv --into titles.run

    Parameters
    ----------
    release
        The folder or URI that `publish` wrote to.
    form
        parquet, opensearch or trec.
    into
        The file to write; for opensearch, the folder.
    queries
        For trec: queries as `id<TAB>text` lines.
    k
        For trec: documents per query.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from flows.releases.export_release import export as run

    with console.progress_bar("export") as progress:
        result = run(release, form=form, into=into, queries=queries, k=k, progress=progress)  # type: ignore[arg-type]
    console.emit(result.to_json(), json, present.stage_with_details)
