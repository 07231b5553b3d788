"""The endpoints: a body in, an object out. Each takes the served release once, so its answer is all from that one."""

import time
from functools import partial
from typing import Any

import pyarrow.compute as pc
from starlette.concurrency import run_in_threadpool

from flows.releases.search import OpenRelease
from flows.serve.bodies import Embed, Explain, Refused, Search
from flows.serve.explain_query import explain as explained
from flows.serve.live import Served
from schemas.errors import UsageError
from training.ranking.embedding import search_vectors

_FEW_TEXTS = 8  # a handful takes less than handing it to a thread does
_FEW_RESULTS = 100  # for more, every document may be compared: milliseconds for a million, tens without a kernel


async def embed(body: Embed, served: Served) -> dict[str, Any]:
    opened = _of_release(body.release, served)
    try:
        if len(body.texts) <= _FEW_TEXTS:
            vectors = search_vectors(opened.model, body.texts, body.side)
        else:
            vectors = await run_in_threadpool(search_vectors, opened.model, body.texts, body.side)
    except UsageError as error:
        raise Refused(422, f"A text without a word has no vector ({error.found}): leave it out.") from None
    return {"release": opened.release.digest, "dimensions": vectors.shape[1], "vectors": vectors.tolist()}


async def search(body: Search, served: Served) -> dict[str, Any]:
    """In the event loop, where handing it to a thread and waiting for its turn would take longer than the search."""
    opened, started = _of_release(body.release, served), time.perf_counter()
    ask = partial(opened.search, body.query, body.k, body.mode, weight=body.weight, both=True)
    try:
        hits = ask() if body.k <= _FEW_RESULTS else await run_in_threadpool(ask)
    except UsageError as error:
        raise _refused(error) from None
    took_ms = round((time.perf_counter() - started) * 1000, 3)
    return {
        "release": opened.release.digest, "query": body.query, "mode": body.mode, "took_ms": took_ms, "hits": hits
    }  # fmt: skip


async def explain(body: Explain, served: Served) -> dict[str, Any]:
    opened, started = _of_release(body.release, served), time.perf_counter()
    if (body.id is None) == (body.title is None):
        raise Refused(422, "A query is explained with one title: give either the id of a document or a title.")
    title = body.title if body.title is not None else await run_in_threadpool(_title_of, opened, body.id)
    try:
        found = await run_in_threadpool(explained, opened.model, opened.bm25, body.query, title)
    except UsageError as error:
        raise _refused(error) from None
    took_ms = round((time.perf_counter() - started) * 1000, 3)
    return {"release": opened.release.digest, "took_ms": took_ms, **found}


def release(served: Served) -> dict[str, Any]:
    about = served.opened.release
    return {
        "release": about.digest,
        "created": about.created,
        "num_documents": about.num_documents,
        "dimensions": about.dimensions,
        "similarity": about.similarity,
        "text_contract": dict(about.text_contract),
        "index": dict(about.index),
        "evaluation": dict(about.evaluation),
        "labels": dict(about.labels),
    }


def _of_release(asked: str | None, served: Served) -> OpenRelease:
    if asked is not None and asked != served.digest:
        raise Refused(404, f"The release asked for is not the one that is served, {served.digest}: "
                           "leave the field release out, or ask for that one.")  # fmt: skip
    return served.opened


def _title_of(opened: OpenRelease, document_id: str | None) -> str:
    row = pc.index(opened.ids, document_id).as_py()
    if row < 0:
        raise Refused(404, "No document has this id: take one from the hits of /v1/search.")
    return opened.titles[row].as_py()


def _refused(error: UsageError) -> Refused:
    return Refused(422, f"{error.found[:1].upper()}{error.found[1:]}: {error.do}.")
