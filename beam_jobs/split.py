"""The split of queries into training and held-out ones: by a keyed hash of the query alone.

The key is a permanent salt and not the run's seed: a sweep over seeds would otherwise move the held-out queries into
training, and adding a day of log would too.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

MAX_SALT_BYTES = 64  # BLAKE2b's longest key


def held_out(queries: Iterable[str], *, salt: str, share: float) -> np.ndarray:
    """Whether each normalised query is held out for dev, bool [queries]; about `share` of all queries are.

    A larger share holds out the same queries and more. Raises ValueError for a salt of over 64 bytes.
    """
    limit = int(share * 2**64)
    return np.array([_keyed_hash(query, salt) < limit for query in queries], bool)


def _keyed_hash(query: str, salt: str) -> int:
    digest = hashlib.blake2b(query.encode(), digest_size=8, key=salt.encode(), person=b"split").digest()
    return int.from_bytes(digest, "little")
