"""Small builds written by hand, for tests of the trainer: the files that schemas.shard describes, and a manifest."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.shard import EXCLUSIONS, PAIRS, POOL, SCHEMA_VERSION, TEXTS, WORDS, ListedExclusions
from clicktower.schemas.stage import run_stage
from clicktower.schemas.text_contract import CONTRACT_VERSION, trigram_ids, words

Pair = tuple[str, str, Sequence[str]]  # query, clicked title, unclicked titles
TABLE_ROWS = 50_700  # 47 rows for hashed trigrams


def write_build(
    store: str, shards: Mapping[str, Sequence[Pair]], pool: Sequence[str], *, labels: Mapping[str, object] | None = None
) -> str:
    """The stage folder of a build whose shards (`train-00000`, `dev-00000`, ...) hold these pairs."""

    def produce(folder: str) -> Outcome:
        for name, pairs in shards.items():
            _write_shard(f"{folder}/{name}", pairs, pool)
        write_texts(f"{folder}/pool", list(pool))
        rows = pa.table(
            [[f"d{i}" for i in range(len(pool))], np.arange(len(pool)), np.full(len(pool), 1 / len(pool))], schema=POOL
        )
        _write(f"{folder}/pool/pool.arrow", rows)
        catalogue = {
            "schema_version": SCHEMA_VERSION,
            "text_contract": CONTRACT_VERSION,
            "table_rows": TABLE_ROWS,
            "shards": [{"name": name, "split": name.split("-")[0]} for name in shards],
            "pool": {"name": "pool"},
        }
        storage.write_atomic(f"{folder}/catalogue.json", json.dumps(catalogue).encode())
        return Outcome(labels=labels or {})

    inputs = {"shards": {k: [list(p) for p in v] for k, v in shards.items()}, "pool": list(pool)}
    held = min((len(negatives) for pairs in shards.values() for _, _, negatives in pairs), default=0)
    request = Request(stage="build", stage_version=1, config={"num_negatives": held}, inputs=inputs)
    return run_stage(store, request, produce).folder


def _write_shard(folder: str, pairs: Sequence[Pair], pool: Sequence[str]) -> None:
    texts = list(dict.fromkeys(text for query, clicked, negatives in pairs for text in (query, clicked, *negatives)))
    number = {text: at for at, text in enumerate(texts)}
    write_texts(folder, texts)
    clicked_for: dict[str, set[str]] = {}
    for query, clicked, _ in pairs:
        clicked_for.setdefault(query, set()).add(clicked)
    exclusions = pa.array(
        [[at for at, title in enumerate(pool) if title in clicked] for clicked in clicked_for.values()],
        pa.list_(pa.int32()),
    )
    exclusion = np.array([list(clicked_for).index(query) for query, _, _ in pairs])
    table = pa.table(
        [
            [number[query] for query, _, _ in pairs],
            [number[clicked] for _, clicked, _ in pairs],
            [[number[text] for text in negatives] for _, _, negatives in pairs],
            [1] * len(pairs),
            [1.0] * len(pairs),
            1.0 / ListedExclusions.of(exclusions, len(pool)).num_allowed(exclusion),
            pa.array(exclusion, pa.int32()),
        ],
        schema=PAIRS,
    )
    _write(f"{folder}/pairs.arrow", table)
    _write(f"{folder}/exclusions.arrow", pa.table([exclusions], schema=EXCLUSIONS))


def write_texts(folder: str, texts: Sequence[str]) -> None:
    """The words and texts of a shard's folder."""
    storage.make_folder(folder)
    vocabulary = list(dict.fromkeys(word for text in texts for word in words(text)))
    number = {word: at for at, word in enumerate(vocabulary)}
    offsets, ids = trigram_ids(vocabulary, TABLE_ROWS)
    trigrams = [ids[offsets[w] : offsets[w + 1]] for w in range(len(vocabulary))]
    _write(f"{folder}/words.arrow", pa.table([vocabulary, trigrams], schema=WORDS))
    _write(f"{folder}/texts.arrow", pa.table([texts, [[number[w] for w in words(t)] for t in texts]], schema=TEXTS))


def _write(path: str, table: pa.Table) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)  # several chunks, as in large shards


# A little shop: every product is an adjective, a thing and a number; a query names the thing by another word.
THINGS = {
    "hammer": "mallet",
    "saw": "cutter",
    "drill": "borer",
    "lamp": "light",
    "rug": "carpet",
    "tap": "faucet",
    "bolt": "screw",
    "paint": "colour",
}
KINDS = ("steel", "oak", "small", "heavy duty", "garden", "indoor")


def write_shop(
    store: str, num_train: int, num_dev: int, *, first: int = 0, labels: Mapping[str, object] | None = None
) -> str:
    """The stage folder of a build of a shop's pairs, the `first` of them in a shard of their own."""
    pairs, pool = shop(num_train)
    dev, _ = shop(num_dev, seed=9)
    train = {"train-00000": pairs[:first], "train-00001": pairs[first:]} if first else {"train-00000": pairs}
    return write_build(store, {**train, "dev-00000": dev}, pool, labels=labels)


def shop(num_pairs: int, *, seed: int = 0, num_negatives: int = 4) -> tuple[list[Pair], list[str]]:
    """(pairs, pool): queries whose right titles share a meaning with them that only clicks can teach."""
    rng = np.random.default_rng(seed)
    titles = [f"{kind} {thing} no {n}" for thing in THINGS for kind in KINDS for n in range(1, 6)]
    pairs = []
    for _ in range(num_pairs):
        thing = list(THINGS)[rng.integers(len(THINGS))]
        kind = KINDS[rng.integers(len(KINDS))]
        wrong = [title for title in titles if thing not in title]
        negatives = [wrong[i] for i in rng.choice(len(wrong), num_negatives, replace=False)]
        query = f"{kind} {THINGS[thing]}" if rng.random() < 0.7 else THINGS[thing]
        pairs.append((query, f"{kind} {thing} no {rng.integers(1, 6)}", negatives))
    return pairs, titles
