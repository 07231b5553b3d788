"""Every gate and state of a recurrent tower at every word of a text (Fig. 4, 5, 9, 10), and where its hops look.

i, f, o   the input, forget and output gate (eq. 2), after their sigmoids
y_g, c    the candidate and the cell state
y         the output; at the last word in reading order it is the embedding

An LSTM without forget gate has no f (it is 1), an RNN only y. A max-pooled tower takes the largest y over the words; a
variational one makes its embedding of y at the last word. A self-attentive tower (Lin et al., arXiv:1703.03130, Fig. 1
to 3 and 5) weights y at every word instead:

A         of a text, a row for each hop: the weights of its words, which add up to 1
overall   A summed over the hops and divided by their number, so that it adds up to 1 again
overlap   the mean of A Aᵀ off its diagonal: 0 where no two hops share a word, 1 where all look at one and the same

    traces.arrow      a row for each cell and word: text, side, direction, cell, word, token, then i to y
    attention.arrow   a row for each hop and word: text, side, hop, word, token, weight

`text` and `cell` count from 0, `word` and `hop` from 1; hop 0 is `overall`. Values that the tower lacks are null.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

import numpy as np
import pyarrow as pa
import torch

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import AnyEncoder, Side
from clicktower.training.model.forward import BATCH_TEXTS, encode_batch
from clicktower.training.model.kernel_towers import text_table
from clicktower.training.model.model import Model
from clicktower.training.model.parameters import tower_of
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.bilstm import BidirectionalLSTM, MaxPooledTower, SelfAttentiveTower, VariationalTower
from clicktower.training.towers.recurrent import LSTMTower, PrintedLSTMTower, RNNTower
from clicktower.training.towers.text_batch import TextBatch, text_batch
from clicktower.training.towers.text_table import grouped_order
from clicktower.training.towers.threads import alone
from clicktower.training.towers.tower import Parts, Projected, word_inputs
from clicktower.training.towers.tower_kinds import SelfAttentive
from clicktower.training.towers.tower_settings import Recurrent, TowerSettings

Direction = Literal["left to right", "right to left"]
STATES = ("i", "f", "o", "y_g", "c", "y")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The activity of one recurrent network. Rows are words in text order, whichever way it was read."""

    direction: Direction
    states: Mapping[str, np.ndarray]  # those of STATES that the tower has: float32 [words, cells]
    attention: np.ndarray | None = None  # weight of the words' y in the embedding, float32 [hops, words]
    becomes: Literal["embedding", "hops", "maximum", "distribution"] = "embedding"  # the tower's use of y

    @property
    def reading(self) -> slice:
        """Puts rows into reading order, and back."""
        return slice(None, None, 1 if self.direction == "left to right" else -1)

    @property
    def vector(self) -> np.ndarray:
        """The vector that the embedding is made of, float32 [cells]: y at the last word read, the hops' mean, or the
        largest y.
        """
        if self.attention is not None:
            return self.attention.mean(axis=0) @ self.states["y"]
        if self.becomes == "maximum":
            return self.states["y"].max(axis=0)
        return self.states["y"][self.reading][-1]


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedText:
    """A text as one side's tower read it: one trace, or two if it read both ways."""

    text: str
    side: Side
    words: tuple[str, ...]
    traces: tuple[Trace, ...]
    vector: np.ndarray  # the embedding, float32 [dimensions]

    @property
    def attention(self) -> np.ndarray | None:
        """A, float32 [hops, words]; None where the tower has none."""
        return self.traces[0].attention


def trace(model: Model, text: str, side: Side) -> TracedText:
    """The traces of a text.

    Raises UsageError for a text without a word, or a tower that does not read word by word; StageError for a model
    whose numbers are not finite.
    """
    require_traces(model.recipe)
    words_read = read_words(text, model.recipe)
    if not words_read:
        raise UsageError(
            "The text has no word, and a text without a word has no embedding to explain.",
            "Give a text of at least one word.",
        )
    table = text_table([text], model.word_rows).limited(model.recipe.max_words, model.recipe.overflow)
    batch = text_batch([(table, np.zeros(1, np.int64))])  # with one text the packed rows are its words in order
    with alone(), torch.no_grad():
        vector = encode_batch(batch, side, model.encoder)[0].float().numpy()
        traces = _traces(model, batch, side)
    if not np.isfinite(vector).all():
        raise StageError(
            "The text's embedding is not finite, so no cell is more active than another.",
            "Train again with a smaller step, and look at the curve of its loss.",
        )
    return TracedText(text=text, side=side, words=tuple(words_read), traces=traces, vector=vector)


def _traces(model: Model, batch: TextBatch, side: Side) -> tuple[Trace, ...]:
    tower, word_UG, parts = _recurrent(model, batch, side)
    if not isinstance(tower, BidirectionalLSTM):
        return (Trace(direction="left to right", states=_states(tower, word_UG, parts, batch)),)
    to_right, to_left = (_states(tower.one_way, *of_way) for of_way in tower.both_ways(word_UG, parts, batch))
    result = (
        Trace(direction="left to right", states=to_right),
        Trace(direction="right to left", states={name: rows[::-1] for name, rows in to_left.items()}),
    )
    match tower:
        case SelfAttentiveTower():
            (weight_1Tr,) = attention(model, batch, side)
            weights = weight_1Tr[0].t().float().numpy()
            return tuple(replace(trace, attention=weights, becomes="hops") for trace in result)
        case MaxPooledTower():
            return tuple(replace(trace, becomes="maximum") for trace in result)
        case VariationalTower():
            return tuple(replace(trace, becomes="distribution") for trace in result)
    return result


def _states(
    tower: LSTMTower | RNNTower, word_UG: torch.Tensor, parts: Parts, batch: TextBatch
) -> dict[str, np.ndarray]:
    if not isinstance(tower, LSTMTower | PrintedLSTMTower):
        return {"y": torch.cat(tower.states(word_UG, parts, batch)).float().numpy()}
    kept = tower.trace(word_UG, parts, batch)
    gates = [gate.float() for gate in kept.gates_PG.split(tower.settings.cells, dim=1)]
    states = dict(zip(("o", "f", "i", "y_g") if len(gates) == 4 else ("o", "i", "y_g"), gates, strict=True))
    # The steps keep c only if a gradient needs it; with f = 1 it is the sum so far.
    states["c"] = kept.cell_Pd.float() if len(kept.cell_Pd) else torch.cumsum(states["i"] * states["y_g"], dim=0)
    states["y"] = kept.state_Pd.float()
    return {name: states[name].numpy() for name in STATES if name in states}


def attention(model: Model, batch: TextBatch, side: Side) -> list[torch.Tensor]:
    """A, float32 [hops, words]; None for a tower without hops."""
    with alone(), torch.no_grad():
        tower, word_UG, parts = _recurrent(model, batch, side)
        assert isinstance(tower, SelfAttentiveTower)
        state_PD = tower.every_state(word_UG, parts, batch)
        return [weight_nTr for weight_nTr, _ in tower.attention(state_PD, parts, batch)]


def _recurrent(model: Model, batch: TextBatch, side: Side) -> tuple[Any, torch.Tensor, Parts]:
    """(the tower, the inputs of distinct words, its parts); above word vectors the inner one."""
    name = tower_name(model.recipe, side)
    parts = model.encoder.parts[name]
    tower, word_UG = tower_of(model.recipe), word_inputs(model.encoder.table_at(name, batch.rows), batch)
    if isinstance(tower, Projected):
        tower, word_UG = tower.inner, word_UG @ parts["W_in"]
    return tower, word_UG, parts


def has_gates(encoder: AnyEncoder) -> TypeGuard[Model]:
    """Whether an encoder is a single tower with a state from word to word."""
    return isinstance(encoder, Model) and isinstance(encoder.recipe.tower, Recurrent)


def require_traces(recipe: Recipe) -> None:
    """Raises UsageError for a tower that has no state from word to word."""
    if not isinstance(recipe.tower, Recurrent):
        recurrent = (name for name, kind in TowerSettings.all_kinds().items() if issubclass(kind, Recurrent))
        raise UsageError(
            f"The tower {recipe.tower.kind} of the recipe {recipe.name} has no known gates and no state that change"
            " from word to word: there is no trace to show and no keyword to count.",
            f"Explain a model of a tower that reads word by word ({', '.join(recurrent)}), or give a query and a title"
            " alone: `clicktower explain` then shows the share that each word has in their score.",
        )


def read_words(text: str, recipe: Recipe) -> list[str]:
    """The words as the tower reads them; words that it reads as one bag of trigrams (`overflow = merge`) are one."""
    text_words, most = words(text), recipe.max_words
    if not most or len(text_words) <= most:
        return text_words
    if recipe.overflow == "truncate":
        return text_words[:most]
    return [*text_words[: most - 1], f"[{len(text_words) - most + 1:,} words]"]


def overall(weights_rT: np.ndarray) -> np.ndarray:
    """Of each word the mean weight over the hops, [words]."""
    return weights_rT.mean(axis=0)


def overlap(weights_rT: np.ndarray) -> float | None:
    """The mean of A Aᵀ off its diagonal; None for a single hop, which has nothing to overlap with."""
    num_hops = len(weights_rT)
    if num_hops == 1:
        return None
    weights_rT = weights_rT.astype(np.float64)
    product_rr = weights_rT @ weights_rT.T
    return float((product_rr.sum() - np.trace(product_rr)) / (num_hops * (num_hops - 1)))


def mean_overlap(model: Model, texts: Sequence[str], side: Side) -> float | None:
    """The mean of `overlap` over texts, each with a word; None for a tower without hops, or with one."""
    recipe = model.recipe
    tower = recipe.tower
    if not isinstance(tower, SelfAttentive) or tower.hops == 1:
        return None
    table = text_table(texts, model.word_rows).limited(recipe.max_words, recipe.overflow)
    by_length, total = grouped_order(table.words.lengths), 0.0
    for start in range(0, len(texts), BATCH_TEXTS):
        for weight_nTr in attention(model, text_batch([(table, by_length[start : start + BATCH_TEXTS])]), side):
            product_nrr = (weight_nTr.mT @ weight_nTr).double()
            total += float(product_nrr.sum() - product_nrr.diagonal(dim1=1, dim2=2).sum())
    return total / (tower.hops * (tower.hops - 1)) / len(texts)


def attention_json(weights_rT: np.ndarray) -> dict[str, Any]:
    """Plain values: the weights of each hop, overall, overlap."""
    return {"hops": weights_rT.tolist(), "overall": overall(weights_rT).tolist(), "overlap": overlap(weights_rT)}


_TEXT = (("text", pa.int32()), ("side", pa.dictionary(pa.int32(), pa.string())))
_WORD = (("word", pa.int32()), ("token", pa.dictionary(pa.int32(), pa.string())))


def trace_table(texts: Sequence[TracedText]) -> pa.Table:
    """All traces as one table, a row for each text, direction, cell and word, in that order."""
    direction = ("direction", pa.dictionary(pa.int32(), pa.string()))
    states = [(name, pa.float32()) for name in STATES]
    schema = pa.schema([*_TEXT, direction, ("cell", pa.int32()), *_WORD, *states])
    tables = []
    for number, text in enumerate(texts):
        for trace in text.traces:
            states_CT = [trace.states[name].T if name in trace.states else None for name in STATES]
            tables.append(_rows(schema, number, text, [text.side, trace.direction], states_CT))
    return pa.concat_tables(tables).unify_dictionaries()


def attention_table(texts: Sequence[TracedText]) -> pa.Table:
    """The attention of all texts that have it as one table, a row for each text, hop and word, in that order."""
    schema = pa.schema([*_TEXT, ("hop", pa.int32()), *_WORD, ("weight", pa.float32())])
    tables = [
        _rows(schema, number, text, [text.side], [np.concatenate([overall(text.attention)[None], text.attention])])
        for number, text in enumerate(texts)
        if text.attention is not None
    ]
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()


def _rows(
    schema: pa.Schema, number: int, text: TracedText, named: Sequence[str], values: Sequence[np.ndarray | None]
) -> pa.Table:
    """A text's rows: for each cell or hop and each word the values, which are [cells or hops, words], or null."""
    num_outer, num_words = next(value.shape for value in values if value is not None)
    at_word = np.tile(np.arange(num_words, dtype=np.int32), num_outer)
    columns = [
        pa.array(np.full(len(at_word), number, np.int32)),
        *(_repeated([name], np.zeros_like(at_word)) for name in named),
        pa.array(np.repeat(np.arange(num_outer, dtype=np.int32), num_words)),
        pa.array(at_word + np.int32(1)),
        _repeated(text.words, at_word),
        *(pa.nulls(len(at_word), pa.float32()) if value is None else pa.array(value.ravel()) for value in values),
    ]
    return pa.table(columns, schema=schema)


def _repeated(values: Sequence[str], at: np.ndarray) -> pa.DictionaryArray:
    """The values at some indices, each stored once."""
    return pa.DictionaryArray.from_arrays(pa.array(at), pa.array(list(values), pa.string()))


def write_table(uri: str, table: pa.Table) -> None:
    """Write a table as an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    storage.write_atomic(uri, sink.getvalue().to_pybytes())
