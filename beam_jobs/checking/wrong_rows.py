"""What looks wrong with the lines that could be read, and with what becomes of them."""

from collections import Counter

from beam_jobs.checking.findings import FAILS, LOOK, NOTE, LogFinding, percent
from beam_jobs.checking.log_sample import Sample
from beam_jobs.checking.rows_facts import ClickedDocuments, Clients, Joins, Times
from schemas.ledger import FATES

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
    may_be_lost = "; ingest takes --set max_unreadable_share=..., if they may be lost" if share < 0.5 else ""
    if share > max_unreadable_share:
        found.append(
            LogFinding(
                level=FAILS,
                code="unreadable",
                found=f"{percent(share)} of the lines cannot be read; most often ({count:,}): {FATES[most][1]}",
                follows=f"ingest fails above {max_unreadable_share:.0%}, since the log is then not what it seems",
                do=f"look at the lines at {places}{may_be_lost}",
            )
        )
    elif share > 0.005:
        found.append(
            LogFinding(
                level=NOTE,
                code="unreadable",
                found=f"{percent(share)} of the lines cannot be read; most often ({count:,}): {FATES[most][1]}",
                follows="they are counted, and left out",
                do=f"look at the lines at {places}",
            )
        )
    return found


def wrong_clients(clients: Clients, lines: int, *, no_people: bool) -> list[LogFinding]:
    """Clients that are missing, all one, new for every search, or too busy."""
    if no_people or not lines:
        return [
            LogFinding(
                level=LOOK,
                code="no_people",
                found="there are no people in this log",
                follows="nobody issued its queries, so any k of 1 or more keeps nothing of it",
                do="build with --k 0, if the log is public already",
            )
        ]
    share = clients.lines_with / lines
    if not clients.lines_with:
        return [
            LogFinding(
                level=LOOK,
                code="clients_missing",
                about="client_id",
                found="no line has a client id",
                follows="nobody issued these queries, so any k of 1 or more keeps nothing",
                do="log one id for each browser or account, or map the column that has it; --k 0 is for public logs",
            )
        ]
    found = []
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
    if clients.distinct == 1 and clients.lines_with >= _ENOUGH:
        found.append(
            LogFinding(
                level=LOOK,
                code="one_client",
                found="all lines have the same client id",
                follows="one person issued every query, and no k above 1 keeps any; its pace may make it a bot",
                do="log one id for each browser or account, not one of the server or the application",
            )
        )
    elif clients.largest_lines > _ONE_CLIENT * lines and lines >= _ENOUGH:
        found.append(
            LogFinding(
                level=LOOK,
                code="busy_client",
                found=f"one client has {percent(clients.largest_lines / lines)} of the lines",
                follows="it is a program, or many people behind one id, and counts as one person for k",
                do="find out which; a bot is detected by its pace, and its lines are dropped",
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
    if clients.searches >= _ENOUGH and clients.queries_per_client < 1.02 and clients.distinct > 1:
        found.append(
            LogFinding(
                level=LOOK,
                code="fleeting_clients",
                found=f"hardly any client comes twice: {clients.queries_per_client:.2f} searches each",
                follows="if the id is that of a session or a request, one person counts as many, and k protects less",
                do="log an id that stays with a browser or an account",
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
    if kinds["search"] == 0 and not joins.carrying and kinds.total():
        found.append(
            LogFinding(
                level=LOOK,
                code="no_searches",
                found="there are events and not one search, and no event carries its query",
                follows="no click has a known query: ingest drops them, and build fails for want of pairs",
                do="give the files with the searches too",
            )
        )
    elif not kinds["click"] and kinds.total():
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
                    " are missing",
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
