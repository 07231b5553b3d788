"""What a store keeps, and the removal of the rest: days past their retention, old models with what hangs on them, and
half-made outputs of dead processes.

    prune("store", KeepRules(days=90, models=5), releases=["release"])

What stays:
- the days of the last `days` days, and those that the caller names (the window of a pipeline). Shards keep no day:
  nothing reads a day again once they are made, and a day holds hashes of people;
- the models of all releases, live, previous, kept or candidate, and the newest `models`; the shards, teachers and
  models that they were made from, and the model that each started from; their evaluations for `days` days;
- what a person makes and no night does (a sweep, an ensemble, an imported encoder, judgments), with what it was made
  from;
- what is younger than a day, since a run may be about to read it;
- what a running stage reads (schemas.stage), and what was made from that.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from clicktower.beam_jobs.ingest.expired_keys import ingests_of_dates, remove_days
from clicktower.flows.config.guard_rules import KeepRules
from clicktower.schemas import manifest as manifests
from clicktower.schemas import storage
from clicktower.schemas.day_version import list_dates
from clicktower.schemas.errors import StageError, UnknownVersionError, UsageError
from clicktower.schemas.manifest import Manifest
from clicktower.schemas.release import ENCODING, RELEASE, read_folder, release_folder
from clicktower.schemas.removal import (
    Claims,
    is_bare,
    is_hidden,
    output_folders,
    remains,
    remove_outputs,
    remove_remains,
)

DAY = "ingest"
MEASURED = ("compare", "measure", "evaluate")  # of models; nothing is made from them
NIGHTLY = (*MEASURED, "train", "build")  # in the order of their removal: nothing is removed before what names it
YOUNG = timedelta(days=1)
START = "start"  # the input of a training that starts from another: read when it begins, and by a repeated run


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """An output that goes, or the remains of attempts at it. `date`: of a day."""

    stage: str
    digest: str
    path: str
    reason: str
    num_bytes: int
    date: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruning:
    """What went, or with `dry_run` would go. `kept_bytes`: of what stays, by folder of the store. `waits`: why some of
    it stays until the next time.
    """

    store: str
    dry_run: bool
    removed: Sequence[Removed]
    kept_bytes: Mapping[str, int]
    waits: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        removed_bytes = sum(gone.num_bytes for gone in self.removed)
        return {"stage": "prune", "path": self.store, **asdict(self), "removed_bytes": removed_bytes}


def prune(
    store: str,
    rules: KeepRules,
    *,
    releases: Sequence[str] = (),
    needed: Collection[str] = (),
    dates: Collection[str] = (),
    dry_run: bool = False,
    now: datetime | None = None,
) -> Pruning:
    """Remove what a store need not keep. It can run beside stages, and be killed and repeated at any time.

    `releases`: URIs whose models stay. `needed`: digests of outputs that stay; `dates`: days that stay. Raises
    UsageError for a folder that is no store and a URI without a release, StageError for a release that cannot be read.
    """
    if {DAY, *NIGHTLY}.isdisjoint(storage.list_folders(store)):
        raise UsageError(f"There is no output of a stage in {store}.", "Check the path of the store.")
    now = now or datetime.now(UTC)
    limit = (now - timedelta(days=rules.days)).date().isoformat()

    def look() -> Claims:
        encoding_folders = [storage.join(uri, ENCODING) for uri in releases]
        encodings = [storage.join(folder, name) for folder in encoding_folders for name in storage.list_folders(folder)]
        return Claims([*(folder for *_, folder in output_folders(store)), *encodings])

    claims, sizes, waits = look(), _sizes(store), list[str]()
    outputs = {
        digest: record
        for stage, digest, folder in output_folders(store)
        if stage != DAY and (record := _manifest(folder))
    }
    ingests = list(ingests_of_dates(store))
    if claims.read_all:
        waits.append("a process of an earlier version is at work: all outputs stay until the next time")
    elif any(folder.rsplit("/", 2)[1] == DAY for folder in claims.folders):
        waits.append("a log is being ingested: days stay until the next time")
    old_dates = set[str]()
    if not waits:
        read = {date for date, digest, _ in ingests if digest in needed or claims.are_reading(digest)}
        old_dates = {date for date in (*list_dates(store), *(date for date, *_ in ingests)) if date < limit}
        old_dates -= {*dates, *read}
    roots = {*needed, *(digest for uri in releases for digest in _digests_of_releases(uri))}
    kept = _kept(outputs, rules, roots, claims, young=(now - YOUNG).isoformat(), limit=limit)
    going = [] if claims.read_all else [record for digest, record in outputs.items() if digest not in kept]
    going.sort(key=lambda record: (NIGHTLY.index(record.request.stage), record.created, record.digest))

    days = [
        _removed(store, DAY, digest, f"before {limit}", sizes[f"{DAY}/{digest}"], date)
        for date, digest, _ in ingests
        if date in old_dates
    ]
    stage_outputs = [
        _removed(store, stage, record.digest, _reason(record, rules), sizes[f"{stage}/{record.digest}"])
        for record in going
        if (stage := record.request.stage)
    ]
    attempts = _attempts(store, {*claims.folders, *(gone.path for gone in (*days, *stage_outputs))})
    if not dry_run:
        went = set() if waits else {*remove_days(store, old_dates, look)}
        hidden = [folder for stage, _, folder in output_folders(store) if stage != DAY and is_hidden(folder)]
        went |= {*remove_outputs([*(gone.path for gone in stage_outputs), *hidden], look)}
        days, stage_outputs = ([gone for gone in part if gone.path in went] for part in (days, stage_outputs))
        half_made = {gone.path for gone in attempts}
        for *_, folder in output_folders(store):
            if folder in half_made or is_bare(folder):
                remove_remains(folder)
        sizes = _sizes(store)
    removed = [*days, *stage_outputs, *attempts]
    kept_bytes = Counter[str]()
    for name, num_bytes in sizes.items():
        kept_bytes[name.partition("/")[0]] += num_bytes
    for gone in removed if dry_run else ():
        kept_bytes[gone.stage] -= gone.num_bytes
    return Pruning(store=store, dry_run=dry_run, removed=removed, kept_bytes=dict(kept_bytes), waits=waits)


def _removed(store: str, stage: str, digest: str, reason: str, num_bytes: int, date: str = "") -> Removed:
    path = storage.join(store, stage, digest)
    return Removed(stage=stage, digest=digest, path=path, reason=reason, num_bytes=num_bytes, date=date)


def _attempts(store: str, claimed: Collection[str]) -> list[Removed]:
    """What is left of attempts that came to nothing, except in the folders `claimed`."""
    left = []
    for stage, digest, folder in output_folders(store):
        if folder not in claimed and (paths := remains(folder)):
            num_bytes = sum(sum(storage.list_sizes(path).values()) or storage.size_bytes(path) or 0 for path in paths)
            left.append(_removed(store, stage, digest, "attempts that came to nothing", num_bytes))
    return left


def _kept(
    outputs: Mapping[str, Manifest], rules: KeepRules, roots: Collection[str], claims: Claims, *, young: str, limit: str
) -> set[str]:
    """The digests of the outputs, besides days, that stay. `young`, `limit`: when those were made at the latest that
    stay in any case, and evaluations of models that stay.
    """
    models = [record for record in outputs.values() if record.request.stage == "train"]
    models.sort(key=lambda record: (record.created, record.digest), reverse=True)
    first = {*roots, *claims.reads, *(model.digest for model in models[: rules.models])}
    for digest, record in outputs.items():
        is_read = not claims.reads.isdisjoint(record.request.named_digests())
        if is_read or record.created >= young or record.request.stage not in NIGHTLY:
            first.add(digest)
    kept, new = set[str](), first & outputs.keys()
    while new:
        kept |= new
        named = {name for digest in new for name in outputs[digest].request.named_digests(without=(START,))}
        new = (named & outputs.keys()) - kept
    starts = {str(outputs[digest].request.inputs.get(START)) for digest in kept}
    kept |= starts & outputs.keys()
    for digest, record in outputs.items():
        made_from = record.request.named_digests() & outputs.keys()
        if record.request.stage in MEASURED and record.created >= limit and made_from <= kept:
            kept.add(digest)
    return kept


def _digests_of_releases(uri: str) -> set[str]:
    """The models and evaluations of all releases that are kept at a URI. Raises UsageError where nothing is published,
    StageError for a release that cannot be read.
    """
    folders = [release_folder(uri, name) for name in storage.list_folders(storage.join(uri, "releases"))]
    finished = [folder for folder in folders if storage.exists(storage.join(folder, RELEASE))]
    if not finished:
        raise UsageError(f"Nothing is published at {uri}.", "Check the URI: the models of its releases are to stay.")
    return {str(digest) for folder in finished for digest in read_folder(folder).inputs.values()}


def _manifest(folder: str) -> Manifest | None:
    """The manifest of a finished output. None for an unfinished or damaged one, which its stage makes again."""
    try:
        return manifests.read(folder)
    except UnknownVersionError:
        raise
    except StageError:
        return None


def _sizes(store: str) -> Counter[str]:
    """Bytes by STAGE/DIGEST, and by the name of any other folder."""
    sizes = Counter[str]()
    for path, num_bytes in storage.list_sizes(store).items():
        stage, _, path_inside = path.partition("/")
        digest = path_inside.partition("/")[0]
        sizes[f"{stage}/{digest}" if manifests.DIGEST.fullmatch(digest) else stage] += num_bytes
    return sizes


def _reason(record: Manifest, rules: KeepRules) -> str:
    if record.request.stage == "train":
        return f"not one of the newest {rules.models:,}, and of no release"
    return "no model that stays was made from it" if record.request.stage == "build" else "its model goes, or it is old"
