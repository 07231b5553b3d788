"""Texts to vectors: pre-tokenised titles, raw titles, one short query, each beside the best stock arrangement."""

import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch

from benchmarks.peers import onnx_encoding
from benchmarks.peers.stock_encoding import StockEncoder, StockServing
from benchmarks.real_pairs import table_of
from benchmarks.speed.agreement import Parts, matrix_of
from benchmarks.speed.contest import Entrant, Tell, in_turns, rounded
from clicktower.schemas.text_contract import normalise_column, trigram_ids, words
from clicktower.training.model.model import Model
from clicktower.training.model.parameters import layout_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.trainer.objective import encode_table

TOLERANCE = 1e-4
WARM_UP = 200  # queries


def model_of(recipe: Recipe, start: Parts, table_rows: int) -> Model:
    layout = layout_of(recipe, table_rows)
    towers = {tower: matrix_of(parts, layout) for tower, parts in start.items()}
    return Model.of(layout, towers)


def measure_encoding(
    model: Model,
    start: Parts,
    titles: list[str],
    queries: list[str],
    *,
    threads: int,
    repeats: int,
    seconds: float,
    tell: Tell,
) -> dict:
    """Titles a second, and microseconds a query. Raises SystemExit where two ways give a text different vectors."""
    table_rows = model.word_rows.num_rows
    stock = StockEncoder(start["document"], table_rows, threads)
    table = table_of(normalise_column(pa.array(titles, pa.string())))
    ways: dict[str, Callable[[], np.ndarray]] = {
        "pre-tokenised": lambda: encode_table(model.encoder, table, "document"),
        "pre-tokenised, stock": lambda: stock.encode(table),
        "raw": lambda: model.encode(titles, "document"),
        "raw, stock": lambda: stock.encode_raw(titles),
    }
    tell("encoding: comparing vectors")
    expected = ways["pre-tokenised, stock"]()
    for name, way in ways.items():
        _require_equal(name, way(), expected)
    tell("encoding: titles")
    rates = in_turns(
        {name: _repeated(way) for name, way in ways.items()}, [titles] * repeats, len, seconds=seconds, tell=tell
    )
    tell("encoding: one query at a time")
    return {
        "unit": "titles",
        "titles": len(titles),
        "variants": {name: rate.summary() for name, rate in rates.items()},
        "ratio_to_stock": rounded(rates["pre-tokenised"].over(rates["pre-tokenised, stock"])),
        "latency": _latencies(model, start, queries),
    }


def _repeated(way: Callable[[], np.ndarray]) -> Entrant:
    def run(_: object, passes: int) -> None:
        for _ in range(passes):
            way()

    return run


def _latencies(model: Model, start: Parts, queries: list[str]) -> dict:
    vocabulary = sorted({word for query in queries for word in words(query)})
    offsets, ids = trigram_ids(vocabulary, model.word_rows.num_rows)
    trigrams_of = {word: ids[offsets[i] : offsets[i + 1]].tolist() for i, word in enumerate(vocabulary)}
    ways: dict[str, Callable[[str], np.ndarray]] = {
        "ours": lambda query: model.encode([query], "query"),
        "nn.LSTM": StockServing(start["query"], trigrams_of),
    }
    if onnx_encoding.available():
        ways["onnxruntime"] = onnx_encoding.OnnxServing(start["query"], trigrams_of)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for query in queries[:WARM_UP]:
            for name, way in ways.items():
                _require_equal(f"one query, {name}", way(query), ways["nn.LSTM"](query))
        return {name: _latency(way, queries) for name, way in ways.items()}
    finally:
        torch.set_num_threads(before)


def _latency(way: Callable[[str], np.ndarray], queries: list[str]) -> dict:
    """Quantiles of the microseconds from text to vector, over all queries one after the other."""
    took = np.empty(len(queries))
    for number, query in enumerate(queries):
        started = time.perf_counter_ns()
        way(query)
        took[number] = time.perf_counter_ns() - started
    p50, p99 = np.percentile(took / 1e3, [50, 99])
    return {"queries": len(queries), "p50_microseconds": rounded(float(p50)), "p99_microseconds": rounded(float(p99))}


def _require_equal(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    worst = float(np.abs(found - expected).max())
    if not worst <= TOLERANCE:
        raise SystemExit(f"{name} gives other vectors: they differ by up to {worst:.2g}")
