"""The bidirectional LSTM over bags of trigrams in stock parts: nn.EmbeddingBag and nn.LSTM on packed sequences.

nn.LSTM multiplies its input by a matrix, so this is the form in which the two are usually joined: a bag of few columns
and that matrix, whose product is the trainer's W. States and all other gradients are the same.

Shapes: B texts, T words of the longest one, U distinct words, R rows of the bag, e columns of it, c cells of each
direction, G = 8 c.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from clicktower.training.towers.text_table import TextTable

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class StockTexts:
    """Texts as index tensors."""

    trigrams: torch.Tensor  # of the distinct words
    word_offsets: torch.Tensor  # [U]
    words_BT: torch.Tensor  # which distinct word, padded with any
    lengths_B: torch.Tensor


def stock_texts(table: TextTable, index: np.ndarray) -> StockTexts:
    """The texts `index` of a table."""
    taken = table.words.take(index)
    words, local = np.unique(taken.values, return_inverse=True)
    trigrams = table.trigrams.take(words)
    lengths = taken.lengths
    at = taken.offsets[:-1, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    return StockTexts(
        torch.from_numpy(trigrams.values),
        torch.from_numpy(trigrams.offsets[:-1]),
        torch.from_numpy(local[at]),
        torch.from_numpy(lengths),
    )


class StockBilstm(nn.Module):
    """With torch's own start, but one bias of the two."""

    def __init__(self, table_rows: int, word_columns: int, cells: int) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(table_rows, word_columns, mode="sum", sparse=True)
        self.lstm = nn.LSTM(word_columns, cells, bidirectional=True, batch_first=True)
        one_bias(self.lstm)

    def forward(self, texts: StockTexts) -> tuple[PackedSequence, torch.Tensor]:
        """(both directions' states at every word, packed; their last ones concatenated [B, 2 c])."""
        word_Ue = self.bag(texts.trigrams, texts.word_offsets)
        word_BTe = F.embedding(texts.words_BT, word_Ue)
        packed = pack_padded_sequence(word_BTe, texts.lengths_B, batch_first=True, enforce_sorted=False)
        states, (last_2Bc, _) = self.lstm(packed)
        return states, torch.cat([last_2Bc[0], last_2Bc[1]], dim=1)

    def table(self) -> torch.Tensor:
        """The trainer's W, [R, G]."""
        return self.bag.weight.detach() @ self.input_weights(dict(self.lstm.named_parameters())).detach()

    def parts(self, values: Mapping[str, torch.Tensor]) -> Tensors:
        """W_rec and b as the trainer's tower has them, of this module's parameters or of their gradients, by name."""
        ways = ("", "_reverse")
        return {
            "W_rec": torch.cat([gates_of(values[f"lstm.weight_hh_l0{way}"]).T for way in ways], dim=1),
            "b": torch.cat([gates_of(values[f"lstm.bias_ih_l0{way}"]) for way in ways]),
        }

    def of_table(self, rows: torch.Tensor, by_table_RG: torch.Tensor) -> Tensors:
        """Gradients of the bag's `rows` and of the input matrix, given that of these rows of W, their product."""
        inputs_eG = self.input_weights(dict(self.lstm.named_parameters())).detach()
        return {"bag": by_table_RG @ inputs_eG.T, "inputs": self.bag.weight.detach()[rows].T @ by_table_RG}

    def of_autograd(self, rows: torch.Tensor) -> Tensors:
        """The same two as autograd left them."""
        gradients = {name: parameter.grad for name, parameter in self.lstm.named_parameters()}
        return {"bag": self.bag.weight.grad.to_dense()[rows], "inputs": self.input_weights(gradients)}

    def input_weights(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """What multiplies a word's vector, [e, G], of this module's parameters or of their gradients, by name."""
        return torch.cat([gates_of(values[f"weight_ih_l0{way}"]).T for way in ("", "_reverse")], dim=1)


def gates_of(values: torch.Tensor) -> torch.Tensor:
    """[4 c, ...] in nn.LSTM's order input, forget, candidate, output -> output, forget, input, candidate."""
    inward, forget, candidate, output = values.chunk(4)
    return torch.cat([output, forget, inward, candidate])


def one_bias(lstm: nn.LSTM) -> None:
    """Zero the second of nn.LSTM's two biases, so that the other is the trainer's."""
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if "bias_hh" in name:
                parameter.zero_()
