"""The error for a log of which too many lines cannot be read: why, and where some of them are."""

from collections.abc import Mapping, Sequence

from clicktower.beam_jobs.engine.arrow_files import read_table
from clicktower.beam_jobs.engine.beam_stage import Tally
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import FATES

NUM_EXAMPLES = 3


_TIMES = (
    "Name the right column in `time` of a mapping, and set its time_format: iso (2026-09-01T10:00:00Z), epoch_s,"
    " epoch_ms, epoch_us or epoch_ns; a text that stands for no time goes into its `null`."
)


# What a mapping can do about unreadable lines, by their fate (schemas.ledger).
REMEDIES = {
    "unreadable_time": _TIMES,
    "unreadable_year": _TIMES,
    "unreadable_not_utf8": "Set `encoding` in a mapping (latin-1, cp1252, utf-16 and so on), if they are text at all.",
}


def unreadable_log(
    tally: Tally, wrong: Mapping[str, int], rejects: Sequence[str], num_rejects: int, config: IngestConfig
) -> StageError:
    """The error. `tally`: of all lines. `wrong`: values of wrong kinds (ingest_job.wrong_values). `rejects`: files of
    search_log.REJECT.
    """
    counts = sorted((-count, fate) for fate, count in tally.fates.items() if FATES[fate][0] == "unreadable" and count)
    reasons = ", ".join(f"{-count:,} {FATES[fate][1]}" for count, fate in counts)
    rows = [row for uri in rejects for row in read_table(uri).slice(0, NUM_EXAMPLES).to_pylist()]
    first = sorted((row["file"], row["offset"]) for row in rows)[:NUM_EXAMPLES]
    places = ", ".join(f"{file}:{offset}" for file, offset in first)
    if wrong:
        reasons += "; values of a wrong kind: " + ", ".join(f"{kind} ({count:,})" for kind, count in wrong.items())
    looks = f" This looks like something other than `{config.format}`." if num_rejects > 0.9 * tally.lines else ""
    return StageError(
        f"{num_rejects:,} of {tally.lines:,} lines are unreadable ({reasons}), for example at {places} (file:byte); at"
        f" most {config.max_unreadable_share:.1%} may be.{looks} Nothing was ingested.",
        REMEDIES.get(counts[0][1], "Look at these lines; if you can spare them, raise max_unreadable_share."),
    )
