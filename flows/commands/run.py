"""clicktower run"""

from flows.show import console, present


def run(config: str, *, date: str | None = None, json: bool = False) -> None:
    """Run the whole pipeline that a TOML file describes: log -> day -> shards -> model
    -> evaluation -> release.

    The repository's pipeline.toml is a commented example with every field. A
    minimal one:

        store = "store"
        [log]
        files = ["logs/*.ndjson.gz"]           # UBI search and event lines
        [documents]
        file = "documents.tsv"                 # id<TAB>title
        [judgments]
        queries = "queries.tsv"                # id<TAB>text
        qrels = "qrels.txt"                    # TREC: query 0 document grade
        [publish]
        to = "release"

    Run it with

        clicktower run pipeline.toml

    Run it again and every stage answers "reused"; change a setting and only
    what depends on it runs.

    Parameters
    ----------
    config
        The TOML file. Relative paths in it are relative to its folder.
    date
        Fills {date} in log.files (2026-09-01); by default yesterday.
    json
        Print the results of all stages as one JSON object; progress goes to stderr.
    """
    from flows.run_by_hand import run_locally

    results = run_locally(config, date)
    console.emit(present.as_one("run", results), json, present.run_results)
