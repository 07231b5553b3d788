"""VAR-Siamese's generative step in stock parts: nn.EmbeddingBag, nn.LSTM, nn.Linear, F.cross_entropy and autograd.

nn.LSTM multiplies its input by a matrix, so the encoder here is the form in which the two are usually joined: a bag of
few columns and that matrix, whose product is the trainer's W. Vectors, losses and all other gradients are the same.

Shapes: B texts, T words of the longest one, e columns of the words' vectors, h latent, V words.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from training.towers.variational import SIGMA_MIN

Tensors = dict[str, torch.Tensor]
Arrangement = Literal["padded", "real words"]  # what goes through the softmax: all positions, or only those of a word


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    cells: int  # of each direction of the encoder
    latent: int
    decoder_cells: int
    vocabulary: int  # ids
    word_columns: int


@dataclass(frozen=True, slots=True)
class StockTexts:
    """Texts as index tensors."""

    trigrams: torch.Tensor  # of the distinct words
    word_offsets: torch.Tensor
    words_BT: torch.Tensor  # which distinct word, padded with any
    lengths_B: torch.Tensor
    said: list[torch.Tensor]  # ids of each text, its end among them


class StockGenerative(nn.Module):
    """A model with torch's own start. Its gradient is in the parameters' .grad after `gradient`."""

    def __init__(self, sizes: Sizes, table_rows: int, arrangement: Arrangement) -> None:
        super().__init__()
        self.arrangement, self.vocabulary = arrangement, sizes.vocabulary
        self.bag = nn.EmbeddingBag(table_rows, sizes.word_columns, mode="sum", sparse=True)
        self.encoder = nn.LSTM(sizes.word_columns, sizes.cells, bidirectional=True, batch_first=True)
        self.mu = nn.Linear(2 * sizes.cells, sizes.latent)
        self.sigma = nn.Linear(2 * sizes.cells, sizes.latent)
        self.words = nn.Embedding(sizes.vocabulary + 1, sizes.word_columns)
        self.decoder = nn.LSTM(sizes.word_columns + sizes.latent, sizes.decoder_cells, batch_first=True)
        self.out = nn.Linear(sizes.decoder_cells, sizes.vocabulary)

    def gradient(self, texts: StockTexts, noise_Bh: torch.Tensor, kappa: float) -> float:
        """Differentiate the loss summed over the texts; gives it."""
        self.zero_grad()
        loss = self._loss(texts, noise_Bh, kappa)
        loss.backward()
        return loss.item()

    def _loss(self, texts: StockTexts, noise_Bh: torch.Tensor, kappa: float) -> torch.Tensor:
        word_Ue = self.bag(texts.trigrams, texts.word_offsets)
        packed = pack_padded_sequence(
            F.embedding(texts.words_BT, word_Ue), texts.lengths_B, batch_first=True, enforce_sorted=False
        )
        last_2Bc = self.encoder(packed)[1][0]
        both_Bs = torch.cat([last_2Bc[0], last_2Bc[1]], dim=1)
        mu_Bh, sigma_Bh = self.mu(both_Bs), F.softplus(self.sigma(both_Bs)) + SIGMA_MIN
        z_Bh = mu_Bh + sigma_Bh * noise_Bh

        said_BT = pad_sequence(texts.said, batch_first=True, padding_value=-100)
        read_BT = F.pad(said_BT[:, :-1].clamp(min=0), (1, 0), value=self.vocabulary)
        repeated = z_Bh[:, None].expand(-1, said_BT.shape[1], -1)
        state_BTd, _ = self.decoder(torch.cat([self.words(read_BT), repeated], dim=2))
        if self.arrangement == "padded":
            words = F.cross_entropy(self.out(state_BTd).flatten(0, 1), said_BT.flatten(), reduction="sum")
        else:
            real_BT = said_BT >= 0
            words = F.cross_entropy(self.out(state_BTd[real_BT]), said_BT[real_BT], reduction="sum")
        divergence = 0.5 * (mu_Bh.square() + sigma_Bh.square() - 1 - 2 * sigma_Bh.log()).sum()
        return words + kappa * divergence

    def tower_parts(self, values: Tensors) -> Tensors:
        """Parameters of the encoder, or their gradients, named and shaped as the trainer's tower has them."""
        ways = ("", "_reverse")
        return {
            "W_rec": torch.cat([_ours(values[f"encoder.weight_hh_l0{way}"]).T for way in ways], dim=1),
            "b": torch.cat([_ours(values[f"encoder.bias_ih_l0{way}"]) for way in ways]),
            **{f"W_{name}": values[f"{name}.weight"].T for name in ("mu", "sigma")},
            **{f"b_{name}": values[f"{name}.bias"] for name in ("mu", "sigma")},
        }

    def input_weights(self) -> torch.Tensor:
        """What a column of the bag adds to the gates of both directions, [e, G]: W is the bag times this."""
        return torch.cat([_ours(getattr(self.encoder, f"weight_ih_l0{way}").detach()).T for way in ("", "_reverse")], 1)

    def decoder_parts(self, values: Tensors) -> Tensors:
        """As `tower_parts`, of the decoder."""
        inputs = _ours(values["decoder.weight_ih_l0"]).T
        word_columns = self.words.embedding_dim
        return {
            "decoder.E": values["words.weight"],
            "decoder.W_x": inputs[:word_columns],
            "decoder.W_z": inputs[word_columns:],
            "decoder.W_rec": _ours(values["decoder.weight_hh_l0"]).T,
            "decoder.b": _ours(values["decoder.bias_ih_l0"]),
            "decoder.W_out": values["out.weight"].T,
            "decoder.b_out": values["out.bias"],
        }

    def one_bias(self) -> None:
        """Zero the second of nn.LSTM's two biases, so that the other is the trainer's."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "bias_hh" in name:
                    parameter.zero_()


def _ours(gates: torch.Tensor) -> torch.Tensor:
    """[4 d, ...] in the order input, forget, candidate, output -> output, forget, input, candidate."""
    inward, forget, candidate, output = gates.chunk(4)
    return torch.cat([output, forget, inward, candidate])
