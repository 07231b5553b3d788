"""The pairs of a build's shards, read back, and whether a peer found the same ones."""

from pathlib import Path

import polars as pl

from clicktower.schemas.shard import PAIRS, TEXTS, open_table

COLUMNS = ("query", "title", "clicks", "dev")
SCHEMA = pl.Schema({"query": pl.String, "title": pl.String, "clicks": pl.Int64, "dev": pl.Boolean})


def read_shard_pairs(data: str) -> pl.DataFrame:
    """(query, title, clicks, dev) of all shards below a build's data folder, in ascending order."""
    parts = [pl.DataFrame(schema=SCHEMA)]
    for folder in sorted(path for split in ("train", "dev") for path in Path(data).glob(f"{split}-*")):
        pairs = open_table(str(folder / "pairs.arrow"), PAIRS)
        text = open_table(str(folder / "texts.arrow"), TEXTS)["text"].combine_chunks()
        columns = {
            "query": pl.Series(values=text.take(pairs["query"].combine_chunks()), dtype=pl.String),
            "title": pl.Series(values=text.take(pairs["clicked"].combine_chunks()), dtype=pl.String),
            "clicks": pl.Series(values=pairs["clicks"].combine_chunks(), dtype=pl.Int64),
        }
        parts.append(pl.DataFrame(columns).with_columns(dev=pl.lit(folder.name.startswith("dev"))))
    return in_order(pl.concat(parts))


def in_order(pairs: pl.DataFrame) -> pl.DataFrame:
    return pairs.select(COLUMNS).cast(SCHEMA).sort(COLUMNS)


def difference(ours: pl.DataFrame, theirs: pl.DataFrame) -> str | None:
    """How two sets of pairs differ, None where they are equal. Both as `in_order` gives them."""
    if ours.equals(theirs):
        return None
    here = ours.join(theirs, on=COLUMNS, how="anti")
    there = theirs.join(ours, on=COLUMNS, how="anti")
    return (
        f"{len(ours):,} and {len(theirs):,} pairs; "
        f"{len(here):,} only in the first, {len(there):,} only in the second:\n"
        f"{here.head(3)}\n{there.head(3)}"
    )
