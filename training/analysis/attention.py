"""Where the hops of a self-attentive tower look (Lin et al., arXiv:1703.03130, Fig. 1 to 3 and 5).

A       of a text, a row for each hop: the weights of its words, which add up to 1
overall A summed over the hops and divided by their number, so that it adds up to 1 again
overlap the mean of A Aᵀ off its diagonal: 0 where no two hops share a word, 1 where all look at one and the same

    attention.arrow   a row for each hop and word: text, side, hop, word, token, weight

`text` counts from 0, `hop` and `word` from 1; hop 0 is `overall`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from training.analysis.traces import Side, TracedText, attention, repeated, write_table
from training.data.text_batch import grouped_order, text_batch
from training.models.model import BATCH_TEXTS, Model, text_table
from training.recipes.towers import SelfAttentive


def overall(weights_rT: np.ndarray) -> np.ndarray:
    """Of each word the mean weight over the hops, [words]."""
    return weights_rT.mean(axis=0)


def overlap(weights_rT: np.ndarray) -> float | None:
    """The mean of A Aᵀ off its diagonal; None of one hop, which has nothing to overlap with."""
    num_hops = len(weights_rT)
    if num_hops == 1:
        return None
    weights_rT = weights_rT.astype(np.float64)
    product_rr = weights_rT @ weights_rT.T
    return float((product_rr.sum() - np.trace(product_rr)) / (num_hops * (num_hops - 1)))


def mean_overlap(model: Model, texts: Sequence[str], side: Side) -> float | None:
    """The mean of `overlap` over texts, each of which has a word; None for a tower without hops, or of one."""
    recipe = model.recipe
    tower = recipe.tower
    if not isinstance(tower, SelfAttentive) or tower.hops == 1:
        return None
    table = text_table(texts, model.layout.word_rows).limited(recipe.max_words, recipe.overflow)
    by_length, total = grouped_order(table.words.lengths), 0.0
    for start in range(0, len(texts), BATCH_TEXTS):
        for weight_nTr in attention(model, text_batch([(table, by_length[start : start + BATCH_TEXTS])]), side):
            product_nrr = (weight_nTr.mT @ weight_nTr).double()
            total += float(product_nrr.sum() - product_nrr.diagonal(dim1=1, dim2=2).sum())
    return total / (tower.hops * (tower.hops - 1)) / len(texts)


def as_json(weights_rT: np.ndarray) -> dict[str, Any]:
    """Plain values: the weights of each hop, overall, overlap."""
    return {
        "hops": [[float(weight) for weight in hop] for hop in weights_rT],
        "overall": [float(weight) for weight in overall(weights_rT)],
        "overlap": overlap(weights_rT),
    }


def attention_table(texts: Sequence[TracedText]) -> pa.Table:
    """The attention of all texts that have it as one table, a row for each text, hop and word, in that order."""
    schema = pa.schema(
        [
            ("text", pa.int32()),
            ("side", pa.dictionary(pa.int32(), pa.string())),
            ("hop", pa.int32()),
            ("word", pa.int32()),
            ("token", pa.dictionary(pa.int32(), pa.string())),
            ("weight", pa.float32()),
        ]
    )
    tables = []
    for number, text in enumerate(texts):
        if text.attention is None:
            continue
        weights = np.concatenate([overall(text.attention)[None], text.attention])
        rows, num_words = weights.size, len(text.words)
        columns = [
            pa.array(np.full(rows, number, np.int32)),
            repeated([text.side], np.zeros(rows)),
            pa.array(np.repeat(np.arange(len(weights), dtype=np.int32), num_words)),
            pa.array(np.tile(np.arange(1, num_words + 1, dtype=np.int32), len(weights))),
            repeated(text.words, np.tile(np.arange(num_words), len(weights))),
            pa.array(weights.ravel()),
        ]
        tables.append(pa.table(columns, schema=schema))
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()


def write_attention(uri: str, texts: Sequence[TracedText]) -> None:
    """Write `attention_table` as an Arrow IPC file."""
    write_table(uri, attention_table(texts))
