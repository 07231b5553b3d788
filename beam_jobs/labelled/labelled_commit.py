"""The end of a labelled build: the results that arrived become the shards, with catalogue, ledger and manifest."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from beam_jobs.build.build_commit import give_names
from beam_jobs.build.shard_writer import FolderMade
from beam_jobs.engine.tally import Tally, add_up
from beam_jobs.labelled.labelled_split import SplitDecision, require_usable
from schemas import labelled, manifest, stage, storage, trigrams, words
from schemas.errors import StageError
from schemas.ledger import FATES, Ledger
from schemas.manifest import Outcome, Request

NUM_EXAMPLES, MAX_REJECTS = 5, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledCommit:
    """What is known of a labelled build before it runs, and needed to end it."""

    folder: str  # STORE/build-labelled/DIGEST
    attempt: str
    request: Request
    unit: labelled.Unit
    started: float  # seconds since the epoch
    asked: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejects:
    """Some unreadable lines: file, offset in it, fate."""

    places: tuple[tuple[str, int, str], ...]


def commit_labelled(results: Sequence[Tally | Rejects | SplitDecision | FolderMade], commit: LabelledCommit) -> None:
    """Give the shards their names, write the catalogue and, last, the manifest.

    May run again after a failure at any point. Raises StageError where too many lines are unreadable, none is left,
    there is nothing to train on, to hold out or to tell apart (`require_usable`), or the ledger does not add up.
    """
    if storage.exists(storage.join(commit.folder, manifest.FILE_NAME)):
        return
    tally = add_up(result for result in results if isinstance(result, Tally))
    ledger = Ledger(total=tally.lines, lines={fate: count for fate, count in tally.fates.items() if count})
    rejects = sorted(place for result in results if isinstance(result, Rejects) for place in result.places)
    decision = next((result for result in results if isinstance(result, SplitDecision)), None)
    _require_readable(ledger, rejects, commit)
    if decision is None:
        raise StageError(
            asked=commit.asked,
            found=f"of {ledger.total:,} lines {_of(ledger, 'dropped')}, and none is left",
            follows="there would be nothing to train on",
            do="look at the files and at which columns are named",
        )
    config, has_dev_file = commit.request.config, bool(commit.request.inputs["dev"])
    require_usable(decision, label=config["label"], dev_share=config["dev_share"], has_dev_file=has_dev_file)
    folders = {result.name: result for result in results if isinstance(result, FolderMade)}
    shards = [folders[name] for name in sorted(folders)]
    attempt = storage.join(commit.folder, commit.attempt)
    digest = give_names(shards, attempt)
    for name, content in (
        (labelled.CATALOGUE, _catalogue(shards, decision, commit)),
        (
            labelled.REJECTS,
            [dict(zip(("file", "offset", "fate"), place, strict=True)) for place in rejects[:MAX_REJECTS]],
        ),
    ):
        storage.write_atomic(storage.join(attempt, name), json.dumps(content, indent=1, ensure_ascii=False).encode())
    num_rows = {split: sum(made.counts["rows"] for made in shards if made.split == split) for split in ("train", "dev")}
    stage.commit(
        commit.folder,
        commit.request,
        commit.attempt,
        Outcome(
            counts={
                "train_rows": num_rows["train"],
                "dev_rows": num_rows["dev"],
                "classes": len(decision.classes),
                "shards": len(shards),
                **decision.counts,
            },
            metrics={"unit": commit.unit, "label": config["label"], "classes": list(decision.classes)},
            ledger=ledger,
            logical_digest=digest.hexdigest(),
        ),
        commit.started,
    )


def _catalogue(shards: Sequence[FolderMade], decision: SplitDecision, commit: LabelledCommit) -> dict:
    config = commit.request.config
    split = "dev file" if commit.request.inputs["dev"] else "keyed hash of components of sentences"
    return {
        "schema_version": labelled.SCHEMA_VERSION,
        "text_contract": trigrams.CONTRACT_VERSION,
        "unicode": words.UNICODE_VERSION,
        "table_rows": config["table_rows"],
        "unit": commit.unit,
        **{name: config[name] for name in ("label", "lowest", "highest", "ordered")},
        "classes": list(decision.classes),
        "split": {"by": split, "dev_share": config["dev_share"], "split_salt": config["split_salt"]},
        "shards": [{"name": made.name, "split": made.split, **made.counts} for made in shards],
    }


def _require_readable(ledger: Ledger, rejects: Sequence[tuple[str, int, str]], commit: LabelledCommit) -> None:
    if not ledger.total:
        raise StageError(
            asked=commit.asked,
            found="there is not one line in what was read",
            follows="there would be nothing to train on",
            do="give a file with at least one line below its header",
        )
    share = commit.request.config["max_unreadable_share"]
    if ledger.of_kind("unreadable") <= share * ledger.total:
        return
    places = ", ".join(f"{file}:{offset}" for file, offset, _ in rejects[:NUM_EXAMPLES])
    raise StageError(
        asked=f"at most {share:.1%} of the labelled lines may be unreadable",
        found=f"of {ledger.total:,} lines {_of(ledger, 'unreadable')}; for example at {places} (file:byte)",
        follows="what is learnt from the rest could be badly skewed, so nothing was kept",
        do="look at these lines and at which columns are named; if they may go, raise max_unreadable_share",
    )


def _of(ledger: Ledger, kind: str) -> str:
    """The fates of a kind with their lines, in words."""
    found = sorted(((n, fate) for fate, n in ledger.lines.items() if FATES[fate][0] == kind), reverse=True)
    return ", ".join(f"{n:,} have the fate '{FATES[fate][1]}'" for n, fate in found) or f"none was {kind}"
