"""What is watched after each epoch on held-out data: the loss of dev pairs, and NDCG. It never chooses anything.

dev loss: mean of eq. 5 over the held-out pairs with the shards' own negatives, which never change.
dev NDCG: over judged documents where judgments are given; otherwise derived from held-out clicks: for each dev query
its clicked titles (grade 1) among the negatives of its pairs (grade 0).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from schemas.documents import read_documents
from schemas.judgments import Judged, read_qrels, read_queries
from training.data.ragged import WordRows
from training.data.shard_data import Shard, ShardData
from training.data.text_batch import TextTable
from training.models.model import encode_table, text_table
from training.network.encoder import Encoder
from training.ranking.ndcg import CUTOFFS, JudgedPairs, judged_pairs, ndcg_of_judged
from training.recipes.recipe import Recipe
from training.update.click_loss import click_losses, cosines

UNSEEN = -2.0  # below every cosine: a judged document that is not in the documents comes last


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ranking:
    """Judged pairs with the texts they are of: rows of two tables, -1 where there is none."""

    queries: TextTable
    documents: TextTable
    pairs: JudgedPairs
    query: np.ndarray
    document: np.ndarray


class Watch:
    """Measures a model on held-out data; prepared once, used after every epoch."""

    def __init__(self, data: ShardData, recipe: Recipe, judged: Judged | None) -> None:
        self._dev = [shard for shard in data.dev if len(shard)]
        self._recipe = recipe
        if judged:
            self.source = "judgments"
            self._rankings = [_from_judgments(judged, recipe, data.word_rows)]
        else:
            self.source = "held-out clicks" if self._dev else "nothing: no dev pairs, no judgments"
            self._rankings = [_from_clicks(shard) for shard in self._dev]

    @property
    def table_rows(self) -> torch.Tensor:
        """The rows of W that its texts touch, ascending."""
        tables = [shard.texts for shard in self._dev]
        tables += [table for ranking in self._rankings for table in (ranking.queries, ranking.documents)]
        touched = [np.unique(table.trigrams.values) for table in tables]
        return torch.from_numpy(np.unique(np.concatenate([np.zeros(0, np.int64), *touched])).astype(np.int64))

    def measure(self, encoder: Encoder) -> dict[str, float | None]:
        """dev_loss and dev_ndcg@k; None where there is nothing to measure on."""
        losses = [self._losses(encoder, shard) for shard in self._dev]
        values = [_ndcg(encoder, ranking) for ranking in self._rankings]
        ndcg = np.concatenate(values).mean(axis=0).tolist() if values else [None] * len(CUTOFFS)
        return {
            "dev_loss": float(np.concatenate(losses).mean()) if losses else None,
            **{f"dev_ndcg@{k}": value for k, value in zip(CUTOFFS, ndcg, strict=True)},
        }

    def _losses(self, encoder: Encoder, shard: Shard) -> np.ndarray:
        clicks = self._recipe.clicks
        titles = np.concatenate([shard.clicked[:, None], shard.negatives[:, : clicks.num_negatives]], axis=1)
        query_Bd = _encode_some(encoder, shard.texts, shard.query, "query")
        document_BCd = _encode_some(encoder, shard.texts, titles.ravel(), "document").reshape(*titles.shape, -1)
        similarity_BC = cosines(torch.from_numpy(query_Bd), torch.from_numpy(document_BCd))
        return click_losses(similarity_BC, clicks.gamma).numpy()


def _encode_some(encoder: Encoder, table: TextTable, index: np.ndarray, side: str) -> np.ndarray:
    distinct, place = np.unique(index, return_inverse=True)
    return encode_table(encoder, TextTable(table.words.take(distinct), table.trigrams), side)[place]


def _ndcg(encoder: Encoder, ranking: _Ranking) -> np.ndarray:
    query_Nd = encode_table(encoder, ranking.queries, "query")[ranking.query]
    document_Nd = encode_table(encoder, ranking.documents, "document")[ranking.document]
    scores = cosines(torch.from_numpy(query_Nd), torch.from_numpy(document_Nd)[:, None])[:, 0].numpy()
    scores[(ranking.query < 0) | (ranking.document < 0)] = UNSEEN
    return ndcg_of_judged(ranking.pairs, scores).values_QK


def _from_judgments(judged: Judged, recipe: Recipe, word_rows: WordRows) -> _Ranking:
    documents, queries = read_documents(judged.documents), read_queries(judged.queries)
    pairs = judged_pairs({q: grades for q, grades in read_qrels(judged.qrels).items() if q in queries})
    row_of_document = dict(zip(documents.ids, range(len(documents)), strict=True))
    row_of_query = {query_id: row for row, query_id in enumerate(queries)}
    titles, judged_ids = documents.titles, sorted(set(pairs.document_ids) & set(row_of_document))
    place = {document_id: at for at, document_id in enumerate(judged_ids)}
    return _Ranking(
        queries=_table(list(queries.values()), recipe, word_rows),
        documents=_table([titles[row_of_document[d]] for d in judged_ids], recipe, word_rows),
        pairs=pairs,
        query=np.array([row_of_query[pairs.query_ids[at]] for at in pairs.query_of], np.int64),
        document=np.array([place.get(d, -1) for d in pairs.document_ids], np.int64),
    )


def _from_clicks(shard: Shard) -> _Ranking:
    qrels: dict[str, dict[str, int]] = {}
    for query, clicked, negatives in zip(
        shard.query.tolist(), shard.clicked.tolist(), shard.negatives.tolist(), strict=True
    ):
        grades = qrels.setdefault(str(query), {})
        grades.update({str(text): grades.get(str(text), 0) for text in negatives})
        grades[str(clicked)] = 1
    pairs = judged_pairs(qrels)
    queries, query = np.unique([int(pairs.query_ids[at]) for at in pairs.query_of], return_inverse=True)
    documents, document = np.unique([int(d) for d in pairs.document_ids], return_inverse=True)
    return _Ranking(
        queries=TextTable(shard.texts.words.take(queries), shard.texts.trigrams),
        documents=TextTable(shard.texts.words.take(documents), shard.texts.trigrams),
        pairs=pairs,
        query=query,
        document=document,
    )


def _table(texts: Sequence[str], recipe: Recipe, word_rows: WordRows) -> TextTable:
    return text_table(texts, word_rows).limited(recipe.max_words, recipe.overflow)
