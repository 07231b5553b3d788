"""Erasing people at their request from a store's private aggregates: every ingest, including older versions.

First they are listed (erased_people), so that no later ingest brings them back, whatever it reads. Then everybody on
the list is erased from every finished ingest, so the next erasure finishes one that was killed.

A day has no rows of a person, only the keyed hashes of (at most PEOPLE_CAP) people beside each query, and with
`pair_people` beside each document that was clicked for it. So an erasure removes every query that nobody else issued,
with everything shown and clicked for it, and the person's hash from the set of every other query. The sums of queries
that others issued too stay unchanged: nothing in them says which line was whose. A full set may then count one person
too few, which errs on the side of privacy. The keyed hashes of the log's lines stay too (line_samples.LineSample): they
recognise a log that is delivered again, and name no one.

It is not a Beam job but a loop over files: one bucket is in memory at a time, and buckets without the person are copied
(or linked) unchanged. If it is killed, each ingest is either unchanged or erased, and the next run finishes: the
remainder of an ingest is committed as an ingest of its own, then replaces the first (erased_people), then the date gets
its new version, and finally the first ingest's files are removed. Only one erasure runs at a time: of two, one may fail
with an error and must be repeated.
"""

import uuid
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.engine.arrow_files import write_table, writing_errors
from clicktower.beam_jobs.ingest import dated_days, erased_people, remainders
from clicktower.beam_jobs.ingest.day_rows import count_lines, logical_digest
from clicktower.beam_jobs.ingest.days import DayFile, data_date, day_files, read_day_file
from clicktower.beam_jobs.ingest.erased_list import add_to_list, ensure_list_key, read_list
from clicktower.beam_jobs.ingest.pair_people import clickers_digest
from clicktower.beam_jobs.ingest.person_key import ensure_store_key, hash_people, key_paths, read_key
from clicktower.schemas import manifest, storage
from clicktower.schemas.day_version import list_dates, newest_version
from clicktower.schemas.errors import StageError, TransientError, UsageError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Manifest, Outcome
from clicktower.schemas.removal import output_folders
from clicktower.schemas.search_log import DAY_FATES
from clicktower.schemas.shard import LogicalDigest
from clicktower.schemas.stage import Progress, StageResult, open_result, run_stage, silent, stage_folder
from clicktower.schemas.text_contract import person_ids

BEGUN = "erasing"  # in the folder of the remainder: the start of a killed erasure belongs to nobody else


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeFrom:
    """Other outputs of a store that were made from an output: shards from days, models from shards, and so on."""

    stage: str
    digest: str
    path: str
    created: str  # ISO 8601, UTC


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure:
    """What an erasure did, without naming anybody.

    `num_ids`: different people whose ids were given. `num_found`: of these, who were in an ingest until now. `dates`:
    those whose newest version changed. `keyless`: ingests whose key is gone, so that nobody can tell any more who is in
    them. `unfinished`: the remains of killed ingests. `made_before`: outputs made from days before this erasure or an
    earlier one.
    """

    num_ids: int = 0
    num_found: int = 0
    num_ingests: int = 0
    num_queries: int = 0  # removed whole
    num_sets: int = 0  # that lost a hash
    num_lines: int = 0  # of the removed queries
    dates: Mapping[str, int]
    keyless: Sequence[str]
    unfinished: Sequence[str]
    made_before: Sequence[MadeFrom]


def erase(
    client_ids: Sequence[str], *, store: str, person_key: str | None = None, progress: Progress = silent
) -> Erasure:
    """Erase people from all ingests of a store and from later ones, by their client ids as the log spells them, with
    quotes around them or without.

    `person_key`: a key file of ingests that did not use the store's own. A store without a key gets one, since later
    ingests could not know the people otherwise. Raises UsageError (no id, no ingest) and StageError (a damaged ingest,
    a key that others may read, no space).
    """
    ids = person_ids(pa.array(client_ids, pa.string())).unique()
    ids = ids.filter(pc.not_equal(ids, ""))
    if not len(ids):
        raise UsageError("There is no client id to erase.", "Give one client id per line.")
    if not remainders.finished_ingests(store):
        raise UsageError(f"There is no finished ingest in {store}.", "Check the path of the store.")
    with writing_errors(store):
        if not key_paths(store):
            ensure_store_key(store, renew=False)
        paths = [*key_paths(store), *([person_key] if person_key else []), ensure_list_key(store)]
        keys = {key.id: key.key for key in map(read_key, paths)}
        # In tab-separated text quotes are no mark: a log that has them around every field has them in its ids.
        spellings = pa.concat_arrays([ids, pc.binary_join_element_wise('"', ids, '"', "")])
        hashes = {key_id: hash_people(spellings, key) for key_id, key in keys.items()}
        add_to_list(store, hashes)

        taken, seen_ids = Counter[str](), set[int]()
        num_ingests, keyless, pending = 0, set[str](), True
        counted = dict[Hashable, str]()  # (log, settings): the key by which its lines count; others have the same lines
        before = _versions(store)
        _finish(store)
        while pending:  # again if another process erased at the same time
            pending, listed = False, read_list(store)
            for result in remainders.finished_ingests(store):
                key_id = str(result.manifest.request.inputs.get("person_key"))
                if key_id not in keys:
                    keyless.add(result.folder)
                if key_id not in listed:
                    continue
                try:
                    gone = _erase_from(store, result, listed[key_id], progress)
                except (StageError, OSError):
                    if not erased_people.successor(result.folder):
                        raise
                    gone = None
                if gone is None:
                    pending = True
                elif gone.taken["people"]:
                    num_ingests += 1
                    part = dated_days.part_of(result.manifest.request)
                    if counted.setdefault((part.logs, part.settings), key_id) == key_id:
                        taken.update(gone.taken)
                    if key_id in hashes:
                        at = np.flatnonzero(pc.is_in(hashes[key_id], value_set=gone.people))
                        seen_ids.update((at % len(ids)).tolist())
        _finish(store)
    return Erasure(
        num_ids=len(ids),
        num_found=len(seen_ids),
        num_ingests=num_ingests,
        num_queries=taken["queries"],
        num_sets=taken["sets"],
        num_lines=sum(taken[name] for name in DAY_FATES),
        dates={date: version for date, version in _versions(store).items() if version != before.get(date)},
        keyless=sorted(keyless),
        unfinished=_unfinished(store),
        made_before=derived_outputs(
            store, {_name(folder) for folder in remainders.ingest_folders(store) if erased_people.successor(folder)}
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A bucket without the people: `taken` counts the removed rows, their lines, and the sets that lost a hash;
    `digest` adds to the day's.
    """

    queries: pa.Table
    exposures: pa.Table
    clickers: pa.Table | None
    taken: Mapping[str, int]
    digest: str


def remove_people(
    queries: pa.Table, exposures: pa.Table, people: pa.Array, clickers: pa.Table | None = None
) -> Change | None:
    """A bucket without these people (hashes), or None if it contains none of them. `clickers`: search_log.CLICKERS, if
    the day has them.
    """
    sets = queries["people"].combine_chunks()
    owner = pc.list_parent_indices(sets).to_numpy(zero_copy_only=False)
    is_theirs = pc.is_in(pc.list_flatten(sets), value_set=people).to_numpy(zero_copy_only=False)
    num_before = np.bincount(owner, minlength=len(sets))
    num_theirs = np.bincount(owner[is_theirs], minlength=len(sets))
    touched = num_theirs > 0
    has_clicked = clickers is not None and pc.any(pc.is_in(clickers["person"], value_set=people)).as_py()
    if not touched.any() and not has_clicked:
        return None
    goes = touched & (num_theirs == num_before)
    left = pc.list_flatten(sets).filter(pa.array(~is_theirs))
    offsets = np.concatenate([[0], np.cumsum(num_before - num_theirs)]).astype(np.int32)
    smaller = pa.ListArray.from_arrays(pa.array(offsets), left)
    kept = queries.set_column(queries.schema.get_field_index("people"), "people", smaller).filter(pa.array(~goes))
    kept = kept.cast(queries.schema).combine_chunks()

    gone = queries.filter(pa.array(goes))
    of_gone = pc.is_in(exposures["query"], value_set=gone["query"].combine_chunks())
    lost, kept_exposures = exposures.filter(of_gone), exposures.filter(pc.invert(of_gone))
    digest = LogicalDigest()  # digests are sums over rows
    digest.merge("-" + logical_digest(queries.filter(pa.array(touched)), lost).hexdigest())
    digest.merge(logical_digest(kept.filter(pa.array(touched[~goes])), lost.slice(0, 0)).hexdigest())
    kept_clickers = None
    if clickers is not None:
        is_lost = pc.or_(
            pc.is_in(clickers["person"], value_set=people),
            pc.is_in(clickers["query"], value_set=gone["query"].combine_chunks()),
        )
        digest.merge("-" + clickers_digest(clickers.filter(is_lost)))
        kept_clickers = clickers.filter(pc.invert(is_lost)).combine_chunks()
    return Change(
        queries=kept,
        exposures=kept_exposures.combine_chunks(),
        clickers=kept_clickers,
        taken={
            "queries": int(goes.sum()),
            "sets": int((touched & ~goes).sum()),
            "exposures": lost.num_rows,
            **count_lines(gone, lost),
        },
        digest=digest.hexdigest(),
    )


def lose_missed(store: str, result: StageResult, key_path: str, progress: Progress) -> str:
    """Erase those from a finished ingest who were erased from the store while its log was read; returns the folder of
    what is left. Raises TransientError if they may be known only by other keys than the ingest's.
    """
    if not remainders.can_erase(store, key_path, result.manifest.request):
        raise TransientError(
            "People were erased from the store while the log was read, so nothing was kept.",
            "Run the same command again.",
        )
    erase_listed(store, result, progress)
    return erased_people.follow(result.folder)


def erase_listed(store: str, result: StageResult, progress: Progress) -> None:
    """Erase everybody on the list from an ingest during which people were erased."""
    people = read_list(store).get(str(result.manifest.request.inputs.get("person_key")), pa.array([], pa.uint64()))
    while _erase_from(store, open_result(erased_people.follow(result.folder)), people, progress) is None:
        pass  # another process was first
    if erased_people.successor(result.folder):
        remainders.clear(result.folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """Who was in an ingest (hashes), and what they took along (as in Change, and their number)."""

    people: pa.Array
    taken: Counter[str]


def _erase_from(store: str, result: StageResult, people: pa.Array, progress: Progress) -> Removed | None:
    """What was removed; nobody if they are not in this ingest; None if another process was first."""
    if damage := manifest.damaged_files(result.folder, result.manifest.files):
        raise StageError(
            f"{result.folder} is damaged, and people in the damaged files cannot be erased from them:"
            f" {'; '.join(damage[:3])}.",
            "Run that ingest again or remove its folder; then erase once more.",
        )
    present = _people_in(result, people, progress)
    if not len(present):
        return Removed(people=present, taken=Counter())
    before = result.manifest.request
    inputs = {
        **before.inputs,
        "erased_from": result.manifest.digest,
        "erased_people": before.inputs.get("erased_people", 0) + len(present),
        "erasure": uuid.uuid4().hex,  # two erasures at once are two requests: they must not be equal
    }
    request = replace(before, inputs=inputs)
    taken, rewritten = Counter[str](people=len(present)), set[str]()

    def produce(folder: str) -> Outcome:
        digest = _rewrite(result, people, folder, progress, taken, rewritten)
        return _outcome(result.manifest, taken, digest)

    begun = storage.join(stage_folder(store, request), BEGUN)
    storage.write_atomic(begun, b"")
    erased = run_stage(store, request, produce)
    storage.remove(begun)
    _require_copied(result.manifest, erased.manifest, rewritten)
    if not erased_people.mark_erased(result.folder, erased.manifest.digest):
        storage.remove(erased.folder)
        return None
    return Removed(people=present, taken=taken)


def _buckets(result: StageResult, progress: Progress, doing: str) -> Iterator[tuple[DayFile, ...]]:
    """The files of each bucket: queries, exposures, and clickers if the day has them."""
    of_kinds = [day_files([result], kind) for kind in ("queries", "exposures", "clickers")]
    buckets = list(zip(*filter(None, of_kinds), strict=True))
    label = data_date(result.manifest.request) or result.manifest.digest[:8]
    for number, bucket in enumerate(buckets):
        progress(f"{doing} {label}: files", number, len(buckets))
        yield bucket


def _people_in(result: StageResult, people: pa.Array, progress: Progress) -> pa.Array:
    """Those of these people who are in an ingest."""
    present = [pa.array([], pa.uint64())]
    for queries, _, *clickers in _buckets(result, progress, "looking through"):
        members = [pc.list_flatten(read_day_file(queries)["people"])]
        members += [read_day_file(file)["person"] for file in clickers]
        for people_here in members:
            present.append(people_here.filter(pc.is_in(people_here, value_set=people)).unique())
    return pa.concat_arrays(present).unique()


def _rewrite(
    result: StageResult, people: pa.Array, folder: str, progress: Progress, taken: Counter[str], rewritten: set[str]
) -> LogicalDigest:
    """Write every file of an ingest below `folder` without these people; returns the digest of all rows. It counts what
    it removes and notes the names of changed files.
    """
    digest = LogicalDigest()
    digest.merge(result.manifest.outcome.logical_digest)
    for files in _buckets(result, progress, "erasing from"):
        queries, exposures, *clickers = map(read_day_file, files)
        change = remove_people(queries, exposures, people, *clickers)
        if change is None:
            continue
        taken.update(change.taken)
        digest.merge(change.digest)
        tables = (change.queries, change.exposures, *([] if change.clickers is None else [change.clickers]))
        for file, table in zip(files, tables, strict=True):
            rewritten.add(_name(file.uri))
            write_table(table, folder, _name(file.uri).removesuffix(".arrow"))
    for path in (file.path for file in result.manifest.files if _name(file.path) not in rewritten):
        storage.copy(storage.join(result.folder, path), storage.join(folder, _name(path)))
    return digest


def _outcome(before: Manifest, taken: Counter[str], digest: LogicalDigest) -> Outcome:
    ledger = before.outcome.ledger or Ledger(total=0)
    lines = Counter(ledger.lines)
    for name, fate in DAY_FATES.items():
        lines[fate] -= taken[name]
        lines["erased"] += taken[name]
    counts = {name: count - taken[name] for name, count in before.outcome.counts.items()}
    ledger = Ledger(total=ledger.total, lines=dict(lines))
    return replace(before.outcome, counts=counts, ledger=ledger, logical_digest=digest.hexdigest())


def _versions(store: str) -> dict[str, int]:
    newest = {date: newest_version(store, date) for date in list_dates(store)}
    return {date: version.version for date, version in newest.items() if version}


def _finish(store: str) -> None:
    """Finish what this or an earlier erasure began."""
    for date in list_dates(store):
        dated_days.replace_erased(store, date)
    for folder in remainders.ingest_folders(store):
        if erased_people.successor(folder):
            remainders.clear(folder)
        elif manifest.is_finished(folder):
            inputs = manifest.read(folder).request.inputs
            before = storage.join(store, "ingest", str(inputs.get("erased_from")))
            by = erased_people.successor(before)
            if by and by != _name(folder):
                storage.remove(folder)  # that of a beaten attempt
            elif erased_people.is_committing(folder):
                erased_people.take_place(open_result(folder))  # people are looked for in what counts alone
        elif any(name.startswith(BEGUN) for name in storage.list_names(folder)):
            storage.remove(folder)


def _require_copied(before: Manifest, after: Manifest, rewritten: set[str]) -> None:
    """Raises StageError if a copied file has other bytes than those recorded."""
    written, copied = ({_name(file.path): file.sha256 for file in part.files} for part in (before, after))
    wrong = [name for name in written if name not in rewritten and copied.get(name) != written[name]]
    if wrong:
        raise StageError(
            f"The rest of an ingest cannot take its place: {', '.join(sorted(wrong)[:3])} is not as it was written."
            " Nothing was changed.",
            "Check the disk with `clicktower verify`, then erase once more.",
        )


def _unfinished(store: str) -> list[str]:
    folders = list[str]()
    for folder in remainders.ingest_folders(store):
        attempt = manifest.read(folder).attempt if manifest.is_finished(folder) else ""
        folders += [storage.join(folder, name) for name in storage.list_folders(folder) if name != attempt]
        folders += [folder] if attempt and erased_people.is_committing(folder) else []
    return folders


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def derived_outputs(store: str, digests: Collection[str]) -> list[MadeFrom]:
    """The finished outputs, except ingests, whose requests name one of these digests or of an output found so."""
    waiting = {
        folder: manifest.read(folder)
        for stage, _, folder in output_folders(store)
        if stage != "ingest" and manifest.is_finished(folder)
    }
    digests_so_far, outputs = set(digests), list[MadeFrom]()
    while now := {
        folder: record
        for folder, record in waiting.items()
        if not digests_so_far.isdisjoint(record.request.named_digests())
    }:
        for folder, record in now.items():
            del waiting[folder]
            digests_so_far.add(record.digest)
            stage = record.request.stage
            outputs.append(MadeFrom(stage=stage, digest=record.digest, path=folder, created=record.created))
    return outputs
