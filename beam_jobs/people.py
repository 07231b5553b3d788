"""Sets of people as capped sets of keyed hashes: constant size for the hottest query, exact up to the cap, mergeable.

The smallest PEOPLE_CAP hashes of a union are the smallest of the sets' smallest, so merging in any order and any
grouping gives what one pass over all lines would have given.
"""

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.keyed_hashes import keyed_hashes
from schemas.day import PEOPLE_CAP

PERSON = b"clicktower-people"[:16]  # BLAKE2b's personalisation: this use of the key and no other


def hash_people(client_ids: pa.Array, key: bytes) -> pa.Array:
    """A keyed 64-bit BLAKE2b hash of each client id, as uint64; null for null: a line without client is nobody's."""
    encoded = client_ids.dictionary_encode()
    distinct = keyed_hashes(encoded.dictionary, key=key, person=PERSON).byteswap()  # the digest's first byte is highest
    return pa.array(distinct).take(encoded.indices)


def collect_people(groups: np.ndarray, people: np.ndarray, num_groups: int, cap: int = PEOPLE_CAP) -> pa.Array:
    """For each group 0..num_groups-1 the `cap` smallest distinct people, ascending, as list<uint64>.

    `groups` and `people` are of equal length, one entry for each time a person is seen in a group.
    """
    order = np.lexsort((people, groups))
    groups, people = groups[order], people[order]
    if len(groups):
        is_new = np.append(True, (groups[1:] != groups[:-1]) | (people[1:] != people[:-1]))
        groups, people = groups[is_new], people[is_new]
    sizes = np.bincount(groups, minlength=num_groups)
    starts = np.cumsum(sizes) - sizes
    kept = np.arange(len(groups)) - starts[groups] < cap
    offsets = np.concatenate([[0], np.cumsum(np.minimum(sizes, cap))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(people[kept], pa.uint64()))


def merge_people(groups: np.ndarray, sets: pa.ListArray, num_groups: int, cap: int = PEOPLE_CAP) -> pa.Array:
    """For each group 0..num_groups-1 the union of its sets, capped, as list<uint64>; `groups` has one entry per set."""
    lengths = sets.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    members = sets.flatten().to_numpy(zero_copy_only=False).astype(np.uint64)
    return collect_people(np.repeat(groups, lengths), members, num_groups, cap)
