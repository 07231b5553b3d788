"""Groups of queries in which systems may differ: by length, spelling, intent, frequency, seen or new."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import read_queries
from clicktower.schemas.shard import PAIRS, TEXTS, open_table
from clicktower.schemas.stage import open_result
from clicktower.schemas.text_contract import normalise, words
from clicktower.training.ranking.measure import JudgedCollection

LONGEST = 4  # the number of words from which on queries form one part
# After Jansen, Booth and Spink (Information Processing & Management 44, 2008), as far as a query alone shows.
NAVIGATIONAL = re.compile(
    r"https?:|\bwww\b|\w\.(?:com|org|net|edu|gov|co)\b|\b(?:web ?site|home ?page|log ?in|sign ?in)\b"
)
TRANSACTIONAL = re.compile(
    r"\b(?:buy|order|purchase|price[sd]?|cheap(?:est)?|discounts?|coupons?|deals?|for sale|download|rent(?:al)?|chat)\b"
)

# A slice's parts in their order, and for each query (in the order of the qrels) the part it is in, or None.
Slice = tuple[Sequence[str], Sequence[str | None]]


def slices(
    collection: JudgedCollection,
    *,
    clicks: Mapping[str, int] | None = None,
    frequencies: Mapping[str, int] | None = None,
) -> dict[str, Slice]:
    """Every slice with data.

    `clicks`: `training_clicks`, to separate trained queries from new ones. `frequencies`: how often each query was
    asked, by id (by default its training clicks, if it has any), for head, torso and tail: the most frequent queries
    that make up a third of all searches, those of the second third, and the rest.
    """
    texts = [words(collection.queries[query_id]) for query_id in collection.qrels]
    result: dict[str, Slice] = {
        "query length": (
            [*(f"{n} word{'s' * (n > 1)}" for n in range(1, LONGEST)), f"{LONGEST} words and more"],
            [_length(len(text)) for text in texts],
        ),
        "spelling": _spelling(collection, texts),
    }
    queries = [collection.queries[query_id] for query_id in collection.qrels]
    intents = [_intent(query.casefold()) for query in queries]
    if any(intents):
        result["intent"] = (
            ["navigational", "transactional", "other"],
            [intent or "other" if text else None for intent, text in zip(intents, texts, strict=True)],
        )
    if clicks is not None:
        result["training"] = _training(queries, clicks)
        by_click = {q: clicks.get(normalise(query), 0) for q, query in zip(collection.qrels, queries, strict=True)}
        frequencies = frequencies or by_click
    if frequencies and any(frequencies.get(query_id) for query_id in collection.qrels):
        result["frequency"] = _frequency(list(collection.qrels), frequencies)
    return result


def read_frequencies(uri: str) -> dict[str, int]:
    """How often each query was asked: query id TAB count. Raises UsageError or StageError, naming the line."""
    counts: dict[str, int] = {}
    for query_id, text in read_queries(uri).items():
        if not text.strip().isdigit():
            raise StageError(
                f"In {uri} the line of {query_id} ends in no whole number; each must hold a query id, a tab and a"
                " frequency.",
                "Correct that line, or leave --frequencies out.",
            )
        counts[query_id] = int(text)
    return counts


def _length(count: int) -> str | None:
    if not count:
        return None
    return f"{LONGEST} words and more" if count >= LONGEST else f"{count} word{'s' * (count > 1)}"


def _spelling(collection: JudgedCollection, texts: Sequence[Sequence[str]]) -> Slice:
    """Whether a query has a word that no title has: misspelled, or not used by the catalogue, so words cannot match."""
    vocabulary = {word for title in collection.titles for word in words(title)}
    parts = ["all words known", "a word in no title", "no word in any title"]

    def part(text: Sequence[str]) -> str | None:
        num_known = sum(word in vocabulary for word in text)
        return None if not text else parts[0] if num_known == len(text) else parts[1] if num_known else parts[2]

    return parts, [part(text) for text in texts]


def _intent(query: str) -> str | None:
    """Whether a query names or requests a site, or wants to buy or obtain something, by English words."""
    return "navigational" if NAVIGATIONAL.search(query) else "transactional" if TRANSACTIONAL.search(query) else None


def _training(queries: Sequence[str], clicks: Mapping[str, int]) -> Slice:
    parts = ["trained on", "not trained on"]
    return parts, [parts[normalise(query) not in clicks] if words(query) else None for query in queries]


def _frequency(query_ids: Sequence[str], frequencies: Mapping[str, int]) -> Slice:
    """Head, torso, tail: a query is in the head while the more frequent ones make up less than a third of all."""
    parts = ["head", "torso", "tail"]
    with_frequency = sorted((q for q in query_ids if frequencies.get(q)), key=lambda q: (-frequencies[q], q))
    total = sum(frequencies[q] for q in with_frequency)
    before = np.cumsum([0, *(frequencies[q] for q in with_frequency)])[:-1]
    part_of = {
        q: parts[int(3 * more_frequent // total)] for q, more_frequent in zip(with_frequency, before, strict=True)
    }
    return parts, [part_of.get(query_id) for query_id in query_ids]


def training_clicks(shards: str, side: Literal["query", "clicked"] = "query") -> dict[str, int]:
    """The clicks of each query, or each clicked title, normalised, in the training shards of a build.

    Raises StageError if they are unreadable.
    """
    from clicktower.training.trainer.shard_data import local_folder  # which loads torch

    built = open_result(shards)
    clicks: Counter[str] = Counter()
    try:
        folder = local_folder(built.data)
        for name in sorted(name for name in os.listdir(folder) if name.startswith("train-")):
            texts = open_table(f"{folder}/{name}/texts.arrow", TEXTS)["text"]
            pairs = open_table(f"{folder}/{name}/pairs.arrow", PAIRS)
            summed = pairs.group_by(side).aggregate([("clicks", "sum")])
            clicks.update(
                dict(zip(texts.take(summed[side]).to_pylist(), summed["clicks_sum"].to_pylist(), strict=True))
            )
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise StageError(
            f"The queries of the shards in {shards} cannot be read: a file is missing or unreadable"
            f" ({type(error).__name__}).",
            "Run `clicktower build` again.",
        ) from None
    return dict(clicks)
