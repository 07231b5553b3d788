"""The click objective (eq. 3 to 5): click shards, their pairs and negatives, judged by held-out loss and NDCG.

Shapes: B pairs, C candidates, N documents.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

import numpy as np
import torch

from clicktower.schemas.judgments import Judged
from clicktower.training.model.kernel_towers import text_table
from clicktower.training.model.model_folder import NO_OUTPUTS, Outputs
from clicktower.training.model.parameters import Encoder
from clicktower.training.model.recipe import Recipe
from clicktower.training.ranking.measure import collection_of
from clicktower.training.ranking.ndcg import CUTOFFS, JudgedPairs, judged_pairs, ndcg_of_judged
from clicktower.training.towers.text_table import TextTable, WordRows
from clicktower.training.trainer.large_update import LossBatch
from clicktower.training.trainer.objective import Measured, encode_table, touched_rows
from clicktower.training.trainer.shard_data import (
    MicroBatch,
    Pairs,
    Shard,
    ShardData,
    ln,
    load_shards,
    pair_lengths,
    pairs_of,
)


def load(folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> "ClickTask":
    data = load_shards(folder, recipe, words)
    if not teacher:
        return ClickTask(data, recipe)
    from clicktower.training.trainer.click_teacher import teacher_of

    return ClickTask(data, recipe, teacher_of(teacher, data, recipe).taught)


def batch(pairs: Pairs) -> LossBatch:
    return resolve_name("clicktower.training.trainer.click_loss:pair_batch")(pairs)


def click_losses(similarity_BC: torch.Tensor, gamma: float) -> torch.Tensor:
    """l of each pair, [B]. A similarity of minus infinity is no candidate."""
    scaled = similarity_BC * gamma
    return torch.logsumexp(scaled, dim=1) - scaled[:, 0]


def cosines(query_Bd: torch.Tensor, document_BCd: torch.Tensor) -> torch.Tensor:
    """R of each query and each of its candidates, [B, C]; 0 where a vector is zero."""
    return torch.einsum("bd,bcd->bc", unit_vectors(query_Bd), unit_vectors(document_BCd))


def unit_vectors(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors of length 1; a zero vector, whose similarity to anything is 0, stays unchanged and has no gradient."""
    length = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors * ((length > 0) / length.masked_fill(length == 0, 1))


@dataclass(frozen=True, slots=True)
class ClickTask:
    """As objective.Task."""

    data: ShardData
    recipe: Recipe
    taught: Callable[[Pairs], Pairs] | None = None  # adds what a teacher says of them
    outputs: Outputs = NO_OUTPUTS

    @property
    def word_rows(self) -> WordRows:
        return self.data.word_rows

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        return [pair_lengths(shard) for shard in self.data.train]

    @property
    def files(self) -> Sequence[str]:
        return [f"{name}/pairs.arrow" for name in self.data.train_names]

    def row_weights(self) -> np.ndarray | None:
        return rarity(self.data) if self.recipe.clicks.start == "idf" else None

    def examples(self, micro_batch: MicroBatch, epoch: int) -> Pairs:
        pairs = pairs_of(micro_batch, self.data, self.recipe, epoch)
        return self.taught(pairs) if self.taught else pairs

    def watched(self, judged: Judged | None) -> "WatchedClicks":
        return WatchedClicks(self.data, self.recipe, judged)


_BLOCK_TITLES = 65_536  # counted at once, so that a large pool needs little memory
_BLOCK_PAIRS = 65_536  # whose loss is measured at once


def rarity(data: ShardData) -> np.ndarray:
    """The initial factor of each row of the trigram table under `start = idf`, float32 [rows], a function of the shards
    alone.

        idf = ln(1 + (N - df + 1/2) / (df + 1/2)),    df of the N distinct titles of the pool have the trigram

    as BM25's of a word (bm25), divided by its root mean square over all trigrams of those titles, so
    that embeddings start about as long as with even weights.
    """
    titles = np.unique(data.pool)
    occurrences, df = np.zeros((2, data.word_rows.num_rows), np.int64)
    for start in range(0, len(titles), _BLOCK_TITLES):
        words = data.pool_texts.words.take(titles[start : start + _BLOCK_TITLES])
        trigrams = data.pool_texts.trigrams.take(words.values)
        title_of_word = np.repeat(np.arange(len(words)), words.lengths)
        in_title = np.repeat(title_of_word, trigrams.lengths) * np.int64(data.word_rows.num_rows) + trigrams.values
        in_title.sort()
        first = np.append(True, in_title[1:] != in_title[:-1])[: len(in_title)]
        occurrences += np.bincount(trigrams.values, minlength=data.word_rows.num_rows)
        df += np.bincount(in_title[first] % data.word_rows.num_rows, minlength=data.word_rows.num_rows)
    idf = ln(1 + (len(titles) - df + 0.5) / (df + 0.5))
    mean_square = (idf**2 * occurrences).sum() / occurrences.sum()
    return (idf / np.sqrt(mean_square)).astype(np.float32)


UNSEEN = -2.0  # below every cosine: a judged document outside the collection comes last


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ranking:
    """Judged pairs with their texts: rows of two tables, -1 for an unknown document."""

    queries: TextTable
    documents: TextTable
    pairs: JudgedPairs
    query: np.ndarray
    document: np.ndarray


class WatchedClicks:
    """As objective.Watched: the loss of held-out pairs, and NDCG.

    dev loss: mean of eq. 5 over the held-out pairs with the shards' own negatives, which never change;
    train_loss_after, if the recipe asks for it: that over the training pairs.
    dev NDCG: over judged documents where judgments are given; otherwise derived from held-out clicks: for each dev
    query its clicked titles (grade 1) among the negatives of its pairs (grade 0).
    """

    def __init__(self, data: ShardData, recipe: Recipe, judged: Judged | None) -> None:
        self._dev = [shard for shard in data.dev if len(shard)]
        self._train = [shard for shard in data.train if len(shard)] if recipe.clicks.loss_after_epoch else []
        self._recipe = recipe
        if judged:
            self.source = "judgments"
            self._rankings = [_judged_ranking(judged, recipe, data.word_rows)]
        else:
            self.source = "held-out clicks" if self._dev else "nothing: no dev pairs, no judgments"
            self._rankings = [_click_ranking(shard) for shard in self._dev]

    @property
    def table_rows(self) -> torch.Tensor:
        tables = [shard.texts for shard in (*self._dev, *self._train)]
        tables += [table for ranking in self._rankings for table in (ranking.queries, ranking.documents)]
        return touched_rows(table.trigrams.values for table in tables)

    def measure(self, encoder: Encoder) -> Measured:
        losses = [self._losses(encoder, shard) for shard in self._dev]
        after = [
            self._losses(encoder, shard, slice(start, start + _BLOCK_PAIRS))
            for shard in self._train
            for start in range(0, len(shard), _BLOCK_PAIRS)
        ]
        values = [_ndcg(encoder, ranking) for ranking in self._rankings]
        ndcg = np.concatenate(values).mean(axis=0).tolist() if values else [None] * len(CUTOFFS)
        return {
            "dev_loss": float(np.concatenate(losses).mean()) if losses else None,
            **({"train_loss_after": float(np.concatenate(after).mean())} if after else {}),
            **{f"dev_ndcg@{k}": value for k, value in zip(CUTOFFS, ndcg, strict=True)},
        }

    def _losses(self, encoder: Encoder, shard: Shard, rows: slice = slice(None)) -> np.ndarray:
        clicks = self._recipe.clicks
        titles = np.concatenate([shard.clicked[rows, None], shard.negatives[rows, : clicks.num_negatives]], axis=1)
        query_Bd = _encode_some(encoder, shard.texts, shard.query[rows], "query")
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
    scores[ranking.document < 0] = UNSEEN
    return np.stack(list(ndcg_of_judged(ranking.pairs, scores).values()), axis=1)


def _judged_ranking(judged: Judged, recipe: Recipe, word_rows: WordRows) -> _Ranking:
    def table(texts: Sequence[str]) -> TextTable:
        return text_table(texts, word_rows).limited(recipe.max_words, recipe.overflow)

    collection = collection_of(judged)
    pairs = judged_pairs(collection.qrels)
    judged_ids = sorted(set(pairs.document_ids) & collection.row_of.keys())
    place = {document_id: at for at, document_id in enumerate(judged_ids)}
    return _Ranking(
        queries=table(list(collection.queries.values())),  # in the order of the qrels
        documents=table([collection.titles[collection.row_of[document_id]] for document_id in judged_ids]),
        pairs=pairs,
        query=pairs.query_of,
        document=np.array([place.get(d, -1) for d in pairs.document_ids], np.int64),
    )


def _click_ranking(shard: Shard) -> _Ranking:
    qrels: dict[str, dict[str, int]] = {}
    columns = (shard.query.tolist(), shard.clicked.tolist(), shard.negatives.tolist())
    for query, clicked, negatives in zip(*columns, strict=True):
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
