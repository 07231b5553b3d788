"""What of a build a user can set, and what of it names the result. Imports no engine."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from beam_jobs.split import MAX_SALT_BYTES
from schemas import storage
from schemas.day import PEOPLE_CAP
from schemas.errors import UsageError
from schemas.manifest import Request
from schemas.trigrams import COMPUTED_IDS, DEFAULT_TABLE_ROWS

# Raised on purpose when the same days give other rows.
STAGE_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildConfig:
    """What decides the rows of the shards.

    k: distinct people that must have issued a query before it leaves the private aggregate (1 to PEOPLE_CAP; 1 is for a
    team that trains on its own log in private). num_negatives: unclicked documents for each pair. dev_share: share of
    the queries that is held out. split_salt: the key of that split; permanent, or held-out queries end up in training.
    seed: of the negatives. pool_size: documents that negatives are drawn from, at most. table_rows: rows of the letter-
    trigram table. pairs_per_shard: 100,000 pairs with four negatives are about 64 MiB.
    """

    k: int = 5
    num_negatives: int = 4
    dev_share: float = 0.05
    split_salt: str = "clicktower"
    seed: int = 0
    pool_size: int = 1_000_000
    table_rows: int = DEFAULT_TABLE_ROWS
    pairs_per_shard: int = 100_000

    def __post_init__(self) -> None:
        _require("k", self.k, 1, PEOPLE_CAP, f"a day keeps {PEOPLE_CAP} people of a query, so that no larger number"
                 " can be told from them")  # fmt: skip
        _require("num_negatives", self.num_negatives, 1, 1_000)
        _require("dev_share", self.dev_share, 0, 0.9)
        _require("pool_size", self.pool_size, 1, 2**31 - 1)
        _require("table_rows", self.table_rows, COMPUTED_IDS + 1, 2**32 - 1, f"{COMPUTED_IDS:,} rows are computed ids,"
                 " and at least one must be left for other letters")  # fmt: skip
        _require("pairs_per_shard", self.pairs_per_shard, 1, 2**24)
        _require("bytes of split_salt", len(self.split_salt.encode()), 0, MAX_SALT_BYTES)
        _require("seed", self.seed, 0, 2**63 - 1)


def build_request(days: Sequence[str], documents: str, judged_queries: str | None, config: BuildConfig) -> Request:
    """What names the result: the days' digests, the content of the files, the config. Raises UsageError for no file."""
    return Request(
        stage="build",
        stage_version=STAGE_VERSION,
        config=asdict(config),
        inputs={
            "days": sorted(days),
            "documents": _fingerprint(documents, "documents"),
            "judged_queries": _fingerprint(judged_queries, "judged queries") if judged_queries else None,
        },
        seed=config.seed,
    )


def _fingerprint(uri: str, what: str) -> str:
    if not storage.exists(uri):
        raise UsageError(asked=f"{what} were to be read from {uri}", found="there is no such file", do="check the path")
    return storage.fingerprint(uri)


def _require(what: str, value: float, least: float, most: float, why: str = "") -> None:
    if not least <= value <= most:
        raise UsageError(
            asked=f"build was asked for {what} = {value:,}",
            found=f"it must be from {least:,} to {most:,}" + (f": {why}" if why else ""),
            do=f"choose a {what} in that range",
        )
