"""What of an ingest a user can set, and what of it names the result. Imports no engine."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from beam_jobs.content_lists import BOT_USER_AGENTS, shipped_list
from beam_jobs.ingest.bots import BotRules
from beam_jobs.ingest.windows import parse_date
from beam_jobs.sources.forms import check_mapping, form_of
from beam_jobs.sources.mapping import Mapping
from beam_jobs.sources.source import Source
from schemas import storage
from schemas.errors import UsageError
from schemas.manifest import Request

# Raised on purpose when the same log gives other rows.
STAGE_VERSION = 2


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
        check_mapping(form_of(self.format), self.mapping)
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


def open_source(config: IngestConfig) -> Source:
    """The source of a config's format; nothing is opened yet."""
    return form_of(config.format).open(config.mapping or Mapping())


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
