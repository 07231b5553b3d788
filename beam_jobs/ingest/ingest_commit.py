"""The files of a day: written by workers under names of their own, chosen, named and committed in one last step."""

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from beam_jobs.engine.arrow_files import explained, write_table
from beam_jobs.engine.beam_stage import Attempt
from beam_jobs.engine.tally import Tally, add_up
from beam_jobs.ingest.aggregate_day import BOT_LINES, logical_digest
from beam_jobs.ingest.bots import RULES, Bots
from beam_jobs.ingest.line_sample import write_sample
from schemas import storage
from schemas.errors import StageError, TransientError
from schemas.ledger import FATES, Ledger
from schemas.manifest import Outcome
from schemas.shard import LogicalDigest
from schemas.storage import join

NUM_EXAMPLES = 3
CLIENTS_BY_FATE = {
    "bot_user_agent": "bots_by_user_agent",
    "bot_behaviour": "bots_by_behaviour",
    "bot_crowd": "bots_in_crowds",
    "bot_unsure": "bots_unsure",
}


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


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenRejects:
    """What one attempt at a bucket of unreadable lines wrote, with some of the places for a message."""

    bucket: int
    attempt: str
    num_rejects: int
    places: tuple[tuple[str, int], ...]  # (file, byte or row), the first in order


def write_bucket(folder: str, bucket: int, queries: pa.Table, exposures: pa.Table) -> WrittenBucket:
    """Both files of a bucket, written below `folder`. Raises StageError where they cannot be."""
    attempt = uuid.uuid4().hex[:12]
    with explained(folder), ThreadPoolExecutor(2) as disk:  # which is waited for: meanwhile the rows are digested
        written = [
            disk.submit(write_table, table, folder, _attempt_name(kind, bucket, attempt))
            for kind, table in (("queries", queries), ("exposures", exposures))
        ]
        digest = logical_digest(queries, exposures).hexdigest()
        for one in written:
            one.result()
    return WrittenBucket(
        bucket=bucket,
        attempt=attempt,
        num_queries=queries.num_rows,
        num_exposures=exposures.num_rows,
        searches=_sum(queries["searches"]),
        impressions=_sum(exposures["impressions"]),
        clicks=_sum(exposures["clicks"]),
        digest=digest,
    )


def write_rejects(folder: str, bucket: int, rejects: pa.Table) -> WrittenRejects:
    """The places of a bucket's unreadable lines, written below `folder`. Raises StageError where they cannot be."""
    attempt = uuid.uuid4().hex[:12]
    rejects = rejects.sort_by([("file", "ascending"), ("offset", "ascending")])
    with explained(folder):
        write_table(rejects, folder, _attempt_name("rejects", bucket, attempt))
    first = rejects.slice(0, NUM_EXAMPLES).to_pylist()
    places = tuple((row["file"], row["offset"]) for row in first)
    return WrittenRejects(bucket=bucket, attempt=attempt, num_rejects=rejects.num_rows, places=places)


def commit_day(
    attempt: Attempt,
    results: Sequence[Tally | WrittenRejects | Bots | WrittenBucket],
    *,
    states: Mapping[str, str],
    zero_bits: int,
    key: bytes,
    max_unreadable_share: float,
) -> None:
    """Nothing; the day is committed. Raises StageError: too many unreadable lines, a wrong ledger, no space; and
    TransientError where a log file is no longer what it was when `states` were taken.

    Results of a bundle that ran twice arrive once, or twice with the same content: one of them is chosen, moved from
    the scratch folder to its name, and listed. Runs again without harm after a failure at any point.

    The day's own fates are counted from the rows that were written, not where they were kept, so a row lost on the way
    shows in the ledger.
    """
    if attempt.has_committed():
        return
    require_unchanged(states)
    tally = add_up(result for result in results if isinstance(result, Tally))
    bots = next(result for result in results if isinstance(result, Bots))
    rejected = list({result.bucket: result for result in results if isinstance(result, WrittenRejects)}.values())
    written = list({result.bucket: result for result in results if isinstance(result, WrittenBucket)}.values())
    check_readable(tally, rejected, max_unreadable_share, attempt.request.config["format"])
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
    for kind in ("queries", "exposures"):
        _name_winners(attempt, kind, written)
    _name_winners(attempt, "rejects", rejected)
    write_sample(attempt.folder, tally.sampled, zero_bits, key)
    attempt.commit(_outcome(tally, ledger, bots, written, rejected, digest))


def require_unchanged(states: Mapping[str, str]) -> None:
    """Nothing. Raises TransientError where one of the files has been written to since its state was taken."""
    changed = [file for file, now in zip(states, storage.of_each(storage.state, states), strict=True)
               if now != states[file]]  # fmt: skip
    if not changed:
        return
    raise TransientError(
        asked=f"{len(states)} log file{'s were' if len(states) > 1 else ' was'} to be read whole",
        found=f"{changed[0]} was written to meanwhile" + (f", and {len(changed) - 1} more" if changed[1:] else ""),
        follows="lines could be missing without a sign, so nothing was kept",
        do="run the same command again; better, give files that nobody writes to any more, such as yesterday's",
    )


def check_readable(
    tally: Tally, rejected: Sequence[WrittenRejects], max_unreadable_share: float, log_format: str
) -> None:
    """Nothing. Raises StageError where there is no line, or too many could not be read: the reasons and some places."""
    if not tally.lines:
        raise StageError(
            asked="a search log was to be ingested",
            found="there is not one line in what was read",
            follows="there is nothing to learn from",
            do="give a log with at least one line",
        )
    num_rejects = sum(bucket.num_rejects for bucket in rejected)
    if num_rejects <= max_unreadable_share * tally.lines:
        return
    reasons = ", ".join(
        f"{count:,} {FATES[fate][1]}"
        for fate, count in sorted(tally.fates.items(), key=lambda item: -item[1])
        if FATES[fate][0] == "unreadable" and count
    )
    first = sorted(place for bucket in rejected for place in bucket.places)[:NUM_EXAMPLES]
    places = ", ".join(f"{file}:{offset}" for file, offset in first)
    other = num_rejects > 0.9 * tally.lines
    raise StageError(
        asked=f"at most {max_unreadable_share:.1%} of a log's lines may be unreadable",
        found=f"{num_rejects:,} of {tally.lines:,} are ({reasons}), for example at {places} (file:byte)"
        + (f"; this looks like something other than the format `{log_format}`" if other else ""),
        follows="what is learnt from the rest could be badly skewed, so nothing was ingested",
        do="look at these lines; if they may go, raise max_unreadable_share",
    )


def _outcome(
    tally: Tally,
    ledger: Ledger,
    bots: Bots,
    written: list[WrittenBucket],
    rejected: list[WrittenRejects],
    digest: LogicalDigest,
) -> Outcome:
    num_rejects = sum(bucket.num_rejects for bucket in rejected)
    return Outcome(
        counts={
            "lines": tally.lines,
            "searches": ledger.lines["day_search"],
            "impressions": ledger.lines["day_impression"],
            "clicks": ledger.lines["day_click"],
            "queries": sum(bucket.num_queries for bucket in written),
            "exposures": sum(bucket.num_exposures for bucket in written),
            "people": bots.people,
            **{CLIENTS_BY_FATE[fate]: clients for fate, clients in bots.by_fate().items()},
            "rejects": num_rejects,
        },
        metrics={
            "first_time": _iso(tally.first_ms),
            "last_time": _iso(tally.last_ms),
            "unreadable_share": num_rejects / tally.lines,
            "bots": {
                name: {"clients": bots.by_rule().get(name, 0), "lines": tally.counts.get(BOT_LINES + name, 0)}
                for name in (rule.name for rule in RULES)
                if tally.counts.get(BOT_LINES + name) or name in bots.by_rule()
            },
            "later_than_ingest_share": tally.counts.get("later_than_ingest", 0) / tally.lines,
        },
        labels=_labels(tally, bots),
        ledger=ledger,
        logical_digest=digest.hexdigest(),
    )


def _labels(tally: Tally, bots: Bots) -> dict[str, bool]:
    """What must be known of everything made from this day: where its lines came from, and that nobody is in it."""
    found = {"simulated": bool(tally.counts.get("simulated_lines")), "no_people": not bots.people}
    return {name: True for name, is_so in found.items() if is_so}


def _name_winners(attempt: Attempt, kind: str, written: Sequence[WrittenBucket] | Sequence[WrittenRejects]) -> None:
    """Move the chosen files of a kind to their names. May run again after a failure; OSError for a lost one."""
    for bucket in written:
        begun = join(attempt.made, _attempt_name(kind, bucket.bucket, bucket.attempt) + ".arrow")
        named = join(attempt.folder, f"{kind}-{bucket.bucket:05d}.arrow")
        if storage.exists(begun) or not storage.exists(named):
            storage.move(begun, named)


def _attempt_name(kind: str, bucket: int, attempt: str) -> str:
    return f"{kind}-{bucket:05d}-{attempt}"


def _sum(column: pa.ChunkedArray) -> int:
    return sum(column.to_pylist())


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")
