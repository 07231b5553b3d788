"""The paper's LSTM tower in stock parts: nn.EmbeddingBag, nn.LSTM and autograd, arranged in several ways.

nn.LSTM has a forget gate and multiplies its input by a matrix, so the model is written into it like this: the forget
gate's bias is 100 (its sigmoid is 1 in float32, and the gate's gradient an exact zero), and the input matrix is a
constant that hands the three gates' inputs on. What it computes is then the trainer's own model; tests and the
benchmark compare loss and gradient.

Shapes: N texts, T steps, U distinct words, d cells, G = 3 d columns (output, input, candidate gate).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from clicktower.training.towers.text_table import TextTable

FORGET_BIAS = 100.0
Tensors = dict[str, torch.Tensor]
Where = Literal["inside", "beside"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrangement:
    """How the tower is written and fed.

    cell: nn.LSTM as above; `small` is nn.LSTM behind a bag of only d columns, the form in which the two are usually
    joined (W has rank d: a smaller model); `loop` is no library cell but a loop over steps on the texts that have
    begun, three gates, in autograd.
    """

    cell: Literal["nn.LSTM", "small", "loop"] = "nn.LSTM"
    distinct_words: bool = True  # each distinct word's bag once, then looked up
    sparse: bool = True  # gradients of the bag
    buckets: int = 1  # of texts of like length, each padded to its own longest; 0: one for each length, so no padding
    packed: bool = False  # pack_padded_sequence instead of padding
    threads: Where = "inside"  # OpenMP in each operation, or each its part of the minibatch


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts as index tensors, on the device."""

    trigrams: torch.Tensor  # of the words, one after the other
    word_offsets: torch.Tensor
    buckets: list[tuple[torch.Tensor, torch.Tensor]]  # words by step and text [T, N], lengths [N]
    place: torch.Tensor  # [N] where each text stands among the buckets' texts


def read_texts(table: TextTable, index: np.ndarray, arrangement: Arrangement, device: torch.device) -> Texts:
    """The texts `index` of a table, sorted by length, shortest first, and cut into buckets."""
    taken = table.words.take(index)
    if arrangement.distinct_words:
        words, local = np.unique(taken.values, return_inverse=True)
    else:
        words, local = taken.values, np.arange(len(taken.values))
    trigrams = table.trigrams.take(words)
    lengths = taken.lengths
    order = np.argsort(lengths, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    buckets = []
    for texts in _cut(order, lengths, arrangement.buckets):
        steps = np.minimum(np.arange(lengths[texts[-1]])[:, None], lengths[texts] - 1)  # padding repeats the last word
        at_TN = torch.from_numpy(local[taken.offsets[texts] + steps])
        buckets.append((at_TN.to(device), torch.from_numpy(lengths[texts])))
    return Texts(
        torch.from_numpy(trigrams.values.astype(np.int64)).to(device),
        torch.from_numpy(trigrams.offsets[:-1]).to(device),
        buckets,
        torch.from_numpy(place).to(device),
    )


def _cut(order: np.ndarray, lengths: np.ndarray, buckets: int) -> list[np.ndarray]:
    if buckets:
        return np.array_split(order, min(buckets, len(order)))
    return np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)


class StockTower(nn.Module):
    """A tower that starts from W [rows, G], W_rec [d, G] and b [G] as the trainer has them.

    The small model starts from `bag` [rows, d] and `projection` [d, G], whose product is its W.
    """

    def __init__(self, arrangement: Arrangement, start: Tensors) -> None:
        super().__init__()
        self.arrangement, self.dimensions = arrangement, len(start["W_rec"])
        weight = start["W"] if arrangement.cell != "small" else start["bag"]
        self.bag = nn.EmbeddingBag.from_pretrained(weight.clone(), freeze=False, mode="sum", sparse=arrangement.sparse)
        if arrangement.cell in ("nn.LSTM", "small"):
            self.recurrence: nn.LSTM | Loop = _library_lstm(start, arrangement)
        else:
            self.recurrence = Loop(start["W_rec"], start["b"])

    def encode(self, table: TextTable, index: np.ndarray) -> torch.Tensor:
        """The embeddings [N, d] of the texts `index`."""
        texts = read_texts(table, index, self.arrangement, self.bag.weight.device)
        word_UG = self.bag(texts.trigrams, texts.word_offsets)
        last = [self.last(word_UG, at_TN, lengths) for at_TN, lengths in texts.buckets]
        return torch.cat(last)[texts.place]

    def last(self, word_UG: torch.Tensor, at_TN: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """y at the last word of a bucket's texts, [N, d], given W l of each distinct word."""
        if isinstance(self.recurrence, Loop):
            return self.recurrence(word_UG, at_TN, lengths)
        input_TNG = F.embedding(at_TN, word_UG)
        if self.arrangement.packed:
            _, (last, _) = self.recurrence(pack_padded_sequence(input_TNG, lengths, enforce_sorted=False))
            return last[0]
        every_TNd, _ = self.recurrence(input_TNG)
        at = (lengths - 1).to(every_TNd.device)
        return every_TNd[at, torch.arange(len(at), device=every_TNd.device)]

    def parts(self) -> Tensors:
        """What it learns, named and shaped as `start` was."""
        bag = self.bag.weight.detach()
        if isinstance(self.recurrence, Loop):
            recurrence = self.recurrence
            return {"W": bag, "W_rec": recurrence.recurrent.detach(), "b": recurrence.bias.detach()}
        lstm = self.recurrence
        learnt = {"W_rec": _ours(lstm.weight_hh_l0.detach()).T, "b": _ours(lstm.bias_ih_l0.detach())}
        if self.arrangement.cell == "small":
            return {"bag": bag, "projection": _ours(lstm.weight_ih_l0.detach()).T, **learnt}
        return {"W": bag, **learnt}


class Loop(nn.Module):
    """The cell step by step on the texts that have begun: sorted by length and aligned to their last words."""

    def __init__(self, recurrent_dG: torch.Tensor, bias_G: torch.Tensor) -> None:
        super().__init__()
        self.recurrent, self.bias = nn.Parameter(recurrent_dG.clone()), nn.Parameter(bias_G.clone())

    def forward(self, word_UG: torch.Tensor, at_TN: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """y at the last word of each text, [N, d]; lengths ascend."""
        word_UG = word_UG + self.bias
        longest, texts = at_TN.shape
        y = c = word_UG.new_zeros(0, len(self.recurrent))
        for step, first in enumerate(torch.searchsorted(lengths, torch.arange(longest, 0, -1)).tolist()):
            # Texts `first` to N have begun. They end together, so each is at another of its own words.
            word = (lengths[first:] - longest + step).to(at_TN.device)
            x = F.embedding(at_TN[word, torch.arange(first, texts, device=at_TN.device)], word_UG)
            if new := len(x) - len(y):
                y, c = F.pad(y, (0, 0, new, 0)), F.pad(c, (0, 0, new, 0))
            y, c = _gates(torch.addmm(x, y, self.recurrent) if step else x, c)
        return y


def _gates(x_NG: torch.Tensor, c_Nd: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    d = c_Nd.shape[1]
    both, candidate = torch.sigmoid(x_NG[:, : 2 * d]), torch.tanh(x_NG[:, 2 * d :])
    c_Nd = c_Nd + both[:, d:] * candidate
    return both[:, :d] * torch.tanh(c_Nd), c_Nd


def _library_lstm(start: Tensors, arrangement: Arrangement) -> nn.LSTM:
    """nn.LSTM, whose gates are input, forget, candidate, output, with the forget gate held open."""
    d, columns = start["W_rec"].shape
    projection = start["projection"] if arrangement.cell == "small" else torch.eye(columns)
    lstm = nn.LSTM(len(projection), d).to(projection)
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(_theirs(projection.T))
        lstm.weight_hh_l0.copy_(_theirs(start["W_rec"].T))
        lstm.bias_ih_l0.copy_(_theirs(start["b"]))
        lstm.bias_ih_l0[d : 2 * d] = FORGET_BIAS
        lstm.bias_hh_l0.zero_()
    lstm.bias_hh_l0.requires_grad_(False)  # there are two biases, of which one is enough
    lstm.weight_ih_l0.requires_grad_(arrangement.cell == "small")
    return lstm


def small_start(parts: Tensors, seed: int) -> Tensors:
    """A start of the small model: a bag of d columns and its projection instead of W, the rest as it is."""
    random, (d, columns) = torch.Generator().manual_seed(seed), parts["W_rec"].shape
    sizes = {"bag": (len(parts["W"]), d), "projection": (d, columns)}
    factors = {name: torch.rand(size, generator=random) * 0.4 - 0.2 for name, size in sizes.items()}
    return {**factors, "W_rec": parts["W_rec"], "b": parts["b"]}


def small_gradient(start: Tensors, gradient: Tensors) -> Tensors:
    """The gradient of the small model's parts, from that of the W which its bag and projection make."""
    by_W = gradient["W"]
    factors = {"bag": by_W @ start["projection"].T.to(by_W), "projection": start["bag"].T.to(by_W) @ by_W}
    return {**factors, "W_rec": gradient["W_rec"], "b": gradient["b"]}


def _theirs(gates: torch.Tensor) -> torch.Tensor:
    """[G, ...] in the order output, input, candidate -> [4 d, ...] input, forget, candidate, output."""
    output, inward, candidate = gates.chunk(3)
    return torch.cat([inward, torch.zeros_like(inward), candidate, output])


def _ours(gates: torch.Tensor) -> torch.Tensor:
    inward, _, candidate, output = gates.chunk(4)
    return torch.cat([output, inward, candidate])
