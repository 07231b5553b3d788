"""VAR-Siamese's generative step in stock parts: nn.EmbeddingBag, nn.LSTM, nn.Linear, F.cross_entropy and autograd.

Shapes: B texts, T words of the longest one, h latent, d cells of the decoder.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from benchmarks.peers.stock_bilstm import StockBilstm, StockTexts, Tensors, gates_of, one_bias
from clicktower.training.towers.tower_settings import SIGMA_MIN

Arrangement = Literal["padded", "real words"]  # what goes through the softmax: all positions, or only those of a word


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    cells: int  # of each direction of the encoder
    latent: int
    decoder_cells: int
    vocabulary: int  # ids
    word_columns: int


class StockGenerative(nn.Module):
    """A model with torch's own start. Its gradient is in the parameters' .grad after `gradient`."""

    def __init__(self, sizes: Sizes, table_rows: int, arrangement: Arrangement) -> None:
        super().__init__()
        self.arrangement, self.vocabulary = arrangement, sizes.vocabulary
        self.encoder = StockBilstm(table_rows, sizes.word_columns, sizes.cells)
        self.mu = nn.Linear(2 * sizes.cells, sizes.latent)
        self.sigma = nn.Linear(2 * sizes.cells, sizes.latent)
        self.words = nn.Embedding(sizes.vocabulary + 1, sizes.word_columns)
        self.decoder = nn.LSTM(sizes.word_columns + sizes.latent, sizes.decoder_cells, batch_first=True)
        self.out = nn.Linear(sizes.decoder_cells, sizes.vocabulary)
        one_bias(self.decoder)

    def gradient(self, texts: StockTexts, said: list[torch.Tensor], noise_Bh: torch.Tensor, kappa: float) -> float:
        """Differentiate the loss summed over the texts; gives it. `said`: ids of each text, its end among them."""
        self.zero_grad()
        loss = self._loss(texts, said, noise_Bh, kappa)
        loss.backward()
        return loss.item()

    def _loss(self, texts: StockTexts, said: list[torch.Tensor], noise_Bh: torch.Tensor, kappa: float) -> torch.Tensor:
        _, both_Bs = self.encoder(texts)
        mu_Bh, sigma_Bh = self.mu(both_Bs), F.softplus(self.sigma(both_Bs)) + SIGMA_MIN
        z_Bh = mu_Bh + sigma_Bh * noise_Bh

        said_BT = pad_sequence(said, batch_first=True, padding_value=-100)
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
        encoder = {name.removeprefix("encoder."): value for name, value in values.items()}
        return {
            **self.encoder.parts(encoder),
            **{f"W_{name}": values[f"{name}.weight"].T for name in ("mu", "sigma")},
            **{f"b_{name}": values[f"{name}.bias"] for name in ("mu", "sigma")},
        }

    def decoder_parts(self, values: Tensors) -> Tensors:
        """As `tower_parts`, of the decoder."""
        inputs = gates_of(values["decoder.weight_ih_l0"]).T
        word_columns = self.words.embedding_dim
        return {
            "decoder.E": values["words.weight"],
            "decoder.W_x": inputs[:word_columns],
            "decoder.W_z": inputs[word_columns:],
            "decoder.W_rec": gates_of(values["decoder.weight_hh_l0"]).T,
            "decoder.b": gates_of(values["decoder.bias_ih_l0"]),
            "decoder.W_out": values["out.weight"].T,
            "decoder.b_out": values["out.bias"],
        }
