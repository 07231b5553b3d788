"""What else could answer a query from a release: onnxruntime on its query.onnx, LanceDB's own index, bm25s."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clicktower.flows.releases.query_onnx import onnx_inputs
from clicktower.flows.releases.search import OpenRelease
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.release import QUERY_TOWER, TABLE
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.ranking.bm25 import K1, B

_PROBES = (5, 10, 20, 40, 80, 160)


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


class LanceTable:
    """A copy of a release's table with LanceDB's IVF index, which looks into as few partitions as reach recall 0.95."""

    def __init__(self, opened: OpenRelease, vectors: Sequence[np.ndarray], limits: Sequence[float], k: int) -> None:
        import lancedb
        from lancedb.index import IvfFlat

        folder = tempfile.mkdtemp(prefix="lancedb-")
        try:
            shutil.copytree(Path(opened.folder, f"{TABLE}.lance"), Path(folder, f"{TABLE}.lance"))
            self._table = lancedb.connect(folder).open_table(TABLE)
            partitions = round(opened.release.num_documents**0.5)
            started = time.perf_counter()
            self._table.create_index("vector", config=IvfFlat(distance_type="dot", num_partitions=partitions))
            self.facts = {"index_seconds": round(time.perf_counter() - started, 1), "num_partitions": partitions}
            self._k = k
            for self._probes in _PROBES:
                found = [int((self.cosines(v) >= limit - 1e-5).sum()) for v, limit in zip(vectors, limits, strict=True)]
                if sum(found) >= 0.95 * k * len(found):
                    break
            self.facts["num_probes"] = self._probes
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def cosines(self, vector: np.ndarray) -> np.ndarray:
        query = self._table.search(vector, vector_column_name="vector").distance_type("dot")
        found = query.select(["id", "title", "_distance"]).limit(self._k).nprobes(self._probes).to_arrow()
        return 1 - found["_distance"].to_numpy()


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
