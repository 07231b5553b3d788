import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.titles import SHOWN, join_titles, pool_of, titled_documents
from schemas.documents import DOCUMENT
from schemas.words import normalise


def _documents(titles: dict[str, str]) -> pa.Table:
    return pa.table([list(titles), list(titles.values())], schema=DOCUMENT)


def _pool(titles: dict[str, str], size: int) -> list[tuple[str, str]]:
    pool = pool_of(titled_documents(_documents(titles), size))
    return list(zip(pool["document_id"].to_pylist(), pool["title"].to_pylist(), strict=True))


_SOME_ALIKE = ["A b", "a  B", "c", "D", "e f", "g"]
_TITLES = st.dictionaries(st.text("abcdef123", min_size=1, max_size=6), st.sampled_from(_SOME_ALIKE))


@given(_TITLES.filter(bool), st.integers(1, 8), st.randoms())
def test_the_pool_holds_each_title_once_whatever_the_order_of_the_file(titles, size, random):
    pool = _pool(titles, size)
    distinct = {normalise(title) for title in titles.values()}
    assert len(pool) == min(size, len(distinct))
    assert len({title for _, title in pool}) == len(pool)
    assert all(normalise(titles[document_id]) == title for document_id, title in pool)
    shuffled = list(titles.items())
    random.shuffle(shuffled)
    assert _pool(dict(shuffled), size) == pool


def test_new_documents_do_not_reorder_the_pool():
    before = {f"d{i}": f"title {i}" for i in range(200)}
    after = before | {f"new{i}": f"new title {i}" for i in range(100)}
    old, new = _pool(before, 50), _pool(after, 50)
    kept = [row for row in new if row in old]
    assert kept == [row for row in old if row in new]
    assert 20 < len(kept) < 50  # two thirds are expected to stay, and newcomers take the places of the last
    assert kept == old[: len(kept)]
    assert _pool(after, 10**6)[:50] == new


@given(_TITLES.filter(bool), st.integers(1, 8))
def test_every_document_points_at_the_pool_row_of_its_title(titles, size):
    titled = titled_documents(_documents(titles), size)
    pool = [title for _, title in _pool(titles, size)]
    assert len(titled) == len(titles)
    for row in titled.to_pylist():
        assert row["title"] == normalise(titles[row["document_id"]])
        assert row["pool_row"] == (pool.index(row["title"]) if row["title"] in pool else -1)


def test_join_tells_unknown_documents_from_known_ones_that_nobody_clicked():
    titled = titled_documents(_documents({"d1": "Angle Bracket", "d2": "Screw"}), 10)
    row_of = dict(zip(titled["document_id"].to_pylist(), titled["pool_row"].to_pylist(), strict=True))
    shown = pa.Table.from_pylist(
        [
            {"query": "a", "document_id": "d1", "impressions": 3, "clicks": 1},
            {"query": "a", "document_id": "d2", "impressions": 2, "clicks": 0},
            {"query": "b", "document_id": "gone", "impressions": 1, "clicks": 1},
            {"query": "c", "document_id": "d1", "impressions": 0, "clicks": 2},
        ],
        schema=SHOWN,
    )
    joined, num_clicked, num_titled = join_titles(shown, titled)
    assert (num_clicked, num_titled) == (2, 1)  # d1 and gone; d1
    assert list(zip(*(joined[name].to_pylist() for name in ("query", "title", "pool_row")), strict=True)) == [
        ("a", "angle bracket", row_of["d1"]),
        ("a", "", row_of["d2"]),
        ("b", None, -1),
        ("c", "angle bracket", row_of["d1"]),
    ]


def test_join_of_nothing_is_nothing():
    joined, num_clicked, num_titled = join_titles(SHOWN.empty_table(), titled_documents(_documents({"d": "t"}), 1))
    assert (len(joined), num_clicked, num_titled) == (0, 0, 0)
