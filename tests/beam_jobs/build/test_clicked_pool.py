"""`build --pool clicked`: negatives from documents that training pairs clicked, behind the gate."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.build.build_stage import BUILD, BuildConfig, build_shards
from clicktower.beam_jobs.build.click_shards import CLICK_PAIRS
from clicktower.beam_jobs.build.clicked_pool import clicked_rows, exclude_in
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from tests.beam_jobs.build.day_folders import make_day, read_pairs, read_pool, write_documents
from tests.beam_jobs.build.test_build_shards import TWO_MULTI

K, NUM_QUERIES, NUM_DOCUMENTS = 3, 30, 80
TITLES = {f"d{n}": f"title {n - n % 2 if n < 20 else n}" for n in range(NUM_DOCUMENTS)}  # ten titles stand there twice
PRIVATE = "d79"  # a query that fewer than k people asked is all that clicked it

_QUERIES = st.dictionaries(st.integers(0, 9), st.tuples(st.booleans(), st.sets(st.integers(0, 12))))


@given(_QUERIES, st.randoms())
def test_rows_that_are_left_and_exclusions_are_those_of_a_reference_that_takes_a_query_at_a_time(queries, shuffled):
    table = []
    for query, (dev, rows) in queries.items():
        pair = {"query": str(query), "clicks": 1, "weight": 1000, "dev": dev}
        table.append(pair | {"title": "of the pool or not", "excluded": sorted(rows)})
        table += [pair | {"title": str(row), "excluded": None} for row in rows]
    shuffled.shuffle(table)
    pairs = pa.Table.from_pylist(table, schema=CLICK_PAIRS)
    left = sorted(set().union(*(rows for dev, rows in queries.values() if not dev)))
    assert clicked_rows(pairs).tolist() == left
    renumbered = exclude_in(pairs, np.array(left, np.int32))
    assert renumbered.schema == CLICK_PAIRS
    expected = [
        row | {"excluded": row["excluded"] and [left.index(old) for old in row["excluded"] if old in left]}
        for row in table
    ]
    assert renumbered.to_pylist() == expected


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Clicks by query, documents of at most a fifth of the catalogue each; of the private query none passes."""
    folder, draws = tmp_path_factory.mktemp("clicked"), random.Random(4)
    public = sorted(set(TITLES) - {PRIVATE})
    clicks = {f"query {n}": draws.sample(public, draws.randint(1, 8)) for n in range(NUM_QUERIES)}
    people = {query: range(K + n % 3) for n, query in enumerate(clicks)}
    clicks["private"], people["private"] = [PRIVATE], range(K - 1)
    store = str(folder / "store")
    day = make_day(
        store,
        [(query, list(some), len(some)) for query, some in people.items()],
        [(query, document, 1, 2, 1) for query, documents in clicks.items() for document in documents],
    )
    documents = write_documents(folder / "documents.tsv", TITLES)
    return {"clicks": clicks, "build": {"days": [day], "documents": documents, "store": store}, "folder": folder}


def _config(**changes):
    return BuildConfig(**({"k": K, "dev_share": 0.3, "pool": "clicked"} | changes))


def _reference(log, all_documents, pool_size):
    """(titles of the pool in its order, split of each query) of plain Python, from a build with all documents."""
    split = {row["query"]: row["split"] for row in read_pairs(all_documents)}
    clicked = {TITLES[document] for query in split if split[query] == "train" for document in log["clicks"][query]}
    return [row["title"] for row in read_pool(all_documents)[:pool_size] if row["title"] in clicked], split


@pytest.mark.slow
@pytest.mark.parametrize("pool_size", [1_000_000, 60])
def test_the_pool_holds_what_training_pairs_clicked_and_nothing_else_changes(log, pool_size):
    of_all = build_shards(**log["build"], config=_config(pool="documents", pool_size=pool_size))
    built = build_shards(**log["build"], config=_config(pool_size=pool_size))
    pool, split = _reference(log, of_all, pool_size)
    assert [row["title"] for row in read_pool(built)] == pool
    assert {row["probability"] for row in read_pool(built)} == {1 / len(pool)}
    assert len(pool) < len(read_pool(of_all))
    assert set(split.values()) == {"train", "dev"}
    assert built.manifest.outcome.ledger == of_all.manifest.outcome.ledger
    assert built.manifest.outcome.counts == dict(of_all.manifest.outcome.counts) | {"pool_documents": len(pool)}
    for row, before in zip(read_pairs(built), read_pairs(of_all), strict=True):
        excluded = {TITLES[document] for document in log["clicks"][row["query"]]} & set(pool)
        assert sorted(row["excluded"]) == sorted(excluded)
        assert row["sampling_probability"] == 1 / (len(pool) - len(excluded))
        assert len(set(row["negatives"])) == 4
        assert set(row["negatives"]) <= set(pool) - excluded
        ours = ("negatives", "excluded", "sampling_probability")
        assert {k: v for k, v in row.items() if k not in ours} == {k: v for k, v in before.items() if k not in ours}


@pytest.mark.slow
def test_it_is_what_a_documents_file_of_clicked_documents_gives(log):
    """Without held-out queries, which may click documents that no training pair has."""
    clicked = {TITLES[name] for query, names in log["clicks"].items() if query != "private" for name in names}
    some = {name: title for name, title in TITLES.items() if title in clicked}
    documents = write_documents(log["folder"] / "clicked.tsv", some)
    built = build_shards(**log["build"], config=_config(dev_share=0))
    of_some = build_shards(**(log["build"] | {"documents": documents}), config=_config(dev_share=0, pool="documents"))
    assert len(some) < len(TITLES)
    assert built.manifest.outcome.logical_digest == of_some.manifest.outcome.logical_digest


@pytest.mark.slow
def test_what_no_published_pair_clicked_is_nowhere_in_the_shards(log):
    built = build_shards(**log["build"], config=_config())
    of_all = build_shards(**log["build"], config=_config(pool="documents"))
    for result, is_there in ((built, False), (of_all, True)):
        files = [storage.read_bytes(storage.join(result.data, name)) for name in storage.list_files(result.data)]
        assert any(TITLES[PRIVATE].encode() in content for content in files) == is_there


@pytest.mark.engine
def test_two_processes_make_the_same_rows_as_one(log, tmp_path):
    one = build_shards(**log["build"], config=_config())
    two = build_shards(**(log["build"] | {"store": str(tmp_path)}), config=_config(), beam_options=TWO_MULTI)
    assert two.manifest.outcome.logical_digest == one.manifest.outcome.logical_digest
    assert read_pairs(two) == read_pairs(one)


def test_a_pool_of_all_documents_has_the_digest_that_it_had():
    settings = BUILD.request(BuildConfig(), {}).config
    assert "pool" not in settings
    assert BUILD.request(BuildConfig(pool="clicked"), {}).config == {**settings, "pool": "clicked"}


@pytest.mark.slow
def test_too_few_clicked_documents_are_an_error_that_says_what_helps(log, tmp_path):
    day = make_day(tmp_path, [("angle", [1, 2, 3], 3)], [("angle", "d30", 1, 3, 1), ("angle", "d31", 2, 3, 1)])
    with pytest.raises(StageError, match=r"fewer than 4 unclicked documents in the pool of 2 .* pool = documents"):
        build_shards(**log["build"] | {"days": [day], "store": str(tmp_path)}, config=_config(dev_share=0))
