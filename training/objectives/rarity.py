"""How rare each letter trigram is among the titles of the pool: what `start = idf` weighs the first numbers by."""

import numpy as np

from training.compute.elementary import ln
from training.data.shard_data import ShardData

_BLOCK_TITLES = 65_536  # counted at once, so that a large pool needs little memory


def rarity(data: ShardData) -> np.ndarray:
    """The weight of each row of the trigram table, float32 [rows], a function of the shards alone.

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
