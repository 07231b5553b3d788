"""Queries to begin with, made of the catalogue's own titles: nothing that a person typed.

A query is a few words of a title; the last one has two letters swapped, as a person in a hurry would.
"""

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from schemas.words import normalise

NUM_EXAMPLES = 4
WORDS = 3
LONGEST = 40  # characters of a title that is taken whole
_LOOKED_AT = 2_000  # titles, evenly spread over the catalogue


def example_queries(titles: Sequence[str] | pa.Array) -> list[dict[str, str]]:
    """{"query", "note"} of up to NUM_EXAMPLES titles, the same ones for the same catalogue; they share no word."""
    some = titles[:: max(1, len(titles) // _LOOKED_AT)]
    if isinstance(some, pa.Array):
        some = some.to_pylist()
    queries = {query for query in map(_query, some) if query}
    queries = queries or {form for form in map(normalise, some) if form and len(form) <= LONGEST}
    chosen: list[str] = []
    seen: set[str] = set()
    for query in sorted(queries, key=lambda query: hashlib.blake2b(query.encode("utf-8", "surrogatepass")).digest()):
        if len(chosen) < NUM_EXAMPLES and not seen & set(query.split()):
            chosen.append(query)
            seen |= set(query.split())
    found = [{"query": query, "note": ""} for query in chosen]
    if len(found) > 1 and (misspelled := _misspelled(chosen[-1])) != chosen[-1]:
        found[-1] = {"query": misspelled, "note": "misspelled on purpose"}
    return found


def _query(title: str) -> str:
    """The last words of the longest run of longer words of letters; empty where there are too few.

    What a title is about mostly stands there: brands come before, sizes and numbers after.
    """
    runs: list[list[str]] = [[]]
    for word in normalise(title).split():
        bare = word.rstrip(",;:.")
        if bare.isalpha() and len(bare) > 3:
            runs[-1].append(bare)
        if bare != word or not (bare.isalpha() and len(bare) > 3):
            runs.append([])
    longest = max(runs, key=len)
    return " ".join(longest[-WORDS:]) if len(longest) >= WORDS else ""


def _misspelled(query: str) -> str:
    """Two neighbouring letters inside the longest word swapped."""
    longest = max(query.split(), key=len)
    for at in range(len(longest) // 2, len(longest) - 1):
        if longest[at] != longest[at + 1]:
            swapped = longest[:at] + longest[at + 1] + longest[at] + longest[at + 2 :]
            return query.replace(longest, swapped, 1)
    return query
