"""What benchmarks/training.py compares is the same model, and its figures are what they say."""

import json
import os
import runpy
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from benchmarks.peers.stock_encoding import StockEncoder, StockServing
from benchmarks.real_pairs import read_pairs, shard_of, table_of
from benchmarks.speed.agreement import COMPARED_STEP, TOLERANCE, Parts, reference_gradient, require_agreement
from benchmarks.speed.bound import flops_made, needs_of
from benchmarks.speed.contest import Rates, in_turns, rounded
from benchmarks.speed.encoding import model_of
from benchmarks.speed.several_workers import WARM_UP, Setting, measure_workers
from benchmarks.speed.trainer import Trainer
from benchmarks.speed.variants import Variant, base_recipe, compare, start_of, stock, trainers
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS, normalise_column, trigram_ids
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.parameters import CPU, layout_of
from clicktower.training.trainer.job import REFERENCE
from clicktower.training.trainer.kernel_path import CompiledPath, compiled_batch
from clicktower.training.trainer.shard_data import MicroBatch, Order, ShardData, pair_lengths
from tests.recipes import varied
from tests.rounding import assert_equal_but_for_rounding

ROOT = Path(__file__).parents[2]
CELLS, MINIBATCH = 16, 12
WORDS = [
    "angle",
    "bracket",
    "deck",
    "coating",
    "1-gal.",
    "faucet",
    "trim",
    "kit",
    "chrome",
    "light",
    "#sc-141",
    "über",
    "rain",
    "shower",
    "head",
]


def titles_and_clicks(num_titles: int, num_clicks: int) -> tuple[list[str], list[tuple[str, str]]]:
    random = np.random.default_rng(7)
    titles = [" ".join(random.choice(WORDS, random.integers(1, 9))) + f" {number}" for number in range(num_titles)]
    queries = [" ".join(random.choice(WORDS, random.integers(1, 4))) for _ in range(num_clicks // 2)]
    return titles, [(str(random.choice(queries)), str(random.choice(titles))) for _ in range(num_clicks)]


@pytest.fixture(scope="module")
def data() -> ShardData:
    titles, clicks = titles_and_clicks(40, 40)
    return shard_of(clicks, titles, num_negatives=4)


@pytest.fixture(scope="module")
def minibatch(data) -> list[MicroBatch]:
    pairs = np.arange(MINIBATCH)
    return [MicroBatch(0, part, place) for place, part in enumerate(np.split(pairs, 3))]


RECIPE = replace(base_recipe(CELLS, MINIBATCH), micro_batch=4)
LAYOUT = layout_of(RECIPE, DEFAULT_TABLE_ROWS)


def variants(data: ShardData) -> dict[str, Variant]:
    found = trainers(RECIPE, data, threads=2, devices={"": CPU})
    return found | stock(RECIPE, data, threads=2, device=torch.device("cpu"))


@pytest.mark.slow
def test_every_variant_computes_the_reference(data, minibatch):
    errors = compare(variants(data), minibatch, data, lambda reported: None)
    assert max(errors.values()) < TOLERANCE


def test_there_are_variants_of_every_kind(data):
    kinds = {variant.kind for variant in variants(data).values()}
    assert kinds >= {"reference", "stock", "other"}


def test_whatever_computes_the_same_model_in_stock_parts_may_be_the_plain_of_a_ratio(data):
    model = start_of(RECIPE, data.word_rows.trigram_rows)
    of_stock_parts = {n: v for n, v in variants(data).items() if v.kind in ("stock", "other")}
    same = {n for n, v in of_stock_parts.items() if all(torch.equal(v.model[s]["W"], model[s]["W"]) for s in model)}
    assert same == {n for n, v in of_stock_parts.items() if v.kind == "stock"}
    assert any("loop" in name for name in same)


class Slightly(Trainer):
    """A trainer whose W_rec has not moved."""

    def parts(self) -> Parts:
        parts = super().parts()
        start = start_of(RECIPE, DEFAULT_TABLE_ROWS)
        return {tower: own | {"W_rec": start[tower]["W_rec"]} for tower, own in parts.items()}


@pytest.mark.slow
def test_a_variant_that_computes_something_else_ends_the_benchmark(data, minibatch):
    start = start_of(RECIPE, data.word_rows.trigram_rows)
    loss, gradient = reference_gradient(start, minibatch, data, LAYOUT)
    recipe = varied(RECIPE, step=COMPARED_STEP, momentum_edge=0.0, momentum_middle=0.0)
    other = Slightly(recipe, start, data, arithmetic=REFERENCE, threads=1)
    with pytest.raises(SystemExit, match="off by 1"):  # all of the gradient of W_rec is missing
        require_agreement("other", other, start, minibatch, loss, gradient)
    another = Trainer(varied(recipe, gamma=5.01), start, data, arithmetic=REFERENCE, threads=1)
    with pytest.raises(SystemExit, match="another does not compute the model"):
        require_agreement("another", another, start, minibatch, loss, gradient)


def test_negatives_of_a_pair_are_distinct_and_never_clicked_for_its_query():
    titles, clicks = titles_and_clicks(9, 30)
    data = shard_of(clicks, titles, num_negatives=2)
    shard = data.train[0]
    clicked_of: dict[int, set[int]] = {}
    for query, clicked in zip(shard.query, shard.clicked, strict=True):
        clicked_of.setdefault(int(query), set()).add(int(clicked))
    assert len(shard) == len(set(clicks))
    for query, negatives in zip(shard.query, shard.negatives, strict=True):
        assert len(set(negatives)) == 2
        assert not clicked_of[int(query)] & set(negatives.tolist())


def test_the_arithmetic_of_pairs_counts_three_products_for_each_word():
    # One pair: a query of 2 words, a clicked title of 3, one negative of 1 word: 6 words in 3 texts.
    data = shard_of([("a b", "c d e")], ["c d e", "f"], num_negatives=1)
    needs = needs_of(data.train[0], np.array([0]), cells=5, columns=15)
    assert needs.words_per_pair == 6
    assert needs.flops_per_pair == 6 * 3 * 2 * 5 * 15  # a multiplication and an addition for each of 5 x 15 weights
    assert needs.flops_per_pair_without_first_words == 3 * 3 * 2 * 5 * 15


@pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")
def test_the_arithmetic_made_leaves_out_what_texts_begin_with_alike():
    # Each clicked title is the other pair's negative, so there are four titles. They share "x" and "x y" and have a
    # word of their own: 2 + 4 words, of which "x" meets y(0) = 0. The queries share "a": 1 + 2 words, less "a".
    data = shard_of([("a b", "x y z"), ("a c", "x y w")], ["x y z", "x y w"], num_negatives=1)
    recipe = varied(RECIPE, num_negatives=1, negatives="fixed")
    path = CompiledPath(1, partial(compiled_batch, both_directions=False, share_prefixes=True))
    made = flops_made(path, [MicroBatch(0, np.array([0, 1]), 0)], data, recipe, columns=15)
    assert made == 7 / 2 * 3 * 2 * recipe.tower.cells * 15


def test_a_ratio_is_the_median_over_rounds_of_figures_taken_together():
    # The machine was half as fast in the second round, for both: every ratio is 2, and so is their median.
    assert Rates([10.0, 5.0, 10.0]).over(Rates([5.0, 2.5, 5.0])) == 2
    assert Rates([4.0, 6.0, 100.0]).over(Rates([2.0, 2.0, 1.0])) == 3


def test_entrants_do_the_same_work_in_every_round_and_take_turns_to_be_first():
    done: list[tuple[str, str]] = []

    def entrant(name: str):
        return lambda work, passes: done.append((name, work))

    rates = in_turns({"a": entrant("a"), "b": entrant("b")}, ["x", "yy"], len, seconds=0, tell=lambda reported: None)
    assert done[4:] == [("a", "x"), ("b", "x"), ("b", "yy"), ("a", "yy")]  # after warming up, twice each
    assert [len(rate.by_clock) for rate in rates.values()] == [2, 2]


def test_figures_keep_four_digits():
    assert [rounded(value) for value in (24_713.4, 1.23456, 0.512345, 0.0)] == [24_713, 1.235, 0.5123, 0.0]


def test_stock_parts_encode_as_the_model_does():
    titles, _ = titles_and_clicks(50, 2)
    start = start_of(RECIPE, DEFAULT_TABLE_ROWS)
    model = model_of(RECIPE, start, DEFAULT_TABLE_ROWS)
    expected = model.encode(titles, "document")
    encoder = StockEncoder(start["document"], DEFAULT_TABLE_ROWS, threads=2)
    assert_equal_but_for_rounding(encoder.encode_raw(titles), expected)
    table = table_of(normalise_column(pa.array(titles)))
    assert_equal_but_for_rounding(encoder.encode(table), expected)
    words = sorted({word for title in titles for word in title.split()})
    offsets, ids = trigram_ids(words)
    serving = StockServing(
        start["document"], {w: ids[offsets[i] : offsets[i + 1]].tolist() for i, w in enumerate(words)}
    )
    assert_equal_but_for_rounding(serving(titles[3]), expected[3:4])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data as the benchmark reads it."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "homedepot").mkdir()
    titles, clicks = titles_and_clicks(40, 60)
    number = {title: f"P{at}" for at, title in enumerate(titles)}
    documents = [f"{name}\t{title}\n" for title, name in number.items()]
    lines = [f"Q\t{query}\t{number[title]}\thttps://shop.example\n" for query, title in clicks]
    (folder / "homedepot" / "documents.tsv").write_text("".join(documents), encoding="utf-8")
    (folder / "homedepot" / "clicks.orcas.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_workers_count_the_bytes_of_the_touched_rows(folder):
    setting = Setting(data=str(folder), cells=CELLS, minibatch=MINIBATCH, num_negatives=4, steps=1)
    (measured,) = measure_workers([2], setting, lambda reported: None)
    assert measured["workers"] == 2

    shard = read_pairs(folder, 4).train[0]
    recipe = base_recipe(CELLS, MINIBATCH)
    lengths = [pair_lengths(shard)]
    order = Order(lengths=lengths, micro_batch=recipe.micro_batch, minibatch=MINIBATCH, seed=recipe.seed).epoch(0)
    pairs = np.concatenate([micro_batch.pairs for micro_batch in order[WARM_UP]])
    documents = np.column_stack([shard.clicked, shard.negatives])[pairs].ravel()
    rows = 0
    for texts in (shard.query[pairs], documents):
        trigrams = shard.texts.trigrams.take(shard.texts.words.take(texts).values).values
        rows += len(np.unique(trigrams)) + LAYOUT.part_rows
    # Exact sums are of 8 bytes: every number of those rows, the loss and the number of misfits; and two masks of rows.
    assert measured["bytes_per_step"] == 8 * (rows * LAYOUT.columns + 2) + 2 * DEFAULT_TABLE_ROWS
    assert measured["bytes_on_the_wire_per_step"] == measured["bytes_per_step"]  # 2 (w - 1) / w = 1 for two
    assert 0 < measured["seconds_in_sums_per_step"] < measured["seconds_per_step"]


@pytest.fixture
def as_it_was(monkeypatch):
    """What the benchmark sets for its whole process, it sets for one test. That it runs as a file of its own is in
    test_run_as_files."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: None, raising=False)
    yield monkeypatch
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_benchmark_prints_one_json_object(folder, as_it_was, capsys):
    words = ["--json", "--minibatch", str(MINIBATCH), "--workers", "--cells", str(CELLS)]
    as_it_was.setattr(sys, "argv", ["training.py", *words, "--repeats", "1", "--seconds", "0.01"])
    as_it_was.setenv("CLICKTOWER_DATA", str(folder))
    runpy.run_path(str(ROOT / "benchmarks" / "training.py"), run_name="__main__")
    result = json.loads(capsys.readouterr().out)
    assert result["minibatch"] == MINIBATCH
    rows = result["training"][str(MINIBATCH)]["variants"]
    plain = result["training"][str(MINIBATCH)]["plain"]
    assert rows[plain]["kind"] == "stock"
    assert rows[plain]["ratio_to_plain"] == 1
    assert max(row["per_second"] for row in rows.values() if row["kind"] == "stock") == rows[plain]["per_second"]
    assert all(row["error"] < TOLERANCE for row in rows.values())
    assert {
        "reference_ratio_to_plain",
        "exact_to_fast",
        "encode_titles_per_second",
        "query_p50_microseconds",
    } <= result.keys()
    assert result["machine"]["cores"] == os.cpu_count()
