"""clicktower search, serve, preference: searches of the live release, and what people make of them."""

from dataclasses import asdict
from typing import Literal

from clicktower.flows.commands.options import Json, ReleaseUri
from clicktower.flows.report.blocks import Cell, Table
from clicktower.flows.show import console


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
        clicktower search --release release -- "-20 °C glue"
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
    parts = [part for part in ("words", "terms") if any(hit[part] is not None for hit in result["hits"])]
    mixed = result["mode"] == "hybrid" and bool(parts) and not again
    # A distance is shown itself, not as the score made from it.
    by = near if by_distance and not mixed else "score"
    scores = [*["confidence"] * again, by, *([near, *parts] if mixed else [])]
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
