"""Clicked pairs of a real catalogue as the trainer gets them from shards: real queries, real product titles, in memory.

Reads `clicks.orcas.tsv` (query id, query, document id, url) and `documents.tsv` (document id, title) of
CLICKTOWER_DATA/homedepot. Every title is in the pool of negatives; a pair's negatives are drawn as `build` draws them.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from clicktower.schemas.shard import ListedExclusions, draw, pair_keys
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS, normalise_column, trigram_ids, words_of_column
from clicktower.training.towers.text_table import Ragged, TextTable, WordRows, list_offsets
from clicktower.training.trainer.shard_data import ExcludedBy, Shard, ShardData


def read_titles(data: Path) -> list[str]:
    """The titles of the catalogue, in its order."""
    return [fields[1] for fields in _rows(data / "homedepot" / "documents.tsv")]


def read_queries(data: Path) -> list[str]:
    """The distinct queries of the clicks, in order of first appearance."""
    return list(dict.fromkeys(fields[1] for fields in _rows(data / "homedepot" / "clicks.orcas.tsv")))


def read_pairs(data: Path, num_negatives: int) -> ShardData:
    """All clicked pairs as one shard, each distinct text once."""
    title_of = dict(_rows(data / "homedepot" / "documents.tsv"))
    clicks = [(query, title_of[document]) for _, query, document, _ in _rows(data / "homedepot" / "clicks.orcas.tsv")]
    return shard_of(clicks, list(title_of.values()), num_negatives)


def shard_of(clicks: list[tuple[str, str]], titles: list[str], num_negatives: int) -> ShardData:
    """The shard of (query, clicked title) pairs against a pool of titles, which holds the clicked ones."""
    raw = pa.array([*(query for query, _ in clicks), *(title for _, title in clicks), *titles], pa.string())
    encoded = normalise_column(raw).dictionary_encode()
    texts, strings = table_of(encoded.dictionary), pa.chunked_array([encoded.dictionary])
    index = encoded.indices.to_numpy().astype(np.int32)
    pairs = np.unique(np.stack([index[: len(clicks)], index[len(clicks) : 2 * len(clicks)]], axis=1), axis=0)
    query, clicked = np.ascontiguousarray(pairs.T)
    pool = np.unique(index[2 * len(clicks) :])
    # One list of exclusions for each query: the pool rows of the titles that were clicked for it. `pairs` is sorted.
    queries, exclusion = np.unique(query, return_inverse=True)
    counts = np.bincount(exclusion, minlength=len(queries))
    exclusions = Ragged(list_offsets(counts), np.searchsorted(pool, clicked).astype(np.int32))
    keys = pair_keys(encoded.dictionary.take(query).to_pylist(), encoded.dictionary.take(clicked).to_pylist())
    listed = ListedExclusions(exclusions.offsets, exclusions.values, len(pool))
    rows = draw(keys, exclusion, listed, n=num_negatives)
    shard = Shard(
        texts=texts,
        strings=strings,
        query=query,
        clicked=clicked,
        negatives=pool[rows],
        keys=keys,
        exclusion=exclusion.astype(np.int32),
        exclusions=exclusions,
        excluded_by=ExcludedBy.of(exclusions),
    )
    return ShardData(
        train=(shard,),
        dev=(),
        train_names=("train-00000",),
        pool_texts=texts,
        pool_strings=strings,
        pool=pool,
        word_rows=WordRows(DEFAULT_TABLE_ROWS),
    )


def table_of(normalised: pa.Array) -> TextTable:
    """Normalised texts as words and trigrams."""
    offsets, words = words_of_column(normalised)
    trigrams = Ragged(*trigram_ids(words.dictionary, DEFAULT_TABLE_ROWS))
    return TextTable(Ragged(offsets.astype(np.int64), words.indices.to_numpy()), trigrams)


def _rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
