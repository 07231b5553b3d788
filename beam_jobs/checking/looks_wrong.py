"""What looks wrong with a log: with its fields and form, with its lines, and with what becomes of them."""

from collections import Counter
from collections.abc import Sequence

from beam_jobs.checking.findings import FAILS, LOOK, NOTE, LogFinding, percent
from beam_jobs.checking.guess import (
    UBI_PATHS,
    Fields,
    Guess,
    best_name,
    event_kind,
    expected_in_ubi,
    is_showable,
    misplaced,
    needs_mapping,
    suggest_events,
)
from beam_jobs.checking.log_sample import Sample
from beam_jobs.checking.sampled_day import ClickedDocuments, Clients, Joins, Times
from beam_jobs.sources.mapping import Mapping, nearest
from schemas.ledger import FATES

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


def wrong_time_units(fields: Fields, path: str, time_format: str) -> list[LogFinding]:
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


_ENOUGH = 200  # lines, for a share to say anything
_ONE_CLIENT, _ONE_QUERY = 0.05, 0.2
_REPEATS = 0.05
_FEW_QUERIES = 20  # different ones; of fewer one is always frequent


def wrong_lines(sample: Sample, max_unreadable_share: float) -> list[LogFinding]:
    """Too many unreadable lines, or files that could not be read."""
    found = [
        LogFinding(
            level=FAILS, code="damaged", found=f"{error.asked}, and {error.found}", follows=error.follows, do=error.do
        )
        for error in sample.errors
    ]
    share = sample.unreadable_share
    if not sample.num_lines or not share:
        return found
    most, count = sample.rejects.most_common(1)[0]
    places = ", ".join(sample.reject_places[most][:3])
    fails = share > max_unreadable_share
    if fails or share > 0.005:
        may_be_lost = (
            "; ingest takes --set max_unreadable_share=..., if they may be lost" if fails and share < 0.5 else ""
        )
        found.append(
            LogFinding(
                level=FAILS if fails else NOTE,
                code="unreadable",
                found=f"{percent(share)} of the lines cannot be read; most often ({count:,}): {FATES[most][1]}",
                follows=f"ingest fails above {max_unreadable_share:.0%}, since the log is then not what it seems"
                if fails
                else "they are counted, and left out",
                do=f"look at the lines at {places}{may_be_lost}",
            )
        )
    return found


def wrong_clients(clients: Clients, lines: int, *, column: str, can_be_logged: bool) -> list[LogFinding]:
    """Clients that are missing, one that is most of the log, or new ones for every search. `column` holds them."""
    if not clients.lines_with:
        return [
            LogFinding(
                level=LOOK,
                code="clients_missing",
                about="client_id",
                found="no line has a client id",
                follows="nobody issued these queries, so any k of 1 or more keeps nothing",
                do=("log one id for each browser or account, or map the column that has it; " if can_be_logged else "")
                + "build with --k 0, if the log is public already",
            )
        ]
    found = []
    share = clients.lines_with / lines
    if share < 0.9:
        found.append(
            LogFinding(
                level=LOOK,
                code="clients_missing",
                about="client_id",
                found=f"{percent(1 - share)} of the lines have no client id",
                follows="events are given that of their search; searches without one count as nobody's",
                do="log one id for each browser or account",
            )
        )
    if clients.largest_lines > _ONE_CLIENT * lines and lines >= _ENOUGH:
        found.append(
            LogFinding(
                level=LOOK,
                code="busy_client",
                found=f"one client has {percent(clients.largest_lines / lines)} of the lines",
                follows="it is a program, or many people behind one id, and counts as one person for k",
                do="find out which: a bot is detected by its pace, its lines are dropped; an id of the server or the"
                " application is to be one of each browser or account",
            )
        )
    if clients.lines_with_placeholder > 0.01 * lines:
        found.append(
            LogFinding(
                level=LOOK,
                code="placeholder_clients",
                found=f"{percent(clients.lines_with_placeholder / lines)} of the lines have a client id like `null`,"
                " `undefined` or `0`",
                follows="all who have it count as one very busy person, whose lines may be dropped as a bot's",
                do="leave the field out where there is no client",
            )
        )
    comes_once = clients.searches >= _ENOUGH and clients.queries_per_client < 1.02 and clients.distinct > 1
    if comes_once or "session" in column.lower():
        found.append(
            LogFinding(
                level=LOOK,
                code="fleeting_clients",
                found=f"hardly any client comes twice: {clients.queries_per_client:.2f} searches each"
                if comes_once
                else f"`{column}` stands for the client, and is a session's by its name",
                follows="if the id is that of a session or a request, one person counts as many, and k protects less",
                do="log, or map, an id that stays with a browser or an account",
            )
        )
    return found


def wrong_times(times: Times, lines: int) -> list[LogFinding]:
    """Clocks in the future, in 1970, or none."""
    found = []
    if not times.lines_with and lines:
        found.append(
            LogFinding(
                level=NOTE,
                code="times_missing",
                about="time",
                found="no line has a time",
                follows="bots cannot be detected by their pace; equal lines count once",
                do="log the time of every line, or map the column that has it",
            )
        )
    if times.early:
        found.append(
            LogFinding(
                level=LOOK,
                code="time_unit",
                found=f"{percent(times.early / lines)} of the lines are of the years 1970 to 1972",
                follows="their times are seconds that are read as milliseconds: all people would seem to come at once",
                do='set time_format = "epoch_s" in a mapping, or write milliseconds or ISO 8601',
            )
        )
    if times.later:
        found.append(
            LogFinding(
                level=LOOK,
                code="future",
                found=f"{times.later:,} lines are of a time that is still to come",
                follows="with --date they are dropped if they are two days late or more; without it they count",
                do="set the clock of the machine that writes them, and log UTC or the zone",
            )
        )
    return found


def wrong_joins(joins: Joins, kinds: Counter[str], sample: Sample, share_of_log: float) -> list[LogFinding]:
    """Events that do not find their searches, as far as a sample can tell."""
    found = []
    if not kinds["click"] and kinds.total():
        found.append(
            LogFinding(
                level=LOOK,
                code="no_clicks",
                found="there is not one click",
                follows="ingest does its work, and build fails for want of pairs",
                do="give the files with the clicks too; if clicks have another name, say so in [events] of a mapping",
            )
        )
    elif joins.events - joins.joined > 0.05 * (joins.events + joins.carrying) and joins.events >= 20:
        expected = 0.9 if sample.is_whole else 0.5 * share_of_log
        share = joins.share if sample.is_whole else max(joins.share, joins.settled_share)
        if share < expected:
            found.append(
                LogFinding(
                    level=LOOK,
                    code="few_join",
                    found=f"only {percent(share)} of the events that need their search find it",
                    follows="the others are dropped",
                    do="see whether searches and events have the same query_id, letter by letter, and whether files"
                    " (those with the searches) are missing",
                )
            )
    if kinds["click"] and not kinds["impression"]:
        found.append(
            LogFinding(
                level=NOTE,
                code="no_impressions",
                found="what was shown is not logged, only what was clicked",
                follows="training needs no more; `clicktower judgments` cannot be derived from this log",
                do="log impressions too, to judge models by later clicks",
            )
        )
    return found


def wrong_positions(events: int, without: int) -> list[LogFinding]:
    """Events without a rank."""
    if not without or without < 0.01 * events:
        return []
    return [
        LogFinding(
            level=NOTE if without < events else LOOK,
            code="positions_missing",
            about="position",
            found=f"{percent(without / events)} of the impressions and clicks have no position",
            follows="training is not affected; judgments from clicks cannot correct these for their rank",
            do="log the rank at which each document was shown",
        )
    ]


def wrong_queries(clients: Clients, fates: Counter[str], lines: int, num_queries: int) -> list[LogFinding]:
    """One query that is much of the log, and lines that were written twice."""
    found = []
    if num_queries >= _FEW_QUERIES and clients.largest_query_lines > _ONE_QUERY * clients.searches:
        found.append(
            LogFinding(
                level=LOOK,
                code="busy_query",
                found=f"one query is {percent(clients.largest_query_lines / clients.searches)} of the searches",
                follows="it is a monitor, a default or the empty page more often than a wish, and would weigh as much"
                " in training",
                do="find out which program sends it, and leave it out of the log",
            )
        )
    if lines >= _ENOUGH and fates["repeat"] > _REPEATS * lines:
        found.append(
            LogFinding(
                level=LOOK,
                code="repeats",
                found=f"{percent(fates['repeat'] / lines)} of the lines are exact repeats of another",
                follows="each counts once; if equal lines are different clicks (no time, no id), they are lost",
                do="see whether files are given twice, or whether the log lacks times and ids",
            )
        )
    return found


def wrong_documents(found: ClickedDocuments) -> list[LogFinding]:
    """Clicked documents that the documents file does not have."""
    share = found.clicks_titled / found.clicks if found.clicks else 1.0
    if share >= 0.95:
        return []
    looks = ""
    if found.shapes[0] != found.shapes[1] and all(found.shapes):
        looks = f"; ids look like `{found.shapes[0]}` in the log and like `{found.shapes[1]}` in the documents"
    return [
        LogFinding(
            level=LOOK,
            code="documents_unknown",
            found=f"only {percent(share)} of the clicks are on a document with a title{looks}",
            follows="clicks on the others give no pair to train on"
            + ("" if share else ", and build fails without any"),
            do="give the documents of the time of the log, with ids written as in the log",
        )
    ]
