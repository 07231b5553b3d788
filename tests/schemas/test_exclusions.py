import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.shard import ListedExclusions


@st.composite
def _cases(draw):
    """(rows in all, lists of excluded ones, for each pair its list and the rows that are asked for)"""
    num_rows = draw(st.integers(1, 60))
    row = st.integers(0, num_rows - 1)
    lists = draw(st.lists(st.sets(row).map(sorted), min_size=1, max_size=6))
    width = draw(st.integers(1, 3))
    pair = st.tuples(st.integers(0, len(lists) - 1), st.lists(row, min_size=width, max_size=width))
    return num_rows, lists, draw(st.lists(pair, min_size=1, max_size=8))


@settings(deadline=None)
@given(_cases())
def test_lists_answer_as_sets_do(case):
    num_rows, lists, pairs = case
    offsets = np.cumsum([0, *map(len, lists)])
    listed = ListedExclusions(offsets, np.array([row for rows in lists for row in rows], np.int32), num_rows)
    of_pair, asked = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    assert listed.holds(of_pair, asked).tolist() == [[row in lists[at] for row in rows] for at, rows in pairs]
    assert listed.num_allowed(of_pair).tolist() == [num_rows - len(lists[at]) for at, _ in pairs]
    for at, _ in pairs:
        assert listed.allowed(at).tolist() == [row for row in range(num_rows) if row not in lists[at]]
