"""Which documents of a micro-batch go forward and back together: what they leave for the way back stays in the cache.

A document waits for the loss of every pair that has it. Those that pairs share go forward first and back last. What
one pair alone has, or a few pairs, takes turns: TURN_TEXTS documents forward, the loss of their pairs, and back, before
the next ones. A function of the candidates alone, so a micro-batch has the same sums wherever it is computed.

Shapes: B pairs, C candidates with the clicked one first, N documents.
"""

from dataclasses import dataclass

import numpy as np

from training.kernel.batch import CHUNK_TEXTS

TURN_TEXTS = CHUNK_TEXTS // 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Turns:
    """How documents and pairs are numbered for them."""

    candidates: np.ndarray  # int32 [B, C], by the new numbers
    num_shared: int  # documents numbered below it are shared; the others are in runs of `group`
    group: int
    pair_ends: np.ndarray  # int64 [turns], the pair after those of each turn
    place: np.ndarray | None = None  # int32 [N], the new number of each document; None: as before
    pair_order: np.ndarray | None = None  # int64 [B], which pair is where; None: as before


def turns_of(candidates: np.ndarray, num_documents: int) -> Turns:
    """The turns of pairs whose candidates are all their own, or whose clicked ones follow those that all share.

    `candidates`: int32 [B, C], -1 where there is none. Other pairs have no turns.
    """
    return _apart(candidates, num_documents) or _clicked_apart(candidates, num_documents) or Turns(
        candidates=np.ascontiguousarray(candidates),
        num_shared=num_documents,
        group=0,
        pair_ends=np.empty(0, np.int64),
    )  # fmt: skip


def _apart(candidates: np.ndarray, num_documents: int) -> Turns | None:
    """No two pairs share a document: they are numbered pair after pair."""
    (num_pairs, num_candidates), flat = candidates.shape, candidates.ravel()
    if num_candidates > TURN_TEXTS or len(flat) != num_documents or not _is_permutation(flat):
        return None
    place = np.empty(num_documents, np.int32)
    place[flat] = numbers = np.arange(num_documents, dtype=np.int32)
    pairs_of_turn = TURN_TEXTS // num_candidates
    return Turns(
        candidates=numbers.reshape(candidates.shape),
        num_shared=0,
        group=pairs_of_turn * num_candidates,
        pair_ends=np.minimum(np.arange(0, num_pairs, pairs_of_turn) + pairs_of_turn, num_pairs),
        place=place,
    )


def _clicked_apart(candidates: np.ndarray, num_documents: int) -> Turns | None:
    """No pair's clicked document is another one's negative, and they stand last: pairs are put in their order."""
    clicked, negatives = candidates[:, 0], candidates[:, 1:]
    num_shared = int(clicked.min())
    if negatives.size and negatives.max() >= num_shared:
        return None
    if (np.bincount(clicked - num_shared, minlength=num_documents - num_shared) == 0).any():
        return None
    pair_order = np.argsort(clicked, kind="stable")
    ends = np.arange(num_shared, num_documents, TURN_TEXTS) + TURN_TEXTS
    return Turns(
        candidates=np.ascontiguousarray(candidates[pair_order]),
        num_shared=num_shared,
        group=TURN_TEXTS,
        pair_ends=np.searchsorted(clicked[pair_order], ends),
        pair_order=pair_order,
    )


def _is_permutation(numbers: np.ndarray) -> bool:
    return numbers.min() >= 0 and bool((np.bincount(numbers, minlength=len(numbers)) == 1).all())
