"""What of click judgments a user can set, and what of it names the result. Imports no engine."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from beam_jobs.ingest.content_filters import ADULT_ENGLISH, TermList, read_list, shipped_list
from schemas.day import PEOPLE_CAP
from schemas.errors import UsageError
from schemas.manifest import Request

# Raised on purpose when the same days give other files: 2 wrote the first logged.run.
STAGE_VERSION = 2
MAX_SALT_BYTES = 64  # BLAKE2b's longest key

# Grade g where the attractiveness, as a share of the typical one (judge_clicks), is at least the g-th of these:
# where 1 + 7 * share, the gain 2^grade of NDCG if a share of 1 is to gain 2^3 - 1, passes 2^(g - 1/2).
GRADE_SHARES = ((2**0.5 - 1) / 7, (2**1.5 - 1) / 7, (2**2.5 - 1) / 7)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgmentsConfig:
    """What decides the judgments (docs/judgments.md).

    k: distinct people that must have issued a query (as in build). click_model: `pbm`, or `ctr`, the plain share of
    clicks, for a log whose ranks hardly vary. prior: what is expected of a document before its clicks are counted:
    `query_and_rank`, or `query`, which leans to nothing that the logged order says. min_impressions: of a document for
    a query; below it there is no judgment, and no say in the propensities. min_documents: judged ones of a query.
    max_propensity_error: the largest relative standard error of a propensity that is used. max_rank: deeper ranks are
    left out. max_unseen_clicks: share of clicks without an impression, above which the run fails. grade_shares: from
    which share of the typical attractiveness on there is grade 1, 2 and so on. sample_cells: about
    how many rows of query, document and rank, at most, are those that propensities and prior are estimated from.
    id_salt: key of the query ids. adult_list: a file to use instead of the shipped list.
    """

    k: int = 5
    click_model: Literal["pbm", "ctr"] = "pbm"
    prior: Literal["query_and_rank", "query"] = "query_and_rank"
    min_impressions: int = 10
    min_documents: int = 2
    max_propensity_error: float = 0.25
    max_rank: int = 50
    max_unseen_clicks: float = 0.1
    grade_shares: tuple[float, ...] = GRADE_SHARES
    sample_cells: int = 1_000_000
    id_salt: str = "clicktower"
    adult_list: str | None = None

    def __post_init__(self) -> None:
        _require("k", self.k, 0, PEOPLE_CAP)
        _require("min_impressions", self.min_impressions, 1, 2**31)
        _require("min_documents", self.min_documents, 1, 2**31)
        _require("max_propensity_error", self.max_propensity_error, 0.001, 10)
        _require("max_rank", self.max_rank, 1, 200)
        _require("max_unseen_clicks", self.max_unseen_clicks, 0, 1)
        _require("sample_cells", self.sample_cells, 1_000, 20_000_000)
        _require("bytes of id_salt", len(self.id_salt.encode()), 0, MAX_SALT_BYTES)
        for name, value, known in (
            ("click_model", self.click_model, ("pbm", "ctr")),
            ("prior", self.prior, ("query_and_rank", "query")),
        ):
            if value not in known:
                raise UsageError(
                    asked=f"judgments were asked for with {name} = {value}",
                    found=f"there is no such {name}",
                    do=f"use one of: {', '.join(known)}",
                )
        shares = (0.0, *self.grade_shares)
        if len(shares) < 2 or any(a >= b for a, b in pairwise(shares)):
            raise UsageError(
                asked=f"judgments were asked for with grade_shares = {self.grade_shares}",
                found="they must be positive and ascending, at least one",
                do="give for example [0.06, 0.26, 0.67] for the grades 1, 2 and 3",
            )


def adult_list(config: JudgmentsConfig) -> TermList:
    """The list of adult terms that a config names. Raises UsageError or StageError."""
    return read_list(config.adult_list) if config.adult_list else shipped_list(ADULT_ENGLISH)


def judgments_request(days: Sequence[str], config: JudgmentsConfig, window: Mapping[str, Any] | None = None) -> Request:
    """What names the result: the ingests' digests, the window they were found by, the config, the list's terms."""
    settings: dict[str, Any] = asdict(config)
    del settings["adult_list"]  # where a list lies changes nothing: what it says does
    return Request(
        stage="judgments",
        stage_version=STAGE_VERSION,
        config=settings,
        inputs={"days": sorted(days), "window": window, "adult_list": adult_list(config).digest},
    )


def _require(what: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise UsageError(
            asked=f"judgments were asked for with {what} = {value:,}",
            found=f"it must be from {least:,} to {most:,}",
            do=f"choose a {what} in that range",
        )
