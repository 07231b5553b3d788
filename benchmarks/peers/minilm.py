"""A sentence transformer, all-MiniLM-L6-v2 off the shelf or fine-tuned, on the judgments that towers are measured on.

    python benchmarks/peers/minilm.py --model FOLDER --documents documents.tsv --queries queries.dev.tsv \\
        --qrels qrels.dev.txt [--min-judged 5] [--run minilm.run]

Runs in an environment of its own, which has torch and transformers beside this project: they are no dependency of it.
FOLDER holds the transformer's weights and tokeniser. Titles only, no more than 128 word pieces, mean of the last
layer's vectors, unit length, cosine: as its card says. Prints one JSON object: NDCG, and titles that one
core encodes in a second (the processor time of all threads, so that other work on the machine does not show). --run
also writes its scores of the judged titles as a TREC run, which `clicktower compare --run` sets beside other systems.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from clicktower.schemas.documents import read_documents
from clicktower.schemas.judgments import read_qrels, read_queries, run_lines
from clicktower.schemas.release import Similarity
from clicktower.training.model.embedding import Side
from clicktower.training.ranking.measure import judged_collection
from clicktower.training.ranking.ndcg import CUTOFFS, judged_pairs, ndcg_of_judged

os.environ["HF_HUB_OFFLINE"] = "1"
BATCH_TEXTS = 64
MAX_PIECES = 128


class Transformer:
    """Texts -> unit vectors: a TextEncoder, both sides alike."""

    similarity: Similarity = "cosine"

    def __init__(self, folder: str) -> None:
        from transformers import AutoModel, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder).eval()

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], side: Side = "document") -> np.ndarray:
        """float32 [texts, dimensions], of length 1; texts of like length go together."""
        vectors = np.empty((len(texts), self._model.config.hidden_size), np.float32)
        by_length = np.argsort([len(text) for text in texts])
        for start in range(0, len(texts), BATCH_TEXTS):
            index = by_length[start : start + BATCH_TEXTS]
            pieces = self._tokenizer(
                [texts[i] for i in index], padding=True, truncation=True, max_length=MAX_PIECES, return_tensors="pt"
            )
            words = self._model(**pieces).last_hidden_state
            real = pieces["attention_mask"][:, :, None]
            mean = (words * real).sum(1) / real.sum(1)
            vectors[index] = torch.nn.functional.normalize(mean, dim=1).numpy()
        return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "documents", "queries", "qrels"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--min-judged", type=int, default=1)
    parser.add_argument("--run", help="a file for the scores")
    options = parser.parse_args()
    torch.set_num_threads(1)
    documents = read_documents(options.documents)
    judged = judged_collection(
        documents, read_queries(options.queries), read_qrels(options.qrels), min_judged=options.min_judged
    )
    pairs = judged_pairs(judged.qrels)
    queries = [judged.queries[query_id] for query_id in pairs.query_ids]
    titles = sorted({documents.titles[judged.row_of[document]] for document in pairs.document_ids})
    place = {title: at for at, title in enumerate(titles)}

    transformer = Transformer(options.model)
    transformer.encode(titles[:BATCH_TEXTS])  # what only a first call costs
    started = time.process_time()
    title_TD = transformer.encode(titles)
    seconds = time.process_time() - started
    query_QD = transformer.encode(queries)
    of_document = [place[documents.titles[judged.row_of[document]]] for document in pairs.document_ids]
    scores = np.einsum("pd,pd->p", query_QD[pairs.query_of], title_TD[of_document])
    means = {k: float(values.mean()) for k, values in ndcg_of_judged(pairs, scores).items()}
    if options.run:
        run: dict[str, dict[str, float]] = {query_id: {} for query_id in pairs.query_ids}
        for query, document, score in zip(pairs.query_of, pairs.document_ids, scores, strict=True):
            run[pairs.query_ids[query]][document] = float(score)
        Path(options.run).write_text("".join(run_lines(run, "minilm")), encoding="utf-8")
    result = {
        "system": options.model,
        "n": len(judged.qrels),
        **{f"ndcg@{cutoff}": means[cutoff] for cutoff in CUTOFFS},
        "texts": len(titles),
        "encoding_core_seconds": round(seconds, 2),
        "titles_per_core_second": round(len(titles) / seconds, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
