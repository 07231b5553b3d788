"""The order of training: a function of the data, the seed and the epoch alone (docs/model.md section 5).

Each shard's pairs are permuted, a window of them is sorted by length and cut into micro-batches of fixed size (the
last of a shard may be shorter), the micro-batches of all shards are permuted, and consecutive runs of them are the
minibatches. The order does not depend on the workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.data.shard_data import Shard

WINDOW = 16  # micro-batches within which texts are grouped by length


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch: pairs that are computed together, rows of one shard."""

    shard: int
    pairs: np.ndarray  # int64
    place: int  # in the order of the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The training order over shards.

    lengths: for each shard the number of words of each pair's query and clicked title together.
    """

    lengths: Sequence[np.ndarray]
    micro_batch: int
    minibatch: int
    seed: int

    @property
    def num_pairs(self) -> int:
        return sum(len(lengths) for lengths in self.lengths)

    @property
    def num_minibatches(self) -> int:
        """Large updates in an epoch, the same in every epoch."""
        num_micro_batches = sum(-(-len(lengths) // self.micro_batch) for lengths in self.lengths)
        return -(-num_micro_batches // self._run)

    @property
    def _run(self) -> int:
        return self.minibatch // self.micro_batch

    def epoch(self, epoch: int) -> list[list[MicroBatch]]:
        """The minibatches of an epoch, each a list of micro-batches; every pair is in exactly one."""
        micro_batches = [
            (shard, pairs)
            for shard, lengths in enumerate(self.lengths)
            for pairs in self._micro_batches(shard, lengths, epoch)
        ]
        permuted = self._random(epoch, len(self.lengths)).permutation(len(micro_batches))
        in_order = enumerate(micro_batches[at] for at in permuted)
        shuffled = [MicroBatch(shard, pairs, place) for place, (shard, pairs) in in_order]
        return [shuffled[start : start + self._run] for start in range(0, len(shuffled), self._run)]

    def _micro_batches(self, shard: int, lengths: np.ndarray, epoch: int) -> list[np.ndarray]:
        permuted = self._random(epoch, shard).permutation(len(lengths))
        window = np.arange(len(lengths)) // (WINDOW * self.micro_batch)
        grouped = permuted[np.lexsort((lengths[permuted], window))]
        return [grouped[start : start + self.micro_batch] for start in range(0, len(grouped), self.micro_batch)]

    def _random(self, epoch: int, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=np.array([self.seed, epoch << 32 | stream], np.uint64)))


def pair_lengths(shard: Shard) -> np.ndarray:
    """The number of words of each pair's query and clicked title together."""
    words = shard.texts.words.lengths
    return words[shard.query] + words[shard.clicked]
