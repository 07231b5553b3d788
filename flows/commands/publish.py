"""clicktower publish, releases, rollback, verify, export, search, serve: what is done with releases."""

from dataclasses import asdict
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.text import Text

from clicktower.flows.commands.options import Documents, Json, Set
from clicktower.flows.report.blocks import Cell, Table
from clicktower.flows.show import console
from clicktower.schemas.errors import StageError

ReleaseUri = Annotated[str, Parameter(help="The folder or URI of the releases, which `publish` writes to.")]


def publish(
    *,
    model: str,
    documents: Documents,
    to: ReleaseUri,
    evaluation: str | None = None,
    candidate: bool = False,
    if_better: bool = False,
    queries: str | None = None,
    qrels: str | None = None,
    frequencies: str | None = None,
    into: str | None = None,
    rule: list[str] | None = None,
    workers: int = 1,
    set: Set = None,
    json: Json = False,
) -> None:
    """Encode all documents into a release and make it the live one.

    Titles that an earlier release of the same model has encoded are reused. The
    release is read back and its index checked against exact search before the
    pointer is swapped in one step; until then, and if anything fails, the old
    release stays live.

        clicktower publish --model store/train/DIGEST --documents documents.tsv --to release

    Args:
        model: The folder that `train` printed.
        evaluation: The folder that `evaluate` printed; its table becomes part of the release.
        candidate: Make the release but leave the live one unchanged; `rollback --release` makes it live.
        if_better: Make it live only if its model is better than the live one by the rules of promotion; otherwise it is
            kept as a candidate, and the reason is printed. Needs --evaluation.
        queries: With --if-better, --qrels and --into: the queries on which the live model is evaluated again, if it was
            evaluated on other judgments or documents than this one.
        qrels: The judgments of those queries.
        frequencies: How often each query was asked, if the evaluation was given it.
        into: The store for the evaluation of the live model.
        rule: field=value for any rule of the promotion (measure=ndcg@3, max_slice_drop=0.05); may be repeated.
        workers: Workers that encode: 1 is this machine with all its cores; more are tasks of a Ray cluster, the one
            that RAY_ADDRESS names or one started here.
    """
    from clicktower.flows.config.toml_file import with_fields
    from clicktower.flows.releases import publish as publishing
    from clicktower.flows.show import present

    config = with_fields(publishing.PublishConfig(), set or [])
    with console.progress_bar("publish") as progress:
        decide = None
        if if_better:
            from clicktower.flows.guards.promotion import decide_if_better

            decide = decide_if_better(
                rule or [], to, evaluation, documents, queries, qrels, frequencies, into, progress
            )
        result = publishing.publish(
            model, documents=documents, to=to, config=config, evaluation=evaluation, candidate=candidate,
            decide=decide, workers=workers, progress=progress,
        )  # fmt: skip
    console.emit(result.to_json(), json, present.stage_with_details)


_TONES = {"live": "better", "previous": "better", "candidate": "open", "damaged": "worse"}


def releases(*, to: ReleaseUri, json: Json = False) -> None:
    """List the releases that are kept: which is live, and which was before.

    For a candidate it says why it is not live.

        clicktower releases --to release
    """
    from clicktower.flows.releases.publish import list_releases

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
    from clicktower.flows.releases.publish import rollback
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
    from clicktower.flows.releases import verify

    with console.progress_bar("verify") as progress:
        findings = verify.verify(folder, progress=progress)
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


def search(
    text: str,
    *,
    release: ReleaseUri,
    k: int = 10,
    offset: int = 0,
    mode: Literal["hybrid", "vector", "bm25"] = "hybrid",
    lexical_share: float | None = None,
    rerank: int | None = None,
    where: str | None = None,
    json: Json = False,
) -> None:
    """Rank the documents of the live release for a query.

    By the score that `evaluate` measures, unless --mode says otherwise.

        clicktower search --release release "angle bracket"
        clicktower search --release release --mode bm25 "angle bracket"
        clicktower search --release questions --rerank 100 "how do I learn to cook"
        clicktower search --release release --where '{"price": {"lt": 20}, "category": ["saw", "drill"]}' "cordless"

    Args:
        text: The query, as a person would type it.
        k: How many documents to show.
        offset: How many of the best to skip: pages of k reach the first 100 documents.
        mode: hybrid: by the whole score of the model: near vectors, words that match and terms that query and title
            share. vector: by cosine alone, or by distance if the model compares by it. bm25: by shared terms alone.
        lexical_share: The share of the terms in a hybrid's score, instead of the model's own; `compare` reports the one
            that your judgments choose.
        rerank: Rerank this many of the nearest by the confidence of the model's own classifier that they are of the
            query's class, for example duplicates. For a model that was trained on labelled pairs.
        where: Only documents whose columns match this JSON object: a value (null: none), a list of values, or an object
            of bounds (lt, lte, gt, gte), not and exists. `publish --set 'columns=["price", "category"]'` keeps columns.
    """
    from clicktower.flows.releases import search
    from clicktower.flows.releases.document_filter import read_filter

    hits = search.search(
        release, text, k, mode, offset=offset, lexical_share=lexical_share, rerank=rerank,
        where=None if where is None else read_filter(where),
    )  # fmt: skip
    result = {"stage": "search", "query": text, "mode": mode, "hits": [asdict(hit) for hit in hits]}
    console.emit(result, json, _show_search)


def _show_search(result: dict) -> None:
    by_distance = any(hit["distance"] is not None for hit in result["hits"])
    near = "distance" if by_distance else "cosine"
    again = any(hit["confidence"] is not None for hit in result["hits"])
    beside = [part for part in ("words", "terms") if any(hit[part] is not None for hit in result["hits"])]
    mixed = result["mode"] == "hybrid" and bool(beside) and not again
    # A distance is shown itself, not as the score made from it.
    by = near if by_distance and not mixed else "score"
    scores = [*["confidence"] * again, by, *([near, *beside] if mixed else [])]
    columns = list(result["hits"][0]["columns"]) if result["hits"] else []
    rows = [
        [Cell(text=str(hit["rank"]), tone="quiet"), *(f"{hit[score]:.3f}" for score in scores), hit["title"],
         Cell(text=hit["id"], tone="quiet"),
         *("" if value is None else str(value) for value in hit["columns"].values())]
        for hit in result["hits"]
    ]  # fmt: skip
    left = (len(scores) + 1, len(scores) + 2)
    console.show([Table(caption="", header=("", *scores, "title", "id", *columns), rows=rows, left=left)])


def preference(clicks: str, *, json: Json = False) -> None:
    """Say which of two interleaved releases people prefer, from their clicks.

    Start `serve --against DIGEST`, search with an `interleave` of one query id each,
    and keep the query id and the hit's `release` of every click. A query prefers the
    release with more clicks; the interval and p are over queries.

        clicktower preference clicks.jsonl

    Args:
        clicks: JSON lines, Parquet, or delimited text with a header: query_id and release of every click. One without
            a release, on a hit that was not interleaved, is left out and counted.
    """
    from clicktower.flows.releases import interleaving

    result = {"stage": "preference", **asdict(interleaving.preference(clicks))}
    console.emit(result, json, _show_preference)


def _show_preference(result: dict) -> None:
    total = sum(result["wins"]) + result["ties"]
    names = [*result["releases"], "neither"]
    counts = [*result["wins"], result["ties"]]
    rows = [[name, f"{count:,}", f"{count / total:.1%}"] for name, count in zip(names, counts, strict=True)]
    console.show([Table(caption="", header=("preferred release", "queries", "share"), rows=rows, left=(0,))])
    lead = f"{result['lead']:+.3f} [{result['low']:+.3f}, {result['high']:+.3f}]"
    console.output.print(f"lead of {result['releases'][0]}: {lead}, p = {result['p']:.4f}")
    if left_out := result["not_interleaved"]:
        hits = "1 click on a hit that was" if left_out == 1 else f"{left_out:,} clicks on hits that were"
        console.output.print(f"left out: {hits} not interleaved", soft_wrap=True)


def serve(
    *,
    release: ReleaseUri,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    poll_seconds: float = 2.0,
    drain_seconds: int = 30,
    allow_host: list[str] | None = None,
    allow_origin: list[str] | None = None,
    trust_proxy: list[str] | None = None,
    against: str | None = None,
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Answer searches over HTTP from the live release, and follow the pointer to each new one.

    / is a page for typing queries, /docs documents the API. A release that is
    published while it runs is opened beside the old one and replaces it between
    two requests; SIGTERM finishes what is under way. By default it listens on
    this machine only: there is no authentication, so put a proxy in front of it.

        clicktower serve --release release
        curl 'http://127.0.0.1:8080/v1/search?q=angle+bracket&k=3'

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 takes any free port.
        workers: Processes that answer requests; each holds the release in memory.
        poll_seconds: How often the pointer is checked.
        drain_seconds: How long SIGTERM waits for requests under way.
        allow_host: A host name that requests may use, besides localhost and its address; may be repeated. A service
            that listens to other machines answers to any name unless this is given.
        allow_origin: A site whose pages may read answers in a browser (CORS), such as https://shop.example; may be
            repeated, and * is any. By default none but the service's own page.
        trust_proxy: The address or network (10.0.0.0/8) of a proxy whose header X-Forwarded-For names the client; may
            be repeated. Clients share the service by address, and without this a proxy is one client.
        against: The digest of a release or candidate that `clicktower releases` lists. Searches with the field
            `interleave` then mix its hits with those of the live one; `clicktower preference` says which people prefer.
        set: field=value for any limit of the whole service: letters and words of a text (2,000 and 500), requests and
            slow_requests that wait (128 and 32), bodies that arrive (128), idle connections (512); may be repeated.
        json: Print where it listens as one JSON object, before it answers.
    """
    import os

    # Searches are short: a thread pool for each would cost more than it saves. NumPy reads this when it is first
    # imported.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from clicktower.flows.config.toml_file import with_fields
    from clicktower.flows.serve import service
    from clicktower.flows.serve.limits import Limits
    from clicktower.flows.serve.service import ServeConfig, is_loopback, listen
    from clicktower.schemas.release import kept_folder, read_release

    config = ServeConfig(
        release=release, host=host, port=port, workers=workers, poll_seconds=poll_seconds, drain_seconds=drain_seconds,
        allowed_hosts=tuple(name.lower() for name in allow_host or ()), allowed_origins=tuple(allow_origin or ()),
        against=against, trusted_proxies=tuple(trust_proxy or ()), limits=with_fields(Limits(), set or []),
    )  # fmt: skip
    folder, about = read_release(release)
    if against:
        kept_folder(release, against)  # before anything listens
    with listen(config) as listening:
        if not is_loopback(host):
            console.errors.print(
                f"[bold yellow]warning:[/] {console.plain(host)} can be reached from other machines, and there is no "
                "authentication: put a proxy that has it before this port",
                soft_wrap=True,
            )
        address = f"[{host}]" if ":" in host else host
        url = f"http://{address}:{listening.getsockname()[1]}"
        result = {"stage": "serve", "digest": about.digest, "path": folder, "reused": True, "url": url,
                  "counts": {"documents": about.num_documents}}  # fmt: skip
        console.emit(result, json, _show_serve)
        service.serve(config, listening)


def _show_serve(result: dict) -> None:
    console.output.print(
        f"serving {result['counts']['documents']:,} documents of release {result['digest']} at {result['url']}",
        soft_wrap=True,
    )
