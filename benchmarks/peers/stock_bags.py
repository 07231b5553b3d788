"""DSSM and CLSM in stock parts: nn.EmbeddingBag for each distinct word once, the words of a text by torch's functions.

Shapes: N texts of at most T words, U distinct words, K words in a window, H hidden units; G = H of DSSM, K H of CLSM.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.peers.stock_towers import Tensors
from clicktower.training.towers.text_table import TextTable


class StockBag(nn.Module):
    """A tower that starts from W [rows, G], b [H], W_s [H, d] and b_s [d] as the trainer has them.

    `window`: K of CLSM; 0 is DSSM, which sums all words.
    """

    def __init__(self, start: Tensors, window: int) -> None:
        super().__init__()
        self.window = window
        self.bag = nn.EmbeddingBag.from_pretrained(start["W"].clone(), freeze=False, mode="sum", sparse=True)
        self.b, self.W_s, self.b_s = (nn.Parameter(start[name].clone()) for name in ("b", "W_s", "b_s"))

    def encode(self, table: TextTable, index: np.ndarray) -> torch.Tensor:
        """The embeddings [N, d] of the texts `index`."""
        taken = table.words.take(index)
        words, local = np.unique(taken.values, return_inverse=True)
        trigrams = table.trigrams.take(words)
        word_UG = self.bag(torch.from_numpy(trigrams.values.astype(np.int64)), torch.from_numpy(trigrams.offsets[:-1]))
        if self.window:
            arriving_NH = self._highest_window(word_UG, local, taken.lengths)
        else:
            arriving_NH = F.embedding_bag(
                torch.from_numpy(local), word_UG, torch.from_numpy(taken.offsets[:-1]), mode="sum"
            )
        return torch.addmm(self.b_s, (arriving_NH + self.b).tanh(), self.W_s).tanh()

    def parts(self) -> Tensors:
        """What it learns, named and shaped as `start` was."""
        return {"W": self.bag.weight.detach(), **{name: getattr(self, name).detach() for name in ("b", "W_s", "b_s")}}

    def _highest_window(self, word_UG: torch.Tensor, local: np.ndarray, lengths: np.ndarray) -> torch.Tensor:
        half, longest, hidden = self.window // 2, int(lengths.max()), len(self.b)
        at_NT = np.full((len(lengths), longest + 2 * half), len(word_UG))  # the word of zeros, beyond a text's ends
        inside = np.arange(longest) < lengths[:, None]
        at_NT[:, half : half + longest][inside] = local
        columns = torch.from_numpy(at_NT).unfold(1, longest, 1).unbind(1)
        of_words = F.pad(word_UG, (0, 0, 0, 1)).split(hidden, dim=1)
        window_NTH = sum(F.embedding(at, values) for at, values in zip(columns, of_words, strict=True))
        return window_NTH.masked_fill(torch.from_numpy(~inside)[:, :, None], -torch.inf).amax(1)
