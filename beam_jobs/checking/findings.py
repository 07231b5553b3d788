"""Problems with a log's fields, lines and kept rows, each with a remedy."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clicktower.beam_jobs.build.nothing_left import no_pairs
from clicktower.beam_jobs.checking.fields import Fields, best_name, event_kind, suggest_events
from clicktower.beam_jobs.checking.log_sample import Sample
from clicktower.beam_jobs.ingest.unreadable_log import REMEDIES
from clicktower.beam_jobs.sources.field_names import plain_name
from clicktower.beam_jobs.sources.mapping import Mapping as LogMapping
from clicktower.beam_jobs.sources.source import FORMS
from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import FATES, Ledger

FAILS, LOOK, NOTE = "fails", "look", "note"  # would stop ingest; costs something; worth knowing
LEVELS = (FAILS, LOOK, NOTE)
_ENOUGH = 200  # lines, for a meaningful share


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFinding:
    """`code` names its kind for programs; `problem` and `fix` are sentences. They quote nothing from a line."""

    level: str
    code: str
    problem: str
    fix: str
    about: str = ""  # our column, for a finding about one field


def order_findings(findings: Sequence[LogFinding]) -> tuple[LogFinding, ...]:
    """The findings, worst first; where a field seems to have another name, other findings about it are dropped."""
    elsewhere = {finding.about for finding in findings if finding.code == "near_miss"}
    kept = [finding for finding in findings if finding.code == "near_miss" or finding.about not in elsewhere]
    return tuple(sorted(dict.fromkeys(kept), key=lambda finding: LEVELS.index(finding.level)))


def damaged(error: StageError) -> LogFinding:
    """A file is unreadable."""
    return LogFinding(level=FAILS, code="damaged", problem=error.problem, fix=error.fix)


def unknown_form() -> LogFinding:
    return LogFinding(
        level=FAILS,
        code="unknown_form",
        problem="The first lines do not tell the format of this log: they are no JSON, and name no columns.",
        fix=f"Give --format, one of {', '.join(FORMS)}, and a mapping if it needs that (docs/data.md).",
    )


def lacks_mapping(fields: Fields, has_proposal: bool) -> LogFinding:
    """The fields have no known meaning."""
    step = "Save the mapping below and check it" if has_proposal else "Write a mapping with query and document_id"
    return LogFinding(
        level=FAILS,
        code="needs_mapping",
        problem=f"This is {fields.description}, and ingest must know what its fields mean.",
        fix=f"{step} (docs/data.md), then use --format {fields.format} --mapping FILE.",
    )


# Our column -> (where UBI has it, the consequence of its absence).
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
    """Expected fields are missing while others have similar names or are inside the wrong object."""
    taken = {path for paths, _ in UBI_FIELDS.values() for path in paths}
    for ours, (paths, follows) in UBI_FIELDS.items():
        count = max(fields.paths[path] for path in paths)
        num_lines = fields.paths["action_name"] if ours in ("document_id", "position") else fields.num_lines
        enough = 1 if ours in ("query", "event") else 0.95 * num_lines
        if not num_lines or count >= enough:
            continue
        names = [name for name in fields.leaves() if name not in taken and fields.shape(name) != "list"]
        last_key = plain_name(paths[0].split(".")[-1])
        same = (name for name in names if plain_name(name.split(".")[-1]) == last_key)
        candidate = next(same, None) or best_name(ours, names)
        if candidate is None or fields.paths[candidate] < 0.02 * num_lines:
            continue
        taken.add(candidate)
        are_all = num_lines == fields.num_lines
        lines = f"first {num_lines:,} lines" if are_all else f"{num_lines:,} events among the first lines"
        yield LogFinding(
            level=LOOK,
            code="near_miss",
            about=ours,
            problem=f"`{paths[0]}` is expected and is in {count / num_lines:.1%} of the {lines}, while"
            f" {min(1, fields.paths[candidate] / num_lines):.1%} have `{candidate}`: {follows}.",
            fix=f"Name it `{paths[0]}` where the log is written, or use --format jsonl with the mapping below.",
        )


def wrong_time_unit(fields: Fields, path: str, time_format: str) -> Iterator[LogFinding]:
    """Numeric times have another unit than the one that the mapping says; iso tells units apart by itself."""
    shapes = fields.shapes.get(path, Counter())
    names = {"seconds": "epoch_s", "milliseconds": "epoch_ms", "microseconds": "epoch_us", "nanoseconds": "epoch_ns"}
    for unit, name in names.items():
        count = shapes[f"{unit} since 1970"]
        if time_format not in ("iso", name) and count > 0.1 * shapes.total():
            yield LogFinding(
                level=LOOK,
                code="time_unit",
                problem=f"`{fields.name_of(path)}` holds {unit} since 1970, and time_format is {time_format}: these"
                " lines cannot be read.",
                fix=f'Set time_format = "{name}" in the mapping.',
            )


def unknown_events(fields: Fields, path: str, mapping: LogMapping) -> Iterator[LogFinding]:
    """Names of events that mean clicks or impressions are not read as such."""
    values = fields.texts.get(path, Counter[str]())
    kind_of_value, total = mapping.events.kinds(), values.total()
    missed = {
        value: count
        for value, count in values.items()
        if value not in kind_of_value and event_kind(value) in ("click", "impression") and count > 0.001 * total
    }
    if not missed:
        return
    events, kinds = suggest_events(missed), sorted({str(event_kind(value)) for value in missed})
    lines = "; ".join(f"{kind} = {json.dumps(getattr(events, kind))}" for kind in kinds)
    named = ", ".join(f"`{value}` ({count:,} of the first {total:,} events)" for value, count in missed.items())
    yield LogFinding(
        level=LOOK,
        code="event_names",
        problem=f"No {' or '.join(kinds)} is read from {named}: these lines are dropped as other actions.",
        fix=f"Write `[events]` and below it `{lines}` in a file, and give it as --mapping FILE.",
    )


def unreadable_lines(sample: Sample, max_share: float) -> Iterator[LogFinding]:
    """Unreadable lines, with some places (file:byte, or file:row of Parquet) for the most frequent reason."""
    share = sample.unreadable_share
    if not share:
        return
    reason, count = sample.rejects.most_common(1)[0]
    fails = share > max_share
    ingest = f"fails above {max_share:.0%}" if fails else "leaves them out"
    look = REMEDIES.get(reason, "Look at these lines{}.")
    may_be_lost = "; if they may be lost, ingest takes --set max_unreadable_share=..." if fails and share < 0.5 else ""
    yield LogFinding(
        level=FAILS if fails else NOTE,
        code="unreadable",
        problem=f"{sample.rejects.total():,} of {sample.num_lines:,} lines ({share:.2%}) cannot be read, and ingest"
        f" {ingest}; most often ({count:,}) {FATES[reason][1]}, for example at"
        f" {', '.join(sample.reject_places[reason])}.",
        fix=look.format(may_be_lost),
    )


def wrong_clients(clients: Mapping[str, Any], lines: int, column: str) -> Iterator[LogFinding]:
    """Clients that are missing, one client with a large part of the log, or a new one for every search. `column` is the
    client column.
    """
    without = lines - clients["lines_with"]
    if without > 0.1 * lines:
        yield LogFinding(
            level=LOOK,
            code="clients_missing",
            about="client_id",
            problem=f"{without:,} of {lines:,} searches and events ({without / lines:.1%}) have no client id. Events"
            " take that of their search; no k of 1 or more keeps a query of nobody.",
            fix="Log an id for each browser or account, or map the column that has it; build a log that is public"
            " already with --k 0.",
        )
    if clients["largest_lines"] > 0.05 * lines and lines >= _ENOUGH:
        yield LogFinding(
            level=LOOK,
            code="busy_client",
            problem=f"A single client has {clients['largest_lines']:,} of {lines:,} searches and events"
            f" ({clients['largest_lines'] / lines:.1%}): a program, or many people behind one id, that counts as one"
            " person for k; at the pace of a bot its lines are dropped.",
            fix="Where there is no client, leave the field out instead of writing `null` or `0`; log an id of each"
            " browser or account, not of the server or the application.",
        )
    comes_once = clients["distinct"] >= _ENOUGH and clients["searches_each"] < 1.02
    if comes_once or "session" in column.lower():
        yield LogFinding(
            level=LOOK,
            code="fleeting_clients",
            problem=(
                f"Of {clients['distinct']:,} clients hardly any comes twice ({clients['searches_each']:.2f} searches"
                " each)."
                if comes_once
                else f"`{column}` stands for the client, and is a session's by its name."
            )
            + " One person may count as many, and k protects less.",
            fix="Log, or map, an id that stays with a browser or an account.",
        )


def wrong_events(facts: Mapping[str, Any]) -> Iterator[LogFinding]:
    """Lines without a time, without clicks, or events whose searches are missing, as far as a sample can tell."""
    joins, sample = facts["joins"], facts["sample"]
    if not facts["times"]["first"]:
        yield LogFinding(
            level=NOTE,
            code="times_missing",
            about="time",
            problem="No line has a time: bots cannot be detected by their pace, and equal lines count once.",
            fix="Log the time of every line, or map the column that has it.",
        )
    if "click" not in facts["lines"]:
        yield LogFinding(
            level=LOOK,
            code="no_clicks",
            problem="There is not a single click, so build fails for want of pairs.",
            fix="Give the files with the clicks too; if clicks have another name, write it in [events] of a mapping;"
            " write a line for each click, since lists are not read.",
        )
    elif joins["events"] >= 20 and joins["share"] < (0.9 if sample["is_whole"] else 0.5 * sample["share_of_log"]):
        yield LogFinding(
            level=LOOK,
            code="few_join",
            problem=f"Of {joins['total']:,} impressions and clicks {joins['events']:,} carry no query and need their"
            f" search; only {joins['joined']:,} of these ({joins['share']:.1%}) find it, and the others are dropped.",
            fix="Check that searches and events have the same query_id, letter by letter, and that no file with"
            " searches is missing.",
        )


def useless_result(facts: Mapping[str, Any]) -> Iterator[LogFinding]:
    """Clicks on documents without a title, or no pairs at this k."""
    documents, k, is_whole = facts["documents"], facts["k"], facts["sample"]["is_whole"]
    if documents and documents["clicks_titled"] < 0.95 * documents["clicks"]:
        titled, clicks = documents["clicks_titled"], documents["clicks"]
        yield LogFinding(
            level=LOOK,
            code="documents_unknown",
            problem=f"Only {titled:,} of {clicks:,} clicks ({titled / clicks:.1%}) are on a document with a title; the"
            " others give no pair.",
            fix="Give the documents of the time of the log, with ids written as in the log, letter by letter.",
        )
    pairs = {row["k"]: row["pairs"] for row in facts["kept"]}
    ledger = Ledger(**facts["ledger"])
    if "click" in facts["lines"] and not ledger.lines.get("day_click") and is_whole:
        error = no_pairs(ledger)
        yield LogFinding(level=LOOK, code="no_pairs", problem=error.problem, fix=error.fix)
    elif k and not pairs[k] and pairs[1]:
        remark = "" if is_whole else ", of which more may keep some"
        yield LogFinding(
            level=LOOK,
            code="nothing_at_k",
            problem=f"At k = {k} no pair of this {'log' if is_whole else 'sample'}{remark} is kept.",
            fix="Add days, or lower k (1 is for a team that trains on its own log in private).",
        )


def odd_values(facts: Mapping[str, Any]) -> Iterator[LogFinding]:
    """Query ids with several searches, values of wrong kinds, days without hours."""
    if shared := facts["shared_query_ids"]:
        ambiguous = facts["ledger"]["lines"].get("search_ambiguous", 0)
        yield LogFinding(
            level=LOOK,
            code="shared_query_ids",
            about="query_id",
            problem=f"Query ids that stand for several searches: {shared:,}. An event joins the last one of its client"
            f" before it; events that may belong to more than one are dropped: {ambiguous:,}.",
            fix="Log an id that no other search has, such as a UUID; counters begin anew with each session.",
        )
    if wrong := facts["wrong_values"]:
        listed = ", ".join(f"{kind} ({count:,})" for kind, count in wrong.items())
        yield LogFinding(
            level=NOTE,
            code="wrong_values",
            problem=f"Some values are of a kind that their column cannot hold: {listed}. A position, a dwell, a user"
            " agent or an application becomes null; with another column the line cannot be read.",
            fix="Write them as docs/data.md says; a text that stands for no value goes into `null` of a mapping.",
        )
    if facts["times"]["first"] and not facts["has_hours"]:
        yield LogFinding(
            level=NOTE,
            code="days_without_hours",
            about="time",
            problem="All times are midnight: days without hours. Bots are not detected by their pace per hour, and of"
            " several searches under one query id an event may not find its own.",
            fix="Log the time of every line, not its date alone.",
        )
