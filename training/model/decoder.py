"""The decoder of VAR-Siamese (Deudon, NeurIPS 2018): log p(s'|z) of a text s', word by word.

With w(1) ... w(n) the words of s', w(n + 1) its end, w(0) the start, and y(0) = c(0) = 0:

    x(t)   = E[w(t-1)] W_x + z W_z + y(t-1) W_rec + b            columns: output, forget, input gate, candidate
    y_g(t) = tanh(x_4),  i(t) = sigmoid(x_3),  f(t) = sigmoid(x_2),  o(t) = sigmoid(x_1)
    c(t)   = f ∘ c(t-1) + i ∘ y_g
    y(t)   = o ∘ tanh(c(t))
    p(w | w(0) ... w(t-1), z) = softmax(y(t) W_out + b_out)_w    over the whole vocabulary
    -log p(s'|z) = -Σ_{t=1..n+1} log p(w(t) | w(0) ... w(t-1), z)

The LSTM is that of recurrent with a forget gate, whose bias starts at 1. The paper says no more than LSTM. Its author's
code starts the cell at z, as wide as the cells, and has neither b_out nor the end in its loss; that z takes part at
every word, and that texts must end, are our decisions.

A text of n words has n + 1 positions: each has the word read before it and the word to predict, the last one the end. P
counts those of all texts, in reading order, one text after the other. For the LSTM each position is a word with an
input of its own.

Shapes: B texts, h latent, P positions, U distinct words read, d cells, G = 4 d, V words, e columns of E.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from clicktower.schemas.text_contract import words
from clicktower.training.model.label_settings import Generate
from clicktower.training.model.model_folder import Outputs
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.recurrent import LSTMTower
from clicktower.training.towers.text_batch import OnDevice, TextBatch, text_batch
from clicktower.training.towers.text_table import Ragged, TextTable, list_offsets
from clicktower.training.towers.tower import Parts, gather_rows
from clicktower.training.towers.tower_settings import LSTM, Shapes

END, UNKNOWN, FIRST_WORD = 0, 1, 2  # ids: the end of a text, a word outside the vocabulary, words[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets(OnDevice):
    """Index arrays only: nothing here depends on parameters, so they can be prepared in advance."""

    batch: TextBatch  # of the texts with their ends; its distinct words are the positions
    word: torch.Tensor  # [P] the word to predict at each position
    text: torch.Tensor  # [P] the text each position belongs to, in the caller's order
    read: torch.Tensor  # [U] the distinct words read: all preceding words, and the start
    read_at: torch.Tensor  # [P] which of them is read at each position


def targets_of(ids: Ragged, vocabulary: int, kept: np.ndarray | None = None) -> Targets:
    """The targets of some texts (`word_ids`), in a vocabulary of this size.

    The start of a text is read as the id after the last, `vocabulary`. `kept`, bool [P]: whether the word before each
    position is read as it is; if not, it is read as unknown, so that more has to come from z (word dropout, Bowman et
    al., arXiv:1511.06349, section 3.1.2). Starts are always read. None keeps all.
    """
    targets = ids.values
    before = np.empty_like(targets)
    before[1:] = targets[:-1]
    if kept is not None:
        before[~kept] = UNKNOWN
    before[ids.offsets[:-1]] = vocabulary
    read, read_at = np.unique(before, return_inverse=True)
    positions = np.arange(len(targets))
    of_its_own = TextTable(
        Ragged(ids.offsets, positions), Ragged(np.arange(len(targets) + 1), np.zeros_like(positions))
    )
    return Targets(
        batch=text_batch([(of_its_own, np.arange(len(ids)))]),
        word=torch.from_numpy(targets),
        text=torch.from_numpy(np.repeat(np.arange(len(ids)), ids.lengths)),
        read=torch.from_numpy(read),
        read_at=torch.from_numpy(read_at),
    )


def vocabulary_of(texts: Iterable[str], max_words: int) -> dict[str, int]:
    """The ids, from FIRST_WORD on, of the `max_words` most frequent words of some texts; ties by the word."""
    counts = Counter(word for text in texts for word in words(text))
    by_count = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
    return {word: FIRST_WORD + at for at, (word, _) in enumerate(by_count[:max_words])}


def word_ids(texts: Sequence[str], vocabulary: Mapping[str, int]) -> Ragged:
    """The words of each text (schemas.text_contract) and its end, int64; of a text without words the end alone."""
    ids = [[*(vocabulary.get(word, UNKNOWN) for word in words(text)), END] for text in texts]
    return Ragged(list_offsets(np.array(list(map(len, ids)), np.int64)), np.array(list(chain(*ids)), np.int64))


@dataclass(frozen=True, slots=True)
class Decoder:
    latent: int  # h
    cells: int  # d
    vocabulary: int  # ids in use
    word_columns: int  # e

    @property
    def parts(self) -> Shapes:
        """The row of E after the vocabulary's is the start's."""
        columns = self._lstm.columns
        return (
            ("decoder.E", (self.vocabulary + 1, self.word_columns)),
            ("decoder.W_x", (self.word_columns, columns)),
            ("decoder.W_z", (self.latent, columns)),
            *((f"decoder.{name}", shape) for name, shape in self._lstm.parts),
            ("decoder.W_out", (self.cells, self.vocabulary)),
            ("decoder.b_out", (self.vocabulary,)),
        )

    def initial(self, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Initial values of the parts, float64, drawn in the order of `parts`.

        E is uniform in ±1; every other matrix uniform in ±1/√(its rows), so that a sum over them is about as large as
        its terms; biases are 0, the forget gate's 1, so that a new decoder remembers.
        """
        values = {}
        for name, shape in self.parts:
            if len(shape) == 1:
                values[name] = torch.zeros(shape, dtype=torch.float64)
            else:
                reach = 1.0 if name == "decoder.E" else shape[0] ** -0.5
                values[name] = torch.from_numpy((2 * generator.random(shape) - 1) * reach)
        values["decoder.b"][self.cells : 2 * self.cells] = 1
        return values

    def loss(self, z_Bh: torch.Tensor, targets: Targets, parts: Parts) -> torch.Tensor:
        """-log p(s'|z), summed over the words and the ends of all texts, in nats, []."""
        state_Pd = self._states(z_Bh, targets, parts)
        return word_loss(state_Pd, targets.word, parts["decoder.W_out"], parts["decoder.b_out"])

    def _states(self, z_Bh: torch.Tensor, targets: Targets, parts: Parts) -> torch.Tensor:
        """y at each position, [P, d]."""
        batch, word_Ue = targets.batch, parts["decoder.E"].index_select(0, targets.read)
        input_PG = gather_rows(word_Ue @ parts["decoder.W_x"], (targets.read_at, None))
        input_PG = input_PG + gather_rows(z_Bh @ parts["decoder.W_z"], (targets.text, None))
        recurrent = {name: parts[f"decoder.{name}"] for name, _ in self._lstm.parts}
        state_Pd = LSTMTower(self._lstm).states(input_PG, recurrent, batch)
        return gather_rows(state_Pd, (batch.words_packed, None), (batch.packed_words, None))

    @property
    def _lstm(self) -> LSTM:
        return LSTM(cells=self.cells, forget_gate=True)


def decoder_of_model(recipe: Recipe, outputs: Outputs) -> Decoder:
    """The decoder for a text's words."""
    assert isinstance(recipe.objective, Generate)
    return Decoder(
        latent=recipe.tower.dimensions // 2,
        cells=recipe.objective.decoder_cells,
        vocabulary=FIRST_WORD + len(outputs.vocabulary),
        word_columns=recipe.objective.decoder_columns,
    )


BLOCK = 1 << 24  # scores computed at once: 64 MB of float32


def word_loss(
    state_Pd: torch.Tensor, word_P: torch.Tensor, weights_dV: torch.Tensor, bias_V: torch.Tensor, block: int = BLOCK
) -> torch.Tensor:
    """-log p of the word said at each position, by a softmax over the whole vocabulary, summed over positions, [].

        s = y W_out + b_out,    -log p(w) = log Σ_v exp(s_v) - s_w,    d(-log p(w)) / ds_v = p(v) - [v = w]

    Positions come in blocks of `block` scores, and each block's gradient is computed at once, so memory is bounded for
    any batch: autograd would keep the scores of all positions.
    """
    return _WordLoss.apply(state_Pd, weights_dV, bias_V, word_P, max(1, block // len(bias_V)))


class _WordLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        state_Pd: torch.Tensor,
        weights_dV: torch.Tensor,
        bias_V: torch.Tensor,
        word_P: torch.Tensor,
        positions: int,
    ) -> torch.Tensor:
        by_state_Pd, by_weights_dV, by_bias_V = map(torch.zeros_like, (state_Pd, weights_dV, bias_V))
        losses, buffer = [], state_Pd.new_empty(min(positions, len(state_Pd)), len(bias_V))
        for state, targets, by_state in zip(
            *(x.split(positions) for x in (state_Pd, word_P, by_state_Pd)), strict=True
        ):
            scores = torch.addmm(bias_V, state, weights_dV, out=buffer[: len(state)])
            log_p = torch.log_softmax(scores, dim=1, out=scores)
            losses.append(log_p.gather(1, targets[:, None]).sum())
            if any(ctx.needs_input_grad):
                by_score = log_p.exp_()
                by_score[torch.arange(len(targets), device=targets.device), targets] -= 1
                torch.mm(by_score, weights_dV.t(), out=by_state)
                by_weights_dV.addmm_(state.t(), by_score)
                by_bias_V += by_score.sum(0)
        ctx.save_for_backward(by_state_Pd, by_weights_dV, by_bias_V)
        return -torch.stack(losses).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return *(by_loss * by_one for by_one in ctx.saved_tensors), None, None
