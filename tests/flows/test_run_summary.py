import pytest

from flows.run_summary import _description


@pytest.mark.parametrize(
    ("first", "last", "when"),
    [
        ("2026-09-01T00:00:03Z", "2026-09-02T23:10:00Z", " from 2026-09-01 to 2026-09-02"),
        (None, None, ""),  # ORCAS has no times
    ],
)
def test_a_log_without_times_is_described_without_them(first, last, when):
    results = {
        "ingest": {"counts": {"queries": 12}, "metrics": {"first_time": first, "last_time": last}},
        "build": {"counts": {"train_pairs": 5}, "ledger": {"total": 1_234}},
    }
    assert _description(results) == f"1,234 log lines{when}: 12 different queries, 5 training pairs."
