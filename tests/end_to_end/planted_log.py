"""A log of ordinary people with a canary in every place where something private can be."""

import json
import random
from dataclasses import dataclass

from tests.beam_jobs.sources.ubi_lines import BROWSER, event, search

DOCUMENTS = "".join(f"D{number}\tRed hammer number {number}\n" for number in range(40)).encode()
PUBLIC = [f"hammer size {number}" for number in range(12)]  # what enough people ask for
PUBLISHED = "canary published 0"

# What may be in the private aggregate, because some person asked it, and nowhere else.
OF_FEW = [
    "canary of one person 1", "canary of four people 2", "canary of a crowd 3", "canary öf unicode 4",
    "canary second search 19",
]  # fmt: skip
# What no file at all may hold: queries of bots alone, and everything that is not a query.
OF_BOTS = ["canary declared 5", "canary too fast 6", "canary clicks all 7", "canary night and day 8", "canary unsure 9"]
OF_LINES = {
    "cut": "canary cut line 10",
    "bytes": "canary bytes 11",
    "without id": "canary without id 12",
    "number": "canary wrong field 13",
    "array": "canary array 14",
    "time": "canary time 15",
    "nested": "canary nested 16",
    "position": "canary position 17",
    "action": "canary action 18",
    "application": "canary application 20",
    "session": "canary session 21",
    "query id": "canary query id 22",
    "unknown search": "canary unknown document 23",
    "referrer": "canary referrer 24",
    "twice": "canary two keys 25",
}
# Text of a log where names of its fields are expected; each looks like a name. The last is a value of the event column.
OF_NAMES = {
    "first line": "canary_first_line",
    "key": "canary_key",
    "nested key": "canary_nested",
    "outer key": "canary_outer",
    "column": "canary_column",
    "member": "canary_member",
    "event": "\u043a\u0430\u043d\u0430\u0440\u0435\u0439\u043a\u0430",
}
CLIENTS = [f"canary-client-{number}" for number in range(400)]
AGENT = "CanaryBrowser/9.26 (canary agent 26)"
CRAWLER = "CanaryCrawler/1.0 (bot; canary agent 27)"
ADDRESS = "203.0.113.128"
EVERYWHERE_FORBIDDEN = [*OF_BOTS, *OF_LINES.values(), "canary-client-", "CanaryBrowser", "CanaryCrawler", ADDRESS]


@dataclass
class PlantedLog:
    """The lines as they are, and those that cannot be read."""

    lines: list[bytes]
    broken: list[bytes]


def planted_log(seed: int = 1) -> PlantedLog:
    rng = random.Random(seed)
    lines: list[bytes] = []
    number = 0

    def ask(query, client, minute, *, agent=AGENT, shown=5, clicked=None):
        nonlocal number
        number += 1
        query_id = f"{OF_LINES['query id']}-{number}"
        time = f"2026-09-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{rng.randrange(60):02d}Z"
        more = {
            "session_id": OF_LINES["session"],
            "ip": ADDRESS,
            "application": OF_LINES["application"],
            "query_attributes": {"user_agent": agent, "ip": ADDRESS, "referrer": OF_LINES["referrer"]},
        }
        lines.append(search(query_id, query, client, time, **more))
        documents = rng.sample(range(40), shown)
        attributes = {"session_id": OF_LINES["session"], "ip": ADDRESS, "message": OF_LINES["referrer"]}
        for position, document in enumerate(documents, 1):
            lines.append(event(query_id, "impression", f"D{document}", position, client, time, **attributes))
        for position in [rng.randrange(1, shown + 1)] if clicked is None and shown else clicked or []:
            lines.append(event(query_id, "click", f"D{documents[position - 1]}", position, client, time, **attributes))
        return query_id

    for person in range(300):  # over two days, so that the log has a clock to compare with
        for _ in range(rng.choice([1, 1, 2, 4])):
            ask(rng.choice(PUBLIC), CLIENTS[person], rng.randrange(2 * 1440))
    for person in range(8):
        ask(PUBLISHED, CLIENTS[person], rng.randrange(2 * 1440))
    for _ in range(9):  # often, by one
        ask(OF_FEW[0], CLIENTS[8], rng.randrange(2 * 1440))
    ask(OF_FEW[3].upper(), CLIENTS[9], 700)
    for person in range(10, 14):
        ask(OF_FEW[1], CLIENTS[person], rng.randrange(2 * 1440))
    ask(OF_FEW[2], CLIENTS[14], 300)
    for client in CLIENTS[310:322]:  # the crowd that would lift it over k
        ask(OF_FEW[2], client, 1000)
    for turn in range(6):
        ask(OF_BOTS[0], f"{CLIENTS[330]}{turn}", 200 * turn, agent=CRAWLER)
    for turn in range(70):
        ask(OF_BOTS[1], CLIENTS[331], 500 + turn // 3)
        ask(f"{OF_BOTS[2]} {turn // 14}", CLIENTS[332 + turn % 3], 40 * turn, clicked=[1, 2, 3, 4, 5])
        ask(f"{OF_BOTS[3]} {turn}", CLIENTS[340], 36 * turn, clicked=[])
    for turn in range(45):
        ask(OF_BOTS[4], CLIENTS[341], 900 + turn)
    known = ask(PUBLIC[0], CLIENTS[0], 100)
    lines += [
        search(known, OF_FEW[4], CLIENTS[0], "2026-09-02T23:59:59Z"),  # of the same query id
        event(known, "click", "D1", OF_LINES["position"], CLIENTS[393]),
        event(known, OF_LINES["action"], "D1", 1, CLIENTS[0]),
        event("nowhere", "click", OF_LINES["unknown search"], 1, CLIENTS[1]),
        lines[0],
    ]
    broken = _broken()
    lines += broken
    rng.shuffle(lines)
    return PlantedLog(lines=lines, broken=broken)


def _broken() -> list[bytes]:
    def whole(name: str, **more) -> bytes:
        return search(f"broken {name}", OF_LINES[name], CLIENTS[390], agent=AGENT, ip=ADDRESS, **more)

    nested = b'{"query_id": "deep", "user_query": "%s", "client_id": %s}' % (OF_LINES["nested"].encode(), b"[" * 10_000)
    return [
        whole("cut")[:-30],
        whole("bytes").replace(b"canary bytes", b"\xff\xfe canary bytes"),
        whole("without id").replace(b'"query_id"', b'"qid"'),
        whole("number").replace(b'"timestamp"', b'"client_id": {"x": 7}, "timestamp"', 1),
        b"[" + whole("array") + b"]",
        search("broken time", "x", CLIENTS[391], OF_LINES["time"]),
        nested + b"]" * 10_000,
        json.dumps({"query_id": {"x": OF_LINES["twice"]}, "user_query": OF_LINES["twice"], "agent": BROWSER}).encode(),
    ]
