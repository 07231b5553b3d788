"""The stage ingest: a search log -> the private daily aggregate. ingest_job is its Beam pipeline."""

import datetime
from collections.abc import Sequence
from dataclasses import field, replace
from pkgutil import resolve_name
from typing import Annotated, Any

from pydantic import Field

from clicktower.beam_jobs.engine.arrow_files import writing_errors
from clicktower.beam_jobs.engine.beam_stage import run_beam_stage
from clicktower.beam_jobs.ingest import days, erased_people
from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.beam_jobs.ingest.days import parse_date
from clicktower.beam_jobs.ingest.person_key import MAX_OVERLAP_DAYS, ensure_key, ensure_store_key, valid_keys
from clicktower.beam_jobs.sources.log_files import find_files
from clicktower.beam_jobs.sources.mapping import Mapping
from clicktower.beam_jobs.sources.source import Source, form_of
from clicktower.schemas import storage
from clicktower.schemas.content_filters import BOT_USER_AGENTS, shipped_list
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import Request
from clicktower.schemas.section import Part, Unnamed, Uri, section
from clicktower.schemas.stage import (
    Progress,
    Stage,
    StageResult,
    WouldRun,
    is_planning,
    open_result,
    silent,
    stage_folder,
)

INGEST = Stage("ingest", version=3)
_REMAINDERS = "clicktower.beam_jobs.ingest.remainders"  # loaded where anybody was erased


@section
class IngestConfig:
    """How a log is read.

    Raises UsageError for a value out of range.

    Args:
        format: The format of the log; docs/data.md lists them.
        mapping: What the columns mean, if the format does not say; for ubi, what the actions mean.
        max_unreadable_share: The share of unreadable lines above which the run fails: the log probably has another
            format.
        bots: The rules that tell bots from people.
        person_key: A key file to use instead of the store's own.
        renew_key: If the store's key has expired, create a new one and begin a new window.
        key_overlap: The days of the longest window: keys renew themselves, overlap by so many days, and go with what is
            hashed under them when they have expired (docs/data.md).
        date: The date of the log (ISO 8601), or none.
        replace_day: These files alone make up the date from now on.
        pair_people: The day also holds who clicked what, as keyed hashes, for `build`'s `pair_k`.
    """

    format: str = "ubi"
    mapping: Mapping | None = None
    max_unreadable_share: Part = 0.05
    bots: BotRules = field(default_factory=BotRules)
    person_key: Annotated[Uri | None, Unnamed()] = None
    renew_key: Annotated[bool, Unnamed()] = False
    key_overlap: Annotated[int, Field(ge=0, le=MAX_OVERLAP_DAYS), Unnamed()] = 0
    date: str | None = None
    replace_day: Annotated[bool, Unnamed()] = False  # the parts of a day do not depend on it
    pair_people: Annotated[bool, Unnamed(at=False)] = False

    def __post_init__(self) -> None:
        form = form_of(self.format)
        if self.mapping or form.mapping == "columns":
            resolve_name("clicktower.beam_jobs.sources.field_names:check_mapping")(form, self.mapping)
        if self.date is not None:
            parse_date(self.date)
        elif self.replace_day:
            raise UsageError("--replace-day needs a date.", "Give the day with --date, or leave --replace-day out.")
        if self.person_key and self.key_overlap:
            raise UsageError(
                "Keys of the store's own renew themselves, and person_key names another.", "Leave key_overlap out."
            )


def open_source(config: IngestConfig) -> Source:
    """The source of a config's format; it opens nothing yet."""
    return form_of(config.format).source(config.mapping or Mapping())


def ingest_request(fingerprints: Sequence[str], key_id: str, config: IngestConfig) -> Request:
    """The request for files, identified by content and not by name, and for the key with this id."""
    inputs = {"logs": fingerprints, "bot_user_agents": shipped_list(BOT_USER_AGENTS).digest, "person_key": key_id}
    return INGEST.request(config, inputs)


def ingest_log(
    logs: Sequence[str],
    *,
    store: str,
    config: IngestConfig,
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
    today: datetime.date | None = None,
) -> StageResult:
    """The daily aggregate of a log, reused if it exists: STORE/ingest/DIGEST.

    `logs` are paths, patterns or folders. While keys overlap there is an aggregate under each of them, and this is that
    under the oldest. `today`: by default from the clock. Raises UsageError or StageError: no files, files that cannot
    be read completely or that change meanwhile, too many unreadable lines, an expired person key, a store that is not
    writable; and for a date that was ingested before: files with some lines that the day already has, or another person
    key (see dated_days).
    """
    files = find_files(logs).paths
    # Taken before the files are read, so that any later write is noticed.
    states = dict(zip(files, storage.map_files(storage.state, files), strict=True))
    plan = open_source(config).plan(logs)
    with writing_errors(store):
        if config.person_key:
            keys = [(config.person_key, ensure_key(config.person_key, create=False, today=today))]
        else:
            if config.key_overlap and not is_planning():
                from clicktower.beam_jobs.ingest.expired_keys import remove_expired_keys

                remove_expired_keys(store, today, progress)
            newest = ensure_store_key(store, renew=config.renew_key, overlap=config.key_overlap, today=today)
            keys = valid_keys(store, today)
            if newest not in keys:  # a stand-in for a key that a run would make
                keys.insert(0, newest)
        fingerprints = plan.fingerprints()
        requests = {path: ingest_request(fingerprints, key.id, config) for path, key in keys}
        # Late files alone make no date under a key that has nothing of it.
        paths = [
            path
            for path, request in requests.items()
            if not (dates := days.of_date(request)) or dates.is_covered(store, request, replace_day=config.replace_day)
        ] or keys[0][:1]
        if is_planning() and not storage.exists(paths[0]):
            raise WouldRun(requests[paths[0]], [])
        fields = {
            "config": config,
            "plan": plan,
            "key_ids": tuple(key.id for _, key in keys),
            "states": {file: states.get(file, "not there yet") for file in plan.files},
        }
        # The newest key first: if this is cut off, tonight's window, which has the oldest, lacks the day and says so.
        results = [_ingest_under(path, requests[path], fields, store, config, beam_options, progress) for path in paths]
    return replace(
        results[-1],
        reused=all(result.reused for result in results),
        repaired=tuple(wrong for result in results for wrong in result.repaired),
    )


def _ingest_under(
    key_path: str,
    request: Request,
    fields: dict[str, Any],
    store: str,
    config: IngestConfig,
    beam_options: Sequence[str],
    progress: Progress,
) -> StageResult:
    """The aggregate of a log under one key. `fields`: those of the job that no key and no erasure changes."""
    erased = erased_people.open_list(store, key_path)
    whole = stage_folder(store, request)
    is_erased_from = erased_people.follow(whole) != whole
    dates = days.of_date(request)
    if dates and not is_erased_from and (held := dates.find_held(store, request, replace_day=config.replace_day)):
        return open_result(held)
    wrong: list[str] = []
    key_id, key_ids = request.inputs["person_key"], fields["key_ids"]
    if is_erased_from or erased.digest:
        begin_remainder = resolve_name(f"{_REMAINDERS}:begin_remainder")
        finished, request, wrong = begin_remainder(store, request, erased.digest, key_path, progress)
        if finished:
            return _complete(store, finished, key_path, key_ids, config, progress)
    try:
        result = run_beam_stage(
            store,
            request,
            "clicktower.beam_jobs.ingest.ingest_job:IngestJob",
            {**fields, "key_path": key_path, "key_id": key_id, "erased": erased},
            input_bytes=fields["plan"].estimated_bytes,
            beam_options=beam_options,
            progress=progress,
        )
    except StageError:
        if not erased_people.successor(stage_folder(store, request)):
            raise
        result = open_result(erased_people.follow(whole))  # an erasure was faster than the end of the stage
    result = _complete(store, result, key_path, key_ids, config, progress)
    return replace(result, repaired=tuple(wrong)) if wrong else result


def _complete(
    store: str, result: StageResult, key_path: str, key_ids: Sequence[str], config: IngestConfig, progress: Progress
) -> StageResult:
    """A finished ingest as a part of its date, or the one that counts instead. The last step of its job has done so,
    unless the date existed, the job was cut off there, or people were erased while it ran: then it loses them here.

    Raises TransientError if these people may be known only by other keys than the ingest's.
    """
    if is_planning():
        return result
    counting = erased_people.take_place(result)
    if counting == result.folder and erased_people.has_missed_people(store, result, key_path):
        counting = resolve_name("clicktower.beam_jobs.ingest.erase:lose_missed")(store, result, key_path, progress)
    erased_people.end_commit(result.folder)
    if counting != result.folder:
        if not erased_people.successor(result.folder):
            storage.remove(result.folder)  # another process made the same with another list, and was first
        return _complete(store, open_result(counting), key_path, key_ids, config, progress)
    if "erased_from" in result.manifest.request.inputs:
        resolve_name(f"{_REMAINDERS}:clear_behind")(result)
    if dates := days.of_date(result.manifest.request):
        dates.register(store, result.manifest.request, replace_day=config.replace_day, keys=key_ids)
    return result
