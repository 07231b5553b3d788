"""No group of bots that the rules recognise lifts a query over k: from the log to the shards, for every kind."""

import random
from pathlib import Path

import pytest

from beam_jobs.build import BuildConfig, build
from beam_jobs.ingest import IngestConfig, ingest
from tests.beam_jobs.ubi_lines import BROWSER, CRAWLER, event, search
from tests.privacy.every_byte import places_of

SECRET = "mr example 12 elm street"
VICTIM = "victim"
NUM_BOTS = 16


def _lines(query, client, minute, *, agent=BROWSER, clicked=(1,), silent=False, second=0):
    query_id = f"{client}-{minute}-{second}-{len(query)}"
    time = f"2026-09-{1 + minute // 1440:02d}T{minute // 60 % 24:02d}:{minute % 60:02d}:{second:02d}Z"
    lines = [search(query_id, query, client, time, agent)]
    if not silent:
        lines += [event(query_id, "impression", f"D{rank}", rank, client, time) for rank in range(1, 6)]
        lines += [event(query_id, "click", f"D{rank}", rank, client, time) for rank in clicked]
    return lines


def _people(rng) -> list[bytes]:
    """Two days of people, with a query that enough of them ask, and the one who asks for the secret twice."""
    lines = []
    for person in range(400):
        for _ in range(rng.choice([1, 1, 2, 3])):
            lines += _lines(
                f"hammer {rng.randrange(30)}", f"person{person}", rng.randrange(2880), clicked=(rng.randrange(1, 6),)
            )
    lines += _lines(SECRET, VICTIM, 600) + _lines(SECRET, VICTIM, 2000)
    return lines + _lines("hammer 1", VICTIM, 605)


# Each bot asks for the secret; what else they do is what gives them away.
def _declared(rng, bot):
    return _lines(SECRET, f"bot{bot}", rng.randrange(2880), agent=CRAWLER)


def _machine_gun(rng, bot):
    begin = rng.randrange(2800)
    return [
        line
        for n in range(60)
        for line in _lines(SECRET if n == 7 else f"saw {n}", f"bot{bot}", begin // 60 * 60 + n // 2, second=n % 60)
    ]


def _clicks_everything(rng, bot):
    return [
        line
        for n in range(24)
        for line in _lines(SECRET if n == 7 else f"saw {n}", f"bot{bot}", rng.randrange(2880), clicked=(1, 2, 3, 4, 5))
    ]


def _around_the_clock(rng, bot):
    return [
        line
        for n in range(48)
        for line in _lines(SECRET if n == 7 else f"saw {n}", f"bot{bot}", 40 * n + bot, clicked=())
    ]


def _crowd(rng, bot):
    return _lines(SECRET, f"bot{bot}", 1000 + rng.randrange(10), second=rng.randrange(60))


def _crowd_with_an_alibi(rng, bot):
    known = _lines(f"hammer {rng.randrange(30)}", f"bot{bot}", 990 + rng.randrange(60), clicked=(2,))
    return [*known, *_crowd(rng, bot)]


def _silent_crowd(rng, bot):
    return _lines(SECRET, f"bot{bot}", rng.randrange(2880), silent=True)


def _one_person_without_cookies(rng, bot):
    return _lines(SECRET, f"bot{bot}", 1500 + bot // 8, second=rng.randrange(60)) if bot < 8 else []


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


def _published(folder: Path, lines: list[bytes], k: int) -> tuple[dict, bool, bool]:
    """What the rules caught, whether the secret left the aggregate, and whether an ordinary query did."""
    log, documents = folder / "log.ndjson", folder / "documents.tsv"
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    documents.write_text("".join(f"D{rank}\tRed hammer number {rank}\n" for rank in range(1, 60)))
    day = ingest([str(log)], store=str(folder / "store"), config=IngestConfig())
    shards = build([day.folder], str(documents), store=str(folder / "store"), config=BuildConfig(k=k, dev_share=0))
    found = {needle for needle, _ in places_of([SECRET, "hammer 1"], [Path(shards.folder)])}
    return day.manifest.outcome.metrics["bots"], SECRET in found, "hammer 1" in found


@pytest.mark.parametrize("kind", KINDS)
def test_recognised_bots_do_not_count_as_people(tmp_path, kind):
    rng = random.Random(3)
    lines = _people(rng)
    for bot in range(NUM_BOTS):
        lines += KINDS[kind](rng, bot)
    rng.shuffle(lines)
    caught, secret, ordinary = _published(tmp_path, lines, k=2)
    rule = kind.partition(",")[0].partition(" with")[0]
    found = sum(count["clients"] for name, count in caught.items() if name.removeprefix("unsure_") == rule)
    assert found == (8 if "one person" in kind else NUM_BOTS)
    assert not secret
    assert ordinary


def test_as_many_people_would_have_published_it(tmp_path):
    """The same query, asked by as many who are no group: so it is the verdict that keeps it back above."""
    rng = random.Random(3)
    lines = _people(rng)
    for person in range(5):
        lines += _lines(SECRET, f"person{person}", rng.randrange(2880))
    caught, secret, ordinary = _published(tmp_path, lines, k=5)
    assert caught == {}
    assert secret
    assert ordinary
