"""What an ingest must find, written again as one loop over one line at a time, with the standard library alone.

Only the verdict on a query's content is the project's own (it has tests by hand).
"""

import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime
from functools import cache

from beam_jobs.bot_rules import BotRules
from beam_jobs.content_filters import content_fate
from schemas.words import normalise


def _refuse(constant):
    raise ValueError(constant)


def reference_line(line: bytes):
    """The fate of a line that gives no row, or the row as a dict."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return "unreadable_not_utf8"
    try:
        value = json.loads(text, parse_constant=_refuse)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # raises for lone surrogates, which are no text
    except (ValueError, RecursionError):
        return "unreadable_not_json"
    if not isinstance(value, dict):
        return "unreadable_not_json"
    action = next(iter(value), None)
    if len(value) == 1 and action in ("index", "create", "update", "delete") and isinstance(value[action], dict):
        return "action_line"
    if value.get("query_id") in (None, "") or (not value["query_id"] and not isinstance(value["query_id"], str)):
        return "unreadable_no_query_id" if value.get("query_id") in (None, "") else "unreadable_field"
    attributes = value.get("event_attributes")
    agents = value.get("query_attributes")
    is_event = value.get("action_name") is not None
    texts = [value["query_id"], value.get("client_id"), value.get("application"), value.get("action_name")]
    position = -1
    document = agent = None
    if is_event:
        if not isinstance(attributes or {}, dict):
            return "unreadable_field"
        shown, rank = ((attributes or {}).get(name) for name in ("object", "position"))
        if (shown is not None and not isinstance(shown, dict)) or (rank is not None and not isinstance(rank, dict)):
            return "unreadable_field"
        document, ordinal = (shown or {}).get("object_id"), (rank or {}).get("ordinal")
        if ordinal is not None:
            if isinstance(ordinal, bool) or not isinstance(ordinal, int) or not 0 <= ordinal < 2**31:
                return "unreadable_field"
            position = ordinal
        if attributes is not None and not isinstance(attributes, dict):
            return "unreadable_field"
    else:
        if agents is not None and not isinstance(agents, dict):
            return "unreadable_field"
        agent = (agents or {}).get("user_agent")
        if not isinstance(value.get("user_query"), str):
            return "unreadable_field"
    if any(text is not None and not isinstance(text, str) for text in [*texts, document, agent]):
        return "unreadable_field"
    try:
        time = _time(value.get("timestamp"))
    except (ValueError, TypeError, OverflowError, OSError):
        return "unreadable_field"
    kind = (
        "search" if not is_event else {"click": "click", "impression": "impression"}.get(value["action_name"], "other")
    )
    return {
        "kind": kind,
        "query_id": value["query_id"],
        "client": value.get("client_id") or None,
        "agent": agent,
        "query": value.get("user_query"),
        "document": document or None,
        "position": position,
        "time": time,
    }


def _time(value):
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return datetime.fromtimestamp(value / 1000, UTC)
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
        found = chosen.get(row["query_id"])
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
    named, behaving = _bots(joined, rules, is_bot_agent)
    queries, exposures = defaultdict(lambda: [set(), 0]), defaultdict(lambda: [0, 0])
    for row, found, client in joined:
        query, fate_of_query = _query_and_fate(found["query"])
        if is_bot_agent(found["agent"]) or {client, found["client"]} & named:
            fates["bot_user_agent"] += 1
        elif {client, found["client"]} & behaving:
            fates["bot_behaviour"] += 1
        elif fate_of_query:
            fates[fate_of_query] += 1
        else:
            fates[f"day_{row['kind']}"] += 1
            if row["kind"] == "search":
                queries[query][0] |= {client} - {None}
                queries[query][1] += 1
            else:
                exposures[query, row["document"], row["position"]][row["kind"] == "click"] += 1
    return (
        +fates,
        {query: (min(32, len(people)), count) for query, (people, count) in queries.items()},
        {key: tuple(counts) for key, counts in exposures.items()},
    )


@cache
def _query_and_fate(text):
    return normalise(text), content_fate(normalise(text))


def _bots(joined, rules, is_bot_agent):
    named, behaving = set(), set()
    of_client = defaultdict(list)
    for row, found, client in joined:
        if client is not None:
            of_client[client].append((row, found))
    for client, lines in of_client.items():
        asked = [row for row, _ in lines if row["kind"] == "search"]
        if any(is_bot_agent(row["agent"]) for row in asked):
            named.add(client)
            continue
        hours = Counter(row["time"].strftime("%Y%m%d%H") for row in asked if row["time"])
        days = Counter(row["time"].strftime("%Y%m%d") for row in asked if row["time"])
        shown = sum(row["kind"] == "impression" for row, _ in lines)
        clicked = [row["position"] for row, _ in lines if row["kind"] == "click"]
        on_one_rank = max(Counter(rank for rank in clicked if rank >= 0).values(), default=0)
        if (
            max(hours.values(), default=0) >= rules.searches_per_hour
            or max(days.values(), default=0) >= rules.searches_per_day
            or (len(asked) >= rules.clicked_share_searches and shown and len(clicked) >= rules.clicked_share * shown)
            or (
                len(asked) >= rules.same_rank_searches
                and on_one_rank >= rules.same_rank_share * max(len(asked), len(clicked))
            )
        ):
            behaving.add(client)
    return named, behaving


def is_any_bot_agent(agent: str | None) -> bool:
    """For the real log: the programs that name themselves in it."""
    return bool(agent) and bool(re.search(r"bot|curl/|python-requests", agent))
