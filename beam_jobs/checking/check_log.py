"""`check_log`: a sample of any supported log -> what it holds, what would become of it, what looks wrong.

Nothing is written anywhere, and no result holds a line, a query, a client id or a user agent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Facts
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from beam_jobs.checking import log_sample
from beam_jobs.checking.guess import (
    Fields,
    Guess,
    best_name,
    event_kind,
    guess_form,
    look_at,
    near_name,
    needs_mapping,
    plain_name,
    suggest_events,
)
from beam_jobs.checking.languages import find_languages
from beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from beam_jobs.sources.mapping import Events, Mapping
from beam_jobs.sources.read_lines import ReadingPlan
from schemas.errors import StageError
from schemas.ledger import FATES
from schemas.stage import Progress, silent

_MOSTLY = 0.5  # where more of the lines cannot be read, the log is of another form
_MAX_FIELDS = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A sample of a log, and as what it was read."""

    config: IngestConfig
    plan: ReadingPlan
    sample: log_sample.Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A check: `facts` as JSON, and `findings`, worst first."""

    facts: dict[str, Any]
    findings: tuple[LogFinding, ...]

    @property
    def can_be_ingested(self) -> bool:
        return not any(finding.level == FAILS for finding in self.findings)


def check_log(
    logs: Sequence[str],
    *,
    log_format: str | None = None,
    mapping: Mapping | None = None,
    documents: str | None = None,
    k: int = 5,
    sample_lines: int = log_sample.SAMPLE_LINES,
    progress: Progress = silent,
) -> Checked:
    """What a sample of about `sample_lines` lines says of a log. Without a format it is guessed.

    Raises UsageError: no such file, a format or mapping that cannot be, documents that are not there.
    """
    looks = look_at(logs)
    guess = guess_form(looks)
    findings = [failed(look.error) for look in looks if look.error]
    asked = _as_asked(log_format, mapping, guess)
    read = None
    if asked:
        read = _read(logs, asked, sample_lines, findings, progress)
        findings += unreadable_lines(read.sample, asked.max_unreadable_share) if read else []
    elif needs_mapping(guess.format):
        findings.append(lacks_mapping(guess))
    elif not guess.format and not findings:
        findings.append(unknown_form(guess))
    with_proposal = False
    if read is None or read.sample.unreadable_share > _MOSTLY:
        if log_format and guess.format not in ("", log_format):
            findings.append(other_format(log_format, guess))
        proposal = _proposal(guess, asked)
        again = _read(logs, proposal, sample_lines, [], progress) if proposal else None
        if again and again.sample.unreadable_share <= again.config.max_unreadable_share:
            read, with_proposal = again, True
    config = asked or (read.config if read else None)
    findings += _about_fields(config, guess) if config else []

    facts = {
        "format": read.config.format if read else guess.format or None,
        "looks_like": guess.what,
        "files": {
            "count": len(looks),
            "empty": sum(not look.size for look in looks),
            "stored_bytes": sum(look.size for look in looks),
        },
        **_about_names(guess),
    }
    is_wrong = asked is None or with_proposal or {"near_miss", "time_unit"} & {finding.code for finding in findings}
    suggested = guess.mapping if is_wrong and not mapping else None
    facts["proposed_mapping"] = mapping_toml(suggested) if suggested else None
    facts["proposed_format"] = _mapped_format(guess) if suggested else None
    facts["read_with_proposal"] = suggested is not None and with_proposal
    if read and any(batch.num_rows for batch in read.sample.batches):
        facts |= _facts_of_lines(read, documents, k, progress)
        column = _column_names(read.config.mapping, guess).get("client_id", "")
        findings += wrong_clients(facts["clients"], sum(facts["lines"].values()), column)
        findings += wrong_events(facts)
        findings += useless_result(facts)
    return Checked(facts=facts, findings=_in_order(findings))


def _as_asked(log_format: str | None, mapping: Mapping | None, guess: Guess) -> IngestConfig | None:
    """How ingest would read the log; None where neither what was given nor the guess says how."""
    if mapping:
        guessed = _mapped_format(guess) if mapping.columns.named() else guess.format
        return IngestConfig(format=log_format or guessed or "ubi", mapping=mapping)
    wanted = log_format or guess.format
    return IngestConfig(format=wanted) if wanted and not needs_mapping(wanted) else None


def _proposal(guess: Guess, asked: IngestConfig | None) -> IngestConfig | None:
    """How the log might be read where it cannot be as it was asked."""
    if guess.format and not needs_mapping(guess.format) and (asked is None or asked.format != guess.format):
        return IngestConfig(format=guess.format)
    if guess.mapping is None or (asked is not None and asked.mapping is not None):
        return None
    return IngestConfig(format=_mapped_format(guess), mapping=guess.mapping)


def _mapped_format(guess: Guess) -> str:
    """The format that a mapping is given with; UBI with other names is JSON lines."""
    return guess.format if needs_mapping(guess.format) else "jsonl"


def _read(
    logs: Sequence[str], config: IngestConfig, sample_lines: int, findings: list[LogFinding], progress: Progress
) -> Read | None:
    """A sample; None, and a finding, where there is nothing to read."""
    source = open_source(config)
    try:
        plan = source.plan(logs)
    except StageError as error:
        findings.append(failed(error))
        return None
    sample = log_sample.draw_sample(source, plan, sample_lines=sample_lines, progress=progress)
    findings += map(failed, sample.errors)
    return Read(config=config, plan=plan, sample=sample)


def _about_fields(config: IngestConfig, guess: Guess) -> Iterator[LogFinding]:
    """What is wrong with the fields for a log that is read like this."""
    mapping = config.mapping or Mapping()
    names = _column_names(mapping, guess)
    if config.format == "ubi":
        names = {"time": "timestamp", "event": "action_name"}
        if guess.format in ("ubi", "jsonl"):
            yield from wrong_in_ubi(guess.fields)
    yield from wrong_time_unit(guess.fields, names.get("time", ""), mapping.time_format)
    yield from unknown_events(guess.fields, names.get("event", ""), mapping)


def _column_names(mapping: Mapping | None, guess: Guess) -> dict[str, str]:
    """Ours -> the name, in the fields that were looked at, of the column that a mapping gives it."""
    columns = mapping.columns.named() if mapping else {}
    names = dict(enumerate(guess.header, start=1))
    return {
        ours: names.get(column, f"column {column}") if isinstance(column, int) else column
        for ours, column in columns.items()
    }


def _about_names(guess: Guess) -> dict[str, Any]:
    """The fields that more than a few lines have: name, share of the lines, what the values look like."""
    found = guess.fields
    few = min(5, max(1, found.num_lines // 2))
    shown = [path for path in found.leaves() if found.paths[path] >= few][:_MAX_FIELDS]
    fields_of_log = [
        {"name": path, "share": round(found.share(path), 4), "looks_like": found.shape(path)} for path in shown
    ]
    return {"fields": fields_of_log, "fields_from_lines": found.num_lines}


def _facts_of_lines(read: Read, documents: str | None, k: int, progress: Progress) -> dict[str, Any]:
    """What the sample holds, and what ingest and build would make of it."""
    plan, sample, rows = read.plan, read.sample, read.sample.rows()
    progress("joining, detecting bots, counting people", 0, None)
    day = log_sample.day_of_sample(rows, read.config.bots)
    titled, of_documents = log_sample.titled_clicks(documents, day.exposures, progress) if documents else (None, None)
    kept = log_sample.kept_at_k(day, titled, k)
    progress("detecting languages", 0, None)
    share_of_log = sample.stored_bytes / max(plan.stored_bytes, 1)
    pairs = next(row["pairs"] for row in kept if row["k"] == k)
    return {
        "sample": {
            "lines": sample.num_lines,
            "places": len(sample.places),
            "is_whole": sample.is_whole,
            "share_of_log": share_of_log,
        },
        "lines": log_sample.lines_of(rows),
        "simulated_lines": log_sample.count_simulated(rows),
        "ledger": log_sample.ledger_of(sample, day).to_json(),
        "joins": log_sample.joins_of(rows),
        "clients": log_sample.clients_of(rows),
        "times": log_sample.times_of(rows),
        "languages": find_languages(day.queries["query"].to_pylist()),
        "k": k,
        "kept": kept,
        "documents": of_documents,
        "estimate": log_sample.estimate_whole(sample, day, pairs, plan),
    }


def _in_order(findings: Sequence[LogFinding]) -> tuple[LogFinding, ...]:
    """The worst first; about one field only that another looks like it, if one does."""
    elsewhere = {finding.about for finding in findings if finding.code == "near_miss"}
    kept = [finding for finding in findings if finding.code == "near_miss" or finding.about not in elsewhere]
    return tuple(sorted(dict.fromkeys(kept), key=lambda finding: LEVELS.index(finding.level)))


def mapping_toml(mapping: Mapping) -> str:
    """The file that a mapping is read from; what is as it would be without it is left out."""
    usual, value = Mapping(), partial(json.dumps, ensure_ascii=False)  # such values are in TOML as they are in JSON
    settings = [name for name in ("time_format", "delimiter") if getattr(mapping, name) != getattr(usual, name)]
    lines = [f"{name} = {value(getattr(mapping, name))}" for name in settings]
    lines += [*([""] if lines else []), "[columns]"]
    lines += [f"{ours} = {value(column)}" for ours, column in mapping.columns.named().items()]
    events = [f.name for f in fields(Events) if getattr(mapping.events, f.name) != getattr(usual.events, f.name)]
    lines += ["", "[events]"] if events else []
    lines += [f"{kind} = {value(getattr(mapping.events, kind))}" for kind in events]
    return "\n".join(lines) + "\n"


# What looks wrong with a log, each with what would follow and what to do: in its fields, its lines, what is left.


FAILS, LOOK, NOTE = "fails", "look", "note"  # would stop ingest; costs something; worth knowing
LEVELS = (FAILS, LOOK, NOTE)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFinding:
    """`code` names its kind for programs; the rest are sentences. Nothing of a line is in them."""

    level: str
    code: str
    found: str
    follows: str = ""
    do: str = ""
    about: str = ""  # ours, of a finding about one field


def failed(error: StageError) -> LogFinding:
    """A file that cannot be read."""
    return LogFinding(level=FAILS, code="damaged", found=error.problem, do=error.fix)


def unknown_form(guess: Guess) -> LogFinding:
    return LogFinding(
        level=FAILS,
        code="unknown_form",
        found=f"this is {guess.what}",
        follows="no format of ingest reads it",
        do=guess.do,
    )


def lacks_mapping(guess: Guess) -> LogFinding:
    """Fields without a meaning."""
    what = "save the mapping below and check it" if guess.mapping else "write one with query and document_id"
    return LogFinding(
        level=FAILS,
        code="needs_mapping",
        found=f"this is {guess.what}, and ingest must know what its fields mean",
        do=f"{what} (docs/data.md), then use --format {guess.format} --mapping FILE",
    )


def other_format(log_format: str, guess: Guess) -> LogFinding:
    """A format that was given, and is not what the log looks like."""
    return LogFinding(
        level=FAILS,
        code="other_format",
        found=f"this looks like {guess.what}, and was to be read as {log_format}",
        follows="hardly a line of it could be read",
        do=f"use --format {guess.format}{' and a mapping' if needs_mapping(guess.format) else ''}",
    )


# Ours -> (where UBI has it, what follows where it is missing).
UBI_FIELDS = {
    "query_id": (("query_id",), "these lines cannot be read, unless they carry their query"),
    "client_id": (("client_id",), "nobody would be behind these queries, so no k of 1 or more would keep them"),
    "query": (("user_query",), "searches would have no query and could not be read"),
    "document_id": (
        ("event_attributes.object.object_id", "event_attributes.object.internal_id"),
        "clicks would be dropped for want of a document",
    ),
    "position": (
        ("event_attributes.position.ordinal", "event_attributes.position.ordinal.index"),
        "judgments from clicks could not correct for the rank; training is not affected",
    ),
    "time": (("timestamp",), "bots could not be detected by their pace, nor days separated"),
    "event": (("action_name",), "every line would be taken for a search"),
}


def wrong_in_ubi(fields: Fields) -> Iterator[LogFinding]:
    """Expected fields that are missing while another looks like them: misspelt, or within the wrong object."""
    taken = {path for paths, _ in UBI_FIELDS.values() for path in paths}
    for ours, (paths, follows) in UBI_FIELDS.items():
        count = max(fields.paths[path] for path in paths)
        of = fields.paths["action_name"] if ours in ("document_id", "position") else fields.num_lines
        enough = 1 if ours in ("query", "event") else 0.95 * of
        if not of or count >= enough:
            continue
        names = [name for name in fields.leaves() if name not in taken and fields.shape(name) != "list"]
        other = _misplaced(ours, paths[0], names)
        if other is None or fields.paths[other] < 0.02 * of:
            continue
        taken.add(other)
        yield LogFinding(
            level=LOOK,
            code="near_miss",
            about=ours,
            found=f"`{paths[0]}` is expected and is in {count / of:.1%} of the"
            f" {'lines' if of == fields.num_lines else 'events'}, while"
            f" {min(1, fields.paths[other] / of):.1%} have `{other}`",
            follows=follows,
            do=f"name it `{paths[0]}` where the log is written, or use --format jsonl with the mapping below",
        )


def _misplaced(ours: str, expected: str, names: Sequence[str]) -> str | None:
    """The field that probably holds what UBI expects elsewhere."""
    wanted = plain_name(expected.split(".")[-1])
    same = (name for name in names if plain_name(name.split(".")[-1]) == wanted)
    return next(same, None) or best_name(ours, names) or near_name(expected, names)


def wrong_time_unit(fields: Fields, path: str, time_format: str) -> Iterator[LogFinding]:
    """Numbers of another unit than the one they are read in."""
    shapes = fields.shapes.get(path, Counter())
    unit = "seconds" if time_format == "epoch_s" else "milliseconds"
    do = {
        "seconds": 'set time_format = "epoch_s" in the mapping (a UBI log: use --format jsonl with the mapping),'
        " or write milliseconds or ISO 8601",
        "milliseconds": 'set time_format = "epoch_ms" in the mapping',
        "microseconds": "write milliseconds or ISO 8601",
        "nanoseconds": "write milliseconds or ISO 8601",
    }
    for other in do:
        if other != unit and shapes[f"{other} since 1970"] > 0.1 * shapes.total():
            yield LogFinding(
                level=LOOK,
                code="time_unit",
                found=f"`{path}` holds {other} since 1970, and is read as {unit}",
                follows="times would be wrong by a factor of a thousand or more, if they can be read at all",
                do=do[other],
            )


def unknown_events(fields: Fields, path: str, mapping: Mapping) -> Iterator[LogFinding]:
    """Names of events that mean clicks or impressions, and are not read as such."""
    values = fields.texts.get(path, Counter[str]())
    known, total = mapping.events.kinds(), values.total()
    missed = {
        value: count
        for value, count in values.items()
        if value not in known and event_kind(value) in ("click", "impression") and count > 0.001 * total
    }
    if not missed:
        return
    events, kinds = suggest_events(missed), sorted({str(event_kind(value)) for value in missed})
    lines = "; ".join(f"{kind} = {json.dumps(getattr(events, kind))}" for kind in kinds)
    named = ", ".join(f"`{value}` ({count / total:.1%} of the events)" for value, count in missed.items())
    yield LogFinding(
        level=LOOK,
        code="event_names",
        found=f"{named} {'is' if len(missed) == 1 else 'are'} not read as {' or '.join(kinds)}",
        follows="these lines are dropped as other actions",
        do=f"write `[events]` and below it `{lines}` in a file, and give it as --mapping FILE",
    )


_ENOUGH = 200  # lines, for a share to say anything


def unreadable_lines(sample: log_sample.Sample, max_share: float) -> Iterator[LogFinding]:
    """Unreadable lines, with some places (file:byte, or file:row of Parquet) of the most frequent kind."""
    share = sample.unreadable_share
    if not share:
        return
    reason, count = sample.rejects.most_common(1)[0]
    found = (
        f"{share:.2%} of the lines cannot be read; most often ({count:,}) {FATES[reason][1]}, for example at"
        f" {', '.join(sample.reject_places[reason])}"
    )
    if share <= max_share:
        yield LogFinding(
            level=NOTE, code="unreadable", found=found, follows="they are left out", do="look at these lines"
        )
        return
    may_be_lost = "; if they may be lost, ingest takes --set max_unreadable_share=..." if share < 0.5 else ""
    yield LogFinding(
        level=FAILS,
        code="unreadable",
        found=found,
        follows=f"ingest fails above {max_share:.0%}, since the log is then not what it seems",
        do=f"look at these lines{may_be_lost}",
    )


def wrong_clients(clients: Facts[str, Any], lines: int, column: str) -> Iterator[LogFinding]:
    """Clients that are missing, one that is much of the log, or new ones for every search. `column` holds them."""
    if clients["lines_with"] < 0.9 * lines:
        yield LogFinding(
            level=LOOK,
            code="clients_missing",
            about="client_id",
            found=f"{1 - clients['lines_with'] / lines:.1%} of the lines have no client id",
            follows="events are given that of their search; searches without one are nobody's, and no k of 1 or"
            " more keeps a query of nobody",
            do="log one id for each browser or account, or map the column that has it; build a log that is public"
            " already with --k 0",
        )
    if clients["largest_lines"] > 0.05 * lines and lines >= _ENOUGH:
        yield LogFinding(
            level=LOOK,
            code="busy_client",
            found=f"one client has {clients['largest_lines'] / lines:.1%} of the lines",
            follows="it is a program, or many people behind one id, and counts as one person for k; if its pace is"
            " a bot's, its lines are dropped",
            do="find out which: where there is no client, leave the field out instead of writing `null` or `0`;"
            " log an id of each browser or account, not of the server or the application",
        )
    comes_once = clients["distinct"] >= _ENOUGH and clients["searches_each"] < 1.02
    if comes_once or "session" in column.lower():
        yield LogFinding(
            level=LOOK,
            code="fleeting_clients",
            found=f"hardly any client comes twice: {clients['searches_each']:.2f} searches each"
            if comes_once
            else f"`{column}` stands for the client, and is a session's by its name",
            follows="if the id is that of a session or a request, one person counts as many, and k protects less",
            do="log, or map, an id that stays with a browser or an account",
        )


def wrong_events(facts: Facts[str, Any]) -> Iterator[LogFinding]:
    """Lines without a time, without a click, or events that do not find their searches, as far as a sample can tell."""
    lines, joins, sample = facts["lines"], facts["joins"], facts["sample"]
    if not facts["times"]["first"]:
        yield LogFinding(
            level=NOTE,
            code="times_missing",
            about="time",
            found="no line has a time",
            follows="bots cannot be detected by their pace; equal lines count once",
            do="log the time of every line, or map the column that has it",
        )
    expected = 0.9 if sample["is_whole"] else 0.5 * sample["share_of_log"]
    if "click" not in lines:
        yield LogFinding(
            level=LOOK,
            code="no_clicks",
            found="there is not one click",
            follows="ingest does its work, and build fails for want of pairs",
            do="give the files with the clicks too; if clicks have another name, say so in [events] of a mapping;"
            " write a line for each click, since lists are not read",
        )
    elif joins["events"] >= 20 and joins["share"] < expected:
        yield LogFinding(
            level=LOOK,
            code="few_join",
            found=f"only {joins['share']:.1%} of the events that need their search find it",
            follows="the others are dropped",
            do="see whether searches and events have the same query_id, letter by letter, and whether files (those"
            " with the searches) are missing",
        )


def useless_result(facts: Facts[str, Any]) -> Iterator[LogFinding]:
    """Clicks on documents without a title, or no pair at this k."""
    documents, k, is_whole = facts["documents"], facts["k"], facts["sample"]["is_whole"]
    if documents and documents["clicks_titled"] < 0.95 * documents["clicks"]:
        share = documents["clicks_titled"] / documents["clicks"]
        yield LogFinding(
            level=LOOK,
            code="documents_unknown",
            found=f"only {share:.1%} of the clicks are on a document with a title",
            follows="clicks on the others give no pair to train on; build fails without any",
            do="give the documents of the time of the log, with ids written as in the log, letter by letter",
        )
    chosen = next(row for row in facts["kept"] if row["k"] == k)
    if not chosen["pairs"] and k and facts["clients"]["lines_with"]:
        yield LogFinding(
            level=LOOK,
            code="nothing_at_k",
            found=f"at k = {k} not one pair of this {'log' if is_whole else 'sample'} is kept",
            follows="nothing would be left to train on" if is_whole else "more of the log may keep some",
            do="add days, or lower k (1 is for a team that trains on its own log in private)",
        )
