"""Lines as a broken or hostile logger writes them: good UBI lines, damaged in one of many ways."""

import json
import random
from collections.abc import Callable, Iterator

from tests.beam_jobs.sources.ubi_lines import BROWSER, CRAWLER

MEGABYTE = 1 << 20
QUERIES = ("drill", "Angle  Bracket", "café table", "电钻", "\u212bngstr\u00f6m", "!!", "xxx movies", "a" * 300)
VALUES = (None, True, -1, 0, 1.5, 2**63, 2**70, 1e308, "", " ", "NaN", [], {}, [1], {"x": 1}, "\ud83d\ude00", "\u0000")
FIELDS = (
    "application", "query_id", "client_id", "user_query", "timestamp", "query_attributes", "action_name",
    "event_attributes", "object", "object_id", "position", "ordinal", "user_agent",
)  # fmt: skip


def good_line(rng: random.Random, num_ids: int = 400) -> bytes:
    """A search or an event of one of so many query ids and a quarter as many clients."""
    line = {
        "application": "shop",
        "query_id": f"q{rng.randrange(num_ids)}",
        "client_id": rng.choice([f"c{rng.randrange(num_ids // 4)}", None]),
        "timestamp": f"2026-09-{rng.randrange(1, 29):02d}T{rng.randrange(24):02d}:{rng.randrange(60):02d}:00.000Z",
    }
    if rng.random() < 0.3:
        agent = CRAWLER if rng.random() < 0.01 else BROWSER
        line |= {"user_query": rng.choice(QUERIES), "query_attributes": {"user_agent": agent}}
    else:
        shown = {"object": {"object_id": f"D{rng.randrange(50)}"}, "position": {"ordinal": rng.randrange(30)}}
        line |= {"action_name": rng.choice(["impression", "click", "add_to_cart"]), "event_attributes": shown}
    return json.dumps(line, ensure_ascii=rng.random() < 0.5).encode()


def _flip(line: bytes, rng: random.Random) -> bytes:
    content = bytearray(line)
    for _ in range(rng.randrange(1, 5)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _cut(line: bytes, rng: random.Random) -> bytes:
    return line[: rng.randrange(len(line))]


def _insert(what: bytes) -> Callable[[bytes, random.Random], bytes]:
    def insert(line: bytes, rng: random.Random) -> bytes:
        at = rng.randrange(len(line))
        return line[:at] + what + line[at:]

    return insert


def _wrong_type(line: bytes, rng: random.Random) -> bytes:
    value, field = json.loads(line), rng.choice(FIELDS)

    def change(part: dict) -> None:
        for name in list(part):
            if name == field:
                part[name] = rng.choice(VALUES)
            elif isinstance(part[name], dict):
                change(part[name])

    change(value)
    return json.dumps(value).encode()


def _missing(line: bytes, rng: random.Random) -> bytes:
    value = json.loads(line)
    del value[rng.choice(list(value))]
    return json.dumps(value).encode()


def _huge_field(line: bytes, rng: random.Random) -> bytes:
    value = json.loads(line)
    value[rng.choice(list(value))] = rng.choice("aé电\n") * rng.choice([1_000, 30_000, 100_000])
    return json.dumps(value, ensure_ascii=False).encode()


def _deep(line: bytes, rng: random.Random) -> bytes:
    depth, (begin, end) = 10_000, rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    inner = begin * depth + (b"1" if begin != b"[" else b"") + end * rng.choice([depth, depth - 1, 0])
    return b'{"query_id": "q1", "user_query": %s}' % inner if rng.random() < 0.5 else inner


def _duplicate_keys(line: bytes, rng: random.Random) -> bytes:
    field, value = rng.choice(FIELDS[:8]), json.dumps(rng.choice([*VALUES, "q7", "other"])).encode()
    return b'{"%s": %s, ' % (field.encode(), value) + line[1:]


def _odd_time(line: bytes, rng: random.Random) -> bytes:
    times = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "1969-12-31", 0, -1, 10**15, 10**30, "2026-02-30", "now",
             "2026-09-01T10:00:00+14:00", "2026-09-01 10:00:00", "2026-W36-2", 1.7e12, "\u0662\u0660"]  # fmt: skip
    return json.dumps({**json.loads(line), "timestamp": rng.choice(times)}).encode()


def _not_an_object(line: bytes, rng: random.Random) -> bytes:
    others = [b"", b" ", b"\r", b"null", b"[]", b"{}", b"7", b'"x"']
    return rng.choice([*others, b"\xef\xbb\xbf" + line, b"[" + line + b"]"])


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _insert(b"\x00"),
    _insert(b"\xff\xfe"),
    _insert(b"\xed\xa0\x80"),  # half a surrogate pair
    _insert(b"\\ud800"),
    _insert(b"\r"),
    _wrong_type,
    _missing,
    _huge_field,
    _deep,
    _duplicate_keys,
    _odd_time,
    _not_an_object,
)


def fuzzed_line(rng: random.Random, damage: int | None = None, num_ids: int = 400) -> bytes:
    """A line without a line end, damaged by DAMAGES[damage], or left good."""
    line = good_line(rng, num_ids)
    return line if damage is None else DAMAGES[damage](line, rng).replace(b"\n", b"")


def fuzzed_lines(seed: int, number: int, damaged: float = 0.5) -> Iterator[bytes]:
    """`number` lines, this share of them damaged; the damages that make long lines are rare, or they would be all."""
    rng = random.Random(seed)
    weights = [1 if damage in (_huge_field, _deep) else 60 for damage in DAMAGES]
    damages = rng.choices(range(len(DAMAGES)), weights, k=number)
    for damage in damages:
        yield fuzzed_line(rng, damage if rng.random() < damaged else None, max(400, number // 8))
