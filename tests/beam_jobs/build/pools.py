"""The pool of some documents, and the documents with their rows in it, as the build's steps make them, one by one."""

import pyarrow as pa

from clicktower.beam_jobs.build import titles
from clicktower.schemas.documents import DOCUMENT


def documents_of(named: dict[str, str]) -> pa.Table:
    """DOCUMENT from id -> title."""
    return pa.table([list(named), list(named.values())], schema=DOCUMENT)


def pool_of(documents: pa.Table, size: int) -> pa.Table:
    """clicktower.beam_jobs.build.titles.HASHED: the pool in its order."""
    grouped = titles.group_by_title(titles.hashed_documents(documents))
    return titles.pool_of(titles.pool_candidates(grouped, titles.count_hash_ranges(grouped), size), size)


def titled(documents: pa.Table, size: int) -> pa.Table:
    """clicktower.beam_jobs.build.titles.TITLED."""
    grouped = titles.group_by_title(titles.hashed_documents(documents))
    return titles.find_pool_rows(grouped, pool_of(documents, size))
