"""The job of `ingest` and `build` up to the pairs, as a Polars script: log, documents -> (query, title, clicks, dev).

    python -m benchmarks.peers.polars_pairs --log 'log/*.ndjson.gz' --documents documents.tsv --out pairs.parquet

Polars' own NDJSON reader stops at the first truncated line, so lines are read as text: those of the everyday form are
decoded in bulk, the few others by Python one at a time. Lines and clients are told apart by 64-bit hashes.

What it does otherwise than the pipeline, on logs that the simulator does not make: a line with a genuine U+FFFD counts
as invalid UTF-8, and of two different searches with one id in the same millisecond another one may stay.
"""

import argparse
import json

import polars as pl

from benchmarks.peers import verdicts
from benchmarks.peers.everyday_line import EVERYDAY_LINE
from benchmarks.peers.strict_line import read_line

DECODED = pl.Struct(
    {
        "query_id": pl.String,
        "client_id": pl.String,
        "user_query": pl.String,
        "timestamp": pl.String,
        "action_name": pl.String,
        "query_attributes": pl.Struct({"user_agent": pl.String}),
        "event_attributes": pl.Struct(
            {"object": pl.Struct({"object_id": pl.String}), "position": pl.Struct({"ordinal": pl.Int32})}
        ),
    }
)
ROW = {
    "hash": pl.UInt64,
    "kind": pl.String,
    "query_id": pl.String,
    "client": pl.UInt64,
    "query": pl.String,
    "document": pl.String,
    "position": pl.Int32,
    "time": pl.Int64,
    "agent": pl.String,
}


def make_pairs(log: str, documents: str, k: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(pairs: query, title, clicks, dev; people: query, num_people of every query that may be learned from)."""
    rows = read_rows(log)
    searches = _chosen_searches(rows)
    events = (
        rows.lazy()
        .filter(pl.col("kind") != "search", pl.col("document").is_not_null())
        .select("query_id", "client", "document", "position", is_click=pl.col("kind") == "click")
        .join(searches.lazy().select("query_id", "query", "searcher", "names_bot"), on="query_id")
        .with_columns(person=pl.coalesce("client", "searcher"))
        .drop("query_id", "client")
        .collect(engine="streaming")
    )
    del rows
    bots = pl.Series(verdicts.bots_among(_statistics(searches, events).to_arrow())).implode()
    may_learn = pl.col("query").is_not_null() & ~pl.col("names_bot") & ~pl.col("searcher").is_in(bots).fill_null(False)
    people = (
        searches.lazy().filter(may_learn).group_by("query").agg(num_people=pl.col("searcher").drop_nulls().n_unique())
    )
    clicks = (
        events.lazy()
        .filter(pl.col("is_click"), may_learn, ~pl.col("person").is_in(bots).fill_null(False))
        .group_by("query", "document")
        .agg(clicks=pl.len())
    )
    asked, clicked = pl.collect_all([people, clicks], engine="streaming")
    return _titled(clicked.join(asked.filter(pl.col("num_people") >= k), on="query"), documents), asked


def read_rows(log: str) -> pl.DataFrame:
    """The distinct readable lines of a log, as ROW; only searches, impressions and clicks."""
    line = pl.col("line").str.strip_suffix("\r")
    lines = pl.scan_csv(
        log, has_header=False, schema={"line": pl.String}, separator="\x01", quote_char=None, encoding="utf8-lossy"
    ).with_columns(everyday=pl.col("line").str.contains(EVERYDAY_LINE))
    event = pl.col("event_attributes").struct
    decoded = (
        lines.filter(pl.col("everyday"))
        .select(hash=line.hash(), value=line.str.json_decode(DECODED))
        .unnest("value")
        .with_columns(time=pl.col("timestamp").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="ms", strict=False))
        .filter(
            pl.col("query_id") != "",
            pl.col("time").is_not_null() | pl.col("timestamp").is_null(),
            pl.col("action_name").is_in(["click", "impression"])
            | (pl.col("action_name").is_null() & pl.col("user_query").is_not_null()),
        )
        .select(
            "hash",
            pl.col("action_name").fill_null("search").alias("kind"),
            "query_id",
            pl.when(pl.col("client_id") != "").then(pl.col("client_id").hash()).alias("client"),
            pl.when(pl.col("action_name").is_null()).then("user_query").alias("query"),
            event.field("object").struct.field("object_id").replace("", None).alias("document"),
            event.field("position").struct.field("ordinal").fill_null(-1).alias("position"),
            pl.col("time").cast(pl.Int64),
            pl.col("query_attributes").struct.field("user_agent").alias("agent"),
        )
        .unique("hash")
    )
    others = lines.filter(~pl.col("everyday")).select(hash=line.hash(), line=line).unique("hash")
    everyday_rows, other_lines = pl.collect_all([decoded, others], engine="streaming")
    strict = [
        (number, *row)
        for number, text in other_lines.iter_rows()
        if "\ufffd" not in text and (row := read_line(text.encode())) is not None
    ]
    other_rows = pl.DataFrame(strict, schema=ROW | {"client": pl.String}, orient="row")
    person = pl.when(pl.col("client").is_not_null()).then(pl.col("client").hash())
    return pl.concat([everyday_rows, other_rows.with_columns(client=person)])


def _chosen_searches(rows: pl.DataFrame) -> pl.DataFrame:
    """Of each query id the earliest search: its published query (null: not to be learned from), client and agent."""
    searches = (
        rows.lazy()
        .filter(pl.col("kind") == "search")
        .select("query_id", "time", "hash", "query", "agent", searcher="client")
        .sort("time", "hash", nulls_last=True)
        .unique("query_id", keep="first", maintain_order=True)
        .drop("hash")
        .collect()
    )
    judged = verdicts.judge_queries(searches["query"].unique())
    agents = searches["agent"].drop_nulls().unique()
    named = agents.filter(pl.Series(verdicts.is_bot_agent(agents.to_list()), dtype=pl.Boolean))
    return searches.with_columns(
        query=pl.col("query").replace_strict(judged.spelling, judged.query, return_dtype=pl.String),
        query_hash=pl.col("query").replace_strict(judged.spelling, judged.hash, return_dtype=pl.UInt64),
        names_bot=pl.col("agent").is_in(named.implode()).fill_null(False),
    )


def _statistics(searches: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """What each client did: beam_jobs.ingest.bots.STATISTICS."""
    hour = pl.col("time") // verdicts.MS_PER_HOUR % verdicts.MAX_HOURS
    of_searches = (
        searches.lazy()
        .filter(pl.col("searcher").is_not_null())
        .group_by(person="searcher", hour=hour.fill_null(-1).cast(pl.Int32), query="query_hash")
        .agg(
            first_ms=pl.col("time").min().fill_null(verdicts.NO_TIME),
            searches=pl.len().cast(pl.Int64),
            named=pl.col("names_bot").sum().cast(pl.Int64),
        )
        .with_columns(asked="searches")
    )
    rank = pl.when("is_click").then(pl.col("position").clip(upper_bound=verdicts.RANKS)).otherwise(-1)
    of_events = (
        events.lazy()
        .filter(pl.col("person").is_not_null())
        .group_by("person", position=rank)
        .agg(clicks=pl.col("is_click").sum().cast(pl.Int64), impressions=(~pl.col("is_click")).sum().cast(pl.Int64))
    )
    none = {"hour": -1, "position": -1, "query": verdicts.NO_QUERY, "first_ms": verdicts.NO_TIME}
    return (
        pl.concat([of_searches, of_events], how="diagonal")
        .with_columns(pl.col(name).fill_null(value) for name, value in none.items())
        .with_columns(pl.col("searches", "asked", "impressions", "clicks", "named").fill_null(0))
        .collect(engine="streaming")
    )


def _titled(clicks: pl.DataFrame, documents: str) -> pl.DataFrame:
    """Clicks with a title instead of a document, added up, and the split."""
    known = pl.read_csv(
        documents, separator="\t", has_header=False, quote_char=None,
        schema={"document": pl.String, "title": pl.String},
    ).join(clicks.select("document").unique(), on="document", how="semi")  # fmt: skip
    known = known.with_columns(
        title=pl.Series(verdicts.titles(known["title"].fill_null("").to_list()), dtype=pl.String)
    )
    pairs = (
        clicks.join(known.drop_nulls("title"), on="document")
        .group_by("query", "title")
        .agg(pl.col("clicks").sum().cast(pl.Int64))
    )
    queries = pairs["query"].unique()
    dev = pl.DataFrame(
        {"query": queries, "dev": verdicts.is_dev(queries.to_list())}, schema_overrides={"dev": pl.Boolean}
    )
    return pairs.join(dev, on="query").select("query", "title", "clicks", "dev")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True, help="the files of the log, as a pattern")
    parser.add_argument("--documents", required=True, help="id<TAB>title lines")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--out", required=True, help="the Parquet file to write")
    options = parser.parse_args()
    pairs, people = make_pairs(options.log, options.documents, options.k)
    pairs.write_parquet(options.out)
    kept = {str(k): int((people["num_people"] >= k).sum()) for k in verdicts.REPORTED_K}
    print(json.dumps({"pairs": len(pairs), "queries_at_k": kept}))


if __name__ == "__main__":
    main()
