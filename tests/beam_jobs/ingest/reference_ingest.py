"""What an ingest must find, written again as one loop over one line at a time, with the standard library alone.

Only the verdict on a query without a word is the project's own (it has tests by hand).
"""

import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from functools import cache

from clicktower.beam_jobs.ingest.bots import BotRules
from clicktower.beam_jobs.ingest.content_filters import is_wordless
from clicktower.schemas.text_contract import normalise

KINDS = {"click": "click", "click_through": "click", "impression": "impression"}


def _refuse(constant):
    raise ValueError(constant)


_decoder = json.JSONDecoder(parse_constant=_refuse)
_digits = re.compile("[0-9]{10,18}")


def reference_line(line: bytes):
    """The fate of a line that gives no row, or the row as a dict."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "unreadable_not_utf8"
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
    attributes = value.get("event_attributes") or {}
    shown, rank = attributes.get("object") or {}, attributes.get("position") or {}
    action_name = value.get("action_name")
    kind = KINDS.get(action_name, "other") if action_name else "search"
    query = value.get("user_query")
    try:
        time = _time(value.get("timestamp"))
        position = _rank(rank.get("ordinal"))
    except (ValueError, TypeError, OverflowError):
        return "unreadable_field"
    if value.get("query_id") in (None, "") and (kind == "search" or not query):
        return "unreadable_no_query_id"
    if kind == "search" and query is None:
        return "unreadable_field"
    document = shown.get("object_id")
    return {
        "kind": kind,
        "query_id": None if value.get("query_id") in (None, "") else str(value["query_id"]),
        "client": _text(value.get("client_id")) or None,
        "agent": (value.get("query_attributes") or {}).get("user_agent"),
        "query": query if kind == "search" else query or None,
        "document": _text(shown.get("internal_id") if document in (None, "") else document) or None,
        "position": position,
        "time": time,
    }


def _depth(value) -> int:
    depth, level = 0, [value]
    while nested := [one for one in level if isinstance(one, dict | list)]:
        level = [inner for one in nested for inner in (one.values() if isinstance(one, dict) else one)]
        depth += 1
    return depth


_NONE = type(None)
_OBJECT, _TEXT, _TEXT_OR_NUMBER = {dict, _NONE}, {str, _NONE}, {str, int, _NONE}
_RANK = {int, float, dict, _NONE}


def _has_right_types(value) -> bool:
    """Of what json.loads gives; true and false are of no type that is wanted anywhere."""
    attributes, asked = value.get("event_attributes"), value.get("query_attributes")
    if type(attributes) not in _OBJECT or type(asked) not in _OBJECT:
        return False
    shown, rank = (attributes or {}).get("object"), (attributes or {}).get("position")
    if type(shown) not in _OBJECT or type(rank) not in _OBJECT:
        return False
    ordinal = (rank or {}).get("ordinal")
    return (
        type(value.get("query_id")) in _TEXT_OR_NUMBER
        and type(value.get("client_id")) in _TEXT_OR_NUMBER
        and type(value.get("timestamp")) in _TEXT_OR_NUMBER
        and type(value.get("user_query")) in _TEXT
        and type(value.get("action_name")) in _TEXT
        and type(value.get("application")) in _TEXT
        and type((asked or {}).get("user_agent")) in _TEXT
        and type((shown or {}).get("object_id")) in _TEXT_OR_NUMBER
        and type((shown or {}).get("internal_id")) in _TEXT_OR_NUMBER
        and type(ordinal) in _RANK
        and (type(ordinal) is not dict or type(ordinal.get("index")) in {int, float, _NONE})
    )


def _text(value):
    return str(value) if isinstance(value, int) else value


def _rank(value) -> int:
    value = value.get("index") if isinstance(value, dict) else value
    if value is None:
        return -1
    if value != int(value) or not 0 <= value < 2**31:
        raise ValueError(value)
    return int(value)


def _time(value):
    if value is None or value == "":
        return None
    if isinstance(value, str) and _digits.fullmatch(value):
        value = int(value)
    if isinstance(value, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def reference_ingest(lines: list[bytes], rules: BotRules, is_bot_agent=lambda agent: "bot" in (agent or "")):
    """(lines by fate, {query: (people, searches)}, {(query, document, position): (impressions, clicks)})."""
    fates: Counter[str] = Counter()
    rows, seen = [], set()
    for line in lines:
        row = reference_line(line)
        if isinstance(row, str):
            fates[row] += 1
        elif line.removesuffix(b"\r") in seen:
            fates["repeat"] += 1
        else:
            seen.add(line.removesuffix(b"\r"))
            rows.append(row)
    searches = defaultdict(list)
    for row in rows:
        if row["kind"] == "search":
            searches[row["query_id"]].append(row)
    # Between equally early searches the line's hash decides, which is not repeated here: in these logs none are.
    chosen = {key: min(found, key=lambda row: (row["time"] is None, row["time"])) for key, found in searches.items()}
    joined = []
    for row in rows:
        found = chosen.get(row["query_id"]) or (row if row["kind"] != "search" and row["query"] else None)
        if row["kind"] == "other":
            fates["other_action"] += 1
        elif row["kind"] != "search" and row["document"] is None:
            fates["document_missing"] += 1
        elif row["kind"] == "search" and row is not found:
            fates["search_repeated"] += 1
        elif found is None:
            fates["search_unknown"] += 1
        else:
            joined.append((row, found, row["client"] or found["client"]))
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
