"""What else could answer a query from a release: onnxruntime on its query.onnx, faiss, usearch, bm25s."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clicktower.flows.releases.ivf_index import num_partitions_of
from clicktower.flows.releases.query_onnx import onnx_inputs
from clicktower.flows.releases.release_documents import IndexSearch
from clicktower.flows.releases.search import OpenRelease
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.release import QUERY_TOWER
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.ranking.bm25 import K1, B

RECALL = 0.98


class OnnxQueries:
    """Texts -> vectors with query.onnx, one at a time, as a client without this package's kernels would."""

    @staticmethod
    def available(opened: OpenRelease) -> bool:
        return Path(opened.folder, QUERY_TOWER).exists()

    def __init__(self, opened: OpenRelease) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        graph = Path(opened.folder, QUERY_TOWER).read_bytes()
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self._rows = opened.release.text_contract["table_rows"]

    def __call__(self, query: str) -> np.ndarray:
        offsets, ids = trigram_ids(words(query), self._rows)
        return self._session.run(["vector"], onnx_inputs(np.split(ids, offsets[1:-1])))[0]


class Peer(IndexSearch):
    """A library's approximate search in the place of a release's own; what it finds is scored as ours is.

    Its setting is the least that finds `RECALL` of the ten best by the whole score for some queries, as `publish`
    chooses the number of partitions.
    """

    settings: Sequence[int]
    facts: dict[str, Any]

    def __init__(self, opened: OpenRelease) -> None:
        super().__init__(opened.vectors_ND, similarity=opened.release.similarity)
        started = time.process_time()
        self.make(np.ascontiguousarray(opened.vectors_ND))
        self.facts = {"index_cpu_seconds": round(time.process_time() - started, 1)}

    def make(self, vectors_ND: np.ndarray) -> None:
        raise NotImplementedError

    def set(self, setting: int) -> None:
        raise NotImplementedError

    def rows(self, query_D: np.ndarray, k: int) -> np.ndarray:
        raise NotImplementedError

    def best(self, query_D, k, num_probes=None, among=None, *, results=None):
        rows = np.sort(self.rows(query_D, k)).astype(np.int64)
        return rows, self.scores_of(query_D, rows)

    def choose(self, recall: Callable[[], float]) -> None:
        """The least setting with enough recall, or the largest."""
        for setting in self.settings:
            self.set(setting)
            self.facts |= {"setting": setting, "recall_where_chosen": recall()}
            if self.facts["recall_where_chosen"] >= RECALL:
                break


class FaissIvf(Peer):
    """faiss: k-means partitions of 8-bit vectors, as many partitions as ours."""

    settings = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)

    def make(self, vectors_ND: np.ndarray) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        num_partitions = num_partitions_of(len(vectors_ND))
        name = f"IVF{num_partitions},SQ8"
        self._index = faiss.index_factory(vectors_ND.shape[1], name, faiss.METRIC_INNER_PRODUCT)
        sample = np.random.default_rng(0).permutation(len(vectors_ND))[: 64 * num_partitions]
        self._index.train(vectors_ND[np.sort(sample)])
        self._index.add(vectors_ND)

    def set(self, setting: int) -> None:
        self._index.nprobe = setting

    def rows(self, query_D: np.ndarray, k: int) -> np.ndarray:
        _, rows = self._index.search(query_D[None], k)
        return rows[0][rows[0] >= 0]


class UsearchGraph(Peer):
    """usearch: an HNSW graph over bfloat16."""

    settings = (100, 200, 400, 800, 1_600, 3_200)

    def make(self, vectors_ND: np.ndarray) -> None:
        from usearch.index import Index

        self._index = Index(ndim=vectors_ND.shape[1], metric="ip", dtype="bf16", connectivity=16, expansion_add=64)
        self._index.add(np.arange(len(vectors_ND)), vectors_ND, threads=1)

    def set(self, setting: int) -> None:
        self._index.expansion_search = setting

    def rows(self, query_D: np.ndarray, k: int) -> np.ndarray:
        return self._index.search(query_D, k).keys


class Bm25sTitles:
    """bm25s over the same terms."""

    def __init__(self, titles: Sequence[str]) -> None:
        import bm25s

        started = time.perf_counter()
        self._index = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numpy")
        self._index.index([Analyser().terms(title) for title in titles], show_progress=False)
        self.index_seconds = round(time.perf_counter() - started, 1)

    def best(self, query: str, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self._index.retrieve([Analyser().terms(query)], k=k, show_progress=False)
