"""Training in stock parts: two towers (stock_towers, stock_bags), the loss by torch's own functions, torch.optim.

Stock SGD has no lazy Nesterov step, and with sparse gradients its momentum buffer fills up. Arrangements with sparse
gradients therefore step the bag without momentum, which is less work than the trainer does: to their advantage.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F

from benchmarks.peers.stock_bags import StockBag
from benchmarks.peers.stock_towers import StockTower, Tensors, Where
from clicktower.training.trainer.shard_data import MicroBatch, ShardData


class StockTraining:
    """The towers of both sides and their optimizers. `where` the threads work: stock_towers.Arrangement."""

    def __init__(
        self,
        towers: Mapping[str, StockTower] | Mapping[str, StockBag],
        data: ShardData,
        *,
        gamma: float,
        step: float,
        momentum: float,
        threads: int,
        where: Where = "inside",
    ) -> None:
        self.towers, self._shard, self._gamma = towers, data.train[0], gamma
        bags = [tower.bag.weight for tower in towers.values()]
        learnt = [p for tower in towers.values() for p in tower.parameters() if p.requires_grad]
        others = [parameter for parameter in learnt if all(parameter is not bag for bag in bags)]
        sgd = partial(torch.optim.SGD, lr=step, momentum=momentum, nesterov=momentum > 0)
        if all(tower.bag.sparse for tower in towers.values()):
            self._optimizers = [torch.optim.SGD(bags, lr=step), sgd(others)]
        else:
            self._optimizers = [sgd([*bags, *others])]
        self._beside = threads if where == "beside" else 1
        self._inside = threads if where == "inside" else 1
        self._pool = ThreadPoolExecutor(self._beside)

    def train(self, minibatches: Sequence[Sequence[MicroBatch]]) -> list[float]:
        """Make an update of each minibatch, one after the other; their losses."""
        return [self.update(minibatch) for minibatch in minibatches]

    def update(self, minibatch: Sequence[MicroBatch]) -> float:
        """Index, encode, differentiate and step: one minibatch. Gives its loss, summed over the pairs."""
        pairs = np.concatenate([micro_batch.pairs for micro_batch in minibatch])
        for optimizer in self._optimizers:
            optimizer.zero_grad()
        loss = sum(self._pool.map(self._backward, np.array_split(pairs, self._beside)))
        self._pool.submit(self._step).result()
        return loss

    def parts(self) -> dict[str, Tensors]:
        """What each tower has learnt so far."""
        return {side: tower.parts() for side, tower in self.towers.items()}

    def close(self) -> None:
        self._pool.shutdown()

    def _backward(self, pairs: np.ndarray) -> float:
        """Autograd adds up in the parameters' .grad, from several threads too."""
        torch.set_num_threads(self._inside)  # each time: MKL's number is the process's, and others were at work
        shard = self._shard
        documents = np.column_stack([shard.clicked[pairs], shard.negatives[pairs]])
        query_Bd = self._encode("query", shard.query[pairs])
        document_BCd = self._encode("document", documents.ravel()).view(*documents.shape, -1)
        similarity_BC = F.cosine_similarity(query_Bd[:, None], document_BCd, dim=2)
        clicked = torch.zeros(len(pairs), dtype=torch.int64, device=similarity_BC.device)
        loss = F.cross_entropy(similarity_BC * self._gamma, clicked, reduction="sum")
        loss.backward()
        return loss.item()

    def _encode(self, side: str, index: np.ndarray) -> torch.Tensor:
        return self.towers[side].encode(self._shard.texts, index)

    def _step(self) -> None:
        for optimizer in self._optimizers:
            optimizer.step()
