"""A pipeline's nights over several keys of people: nobody touches it, and every window counts people right."""

import random
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.build.click_shards import REPORTED_K
from clicktower.beam_jobs.ingest.days import Window, day_files, open_window, read_day_file
from clicktower.beam_jobs.ingest.erase import erase
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import PersonKey, hash_people, key_paths, read_key, valid_keys
from clicktower.schemas.day_version import list_dates, newest_version
from tests.beam_jobs.build.day_folders import write_documents
from tests.beam_jobs.ingest.dated_logs import write_lines
from tests.beam_jobs.sources.ubi_lines import event, search
from tests.end_to_end.every_byte import files_with

BEGIN = date(2026, 1, 1)
DAYS = 30
CLIENTS = [f"client-{number}" for number in range(40)]
QUERIES = [f"{thing} {kind}" for thing in ("hinge", "screw", "paint", "hose") for kind in ("brass", "steel", "deck")]


def night_log(night: int) -> list[tuple[str, str]]:
    """The (client, query) of each search of a night. A client asks the same few things, night after night."""
    draw = random.Random(night)
    clients = draw.sample(CLIENTS, 5)
    return [(client, QUERIES[(int(client[7:]) + draw.randrange(3)) % len(QUERIES)]) for client in clients]


def day_of(night: int) -> str:
    return (BEGIN + timedelta(days=night)).isoformat()


def ingest_night(store: Path, night: int, *, overlap: int = DAYS, today: int | None = None, **more):
    """As a scheduled run does it on the day after: the clock is an argument."""
    day = day_of(night)
    lines = []
    for number, (client, query) in enumerate(night_log(night)):
        time = f"{day}T1{number}:00:00.000Z"
        lines.append(search(f"{day}-{number}", query, client, time))
        lines += [event(f"{day}-{number}", kind, f"d{number}", 1, client, time) for kind in ("impression", "click")]
    log = write_lines(store.parent / "logs" / f"{day}.ndjson", lines)
    config = IngestConfig(date=day, key_overlap=overlap, **more)
    return ingest_log([log], store=str(store), config=config, today=BEGIN + timedelta(days=(today or night) + 1))


def expected_people(nights: range, erased: set[str]) -> dict[str, int]:
    """The number of people of each query, counted over the raw logs of some nights."""
    people = defaultdict(set)
    for night in nights:
        for client, query in night_log(night):
            if client not in erased:
                people[query].add(client)
    return {query: len(clients) for query, clients in people.items()}


def counted_people(store: Path, window: Window) -> dict[str, int]:
    """The number of distinct hashes beside each query in the days of a window."""
    people = defaultdict(set)
    for file in day_files(open_window([str(store)], window).ingests, "queries"):
        for row in read_day_file(file).to_pylist():
            people[row["query"]].update(row["people"])
    return {query: len(hashes) for query, hashes in people.items()}


def traces_of(key: PersonKey) -> list[bytes]:
    """What a key and the hashes under it would look like in a file."""
    hashes = hash_people(pa.array(CLIENTS), key.key).to_pylist()
    of_hashes = [form for value in hashes for form in (value.to_bytes(8, "little"), str(value).encode())]
    return [key.key, key.key.hex().encode(), key.id.encode(), *of_hashes]


def store_key(store: Path, number: int = -1) -> PersonKey:
    return read_key(key_paths(str(store))[number])


@pytest.mark.slow
def test_120_nights_pass_with_a_window_of_30_days_and_nobody_touches_them(tmp_path):
    """A person from before and after a change of keys is one, one who was erased stays away though the key of that time
    is gone, and nothing of that key is left.
    """
    store, erased, keys = tmp_path / "store", set[str](), dict[str, PersonKey]()
    documents = write_documents(tmp_path / "documents.tsv", {f"d{number}": f"Thing {number}" for number in range(12)})
    erasures = {12: "client-3", 70: "client-8", 89: "client-13", 91: "client-21", 105: "client-34"}
    built = {0, *range(14, 120, 15), 57, 58, 89, 90, 91, 92, 93}
    num_keys = []
    for night in range(120):
        ingest_night(store, night)
        keys |= {key.id: key for key in (read_key(path) for path in key_paths(str(store)))}
        num_keys.append(len(valid_keys(str(store), BEGIN + timedelta(days=night + 1))))
        if night in erasures:
            erased.add(erasures[night])
            assert erase([erasures[night]], store=str(store)).num_found == 1
        window = Window(last=DAYS, until=day_of(night))
        nights = range(max(0, night - DAYS + 1), night + 1)
        expected = expected_people(nights, erased)
        assert counted_people(store, window) == expected, night
        assert open_window([str(store)], window).begins == day_of(nights[0])
        if night in built:
            config = BuildConfig(k=2, num_negatives=2, dev_share=0.2)
            result = build_shards([str(store)], documents, store=str(store), config=config, window=window)
            left = {row["k"]: row["queries"] for row in result.manifest.outcome.metrics["left_at_k"]}
            assert left == {k: sum(people >= k for people in expected.values()) for k in left}, night
            assert set(left) >= set(REPORTED_K)

    assert len(keys) == 3
    assert (set(num_keys[:57]), set(num_keys[58:90]), set(num_keys[91:115])) == ({1}, {2}, {1})
    first, second, _ = keys.values()
    assert files_with(traces_of(second), [store])
    assert files_with(traces_of(first), [store]) == set()
    assert list_dates(str(store))[0] == day_of(0)
    assert newest_version(str(store), day_of(0)) is None
