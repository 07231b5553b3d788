"""What the peers take from the project: lists, and verdicts on distinct texts and on clients' statistics.

How bots behave is a matter of thresholds and a little statistics, for which one definition is enough; adding up what
each client did is the peers' own work. Everything else that decides the pairs is written again in each peer.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from clicktower.beam_jobs.build.click_shards import held_out
from clicktower.beam_jobs.ingest.bots import (
    MAX_HOURS,
    MS_PER_HOUR,
    NO_QUERY,
    NO_TIME,
    RANKS,
    STATISTICS,
    BotRules,
    activity_of,
    detect_bots,
    find_crowds,
    merge_bots,
)
from clicktower.schemas.content_filters import BOT_USER_AGENTS, content_fates, shipped_list
from clicktower.schemas.text_contract import comparison_forms, normalise_column

__all__ = ["MAX_HOURS", "MS_PER_HOUR", "NO_QUERY", "NO_TIME", "RANKS", "STATISTICS"]

REPORTED_K = (1, 2, 3, 5, 10, 20)
DEV_SHARE, SPLIT_SALT = 0.05, "clicktower"  # BuildConfig's own


class Judged(NamedTuple):
    """Distinct texts as they were typed, the published form of each (None: not to be learned from) and its hash."""

    spelling: list[str]
    query: list[str | None]
    hash: list[int]  # of the published form, whether or not it may be learned from


def judge_queries(spellings: Iterable[str]) -> Judged:
    spellings = list(spellings)
    forms = normalise_column(pa.array(spellings, pa.string())).to_pylist()
    distinct = list(dict.fromkeys(forms))
    hashes = {form: int.from_bytes(blake2b(form.encode(), digest_size=8).digest(), "little") or 1 for form in distinct}
    refused = {form for form, fate in zip(distinct, content_fates(distinct), strict=True) if fate is not None}
    return Judged(spellings, [None if form in refused else form for form in forms], [hashes[form] for form in forms])


def is_bot_agent(agents: Sequence[str]) -> list[bool]:
    """Whether each user agent names itself as a program."""
    pattern = re.compile("|".join(f"(?:{term})" for term in shipped_list(BOT_USER_AGENTS).terms), re.IGNORECASE)
    return [bool(pattern.search(agent)) for agent in agents]


def bots_among(statistics: pa.Table) -> np.ndarray:
    """The clients, uint64, that are not surely people; from all STATISTICS of all clients, in any order."""
    rules = BotRules()
    bots, passers_by = detect_bots(statistics.select(STATISTICS.names).cast(STATISTICS), rules)
    return merge_bots([bots, find_crowds(passers_by, activity_of(passers_by), rules)]).clients


def titles(raw: Sequence[str]) -> list[str | None]:
    """The published form of each title, None for one without a word."""
    return [title or None for title in normalise_column(pa.array(raw, pa.string())).to_pylist()]


def is_dev(queries: Sequence[str]) -> list[bool]:
    return held_out(comparison_forms(pa.array(queries, pa.string())), salt=SPLIT_SALT, share=DEV_SHARE).tolist()
