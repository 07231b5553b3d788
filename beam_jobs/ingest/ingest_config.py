"""What of an ingest a user can set, and what of it names the result. Imports no engine."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from beam_jobs.content_lists import BOT_USER_AGENTS, shipped_list
from beam_jobs.ingest.bots import BotRules
from beam_jobs.ingest.windows import parse_date
from beam_jobs.sources.mapping import Events, Mapping
from schemas import storage
from schemas.errors import UsageError
from schemas.manifest import Request

# Raised on purpose when the same log gives other rows.
STAGE_VERSION = 2
FORMATS = ("ubi", "orcas", "delimited", "jsonl", "parquet")
MAPPED_FORMATS = ("delimited", "jsonl", "parquet")


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestConfig:
    """How a log is read.

    `mapping`: what the columns of a delimited, jsonl or parquet log mean; for ubi, which actions are what.
    `max_unreadable_share`: of the lines; above it the run fails, because the log is probably not what it was taken for.
    `person_key`: a key file to use instead of the store's own. `renew_key`: where the store's own has expired, make a
    new one and begin a new window. `date`: the day that the log is of (ISO 8601), or none. `replace_day`: these files
    are all that the date consists of from now on, whatever it was made of before.
    Raises UsageError for a value out of range.
    """

    format: str = "ubi"
    mapping: Mapping | None = None
    max_unreadable_share: float = 0.05
    bots: BotRules = field(default_factory=BotRules)
    person_key: str | None = None
    renew_key: bool = False
    date: str | None = None
    replace_day: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(
                asked=f"a log in the format `{self.format}` was to be read",
                found="that format is unknown",
                do=f"use one of: {', '.join(FORMATS)}",
            )
        check_mapping(self.format, self.mapping)
        if not 0 <= self.max_unreadable_share <= 1:
            raise UsageError(
                asked=f"max_unreadable_share was set to {self.max_unreadable_share}",
                found="a share lies between 0 and 1",
                do="set 0.05 for 5% of the lines",
            )
        if self.date is not None:
            parse_date(self.date, f"a log of {self.date} was to be ingested")
        elif self.replace_day:
            raise UsageError(
                asked="a day was to be replaced (replace_day)",
                found="no date was given",
                do="say which day with --date, or leave --replace-day out",
            )


def check_mapping(log_format: str, mapping: Mapping | None) -> None:
    """Nothing. Raises UsageError where a form needs a mapping, has no use for one, or for something in it."""
    asked = f"a log in the format `{log_format}` was to be read"
    if log_format in MAPPED_FORMATS:
        named = mapping.columns.named() if mapping else {}
        lacking = [name for name in ("query", "document_id") if name not in named]
        if lacking:
            raise UsageError(
                asked=asked,
                found="there is no mapping of its columns" if not mapping else f"its mapping has no {lacking[0]}",
                follows="what its columns mean cannot be told",
                do="give --mapping FILE with at least query and document_id below [columns]; see docs/data.md",
            )
    elif mapping and (
        log_format != "ubi" or mapping != Mapping(events=mapping.events) or mapping.events.search != Events().search
    ):
        raise UsageError(
            asked=asked,
            found="its columns are known, and a mapping of them was given",
            do="leave the mapping out" + (", but for click and impression in [events]" if log_format == "ubi" else ""),
        )
    if mapping and mapping.columns.line_id is not None and log_format != "parquet":
        raise UsageError(
            asked=asked,
            found="its mapping has line_id",
            do="leave that out: a line of text is told from others by its bytes",
        )
    text_only = ("delimiter", "header", "quote", "quoted_newlines")
    if mapping and log_format != "delimited":
        given = [name for name in text_only if getattr(mapping, name) != getattr(Mapping(), name)]
        if given:
            raise UsageError(
                asked=asked, found=f"its mapping has {given[0]}", do="leave that out: it is for delimited text"
            )


def ingest_request(files: Sequence[str], key_id: str, config: IngestConfig) -> Request:
    """What names the result: the files' content whatever they are called, the rules, the list's terms, the key's id."""
    settings: dict[str, Any] = asdict(config)
    # Where a key lies changes nothing: what it says does. What a day consists of is not a matter of its parts.
    del settings["person_key"], settings["renew_key"], settings["replace_day"]
    return Request(
        stage="ingest",
        stage_version=STAGE_VERSION,
        config=settings,
        inputs={
            "logs": sorted(storage.of_each(storage.fingerprint, files)),
            "bot_user_agents": shipped_list(BOT_USER_AGENTS).digest,
            "person_key": key_id,
        },
    )
