"""The job of `ingest` and `build` up to the pairs, as a DuckDB script: log, documents -> (query, title, clicks, dev).

    python -m benchmarks.peers.duckdb_pairs --log 'log/*.ndjson.gz' --documents documents.tsv --out pairs.parquet

DuckDB's NDJSON reader skips what is no JSON and no UTF-8. Lines whose fields have other types than the usual ones are
read by Python one at a time. Lines and clients are told apart by 64-bit hashes.

What it does otherwise than the pipeline, on logs that the simulator does not make: DuckDB's JSON parser takes NaN and a
trailing comma for JSON and the first of two equal keys, not the last; and of two different searches with one id in the
same millisecond another one may stay.
"""

import argparse
import json

import duckdb
import pyarrow as pa

from benchmarks.peers import verdicts
from benchmarks.peers.everyday_line import TIME
from benchmarks.peers.strict_line import read_line

# Where a field is in a line, and the type it usually has.
FIELDS = {
    "query_id": "VARCHAR",
    "client_id": "VARCHAR",
    "user_query": "VARCHAR",
    "action_name": "VARCHAR",
    "timestamp": "VARCHAR",
    "query_attributes.user_agent": "VARCHAR",
    "event_attributes.object.object_id": "VARCHAR",
    "event_attributes.position.ordinal": "UBIGINT",
}
CHECKED = FIELDS | {
    "application": "VARCHAR",
    "query_attributes": "OBJECT",
    "event_attributes": "OBJECT",
    "event_attributes.object": "OBJECT",
    "event_attributes.position": "OBJECT",
    # What else a line may have its id or all its fields in.
    "event_attributes.object.internal_id": "NULL",
    "_source": "NULL",
}
USUAL_TYPES = " AND ".join(
    f"coalesce(types[{at}], 'NULL') IN ('{kind}', 'NULL')" for at, kind in enumerate(CHECKED.values(), start=1)
)
COLUMNS = "hash, kind, query_id, client, query, document, position, time, agent"
READ = f"""
    CREATE TABLE row_or_line AS
    WITH line AS (
        SELECT
            json,
            json_extract_string(json, {[f"$.{name}" for name in FIELDS]}) AS value,
            json_type(json, {[f"$.{name}" for name in CHECKED]}) AS types
        FROM read_json(
            $log, format = 'newline_delimited', records = false, columns = {{json: 'JSON'}}, ignore_errors = true
        )
        WHERE json_type(json) = 'OBJECT'
    ),
    field AS (
        SELECT
            hash(json) AS hash,
            coalesce(value[4], 'search') AS kind,
            value[1] AS query_id,
            CASE WHEN value[2] <> '' THEN hash(value[2]) END AS client,
            CASE WHEN value[4] IS NULL THEN value[3] END AS query,
            nullif(value[7], '') AS document,
            coalesce(try_cast(value[8] AS INTEGER), -1) AS position,
            epoch_ms(try_cast(value[5] AS TIMESTAMP)) AS time,
            value[6] AS agent,
            {USUAL_TYPES}
                AND (value[5] IS NULL OR (regexp_full_match(value[5], $time) AND time IS NOT NULL))
                AND (value[8] IS NULL OR position >= 0) AS is_usual,
            CASE WHEN NOT is_usual THEN json::VARCHAR END AS line
        FROM line
    )
    SELECT DISTINCT ON (hash) {COLUMNS}, line
    FROM field
    WHERE NOT is_usual
        OR (query_id <> '' AND (kind IN ('click', 'impression') OR (kind = 'search' AND query IS NOT NULL)))
"""
TYPES = {"names_bot": pa.bool_(), "dev": pa.bool_(), "hash": pa.uint64()}
# Of each query id the earliest search, and the events of these searches.
SEARCHES = """
    CREATE TABLE search AS
    SELECT query_id, time, client AS searcher, judged.query, judged.hash AS query_hash,
        coalesce(names_bot, false) AS names_bot
    FROM (
        SELECT DISTINCT ON (query_id) * FROM row WHERE kind = 'search' ORDER BY query_id, time NULLS LAST, hash
    ) AS first
    JOIN judged ON judged.spelling = first.query
    LEFT JOIN agent_verdict USING (agent)
"""
EVENTS = """
    CREATE TABLE event AS
    SELECT kind = 'click' AS is_click, document, position, search.query, names_bot, searcher,
        coalesce(client, searcher) AS person
    FROM row JOIN search USING (query_id)
    WHERE kind <> 'search' AND document IS NOT NULL
"""
# beam_jobs.ingest.bots.STATISTICS.
STATISTICS = f"""
    SELECT person, hour, -1 AS position, query_hash AS query, coalesce(min(time), {verdicts.NO_TIME}) AS first_ms,
        count(*) AS searches, searches AS asked, 0 AS impressions, 0 AS clicks, sum(names_bot::INTEGER) AS named
    FROM (
        SELECT *, searcher AS person,
            coalesce(time // {verdicts.MS_PER_HOUR} % {verdicts.MAX_HOURS}, -1)::INTEGER AS hour
        FROM search WHERE searcher IS NOT NULL
    )
    GROUP BY person, hour, query_hash
    UNION ALL
    SELECT person, -1, rank, {verdicts.NO_QUERY}, {verdicts.NO_TIME}, 0, 0,
        count(*) FILTER (NOT is_click), count(*) FILTER (is_click), 0
    FROM (
        SELECT *, CASE WHEN is_click THEN least(position, {verdicts.RANKS}) ELSE -1 END AS rank
        FROM event WHERE person IS NOT NULL
    )
    GROUP BY person, rank
"""
PEOPLE = """
    CREATE TABLE people AS
    SELECT query, count(DISTINCT searcher) AS num_people
    FROM search
    WHERE NOT names_bot AND query IS NOT NULL
        AND NOT EXISTS (FROM bot WHERE bot.person = search.searcher)
    GROUP BY ALL
"""
CLICKS = """
    CREATE TABLE clicked AS
    SELECT query, document, count(*) AS clicks
    FROM event SEMI JOIN (FROM people WHERE num_people >= $k) AS published USING (query)
    WHERE is_click AND NOT names_bot
        AND NOT EXISTS (FROM bot WHERE bot.person = event.person)
        AND NOT EXISTS (FROM bot WHERE bot.person = event.searcher)
    GROUP BY ALL
"""
DOCUMENTS = """
    SELECT id, coalesce(raw, '') AS raw
    FROM read_csv($documents, delim = '\t', quote = '', escape = '', header = false, auto_detect = false,
        columns = {id: 'VARCHAR', raw: 'VARCHAR'})
    SEMI JOIN clicked ON clicked.document = id
"""
PAIRS = """
    CREATE TABLE pair AS
    SELECT query, title, sum(clicks)::BIGINT AS clicks
    FROM clicked JOIN titled ON titled.id = clicked.document
    WHERE title IS NOT NULL
    GROUP BY ALL
"""


def write_pairs(log: str, documents: str, k: int, out: str) -> dict[str, int]:
    """How many queries at least 1, 2, ... people typed, once `out` holds the pairs."""
    db = duckdb.connect()
    db.execute("SET preserve_insertion_order = false")
    db.execute(f"SET temp_directory = '{out}.spilled'")
    db.execute(READ, {"log": log, "time": TIME.strip('"')})
    unusual = db.execute("SELECT hash, line FROM row_or_line WHERE line IS NOT NULL").fetchall()
    strict = [(number, *row) for number, line in unusual if (row := read_line(line.encode())) is not None]
    db.execute(f"CREATE TABLE strict AS SELECT {COLUMNS} FROM row_or_line LIMIT 0")
    if strict:
        client = "CASE WHEN $4 IS NOT NULL THEN hash($4::VARCHAR) END"
        db.executemany(f"INSERT INTO strict VALUES ($1, $2, $3, {client}, $5, $6, $7, $8, $9)", strict)
    db.execute(f"CREATE VIEW row AS SELECT {COLUMNS} FROM row_or_line WHERE line IS NULL UNION ALL FROM strict")

    judged = verdicts.judge_queries(_column(db, "SELECT DISTINCT query FROM row WHERE kind = 'search'"))
    _give(db, "judged", spelling=judged.spelling, query=judged.query, hash=judged.hash)
    agents = _column(db, "SELECT DISTINCT agent FROM row WHERE agent IS NOT NULL")
    _give(db, "agent_verdict", agent=agents, names_bot=verdicts.is_bot_agent(agents))
    db.execute(SEARCHES)
    db.execute(EVENTS)
    bots = verdicts.bots_among(db.sql(STATISTICS).to_arrow_table())
    db.register("bot", pa.table({"person": pa.array(bots, pa.uint64())}))
    db.execute(PEOPLE)
    db.execute(CLICKS, {"k": k})
    titles = db.sql(DOCUMENTS, params={"documents": documents}).to_arrow_table()
    _give(db, "titled", id=titles["id"].to_pylist(), title=verdicts.titles(titles["raw"].to_pylist()))
    db.execute(PAIRS)
    queries = _column(db, "SELECT DISTINCT query FROM pair")
    _give(db, "held_out", query=queries, dev=verdicts.is_dev(queries))
    db.execute(
        f"COPY (SELECT query, title, clicks, dev FROM pair JOIN held_out USING (query)) TO '{out}' (FORMAT parquet)"
    )
    counts = {k: f"count(*) FILTER (num_people >= {k})" for k in verdicts.REPORTED_K}
    found = db.execute(f"SELECT {', '.join(counts.values())} FROM people").fetchone()
    return dict(zip(map(str, counts), found or (), strict=True))


def _column(db: duckdb.DuckDBPyConnection, query: str) -> list:
    return db.sql(query).to_arrow_table().column(0).to_pylist()


def _give(db: duckdb.DuckDBPyConnection, name: str, **columns: list) -> None:
    """A table of these columns, strings unless TYPES says otherwise."""
    db.register(
        name, pa.table({column: pa.array(values, TYPES.get(column, pa.string())) for column, values in columns.items()})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", required=True, help="the files of the log, as a pattern")
    parser.add_argument("--documents", required=True, help="id<TAB>title lines")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--out", required=True, help="the Parquet file to write")
    options = parser.parse_args()
    print(json.dumps({"queries_at_k": write_pairs(options.log, options.documents, options.k, options.out)}))


if __name__ == "__main__":
    main()
