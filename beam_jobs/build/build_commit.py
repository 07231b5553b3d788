"""The end of a build: the results that arrived become the shards, with their catalogue, ledger and manifest."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from beam_jobs.build.click_pairs import REPORTED_K
from beam_jobs.build.shard_writer import FolderMade
from beam_jobs.engine.tally import Tally, add_up
from schemas import manifest, shard, stage, storage, trigrams, words
from schemas.documents import no_title
from schemas.errors import StageError
from schemas.ledger import Ledger, continue_with
from schemas.manifest import Outcome, Request


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildCommit:
    """What is known of a build before it runs, and needed to end it."""

    folder: str  # STORE/build/DIGEST
    attempt: str
    request: Request
    started: float  # seconds since the epoch
    ledger: Ledger  # of all days together
    labels: Mapping[str, Any]
    documents: str
    asked: str
    window: Mapping[str, Any] = field(default_factory=dict)  # the dates that were read (days.OpenDays)


def commit_build(results: Sequence[Tally | FolderMade], commit: BuildCommit) -> None:
    """Give the shards their names, write the catalogue and, last, the manifest.

    May run again after a failure at any point. Raises StageError where no click can be used, no training pair is left,
    or the ledger does not add up.
    """
    if storage.exists(storage.join(commit.folder, manifest.FILE_NAME)):
        return
    tally = add_up(result for result in results if isinstance(result, Tally))
    left = left_at_k(tally, commit.request.config["k"])
    folders = {result.name: result for result in results if isinstance(result, FolderMade)}
    pool = folders.pop("pool", None)
    shards = [folders[name] for name in sorted(folders)]
    if pool is None:
        raise no_title(commit.documents, tally.counts.get("documents", 0))
    num_clicked, num_titled = tally.counts.get("clicked_documents", 0), tally.counts.get("titled_documents", 0)
    _require_known_documents(num_clicked, num_titled, commit.asked)
    _require_training_pairs(shards, left, commit)

    attempt = storage.join(commit.folder, commit.attempt)
    digest = give_names((*shards, pool), attempt)
    catalogue = _catalogue(shards, pool, commit)
    storage.write_atomic(storage.join(attempt, "catalogue.json"), json.dumps(catalogue, indent=1).encode())
    stage.commit(
        commit.folder,
        commit.request,
        commit.attempt,
        Outcome(
            counts={
                "train_pairs": _sum(shards, "train", "pairs"),
                "dev_pairs": _sum(shards, "dev", "pairs"),
                "train_queries": _sum(shards, "train", "queries"),
                "dev_queries": _sum(shards, "dev", "queries"),
                "pool_documents": pool.counts["documents"],
                "documents": tally.counts.get("documents", 0),
                "documents_without_title": tally.counts.get("documents", 0)
                - tally.counts.get("documents_with_title", 0),
                "clicked_documents": num_clicked,
                "clicked_documents_without_title": num_clicked - num_titled,
                "shards": len(shards),
            },
            metrics={
                "privacy_gate": gate_sentence(left, commit.request.config["k"]),
                "left_at_k": left,
                "window": dict(commit.window),
            },
            labels=commit.labels,
            ledger=continue_with(commit.ledger, tally.fates),
            logical_digest=digest.hexdigest(),
        ),
        commit.started,
    )


def left_at_k(tally: Tally, k: int) -> list[dict[str, int]]:
    """What would be left at k and at other k, least first: queries of the log, clicks on titled documents, and pairs.

    Judged queries are not counted; k = 0 is the log without a gate.
    """
    return [
        {"k": at, **{what: tally.counts.get(f"{what}_at_{at}", 0) for what in ("queries", "clicks", "pairs")}}
        for at in sorted({*REPORTED_K, k})
    ]


def gate_sentence(left: Sequence[Mapping[str, int]], k: int) -> str:
    """What the privacy gate costs, in plain words."""
    at, of = _at(left, k), _at(left, 0)
    return (
        f"k = {k} keeps {at['clicks']:,} of {of['clicks']:,} clicks"
        f" ({at['pairs']:,} of {of['pairs']:,} pairs; {at['queries']:,} of {of['queries']:,} queries)"
    )


def _at(left: Sequence[Mapping[str, int]], k: int) -> Mapping[str, int]:
    return next(row for row in left if row["k"] == k)


def _catalogue(shards: Sequence[FolderMade], pool: FolderMade, commit: BuildCommit) -> dict:
    config = commit.request.config
    return {
        "schema_version": shard.SCHEMA_VERSION,
        "text_contract": trigrams.CONTRACT_VERSION,
        "unicode": words.UNICODE_VERSION,
        **{name: config[name] for name in ("table_rows", "num_negatives", "k", "split_salt", "dev_share", "seed")},
        "pool": {"name": pool.name, **pool.counts},
        "shards": [{"name": made.name, "split": made.split, **made.counts} for made in shards],
        "labels": dict(commit.labels),
    }


def give_names(folders: Iterable[FolderMade], attempt: str) -> shard.LogicalDigest:
    """Move folders' files below their final names; those that were moved before stay. The digest of all their rows."""
    digest = shard.LogicalDigest()
    for made in folders:
        for name in storage.list_files(made.folder):
            storage.move(storage.join(made.folder, name), storage.join(attempt, made.name, name))
        digest.merge(made.logical_digest)
    return digest


def _sum(shards: Sequence[FolderMade], split: str, what: str) -> int:
    return sum(made.counts[what] for made in shards if made.split == split)


def _require_known_documents(num_clicked: int, num_titled: int, asked: str) -> None:
    if num_clicked and not num_titled:
        raise StageError(
            asked=asked,
            found=f"none of the {num_clicked:,} document ids that were clicked is among the documents with a title",
            follows="no click could be joined to a title",
            do="check that the log and the documents file name documents by the same ids",
        )


def _require_training_pairs(
    shards: Sequence[FolderMade], left: Sequence[Mapping[str, int]], commit: BuildCommit
) -> None:
    if _sum(shards, "train", "pairs"):
        return
    k = commit.request.config["k"]
    at, of = _at(left, k), _at(left, 0)
    if k and of["pairs"] and not _at(left, 1)["pairs"]:
        raise StageError(
            asked=commit.asked,
            found=f"not one of the {of['queries']:,} queries has a known person: the log's lines name no client",
            follows=f"nobody can be counted, so no query passes k = {k}, and there would be nothing to train on",
            do="give a log with client ids; or, for one that was published already, say `--k 0`: no gate at all",
        )
    others = ", ".join(f"{row['pairs']:,} at k = {row['k']}" for row in left if 0 < row["k"] < k)
    raise StageError(
        asked=commit.asked,
        found=f"{at['queries']:,} of {of['queries']:,} queries passed k = {k}, and of {of['pairs']:,} pairs"
        f" {at['pairs']:,} are left, none of them for training" + (f" (there would be {others})" if others else ""),
        follows="there would be nothing to train on",
        do="lower `build --k`, add days to the window, or check that the log holds clicks",
    )
