"""What of an ingest a user can set, and what of it names the result. Imports no engine."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from beam_jobs.bot_rules import BotRules
from beam_jobs.content_lists import ADULT_ENGLISH, BOT_USER_AGENTS, TermList, read_list, shipped_list
from schemas import storage
from schemas.errors import UsageError
from schemas.manifest import Request

# Raised on purpose when the same log gives other rows.
STAGE_VERSION = 1
FORMATS = ("ubi",)


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestConfig:
    """How a log is read.

    `max_unreadable_share`: of the lines; above it the run fails, because the log is probably not what it was taken for.
    `adult_list`: a file to use instead of the shipped list. `person_key`: a key file to use instead of the store's own.
    Raises UsageError for a value out of range.
    """

    format: str = "ubi"
    max_unreadable_share: float = 0.05
    bots: BotRules = field(default_factory=BotRules)
    adult_list: str | None = None
    person_key: str | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise UsageError(
                asked=f"a log in the format `{self.format}` was to be read",
                found="that format is unknown",
                do=f"use one of: {', '.join(FORMATS)}",
            )
        if not 0 <= self.max_unreadable_share <= 1:
            raise UsageError(
                asked=f"max_unreadable_share was set to {self.max_unreadable_share}",
                found="a share lies between 0 and 1",
                do="set 0.05 for 5% of the lines",
            )


def adult_list(config: IngestConfig) -> TermList:
    """The list of adult terms that a config names. Raises UsageError or StageError."""
    return read_list(config.adult_list) if config.adult_list else shipped_list(ADULT_ENGLISH)


def ingest_request(files: Sequence[str], key_id: str, adult_digest: str, config: IngestConfig) -> Request:
    """What names the result: the files' content whatever they are called, the rules, the lists' terms, the key's id."""
    settings: dict[str, Any] = asdict(config)
    del settings["adult_list"], settings["person_key"]  # where a list or a key lies changes nothing: what it says does
    return Request(
        stage="ingest",
        stage_version=STAGE_VERSION,
        config=settings,
        inputs={
            "logs": sorted(storage.fingerprint(file) for file in files),
            "adult_list": adult_digest,
            "bot_user_agents": shipped_list(BOT_USER_AGENTS).digest,
            "person_key": key_id,
        },
    )
