"""Where judged documents are. Apart from what measures them, so that naming them does not import torch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Paths or URIs: documents (id, title), queries (id, text) and TREC qrels."""

    documents: str
    queries: str
    qrels: str
