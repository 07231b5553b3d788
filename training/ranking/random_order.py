"""Documents in random order: what a ranking is worth that knows nothing, the floor of every table."""

import hashlib
from collections.abc import Sequence

import numpy as np


class RandomOrder:
    """Scores that depend on the query, the document's id and the seed alone, so that runs can be compared."""

    def __init__(self, document_ids: Sequence[str], *, seed: int = 0) -> None:
        self._seed = seed
        self._documents_N = np.array([self._hash(i) for i in document_ids], np.uint64)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Uniform in [0, 1), float32 [queries, documents]."""
        queries_B = np.array([self._hash(query) for query in queries], np.uint64)
        mixed_BN = queries_B[:, None] ^ self._documents_N
        # The finaliser of SplitMix64: hashing each pair anew would take minutes.
        mixed_BN = (mixed_BN ^ (mixed_BN >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed_BN = (mixed_BN ^ (mixed_BN >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((mixed_BN ^ (mixed_BN >> np.uint64(31))) >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)

    def _hash(self, text: str) -> int:
        key = self._seed.to_bytes(8, "big", signed=True)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key, person=b"random order")
        return int.from_bytes(digest.digest(), "big")
