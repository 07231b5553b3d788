"""A pipeline's nights over several keys of people: nobody touches it, and every window counts people right."""

import random
from collections import defaultdict
from collections.abc import Container, Iterable
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.build.click_shards import REPORTED_K
from clicktower.beam_jobs.ingest.days import Window, day_files, open_window, read_day_file
from clicktower.beam_jobs.ingest.erase import erase
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.ingest.person_key import PersonKey, hash_people, key_paths, read_key
from clicktower.schemas.day_version import newest_version
from tests.beam_jobs.build.day_folders import write_documents
from tests.beam_jobs.ingest.dated_logs import write_lines
from tests.beam_jobs.sources.ubi_lines import event, search
from tests.end_to_end.every_byte import files_with

BEGIN = date(2026, 1, 1)
CLIENTS = [f"client-{number}" for number in range(40)]
QUERIES = [f"{thing} {kind}" for thing in ("hinge", "screw", "paint", "hose") for kind in ("brass", "steel", "deck")]


def night_log(night: int) -> list[tuple[str, str]]:
    """The (client, query) of each search of a night. A client asks the same few things, night after night."""
    draw = random.Random(night)
    clients = draw.sample(CLIENTS, 5)
    return [(client, QUERIES[(int(client[7:]) + draw.randrange(3)) % len(QUERIES)]) for client in clients]


def day_of(night: int) -> str:
    return (BEGIN + timedelta(days=night)).isoformat()


def ingest_night(store: Path, night: int, *, overlap: int) -> None:
    """As a scheduled run does it on the day after: the clock is an argument."""
    day = day_of(night)
    lines = []
    for number, (client, query) in enumerate(night_log(night)):
        time = f"{day}T1{number}:00:00.000Z"
        lines.append(search(f"{day}-{number}", query, client, time))
        lines += [event(f"{day}-{number}", kind, f"d{number}", 1, client, time) for kind in ("impression", "click")]
    log = write_lines(store.parent / "logs" / f"{day}.ndjson", lines)
    config = IngestConfig(date=day, key_overlap=overlap)
    ingest_log([log], store=str(store), config=config, today=BEGIN + timedelta(days=night + 1))


def expected_people(nights: Iterable[int], erased: set[str]) -> dict[str, int]:
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


def pass_nights(
    folder: Path, nights: Iterable[int], *, days: int, erasures: dict[int, str], built: Container[int]
) -> dict[str, PersonKey]:
    """Ingest nights as a pipeline does, erase people after some of them, and count the people of each window of `days`
    in the days of the store, and after some nights in the shards. Returns the store's keys, the oldest first.
    """
    store, passed, erased, keys = folder / "store", list[int](), set[str](), dict[str, PersonKey]()
    documents = write_documents(folder / "documents.tsv", {f"d{number}": f"Thing {number}" for number in range(12)})
    for night in nights:
        ingest_night(store, night, overlap=days)
        passed.append(night)
        keys |= {key.id: key for key in map(read_key, key_paths(str(store)))}
        if night in erasures:
            held = [one for one in passed if newest_version(str(store), day_of(one))]
            of_one = [expected_people([one], erased | {erasures[night]}) for one in held]
            num_gone = sum(len(expected_people([one], erased)) for one in held) - sum(map(len, of_one))
            erasure = erase([erasures[night]], store=str(store))
            assert (erasure.num_found, erasure.num_queries) == (1, num_gone)
            erased.add(erasures[night])
        window = Window(last=days, until=day_of(night))
        in_window = [one for one in passed if one > night - days]
        expected = expected_people(in_window, erased)
        assert counted_people(store, window) == expected, night
        assert open_window([str(store)], window).begins == day_of(in_window[0])
        if night in built:
            config = BuildConfig(k=2, num_negatives=2, dev_share=0.2)
            result = build_shards([str(store)], documents, store=str(store), config=config, window=window)
            left = {row["k"]: row["queries"] for row in result.manifest.outcome.metrics["left_at_k"]}
            assert left == {k: sum(people >= k for people in expected.values()) for k in left}, night
            assert set(left) >= set(REPORTED_K)
    return keys


@pytest.mark.slow
def test_nights_around_a_change_of_keys_count_right_and_leave_nothing_of_the_old_key(tmp_path):
    """A person from before and after is one; who was erased before the new key was made stays away after the old one is
    gone.
    """
    [erased_first] = {client for client, _ in night_log(0)[:1]}
    erased_later = next(client for client, _ in night_log(90) if client != erased_first)
    keys = pass_nights(
        tmp_path, [0, *range(82, 95)], days=4, erasures={0: erased_first, 90: erased_later}, built={83, 92}
    )
    first, second = keys.values()
    assert files_with(traces_of(second), [tmp_path / "store"])
    assert files_with(traces_of(first), [tmp_path / "store"]) == set()
    assert newest_version(str(tmp_path / "store"), day_of(0)) is None


@pytest.mark.rehearsal
def test_120_nights_pass_with_a_window_of_30_days_and_nobody_touches_them(tmp_path):
    erasures = {12: "client-3", 70: "client-8", 89: "client-13", 91: "client-21", 105: "client-34"}
    built = {0, *range(14, 120, 15), 57, 58, 89, 90, 91, 92, 93}
    keys = pass_nights(tmp_path, range(120), days=30, erasures=erasures, built=built)
    first, second, third = keys.values()
    assert files_with(traces_of(first), [tmp_path / "store"]) == set()
    for key in (second, third):
        assert files_with(traces_of(key), [tmp_path / "store"])
    keys_of = [newest_version(str(tmp_path / "store"), day_of(night)) for night in range(120)]
    assert [len(version.parts) if version else 0 for version in keys_of] == [0] * 58 + [1] * 58 + [2] * 4
