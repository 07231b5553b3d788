"""Whatever the bytes of a log are, every line has one fate, and nothing falls over."""

import random
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.ingest.bots import (
    BotRules,
    activity_of,
    client_statistics,
    detect_bots,
    find_crowds,
    merge_bots,
)
from clicktower.beam_jobs.ingest.day_rows import aggregate_joined, join_search_events, merge_bucket
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log, open_source
from clicktower.beam_jobs.sources.read_lines import Unit
from clicktower.schemas.ledger import FATES
from tests.beam_jobs.ingest.fuzzed_lines import DAMAGES, MEGABYTE, fuzzed_line, fuzzed_lines, good_line

KEY = b"k" * 32


def _fates(path) -> Counter[str]:
    """The fates of all lines of a file, by the functions that the job calls, one after the other."""
    source = open_source(IngestConfig())
    fates: Counter[str] = Counter()
    batches = []
    for unit in source.plan([str(path)]).units:
        assert isinstance(unit, Unit)
        for parsed in source.read(unit):
            fates.update(parsed.reject_reasons)
            fates["action_line"] += parsed.num_action_lines
            fates["blank_line"] += parsed.num_blank_lines
            batches.append(pa.Table.from_batches([parsed.rows]))
    joined, tally = join_search_events(pa.concat_tables(batches).unify_dictionaries().combine_chunks(), KEY)
    bots, passers_by = detect_bots(client_statistics(joined), BotRules())
    bots = merge_bots([bots, find_crowds(passers_by, activity_of(passers_by), BotRules())])
    partial, filtered = aggregate_joined(joined, bots)
    queries, exposures = merge_bucket(partial)
    fates.update(tally.fates)
    fates.update(filtered.fates)
    fates["day_search"] = sum(queries["searches"].to_pylist())
    fates["day_impression"] = sum(exposures["impressions"].to_pylist())
    fates["day_click"] = sum(exposures["clicks"].to_pylist())
    return +fates


_LINES = st.lists(
    st.one_of(
        st.builds(
            lambda seed, damage: fuzzed_line(random.Random(seed), damage),
            st.integers(0, 2**32),
            st.one_of(st.none(), st.integers(0, len(DAMAGES) - 1)),
        ),
        st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@given(lines=_LINES, ends=st.booleans())
def test_any_lines_add_up(tmp_path_factory, lines, ends):
    content = b'{"index": {}}\n' + b"\n".join(lines) + (b"\n" if ends else b"")  # begins as no compressed file does
    path = tmp_path_factory.mktemp("fuzz") / "log.ndjson"
    path.write_bytes(content)
    fates = _fates(path)
    assert fates.keys() <= FATES.keys()
    assert sum(fates.values()) == content.count(b"\n") + (not content.endswith(b"\n"))


@pytest.mark.parametrize("damage", range(len(DAMAGES)))
def test_every_damage_is_survived_and_good_lines_beside_it_are_kept(tmp_path, damage):
    rng = random.Random(damage)
    good = [good_line(rng) for _ in range(40)]
    path = tmp_path / "log.ndjson"
    path.write_bytes(b"".join(line + b"\n" for line in good))
    before = _fates(path)
    bad = [fuzzed_line(rng, damage) for _ in range(30)]
    path.write_bytes(b"".join(line + b"\n" for line in [*bad, *good]))
    after = _fates(path)
    assert sum(after.values()) == 70
    unreadable = {fate for fate in FATES if FATES[fate][0] == "unreadable"}
    assert not unreadable & before.keys()  # so whatever is unreadable was damaged
    assert sum(after[fate] for fate in unreadable) <= 30


@pytest.mark.slow
def test_thousands_of_fuzzed_lines_and_one_of_ten_megabytes_add_up_in_the_job(tmp_path):
    lines = [*fuzzed_lines(1, 4_000), b'{"query_id": "q1", "user_query": "' + b"x" * (10 * MEGABYTE) + b'"}']
    path = tmp_path / "log.ndjson"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    config = IngestConfig(max_unreadable_share=1.0)
    result = ingest_log([str(path)], store=str(tmp_path / "store"), config=config)
    ledger = result.manifest.outcome.ledger
    assert ledger.total == len(lines) == sum(ledger.lines.values())
    assert Counter(ledger.lines) == _fates(path)
    assert len(ledger.lines) >= 13
