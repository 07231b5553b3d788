"""No group of bots that the rules recognise lifts a query over k: from the log to the shards, for every kind."""

import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from tests.beam_jobs.sources.ubi_lines import BROWSER, CRAWLER, event, search
from tests.end_to_end.every_byte import places_of

NUM_BOTS = 16
ORDINARY = "hammer 1"


def _lines(query, client, minute, *, agent=BROWSER, clicked=(1,), silent=False, second=0):
    query_id = f"{client}-{minute}-{second}-{len(query)}"
    time = f"2026-09-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{second:02d}Z"
    lines = [search(query_id, query, client, time, agent)]
    if not silent:
        lines += [event(query_id, "impression", f"D{rank}", rank, client, time) for rank in range(1, 6)]
        lines += [event(query_id, "click", f"D{rank}", rank, client, time) for rank in clicked]
    return lines


def _people(rng) -> list[bytes]:
    """Two days of people, with a query that enough of them ask."""
    lines = []
    for person in range(400):
        for _ in range(rng.choice([1, 1, 2, 3])):
            lines += _lines(
                f"hammer {rng.randrange(30)}", f"person{person}", rng.randrange(2880), clicked=(rng.randrange(1, 6),)
            )
    return lines


def _victim(secret, minute) -> list[bytes]:
    """The one who asks for a secret, twice."""
    victim = f"victim of {secret}"
    return [
        *_lines(secret, victim, minute),
        *_lines(secret, victim, minute + 1400),
        *_lines(ORDINARY, victim, minute + 5),
    ]


class Bot(NamedTuple):
    """One of a kind's bots, and the secret that all of its kind ask for."""

    name: str
    number: int
    secret: str


# Each bot asks for the secret; what else they do is what gives them away.
def _declared(rng, bot):
    return _lines(bot.secret, bot.name, rng.randrange(2880), agent=CRAWLER)


def _machine_gun(rng, bot):
    begin = rng.randrange(2800)
    return [
        line
        for n in range(60)
        for line in _lines(bot.secret if n == 7 else f"saw {n}", bot.name, begin // 60 * 60 + n // 2, second=n % 60)
    ]


def _clicks_everything(rng, bot):
    return [
        line
        for n in range(24)
        for line in _lines(bot.secret if n == 7 else f"saw {n}", bot.name, rng.randrange(2880), clicked=(1, 2, 3, 4, 5))
    ]


def _around_the_clock(rng, bot):
    return [
        line
        for n in range(48)
        for line in _lines(bot.secret if n == 7 else f"saw {n}", bot.name, 40 * n + bot.number, clicked=())
    ]


def _crowd(rng, bot):
    return _lines(bot.secret, bot.name, 1000 + rng.randrange(10), second=rng.randrange(60))


def _crowd_with_an_alibi(rng, bot):
    known = _lines(f"hammer {rng.randrange(30)}", bot.name, 990 + rng.randrange(60), clicked=(2,))
    return [*known, *_crowd(rng, bot)]


def _silent_crowd(rng, bot):
    return _lines(bot.secret, bot.name, rng.randrange(2880), silent=True)


def _one_person_without_cookies(rng, bot):
    return _lines(bot.secret, bot.name, 1500 + bot.number // 8, second=rng.randrange(60)) if bot.number < 8 else []


KINDS = {
    "user_agent": _declared,
    "pace": _machine_gun,
    "clicks_everything": _clicks_everything,
    "around_the_clock": _around_the_clock,
    "crowd": _crowd,
    "crowd with an alibi": _crowd_with_an_alibi,
    "crowd, silent": _silent_crowd,
    "crowd, one person": _one_person_without_cookies,
}
SECRETS = {kind: f"mr example {number} elm street" for number, kind in enumerate(KINDS, 11)}


def _published(folder: Path, lines: list[bytes], k: int) -> tuple[dict[str, int], set[str]]:
    """How many clients each rule caught, and which of the secrets and an ordinary query left the aggregate."""
    log, documents = folder / "log.ndjson", folder / "documents.tsv"
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    documents.write_text("".join(f"D{rank}\tRed hammer number {rank}\n" for rank in range(1, 60)))
    day = ingest_log([str(log)], store=str(folder / "store"), config=IngestConfig())
    shards = build_shards(
        [day.folder], str(documents), store=str(folder / "store"), config=BuildConfig(k=k, dev_share=0)
    )
    found = {needle for needle, _ in places_of([*SECRETS.values(), ORDINARY], [Path(shards.folder)])}
    caught: Counter[str] = Counter()
    for name, count in day.manifest.outcome.metrics["bots"].items():
        caught[name.removeprefix("unsure_")] += count["clients"]
    return caught, found


@pytest.fixture(scope="module")
def lifted(tmp_path_factory):
    """What became of a log in which each kind of bots asks for a secret of its own."""
    rng = random.Random(3)
    lines = _people(rng)
    for place, (kind, make) in enumerate(KINDS.items()):
        lines += _victim(SECRETS[kind], 600 + 40 * place)  # apart from each other and from the crowds
        for number in range(NUM_BOTS):
            lines += make(rng, Bot(f"{kind} bot {number}", number, SECRETS[kind]))
    rng.shuffle(lines)
    return _published(tmp_path_factory.mktemp("lifted"), lines, k=2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_recognised_bots_do_not_count_as_people(lifted, kind):
    caught, found = lifted
    alike = [other for other in KINDS if _rule(other) == _rule(kind)]
    assert caught[_rule(kind)] == sum(8 if "one person" in other else NUM_BOTS for other in alike)
    assert SECRETS[kind] not in found
    assert ORDINARY in found


def _rule(kind: str) -> str:
    """The rule that catches a kind of bots."""
    return kind.partition(",")[0].partition(" with")[0]


@pytest.mark.slow
def test_as_many_people_would_have_published_it(tmp_path):
    """The same query, asked by as many who are no group: so it is the verdict that keeps it back above."""
    rng = random.Random(3)
    secret = SECRETS["crowd"]
    lines = _people(rng) + _victim(secret, 600)
    for person in range(5):
        lines += _lines(secret, f"person{person}", rng.randrange(2880))
    caught, found = _published(tmp_path, lines, k=5)
    assert caught == {}
    assert found == {secret, ORDINARY}
