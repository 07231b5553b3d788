"""The files of a day: written by workers under names of their own, chosen, named and committed in one last step."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from beam_jobs.aggregate_day import logical_digest
from beam_jobs.arrow_files import explained, write_table
from beam_jobs.bots import Bots
from beam_jobs.exchange import from_ipc
from beam_jobs.tally import Tally, add_up
from schemas import storage
from schemas.errors import StageError
from schemas.ledger import FATES, Ledger
from schemas.log_row import REJECT
from schemas.manifest import Request
from schemas.shard import LogicalDigest
from schemas.stage import Outcome, commit
from schemas.storage import join

NUM_EXAMPLES = 3
ATTEMPTS = "attempts"  # what workers write until the last step chooses


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenBucket:
    """What one attempt at a bucket wrote, and what is in it. A repeated attempt wrote the same under other names."""

    bucket: int
    attempt: str
    num_queries: int
    num_exposures: int
    searches: int
    impressions: int
    clicks: int
    digest: str


def write_bucket(folder: str, bucket: int, queries: pa.Table, exposures: pa.Table) -> WrittenBucket:
    """Both files of a bucket, written. Raises StageError where they cannot be."""
    attempt = uuid.uuid4().hex[:12]
    for kind, table in (("queries", queries), ("exposures", exposures)):
        with explained(folder):
            write_table(table, folder, _attempt_name(kind, bucket, attempt))
    return WrittenBucket(
        bucket=bucket,
        attempt=attempt,
        num_queries=queries.num_rows,
        num_exposures=exposures.num_rows,
        searches=_sum(queries["searches"]),
        impressions=_sum(exposures["impressions"]),
        clicks=_sum(exposures["clicks"]),
        digest=logical_digest(queries, exposures).hexdigest(),
    )


def commit_day(
    folder: str,
    request: Request,
    *,
    max_unreadable_share: float,
    started: float,
    tallies: Iterable[Tally],
    rejects: Iterable[bytes],
    bots: Bots,
    buckets: Iterable[WrittenBucket],
) -> None:
    """Nothing; the day is committed. Raises StageError: too many unreadable lines, a wrong ledger, no space.

    The day's own fates are counted from the rows that were written, not where they were kept, so a row lost on the way
    shows in the ledger.
    """
    tally = add_up(tallies)
    rejected = from_ipc([_empty(REJECT), *rejects]).sort_by([("file", "ascending"), ("offset", "ascending")])
    check_readable(tally, rejected, max_unreadable_share)
    written = list({bucket.bucket: bucket for bucket in buckets}.values())
    ledger = Ledger(
        total=tally.lines,
        lines={
            **tally.fates,
            "day_search": sum(bucket.searches for bucket in written),
            "day_impression": sum(bucket.impressions for bucket in written),
            "day_click": sum(bucket.clicks for bucket in written),
        },
    ).check()
    digest = LogicalDigest()
    for bucket in written:
        digest.merge(bucket.digest)
    with explained(folder):
        write_table(rejected, folder, "rejects")
        _name_winners(folder, written)
        stage_folder, attempt = folder.rsplit("/", 1)
        commit(stage_folder, request, attempt, _outcome(tally, ledger, bots, written, rejected, digest), started)


def check_readable(tally: Tally, rejected: pa.Table, max_unreadable_share: float) -> None:
    """Nothing. Raises StageError where there is no line, or too many could not be read: the reasons and some places."""
    if not tally.lines:
        raise StageError(
            asked="a search log was to be ingested",
            found="there is not one line in what was read",
            follows="there is nothing to learn from",
            do="give a log with at least one line",
        )
    if rejected.num_rows <= max_unreadable_share * tally.lines:
        return
    reasons = ", ".join(
        f"{count:,} {FATES[fate][1]}"
        for fate, count in sorted(tally.fates.items(), key=lambda item: -item[1])
        if FATES[fate][0] == "unreadable" and count
    )
    places = ", ".join(f"{row['file']}:{row['offset']}" for row in rejected.slice(0, NUM_EXAMPLES).to_pylist())
    other = rejected.num_rows > 0.9 * tally.lines
    raise StageError(
        asked=f"at most {max_unreadable_share:.1%} of a log's lines may be unreadable",
        found=f"{rejected.num_rows:,} of {tally.lines:,} are ({reasons}), for example at {places} (file:byte)"
        + ("; this looks like something other than UBI in newline-delimited JSON" if other else ""),
        follows="what is learnt from the rest could be badly skewed, so nothing was ingested",
        do="look at these lines; if they may go, raise max_unreadable_share",
    )


def _outcome(
    tally: Tally, ledger: Ledger, bots: Bots, written: list[WrittenBucket], rejected: pa.Table, digest: LogicalDigest
) -> Outcome:
    return Outcome(
        counts={
            "lines": tally.lines,
            "searches": ledger.lines["day_search"],
            "impressions": ledger.lines["day_impression"],
            "clicks": ledger.lines["day_click"],
            "queries": sum(bucket.num_queries for bucket in written),
            "exposures": sum(bucket.num_exposures for bucket in written),
            "people": bots.people,
            "bots_by_user_agent": len(bots.by_user_agent),
            "bots_by_behaviour": len(bots.by_behaviour),
            "rejects": rejected.num_rows,
        },
        metrics={
            "first_time": _iso(tally.first_ms),
            "last_time": _iso(tally.last_ms),
            "unreadable_share": rejected.num_rows / tally.lines,
        },
        labels={"simulated": True} if tally.counts.get("simulated_lines") else {},
        ledger=ledger,
        logical_digest=digest.hexdigest(),
    )


def _name_winners(folder: str, written: list[WrittenBucket]) -> None:
    """Give the chosen files their names and remove what other attempts left. May be repeated after a failure."""
    for bucket in written:
        for kind in ("queries", "exposures"):
            begun = join(folder, _attempt_name(kind, bucket.bucket, bucket.attempt) + ".arrow")
            if storage.exists(begun):
                fs, path = storage.filesystem(begun)
                fs.mv(path, storage.filesystem(join(folder, f"{kind}-{bucket.bucket:05d}.arrow"))[1])
    storage.remove(join(folder, ATTEMPTS))


def _attempt_name(kind: str, bucket: int, attempt: str) -> str:
    return f"{ATTEMPTS}/{kind}-{bucket:05d}-{attempt}"


def _empty(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return sink.getvalue().to_pybytes()


def _sum(column: pa.ChunkedArray) -> int:
    return sum(column.to_pylist())


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")
