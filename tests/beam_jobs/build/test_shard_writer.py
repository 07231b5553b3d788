from hashlib import sha256
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.build.click_shards import CLICK_PAIRS, index_words, write_pool, write_shard
from clicktower.beam_jobs.engine.arrow_files import read_table
from clicktower.schemas import storage
from clicktower.schemas.documents import DOCUMENT
from clicktower.schemas.shard import LogicalDigest
from clicktower.schemas.text_contract import trigram_ids, words
from tests.beam_jobs.build.pools import pool_of

TITLES = [f"{kind} {size}" for kind in ("angle bracket", "hose", "# paint", "螺丝刀", "türgriff") for size in range(6)]
DOCUMENTS = pa.table([[f"d{i}" for i in range(len(TITLES))], TITLES], schema=DOCUMENT)
POOL = pool_of(DOCUMENTS, 100)
POOL_TITLES = POOL["title"].to_pylist()
SETTINGS = {"num_negatives": 3, "seed": 7, "table_rows": 65_536}

_clicks = st.dictionaries(
    st.sampled_from(["bracket", "garden hose", "paint #4", "螺丝", "griff"]),
    st.dictionaries(st.sampled_from(POOL_TITLES), st.integers(1, 9), min_size=1, max_size=4),
)


def _pairs(clicks: dict[str, dict[str, int]]) -> list[dict]:
    return [
        {
            "query": query,
            "title": title,
            "clicks": count,
            "weight": 1000 * count,
            "dev": False,
            "excluded": None if at else sorted(POOL_TITLES.index(clicked) for clicked in titles),
        }
        for query, titles in clicks.items()
        for at, (title, count) in enumerate(titles.items())
    ]


def _write(rows: list[dict], folder: str, name: str = "train-00000"):
    return write_shard(pa.Table.from_pylist(rows, schema=CLICK_PAIRS), POOL, folder, name, **SETTINGS)


def _files(folder: str) -> dict[str, bytes]:
    return {name: storage.read_bytes(storage.join(folder, name)) for name in storage.list_files(folder)}


@settings(max_examples=40, deadline=None)
@given(_clicks, st.randoms(), st.integers(0, 5))
def test_rows_and_bytes_do_not_depend_on_order_and_rows_do_not_depend_on_sharding(clicks, random, cut):
    rows = _pairs(clicks)
    whole = _write(rows, "memory://whole")
    shuffled = random.sample(rows, len(rows))
    again = _write(shuffled, "memory://again")
    assert again.logical_digest == whole.logical_digest
    assert _files("memory://again") == _files("memory://whole")

    first = set(sorted(clicks)[:cut])
    digest = LogicalDigest()
    for shard in (True, False):
        part = [row for row in shuffled if (row["query"] in first) == shard]
        digest.merge(_write(part, f"memory://part-{shard}", f"train-{shard:05d}").logical_digest)
    assert digest.hexdigest() == whole.logical_digest


def test_the_digest_is_the_sum_of_the_rows_as_texts():
    """From the files, a row at a time: fields with line ends between them, SHA-256, added up modulo 2^256."""
    rows = _pairs({"bracket": dict.fromkeys(POOL_TITLES[20:], 2), "螺丝": {POOL_TITLES[3]: 1}})
    rows.append(
        {
            "query": "unlisted",
            "title": "no title of the pool",
            "clicks": 1,
            "weight": 2500,
            "dev": False,
            "excluded": [],
        }
    )
    made = _write(rows, "memory://sum")
    text, pairs, exclusions = (
        read_table(f"memory://sum/{name}.arrow").to_pylist() for name in ("texts", "pairs", "exclusions")
    )
    text = [row["text"] for row in text]
    logical = []
    for pair in pairs:
        fields = [text[pair["query"]], text[pair["clicked"]], str(pair["clicks"]), str(pair["weight"])]
        logical.append(["train", *fields, *(text[negative] for negative in pair["negatives"])])
    for query, number in {(pair["query"], pair["exclusion"]) for pair in pairs}:
        (listed,) = exclusions[number].values()
        logical.append(["train", "excluded", text[query], *sorted(POOL_TITLES[row] for row in listed)])
    assert made.logical_digest == _sum_of_digests(logical)
    pool = write_pool(POOL, "memory://sum-pool", "pool", table_rows=65_536)
    documents = zip(POOL_TITLES, POOL["document_id"].to_pylist(), strict=True)
    assert pool.logical_digest == _sum_of_digests(["pool", str(row), *both] for row, both in enumerate(documents))


def _sum_of_digests(rows):
    digests = (sha256("\n".join(fields).encode()).digest() for fields in rows)
    return f"{sum(int.from_bytes(digest, 'big') for digest in digests) % 2**256:064x}"


def test_the_digest_knows_split_clicks_and_excluded_texts():
    rows = _pairs({"bracket": {POOL_TITLES[0]: 2, POOL_TITLES[1]: 1}})
    other_clicks = [row | {"clicks": 3} for row in rows]
    other_excluded = [row | {"excluded": row["excluded"] and row["excluded"][:1]} for row in rows]
    made = [
        _write(rows, "memory://a"),
        _write(rows, "memory://b", "dev-00000"),
        _write(other_clicks, "memory://c"),
        _write(other_excluded, "memory://d"),
    ]
    assert len({folder.logical_digest for folder in made}) == len(made)
    assert _write(rows, "memory://e", "train-00001").logical_digest == made[0].logical_digest


def test_texts_lead_to_the_trigram_ids_that_the_text_contract_gives():
    texts = ["good angle good", "螺丝刀 #4", "türgriff"]
    words_table, texts_table = index_words(pa.array(texts), 65_536)
    trigrams = words_table["trigrams"].to_pylist()
    for text, row in zip(texts, texts_table.to_pylist(), strict=True):
        offsets, ids = trigram_ids(words(text))
        expected = [ids[start:end].tolist() for start, end in pairwise(offsets)]
        assert row["text"] == text
        assert [trigrams[word] for word in row["words"]] == expected
    assert len(words_table) == len({word for text in texts for word in words(text)})


def test_the_pool_is_uniform_and_in_its_order():
    made = write_pool(POOL, "memory://pool", "pool", table_rows=65_536)
    with storage.open_read("memory://pool/pool.arrow") as file:
        rows = pa.ipc.open_file(file).read_all().to_pylist()
    assert [row["text"] for row in rows] == list(range(len(TITLES)))
    assert [row["document_id"] for row in rows] == POOL["document_id"].to_pylist()
    assert {row["probability"] for row in rows} == {1 / len(TITLES)}
    assert made.counts["documents"] == len(TITLES)


def test_exclusions_of_a_query_are_written_once_however_many_pairs_it_has():
    titles = dict.fromkeys(POOL_TITLES, 1)
    written = []
    for number in (10, 20):
        chosen = dict(list(titles.items())[:number])
        _write(_pairs({"bracket": chosen, "hose": {POOL_TITLES[0]: 1}}), f"memory://hot-{number}")
        with storage.open_read(f"memory://hot-{number}/exclusions.arrow") as file:
            written.append(pa.ipc.open_file(file).read_all()["rows"].to_pylist())
    assert [sorted(map(len, lists)) for lists in written] == [[1, 10], [1, 20]]
