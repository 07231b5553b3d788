"""The nearest words of a word: by Doc2Vec's word vectors (Appendix F of the paper), or by a trained tower.

A tower's vector of a word is its embedding of the text that has this word alone, so it knows words that no text has by
their letters.

Shapes: A words asked for, V words of the texts, D dimensions.

`write_texts` gives the texts of training to another kind of encoder (model.teacher).
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.shard import TEXTS, open_table
from clicktower.schemas.stage import Progress, open_result, silent
from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import Side, TextEncoder, minus_distances, search_vectors, unit
from clicktower.training.ranking.doc2vec import TitleDoc2Vec
from clicktower.training.trainer.shard_data import local_folder


def write_texts(shards: str, to: str) -> int:
    """Write each text of a build's training shards and pool once, normalised, as the column `text` of a Parquet file.

    Returns their number. Existing files are not overwritten. Raises UsageError and StageError.
    """
    distinct = distinct_texts_of(shards)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": distinct}), buffer)
    if not storage.write_new(to, buffer.getvalue()):
        raise UsageError(f"The file {to} is there already, and would be lost.", "Give another --to, or remove it.")
    return len(distinct)


def distinct_texts_of(shards: str, *, held_out: bool = False) -> pa.Array:
    """Each text of a build's training shards and pool once, normalised; with `held_out` those held out too.

    Raises UsageError and StageError.
    """
    built = open_result(shards, "build")
    folder = local_folder(built.data)
    names = {file.path.split("/")[-2] for file in built.manifest.files if file.path.endswith("/texts.arrow")}
    taught = sorted(name for name in names if held_out or not name.startswith("dev"))
    texts = pa.chunked_array(
        [chunk for name in taught for chunk in open_table(f"{folder}/{name}/texts.arrow", TEXTS)["text"].chunks],
        pa.string(),
    )
    return pc.unique(texts)


def nearest_words(
    queries: Sequence[str],
    shards: str,
    encoder: TextEncoder | None = None,
    *,
    side: Side = "query",
    k: int = 10,
    epochs: int = 30,
    seed: int = 0,
    progress: Progress = silent,
) -> tuple[list[dict[str, Any]], int]:
    """(for each requested word the k nearest others with their scores, the number of words of the build's texts).

    With an encoder, by its vectors for `side`; without one, as Doc2Vec (PV-DM) learns them from the texts. Scores:
    cosines, or minus the distances. Raises UsageError for anything but a single word, or a word unknown to Doc2Vec;
    StageError without gensim.
    """
    if odd := [text for text in queries if len(words(text)) != 1] or ([] if queries else [""]):
        raise UsageError(
            f"Nearest words are those of single words, and {', '.join(map(repr, odd))} is not a single word.",
            "Give one or more: clicktower nearest-words pizza infection --shards FOLDER.",
        )
    queries = [word for text in queries for word in words(text)]
    texts = distinct_texts_of(shards, held_out=True).to_pylist()
    if encoder:
        vocabulary = sorted({word for text in texts for word in words(text)})
        vectors_VD = search_vectors(encoder, vocabulary, side, what="encode words", progress=progress)
        asked_AD = search_vectors(encoder, queries, side)
    else:
        doc2vec = TitleDoc2Vec(texts, memory=True, epochs=epochs, seed=seed, progress=progress)
        vocabulary, vectors_VD = doc2vec.word_vectors[0], unit(doc2vec.word_vectors[1])
        if unknown := sorted(set(queries).difference(vocabulary)):
            raise UsageError(
                f"No text of the shards has {', '.join(map(repr, unknown))}, so Doc2Vec has no vector of it.",
                "Give another word, or --model: a tower reads any word by its letters.",
            )
        asked_AD = vectors_VD[[vocabulary.index(word) for word in queries]]
    by_cosine = encoder is None or encoder.similarity == "cosine"
    scores_AV = asked_AD @ vectors_VD.T if by_cosine else minus_distances(asked_AD, vectors_VD)
    neighbours = []
    for word, scores in zip(queries, scores_AV, strict=True):
        places = [at for at in np.argsort(-scores, kind="stable")[: k + 1] if vocabulary[at] != word][:k]
        nearest = [{"word": vocabulary[at], "score": float(scores[at])} for at in places]
        neighbours.append({"word": word, "nearest": nearest})
    return neighbours, len(vocabulary)
