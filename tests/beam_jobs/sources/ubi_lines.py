"""UBI lines for tests, and a small random log that holds every kind of trouble."""

import json
import random

BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
CRAWLER = "Mozilla/5.0 (compatible; Examplebot/2.1; +http://example.org/bot.html)"


def search(query_id, query, client="c1", time="2026-09-01T10:00:00.000Z", agent=BROWSER, **more) -> bytes:
    line = {"application": "shop", "query_id": query_id, "client_id": client, "user_query": query, "timestamp": time}
    return json.dumps(line | {"query_attributes": {"user_agent": agent}} | more, ensure_ascii=False).encode()


def event(query_id, action, document, position=1, client="c1", time="2026-09-01T10:00:05.000Z", **more) -> bytes:
    attributes = {"object": {"object_id": document}, "position": {"ordinal": position}}
    line = {"application": "shop", "query_id": query_id, "client_id": client, "action_name": action, "timestamp": time}
    return json.dumps(line | {"event_attributes": attributes} | more, ensure_ascii=False).encode()


def random_log(seed: int, num_searches: int = 300) -> list[bytes]:
    """Lines of people, bots of all sorts, repeats, broken lines, and events of unknown searches, in random order."""
    rng = random.Random(seed)
    texts = [
        "angle bracket",
        "Angle  Bracket",
        "café table",
        "电钻",
        "drill",
        "xxx movies",
        "!!",
        "",
        "www.win.example now",
    ]
    lines: list[bytes] = []
    for number in range(num_searches):
        query_id, client = f"q{number}", rng.choice([f"c{rng.randrange(60)}", None, ""])
        day, hour, minute, ms = rng.randrange(1, 28), rng.randrange(24), rng.randrange(60), rng.randrange(1000)
        time = f"2026-09-{day:02d}T{hour:02d}:{minute:02d}:00.{ms:03d}Z"
        agent = rng.choice([BROWSER] * 20 + [CRAWLER, None])
        lines.append(search(query_id, rng.choice(texts), client, time, agent))
        if rng.random() < 0.05:
            lines.append(search(query_id, "another text", client, time.replace("-09-", "-10-"), agent))
        for position in range(1, rng.randrange(1, 6)):
            shown = event(query_id, "impression", f"D{rng.randrange(40)}", position, rng.choice([client, None]), time)
            lines.append(shown)
            if rng.random() < 0.3:
                lines.append(shown.replace(b"impression", rng.choice([b"click", b"click", b"add_to_cart"])))
    for number in range(90):  # a bot by its pace
        time = f"2026-09-05T03:{number // 2:02d}:{number % 2 * 30:02d}.000Z"
        lines += [
            search(f"fast{number}", "drill", "fast", time),
            event(f"fast{number}", "click", "D1", 1, "fast", time),
        ]
    lines += [event("nowhere", "click", "D1"), event("q0", "click", None), event("q1", "click", "D2", "third")]
    lines += [rng.choice(lines) for _ in range(40)]
    lines += [line[: rng.randrange(len(line))] for line in rng.sample(lines, 6)]
    lines += [
        b"",
        b'{"qid": "q1"}',
        b'{"index": {"_id": "1"}}',
        b"\xff\xfe",
        b"[1]",
        search("q2", "x", timestamp="yesterday"),
    ]
    rng.shuffle(lines)
    return lines
