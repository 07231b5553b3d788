import gzip

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.build import titles as steps
from clicktower.beam_jobs.build.titles import ANSWERED, SHOWN, WANTED, answer_titles, title_rows, wanted_titles
from clicktower.beam_jobs.sources import read_lines
from clicktower.schemas.documents import add_up_rows, read_documents, unfit_rows
from clicktower.schemas.errors import StageError
from clicktower.schemas.text_contract import normalise
from tests.beam_jobs.build.pools import documents_of, pool_of, titled


def _pool(named: dict[str, str], size: int) -> list[tuple[str, str]]:
    pool = pool_of(documents_of(named), size)
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
    table = titled(documents_of(titles), size)
    pool = [title for _, title in _pool(titles, size)]
    assert len(table) == len(titles)
    for row in table.to_pylist():
        assert row["title"] == normalise(titles[row["document_id"]])
        assert row["pool_row"] == (pool.index(row["title"]) if row["title"] in pool else -1)


@given(_TITLES.filter(bool), st.integers(1, 8), st.integers(1, 3))
def test_the_pool_is_the_same_however_its_documents_are_spread_over_buckets(titles, size, num_parts):
    """Title by title in parts, as buckets hold them; all hashes in few ranges would only make more candidates."""
    hashed = steps.hashed_documents(documents_of(titles))
    part = np.array([len(title) % num_parts for title in hashed["title"].to_pylist()])
    parts = [steps.group_by_title(hashed.filter(pa.array(part == number))) for number in range(num_parts)]
    num_in_range = np.sum([steps.count_hash_ranges(grouped) for grouped in parts], axis=0)
    candidates = pa.concat_tables(steps.pool_candidates(grouped, num_in_range, size) for grouped in parts)
    assert steps.pool_of(candidates, size).equals(pool_of(documents_of(titles), size))


def test_few_candidates_are_gathered_beside_the_pool():
    grouped = steps.group_by_title(steps.hashed_documents(documents_of({f"d{i}": f"title {i}" for i in range(5000)})))
    candidates = steps.pool_candidates(grouped, steps.count_hash_ranges(grouped), 100)
    assert 100 <= len(candidates) <= 110  # one range of 4,096 more: about one of 5,000


def test_two_titles_whose_documents_share_a_hash_keep_their_rows():
    hashed = pa.table([["a", "b", "c"], ["one", "two", "three"], [5, 5, 9]], schema=steps.HASHED)
    grouped = steps.group_by_title(hashed)
    pool = steps.pool_of(steps.pool_candidates(grouped, steps.count_hash_ranges(grouped), 3), 3)
    rows = steps.find_pool_rows(grouped, pool)
    assert dict(zip(rows["title"].to_pylist(), rows["pool_row"].to_pylist(), strict=True)) == {
        "one": 0,
        "two": 1,
        "three": 2,
    }


_LINES = {
    "d.tsv": [
        "c", "{}\tAngle bracket", "{}\tSteel\ttab", "\tx", " \t ", "", "{}\t", "{}\té", "\xff\ty", "{}.0\tS",
    ],
    "d.jsonl": [
        '{{"id": {}, "title": "a"}}', '{{"id": "{}", "title": ["a"]}}', '{{"id": null, "title": "a"}}', "", "  ",
        '{{"id": {}.0, "title": "2026-09-01", "x": [1]}}', '{{"id": "n{}", "title": "\\ud800"}}', '{{"id": "{}"}}',
        '{{"_id": "b{}", "title": "", "text": "t"}}', '{{"id": "u{}", "title": 1.10}}', "no JSON", "\xff",
    ],
    "d.csv": ["{},a", '{},"b, ""c"""', '{},"two\nlines"', "x", "{},a,b", ",y", "", '{},"open', "{}.0,é"],
}  # fmt: skip
_FILES = st.sampled_from(sorted(_LINES)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.lists(st.sampled_from(_LINES[name]), max_size=30),
        st.sampled_from(["\n", "\r\n"]),
        st.booleans(),
        st.sampled_from(["", ".gz", ".zst"]),
    )
)


@pytest.mark.slow
@given(_FILES)
def test_documents_read_in_parts_are_those_that_are_read_at_once(tmp_path_factory, made):
    name, lines, breaks, has_mark, packed = made
    head = ["id,title"] if name == "d.csv" else []
    good = {"d.tsv": "k{}\tw", "d.jsonl": '{{"id": "k{}", "title": "w"}}', "d.csv": "k{},w"}[name]
    numbered = [line.format(number) for number, line in enumerate([*lines, *[good] * (len(lines) + 1)])]
    content = (breaks.join([*head, *numbered]) + breaks).encode().replace("\xff".encode(), b"\xff")
    content = b"\xef\xbb\xbf" * has_mark + content
    pack = {"": bytes, ".gz": gzip.compress, ".zst": lambda text: pa.compress(text, "zstd", asbytes=True)}[packed]
    path = tmp_path_factory.mktemp("parts") / f"{name}{packed}"
    path.write_bytes(pack(content))
    whole = read_documents(str(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_lines, "RANGE_BYTES", 50)
        parts = steps.plan_documents(str(path))
    blocks = [block for part in parts for block in steps.read_documents_part(part)]
    assert len(parts) > 1 or packed or name == "d.csv" or len(content) <= 50
    hashed = pa.concat_tables(steps.hashed_documents(block.table) for block in blocks)
    assert hashed["document_id"].to_pylist() == whole.ids
    assert hashed["title"].to_pylist() == list(map(normalise, whole.titles))
    assert unfit_rows(str(path), add_up_rows(block.rows for block in blocks)) == whole.unfit
    for rows in whole.unfit if name != "d.csv" else ():  # the places are those of such lines in the file
        for place in rows.places:
            line = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")[int(place.split(":")[1]) - 1]
            assert b"\tw" not in line
            assert b'"w"' not in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PAR1\x15", "ends in .parquet"),
        ("1\ta".encode("utf-16"), "is UTF-16. Convert"),
        (gzip.compress(gzip.compress(b"1\ta")), "is packed twice"),
    ],
)
def test_build_says_of_documents_that_are_not_text_what_evaluate_says(tmp_path, content, words):
    (tmp_path / "d.tsv").write_bytes(content)
    for read in read_documents, steps.plan_documents:
        with pytest.raises(StageError, match=words):
            read(str(tmp_path / "d.tsv"))


def test_a_plan_of_documents_leaves_damage_to_their_reader(tmp_path):
    (tmp_path / "d.tsv").write_bytes(gzip.compress(b"1\ta" * 999)[:-9])
    assert steps.plan_documents(str(tmp_path / "d.tsv"))


def test_row_groups_of_parquet_are_the_documents_that_are_read_at_once(tmp_path):
    ids = pa.array(["a", None, "c", "d\n1", "e", "f", "g", None, "h"])
    pq.write_table(pa.table({"id": ids, "title": [*"ABCDEFGH", ""]}), tmp_path / "d.parquet", row_group_size=2)
    parts = steps.plan_documents(str(tmp_path / "d.parquet"))
    blocks = [block for part in parts for block in steps.read_documents_part(part)]
    whole = read_documents(str(tmp_path / "d.parquet"))
    assert len(parts) == 5
    assert [i for block in blocks for i in steps.hashed_documents(block.table)["document_id"].to_pylist()] == whole.ids
    unfit = unfit_rows(str(tmp_path / "d.parquet"), add_up_rows(block.rows for block in blocks))
    assert unfit == whole.unfit
    assert {rows.reason: rows.places for rows in unfit} == {
        "without_id": ("d.parquet:2", "d.parquet:8"), "unfit_id": ("d.parquet:4",)
    }  # fmt: skip


def test_the_answer_tells_unknown_documents_from_known_ones_that_nobody_clicked():
    table = titled(documents_of({"d1": "Angle Bracket", "d2": "Screw"}), 10)
    row_of = dict(zip(table["document_id"].to_pylist(), table["pool_row"].to_pylist(), strict=True))
    shown = pa.Table.from_pylist(
        [
            {"query": "a", "document_id": "d1", "impressions": 3, "clicks": 1, "weight": 1000},
            {"query": "a", "document_id": "d2", "impressions": 2, "clicks": 0, "weight": 0},
            {"query": "b", "document_id": "gone", "impressions": 1, "conversions": 1, "weight": 5000},
            {"query": "c", "document_id": "d1", "impressions": 0, "clicks": 2, "weight": 2000},
        ],
        schema=SHOWN,
    )
    wanted = wanted_titles(shown, np.array([0, 0, 1, 0]))
    assert len(wanted) == 3  # d1 once for bucket 0, though two of its queries were shown it
    answered, num_clicked, num_titled = answer_titles(wanted, table)
    assert (num_clicked, num_titled) == (2, 1)  # d1 and gone; d1
    assert set(zip(*(column.to_pylist() for column in answered), strict=True)) == {
        (0, "d1", "angle bracket", row_of["d1"]),
        (0, "d2", "", row_of["d2"]),
        (1, "gone", None, -1),
    }
    of_bucket_0 = title_rows(shown.take([0, 1, 3]), answered.filter(pc.equal(answered["bucket"], 0)))
    assert list(zip(*(of_bucket_0[name].to_pylist() for name in ("query", "title", "pool_row")), strict=True)) == [
        ("a", "angle bracket", row_of["d1"]),
        ("a", "", row_of["d2"]),
        ("c", "angle bracket", row_of["d1"]),
    ]


def test_a_document_that_every_query_is_shown_asks_once_for_each_bucket():
    counts = [[1] * 1000, [0] * 999 + [1], [0] * 1000, [0] * 999 + [1000]]
    shown = pa.table([[f"q{i}" for i in range(1000)], ["hot"] * 1000, *counts], schema=SHOWN)
    wanted = wanted_titles(shown, np.arange(1000) % 4)
    assert sorted(zip(*(wanted[name].to_pylist() for name in ("bucket", "clicked")), strict=True)) == [
        (0, False),
        (1, False),
        (2, False),
        (3, True),
    ]


def test_answers_to_nothing_are_nothing():
    answered, num_clicked, num_titled = answer_titles(WANTED.empty_table(), titled(documents_of({"d": "t"}), 1))
    assert (answered.num_rows, num_clicked, num_titled) == (0, 0, 0)
    assert title_rows(SHOWN.empty_table(), ANSWERED.empty_table()).num_rows == 0
