import gzip
import json

import pytest

from benchmarks.skewed_log import HOT_CLIENT, HOT_QUERY, SHARES, skew_log
from clicktower.flows.simulation.simulation_config import SimulationConfig
from clicktower.flows.simulation.write_simulation import simulate


def lines_of(folder) -> list[bytes]:
    return [line for file in sorted(folder.glob("*.gz")) for line in gzip.decompress(file.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("skew") / "simulated"
    simulate(str(folder), config=SimulationConfig(num_searches=2_000, repeated_lines=0.02, undeclared_bots=0.0))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("skew", SHARES)
def test_the_share_of_lines_is_skewed_and_everything_else_stays(simulated, tmp_path, skew):
    before = lines_of(simulated / "log")
    count = skew_log(simulated / "log", simulated / "documents.tsv", skew, tmp_path / "out")
    after = lines_of(tmp_path / "out")
    assert count == len(after) == len(before)
    assert len(set(after)) == len(set(before))  # exact repeats stay repeats, and nothing else becomes one
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    if skew == "query":
        hot = {found["query_id"] for _, new in changed if (found := loads(new))}
        share = sum(1 for line in after if (found := loads(line)) and found.get("query_id") in hot) / len(after)
        assert share == pytest.approx(SHARES[skew], abs=0.04)
        assert all(HOT_QUERY in new and b"user_query" in old for old, new in changed)
    elif skew == "client":
        assert sum(HOT_CLIENT in line for line in after) / len(after) == pytest.approx(SHARES[skew], abs=0.02)
        assert not any(b"user_query" in line for line in after if HOT_CLIENT in line)
    else:
        document = (simulated / "documents.tsv").read_bytes().split(b"\t")[0]
        events = [line for line in after if b"event_attributes" in line]
        share = sum(b'"%s"' % document in line for line in events) / len(events)
        assert share == pytest.approx(SHARES[skew], abs=0.02)


def loads(line: bytes) -> dict | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
