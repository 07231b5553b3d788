"""What looks wrong with the fields and the form of a log."""

from collections import Counter
from collections.abc import Mapping as Table
from collections.abc import Sequence

from beam_jobs.checking.findings import FAILS, LOOK, NOTE, LogFinding, percent
from beam_jobs.checking.guess import UBI_PATHS, Guess, expected_in_ubi, misplaced, needs_mapping, suggest_events
from beam_jobs.checking.log_fields import Fields, best_name, event_kind, is_showable
from beam_jobs.sources.mapping import Mapping, nearest

_MISSING = 0.95  # a field that fewer lines than this have, of those that must, is looked for elsewhere
_FOLLOWS = {
    "query_id": "these lines cannot be read, unless they carry their query: events would not join to searches",
    "client_id": "nobody would be behind these queries, so no k of 1 or more would keep them",
    "query": "searches would have no query and could not be read",
    "document_id": "clicks would be dropped for want of a document",
    "position": "judgments from clicks could not correct for the rank; training is not affected",
    "time": "bots could not be detected by their pace, nor days separated",
    "event": "every line would be taken for a search",
}


def ubi_version(fields: Fields) -> str:
    """The version of UBI as far as its fields tell: 1.3 made `ordinal` a number."""
    path = UBI_PATHS["position"]
    has_index, has_number = fields.paths[path[1]], fields.paths[path[0]] - fields.paths[path[1]]
    if has_index and has_number:
        return "1.0 to 1.2 and 1.3 mixed"
    if has_index:
        return "1.0 to 1.2"
    return "1.3" if has_number else "untold, since no event has a position"


def wrong_in_ubi(fields: Fields) -> list[LogFinding]:
    """Expected fields that are not there while another looks like them: misspelt, or within the wrong object."""
    found, here = [], expected_in_ubi(fields)
    searches = fields.paths["user_query"] or fields.num_lines
    events = fields.paths["action_name"]
    expected = [path for paths in UBI_PATHS.values() for path in paths]
    taken = [*expected]
    for ours in _FOLLOWS:
        path = UBI_PATHS[ours][0]
        of = events if ours in ("document_id", "position") else fields.num_lines
        count = fields.paths[here[ours]] if ours in here else 0
        if ours in ("query", "event"):
            of, count = (0, 0) if count else (searches, 0)
        if not of or count >= _MISSING * of:
            continue
        other = misplaced(ours, fields, taken)
        if other is None or fields.paths[other] < 0.02 * of:
            continue
        taken.append(other)
        found.append(
            LogFinding(
                level=LOOK,
                code="near_miss",
                about=ours,
                found=f"`{path}` is expected and is in {percent(count / of) if count else 'none'} of the"
                f" {'events' if of == events else 'lines'}, while {percent(min(1, fields.paths[other] / of))}"
                f" have `{other}`",
                follows=_FOLLOWS[ours],
                do=f"name it `{path}` where the log is written, or use --format jsonl with the mapping below",
            )
        )
    return found


def wrong_times(fields: Fields, path: str, time_format: str) -> list[LogFinding]:
    """Numbers of another unit than the one they are read in."""
    shapes = fields.shapes.get(path, Counter())
    unit = "seconds" if time_format == "epoch_s" else "milliseconds"
    for other in ("seconds", "milliseconds", "microseconds", "nanoseconds"):
        count = shapes[f"{other} since 1970"]
        if other != unit and count > 0.1 * shapes.total():
            follows = (
                "all searches would lie in January 1970"
                if (other, unit) == ("seconds", "milliseconds")
                else "the lines could not be read, their times being past the year 9999"
            )
            do = {
                "seconds": 'set time_format = "epoch_s" in the mapping (a UBI log: use --format jsonl with the'
                " mapping), or write milliseconds or ISO 8601",
                "milliseconds": 'set time_format = "epoch_ms" in the mapping',
            }.get(other, "write milliseconds or ISO 8601")
            return [
                LogFinding(
                    level=LOOK,
                    code="time_unit",
                    found=f"`{path}` holds {other} since 1970, and is read as {unit}",
                    follows=follows,
                    do=do,
                )
            ]
    return []


def wrong_events(fields: Fields, path: str, mapping: Mapping) -> list[LogFinding]:
    """Names of events that mean clicks or impressions, and are not among those that are read as such."""
    values = fields.texts.get(path, Counter())
    known = mapping.events.kinds()
    total = sum(values.values())
    missed = {
        value: count
        for value, count in values.items()
        if value not in known and event_kind(value) in ("click", "impression") and count > 0.001 * total
    }
    events = suggest_events(values)
    if not missed or events is None:
        return []
    clicks_known = sum(count for value, count in values.items() if known.get(value) == "click")
    named = ", ".join(f"`{value}` ({percent(count / total)} of the events)" for value, count in missed.items())
    kinds = sorted({kind for value in missed if (kind := event_kind(value))})
    lines = "; ".join(
        f"{kind} = [{', '.join(repr(v).replace(chr(39), chr(34)) for v in getattr(events, kind))}]" for kind in kinds
    )
    return [
        LogFinding(
            level=LOOK,
            code="event_names",
            found=f"{named} {'is' if len(missed) == 1 else 'are'} no name of an event that is read",
            follows="they are dropped as other actions" + ("" if clicks_known else ", and no click would be left"),
            do=f"if they mean {' and '.join(kinds)}, write `[events]` and below it `{lines}` in a file; give it as"
            " --mapping FILE",
        )
    ]


def differing_files(guess: Guess, paths: Sequence[str]) -> list[LogFinding]:
    """A needed field that most lines of one file have, and none of another's."""
    found = []
    for path in paths:
        with_it = [file for file, fields in guess.by_file.items() if fields.share(path) >= 0.5]
        without = [file for file, fields in guess.by_file.items() if fields.num_lines >= 5 and not fields.paths[path]]
        if with_it and without:
            names = [name for name in guess.by_file[without[0]].leaves() if name not in paths]
            ours = next((ours for ours, expected in UBI_PATHS.items() if path in expected), "")
            other = best_name(ours, names) if ours else None
            hint = f"; did you mean `{other}`?" if other else nearest(path, names)
            found.append(
                LogFinding(
                    level=LOOK,
                    code="files_differ",
                    found=f"{with_it[0]} has `{path}` and {without[0]} has not{hint}",
                    follows="the lines of one of them would be read wrongly, or not at all",
                    do="ingest files of one form at a time, each with its mapping",
                )
            )
    return found


def not_what_was_said(log_format: str, guess: Guess) -> list[LogFinding]:
    """A format that was given and is not the log's, by what it looks like."""
    if not guess.format or guess.format == log_format:
        return []
    mapped = " and a mapping" if needs_mapping(guess.format) else ""
    return [
        LogFinding(
            level=FAILS,
            code="other_format",
            found=f"this looks like {guess.what}, and was to be read as {log_format}",
            follows="a mapping would be needed" if log_format == "jsonl" else "hardly a line of it could be read",
            do=f"use --format {guess.format}{mapped}",
        )
    ]


def fields_told(fields: Fields, *, most: int = 30) -> list[dict[str, object]]:
    """The fields as facts: name, share of lines, what the values look like. Names that may be values are left out."""
    few = min(5, max(1, fields.num_lines // 2))
    shown = [path for path in fields.leaves() if fields.paths[path] >= few]
    return [
        {"name": path, "share": round(fields.share(path), 4), "looks_like": fields.shape(path)} for path in shown[:most]
    ]


def not_told(fields: Fields, told: int) -> int:
    """How many fields `fields_told` leaves out."""
    return sum(1 for path in fields.paths if fields.shape(path) != "object" or not is_showable(path)) - told


def useless(fields: Fields) -> list[LogFinding]:
    """Lists in the place of values: all results in one line."""
    lists = [path for path in fields.leaves() if fields.shape(path) == "list" and fields.share(path) > 0.1]
    if not lists:
        return []
    return [
        LogFinding(
            level=NOTE,
            code="lists",
            found=f"there are lists in {', '.join(f'`{path}`' for path in lists[:5])}",
            follows="lists are not read: if they are the documents shown or clicked, they are not counted",
            do="write a line for each of them, if so",
        )
    ]


def sessions_as_clients(named: Table[str, str]) -> list[LogFinding]:
    """A session's id in the place of a client's. `named`: the log's column for each of ours."""
    column = named.get("client_id", "")
    if "session" not in column.lower():
        return []
    return [
        LogFinding(
            level=NOTE,
            code="sessions",
            found=f"`{column}` stands for the client, and is a session's by its name",
            follows="a person who comes in several sessions counts as several people, so k protects less",
            do="map the id of a browser or an account, if the log has one",
        )
    ]
