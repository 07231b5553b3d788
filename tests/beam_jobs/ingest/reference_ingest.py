"""What an ingest must find, written again as one loop over one line at a time, with the standard library alone.

Only the verdict on a query without a word is the project's own (it has tests by hand).
"""

import codecs
import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from hashlib import sha256

from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.schemas.content_filters import is_wordless
from clicktower.schemas.text_contract import normalise

KINDS = {"click": "click", "click_through": "click", "impression": "impression"}


def _refuse(constant):
    raise ValueError(constant)


_decoder = json.JSONDecoder(parse_constant=_refuse)
_number = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
_float_id = re.compile(r"-?(0|[1-9][0-9]*)\.0*|-?[0-9](\.[0-9]+[eE]\+?|[eE]\+)[0-9]{1,2}")
MARKS = {"", "\\N", "NULL", "Null", "null", "(null)", "None", "none", "NaN", "nan", "NaT", "NA", "N/A", "<NA>",
         "undefined"}  # fmt: skip
FIRST, END = datetime(1990, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
AMBIGUOUS = "ambiguous"


def reference_line(line: bytes):
    """The fate of a line that gives no row, or the row as a dict."""
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "unreadable_not_utf8"
    if not line.strip():
        return "blank_line"
    try:
        value = _decoder.decode(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # raises for lone surrogates, which are no text
    except (ValueError, RecursionError):
        return "unreadable_not_json"
    might_be_deep = text.count("[") + text.count("{") > 200
    if not isinstance(value, dict) or (might_be_deep and _depth(value) > 200):
        return "unreadable_not_json"
    if not _has_right_types(value):
        return "unreadable_field"
    action = next(iter(value), None)
    if value.get("query_id") in (None, "") and "query_id" not in value:
        if len(value) == 1 and action in ("index", "create", "update", "delete") and isinstance(value[action], dict):
            return "action_line"
        if value.get("_source") is not None:
            value = value["_source"]
            if not isinstance(value, dict) or not _has_right_types(value):
                return "unreadable_field"
    action_name, query = value.get("action_name"), _text(value.get("user_query"))
    kind = KINDS.get(action_name, "other") if action_name not in (None, "") else "search"
    query = "" if query == "\\N" else query
    object_id = _along(value, "event_attributes", "object", "object_id")
    if object_id is None or (isinstance(object_id, str) and object_id.strip() in MARKS):
        object_id = _along(value, "event_attributes", "object", "internal_id")
    try:
        query_id, client, document = map(_id, (value.get("query_id"), value.get("client_id"), object_id))
    except ValueError:
        return "unreadable_field"
    try:
        time = _time(value.get("timestamp"))
    except OverflowError:
        return "unreadable_year"
    except ValueError:
        return "unreadable_time"
    if query_id is None and (kind == "search" or not query):
        return "unreadable_no_query_id"
    if kind == "search" and query is None:
        return "unreadable_no_query"
    ordinal = _along(value, "event_attributes", "position", "ordinal")
    if type(ordinal) is dict:
        ordinal = ordinal.get("index")
    agent = _along(value, "query_attributes", "user_agent")
    return {
        "kind": kind,
        "query_id": query_id,
        "client": client,
        "agent": _text(agent) if type(agent) in _SCALARS else None,
        "query": query if kind == "search" else query or None,
        "document": document,
        "position": _rank(ordinal),
        "time": time,
    }


def _depth(value) -> int:
    depth, level = 0, [value]
    while nested := [one for one in level if isinstance(one, dict | list)]:
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
        depth += 1
    return depth


_SCALARS = (str, int, float)
_IN_THE_WAY = ["no object where there should be one"]


def _along(value, *path):
    for key in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            return _IN_THE_WAY
        value = value.get(key)
    return value


def _has_right_types(value) -> bool:
    """Of what a line cannot do without, of what json.loads gives; true and false are of no type that is wanted."""
    needed = [value.get(name) for name in ("query_id", "client_id", "user_query", "action_name", "timestamp")]
    needed += [_along(value, "event_attributes", "object", name) for name in ("object_id", "internal_id")]
    return all(each is None or type(each) in _SCALARS for each in needed)


def _text(value):
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    return str(value) if isinstance(value, int) else value


def _id(value):
    if isinstance(value, float):
        if value != int(value) or abs(value) > 2**53:
            raise ValueError(value)
        return str(int(value))
    if not isinstance(value, str):
        return None if value is None else str(value)
    value = value.strip()
    if _float_id.fullmatch(value) and Decimal(value) == Decimal(value).to_integral_value():
        value = f"{Decimal(value):.0f}"
    return None if value in MARKS else value


def _rank(value) -> int:
    """The rank, or -1 for what is none."""
    if isinstance(value, str) and _number.fullmatch(value.strip()):
        value = Decimal(value.strip())
    if type(value) not in (int, float, Decimal) or value != int(value) or not 0 <= value < 2**31:
        return -1
    return int(value)


def _time(value):
    """Raises ValueError for what is no time, OverflowError for one out of the years of logs."""
    if isinstance(value, str):
        value = value.strip()
    if value is None or value in MARKS:
        return None
    if isinstance(value, str) and not _number.fullmatch(value):
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if not FIRST <= moment < END:
            raise OverflowError(value)
        return moment - timedelta(microseconds=moment.microsecond % 1000)
    number = Fraction(repr(value) if isinstance(value, float) else value)
    for per_second in (1, 10**3, 10**6, 10**9):
        seconds = number / per_second
        is_hour = per_second == 1 and _compact(number, 10) is not None
        if FIRST.timestamp() <= seconds < END.timestamp() and not is_hour:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(seconds * 1000))
    for num_digits in (8, 12, 14):
        if (moment := _compact(number, num_digits)) and FIRST <= moment < END:
            return moment
    raise OverflowError(value)


def _compact(number, num_digits):
    text = str(number)
    if len(text) != num_digits or not text.isdigit():
        return None
    try:
        return datetime(*map(int, [text[:4], *(text[at : at + 2] for at in range(4, num_digits, 2))]), tzinfo=UTC)
    except ValueError:
        return None


def reference_joins(lines: list[bytes]):
    """([(document or "", normalised query) of each line that is a search or has one, sorted], lines by other fates)."""
    joined, fates = _join(lines)
    return sorted((row["document"] or "", normalise(found["query"])) for row, found, _ in joined), +fates


def _join(lines):
    """([(row, the row with its query, its client)], the other lines by fate)."""
    fates: Counter[str] = Counter()
    rows, seen = [], set()
    for line in lines:
        row = reference_line(line)
        if isinstance(row, str):
            fates[row] += 1
        elif line.rstrip(b"\r") in seen:
            fates["repeat"] += 1
        else:
            seen.add(line.rstrip(b"\r"))
            rows.append(row | {"hash": sha256(line.rstrip(b"\r")).digest()[:16]})
    searches = defaultdict(list)
    for row in rows:
        if row["kind"] == "search":
            searches[row["query_id"]].append(row)
    staying = {key: _searches_that_stay(found) for key, found in searches.items()}
    joined = []
    for row in rows:
        stay = staying.get(row["query_id"], [])
        if row["kind"] == "other":
            fates["other_action"] += 1
        elif row["kind"] != "search" and row["document"] is None:
            fates["document_missing"] += 1
        elif row["kind"] == "search":
            if any(row is one for one in stay):
                joined.append((row, row, row["client"]))
            else:
                fates["search_repeated"] += 1
        else:
            found = _search_of(row, stay) if stay else None
            if found in (None, AMBIGUOUS) and row["query"]:
                found = row
            if found is None:
                fates["search_unknown"] += 1
            elif found == AMBIGUOUS:
                fates["search_ambiguous"] += 1
            else:
                joined.append((row, found, row["client"] or found["client"]))
    return joined, fates


def reference_ingest(
    lines: list[bytes], rules: BotRules, is_bot_agent=lambda agent: "bot" in (agent or ""), erased=frozenset()
):
    """(lines by fate, {query: (people, searches)}, {(query, document, position): (impressions, clicks)})."""
    everybody, fates = _join(lines)
    joined = [(row, found, client) for row, found, client in everybody if not erased & {client, found["client"]}]
    fates["erased"] += len(everybody) - len(joined)
    named, behaving, unsure = _bots(joined, rules, is_bot_agent)
    queries, exposures = defaultdict(lambda: [set(), 0]), defaultdict(lambda: [0, 0])
    for row, found, client in joined:
        query, fate_of_query = _query_and_fate(found["query"])
        clients = (client, found["client"])
        if is_bot_agent(found["agent"]) or not named.isdisjoint(clients):
            fates["bot_user_agent"] += 1
        elif not behaving.isdisjoint(clients):
            fates["bot_behaviour"] += 1
        elif not unsure.isdisjoint(clients):
            fates["bot_unsure"] += 1
        elif fate_of_query:
            fates[fate_of_query] += 1
        else:
            fates[f"day_{row['kind']}"] += 1
            if row is found:
                if client is not None:
                    queries[query][0].add(client)
                queries[query][1] += row["kind"] == "search"
            if row["kind"] != "search":
                exposures[query, row["document"], row["position"]][row["kind"] == "click"] += 1
    return (
        +fates,
        {query: (min(32, len(people)), count) for query, (people, count) in queries.items()},
        {key: tuple(counts) for key, counts in exposures.items()},
    )


def _order(row):
    return row["time"] is None, row["time"] or FIRST, row["hash"]


def _searches_that_stay(found):
    """Of the search lines of one query id those that do not repeat the one before, client by client."""
    by_client = defaultdict(list)
    for row in sorted(found, key=_order):
        mine = by_client[row["client"]]
        if not mine or normalise(mine[-1]["query"]) != normalise(row["query"]):
            mine.append(row)
    nobody = by_client.pop(None, [])
    if len(by_client) == 1:
        asked = {normalise(row["query"]) for mine in by_client.values() for row in mine}
        nobody = [row for row in nobody if normalise(row["query"]) not in asked]
    return [row for mine in [nobody, *by_client.values()] for row in mine]


def _search_of(event, stay):
    """The search of an event among those of its query id."""
    mine = [row for row in stay if event["client"] is not None and row["client"] == event["client"]]
    if not mine and len({row["client"] for row in stay}) == 1:
        mine = stay
    if len(mine) == 1:
        return mine[0]
    if mine and event["time"] is not None and all(row["time"] is not None for row in mine):
        before = [row["time"] for row in mine if row["time"] <= event["time"]]
        then = max(before) if before else min(row["time"] for row in mine)
        candidates = [row for row in mine if row["time"] == then]
        if len(candidates) == 1:
            return candidates[0]
    is_one = len({normalise(row["query"]) for row in stay}) == 1
    return min(stay, key=_order) if is_one else AMBIGUOUS


@cache
def _query_and_fate(text):
    query = normalise(text)
    return query, "query_empty" if is_wordless(query) else None


def _bots(joined, rules, is_bot_agent):
    """Clients that are bots by their user agent, bots by their behaviour, and unsure; crowds are not looked for."""
    named, behaving, unsure = set(), set(), set()
    of_client = defaultdict(list)
    for row, found, client in joined:
        if client is not None:
            of_client[client].append((row, found))
    for client, lines in of_client.items():
        asked = [row for row, _ in lines if row["kind"] == "search"]
        if any(is_bot_agent(row["agent"]) for row in asked):
            named.add(client)
            continue
        num = len(asked)
        hours = Counter(int(row["time"].timestamp()) // 3600 for row in asked if row["time"])
        days = Counter(row["time"].date().toordinal() for row in asked if row["time"])
        hours_of_day = Counter(hour // 24 for hour in hours)
        shown = sum(row["kind"] == "impression" for row, _ in lines)
        clicked = [row["position"] for row, _ in lines if row["kind"] == "click"]
        on_one_rank = max(Counter(min(rank, 200) for rank in clicked if rank >= 0).values(), default=0)
        few_clicks = num >= rules.sign_searches and len(clicked) <= rules.few_clicks_share * num
        queries = {_query_and_fate(row["query"])[0] for row in asked}
        distinct = num >= rules.sign_searches and len(queries) >= rules.distinct_share * num
        all_day = max(hours_of_day.values(), default=0) >= rules.clock_hours
        even = _is_even(hours, 20, 2, rules) or _is_even(days, 14, 4, rules)
        per_hour, per_day = max(hours.values(), default=0), max(days.values(), default=0)
        if all(row["time"] == datetime(*row["time"].timetuple()[:3], tzinfo=UTC) for row in asked if row["time"]):
            per_hour = 0  # dates without hours
        showing = num >= rules.clicked_share_searches and shown >= rules.shown_per_search * num
        one_rank = on_one_rank >= rules.same_rank_share * max(num, len(clicked))
        if (
            per_hour >= rules.searches_per_hour
            or per_day >= rules.searches_per_day
            or (showing and len(clicked) >= rules.clicked_share * shown)
            or (one_rank and num >= rules.same_rank_searches)
            or (all_day and (few_clicks or distinct or even))
            or (even and (few_clicks or distinct))
        ):
            behaving.add(client)
        elif (
            per_hour >= rules.unsure_searches_per_hour
            or per_day >= rules.unsure_searches_per_day
            or (showing and len(clicked) >= rules.unsure_clicked_share * shown)
            or (one_rank and num >= rules.unsure_same_rank_searches)
            or all_day
            or even
            or (few_clicks and distinct and num >= rules.unsure_never_clicks_searches)
        ):
            unsure.add(client)
    return named, behaving, unsure


def _is_even(counts, fewest, per_part, rules):
    if not counts:
        return False
    first, last = min(counts), max(counts)
    num = last - first - 1  # the parts between
    if num < fewest:
        return False
    mean = sum(count for part, count in counts.items() if first < part < last) / num
    if mean < per_part:
        return False
    inside = [counts.get(part, 0) for part in range(first + 1, last)]
    return sum((count - mean) ** 2 for count in inside) / num <= rules.even_dispersion * mean


@cache
def is_any_bot_agent(agent: str | None) -> bool:
    """For the real log: the programs that name themselves in it."""
    return bool(agent) and bool(re.search(r"bot|curl/|python-requests", agent))
