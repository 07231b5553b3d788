"""The decoder of VAR-Siamese (Deudon, NeurIPS 2018): log p(s'|z) of a text s', word by word.

With w(1) ... w(n) the words of s', w(n + 1) its end, w(0) the start, and y(0) = c(0) = 0:

    x(t)   = E[w(t-1)] W_x + z W_z + y(t-1) W_rec + b            columns: output, forget, input gate, candidate
    y_g(t) = tanh(x_4),  i(t) = sigmoid(x_3),  f(t) = sigmoid(x_2),  o(t) = sigmoid(x_1)
    c(t)   = f ∘ c(t-1) + i ∘ y_g
    y(t)   = o ∘ tanh(c(t))
    p(w | w(0) ... w(t-1), z) = softmax(y(t) W_out + b_out)_w    over the whole vocabulary
    -log p(s'|z) = -Σ_{t=1..n+1} log p(w(t) | w(0) ... w(t-1), z)

The LSTM is lstm's with forget gate, whose bias starts at 1. The paper says no more than LSTM. Its
author's code starts the cell at z, as wide as the cells, and has neither b_out nor the end in its loss; that z takes
part at every word, and that texts have to end, are our decisions.

Shapes: B texts, h latent, P positions (targets), U distinct words read, d cells, G = 4 d, V words,
e columns of E.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from training.data.ragged import Ragged
from training.generative.targets import END, UNKNOWN, Targets, targets_of
from training.towers.lstm import LSTM, LSTMTrace
from training.towers.tower import Parts, Shapes, sum_by_word

# -log p of the word said at each position, by a softmax over the whole vocabulary, and its gradient.
#
#     s = y W_out + b_out,    -log p(w) = log Σ_v exp(s_v) - s_w,    d(-log p(w)) / ds_v = p(v) - [v = w]
#
# Positions come in blocks, so that memory is bounded whatever the batch: BLOCK scores at once. The first few blocks are
# kept for the backward pass (as log p, overwritten there by the gradient), those beyond are computed again.
#
# Shapes: P positions, d cells, V words.


BLOCK = 1 << 24  # scores computed at once: 64 MB of float32
KEPT = 4  # blocks


@dataclass(frozen=True, slots=True)
class SoftmaxTrace:
    """What the backward pass needs of the forward pass."""

    state_Pd: torch.Tensor
    said_P: torch.Tensor
    rows: int  # positions of a block
    log_p: list[torch.Tensor]  # [rows, V] of the first blocks


def word_losses(
    state_Pd: torch.Tensor,
    said_P: torch.Tensor,
    weights_dV: torch.Tensor,
    bias_V: torch.Tensor,
    block: int = BLOCK,
    kept: int = KEPT,
) -> tuple[torch.Tensor, SoftmaxTrace]:
    """(-log p of the word `said_P` at each position [P], what backward needs)."""
    trace = SoftmaxTrace(state_Pd, said_P, max(1, block // len(bias_V)), [])
    losses = []
    buffer = None
    for number, (state, said) in enumerate(zip(state_Pd.split(trace.rows), said_P.split(trace.rows), strict=True)):
        log_p = _log_softmax(state, weights_dV, bias_V, buffer)
        losses.append(-log_p.gather(1, said[:, None])[:, 0])
        if number < kept:
            trace.log_p.append(log_p)
        else:
            buffer = log_p
    return torch.cat(losses), trace


def word_gradient(
    trace: SoftmaxTrace, by_loss_P: torch.Tensor, weights_dV: torch.Tensor, bias_V: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients (by the states [P, d], by W_out, by b_out), given that by each position's loss. Uses up the trace.

    A position's factor goes to its state and not to its V scores: one pass over them less.
    """
    by_state_Pd = torch.empty_like(trace.state_Pd)
    by_weights_dV, by_bias_V = torch.zeros_like(weights_dV), torch.zeros_like(bias_V)
    in_blocks = (x.split(trace.rows) for x in (trace.state_Pd, trace.said_P, by_loss_P, by_state_Pd))
    buffer = None
    for number, (state, said, by_loss, by_state) in enumerate(zip(*in_blocks, strict=True)):
        if number < len(trace.log_p):
            by_score = trace.log_p[number].exp_()
        else:
            buffer = _log_softmax(state, weights_dV, bias_V, buffer)
            by_score = buffer.exp_()
        by_score[torch.arange(len(said), device=said.device), said] -= 1
        torch.mm(by_score, weights_dV.t(), out=by_state)
        by_state *= by_loss[:, None]
        by_weights_dV.addmm_((state * by_loss[:, None]).t(), by_score)
        by_bias_V += by_loss @ by_score
    trace.log_p.clear()
    return by_state_Pd, by_weights_dV, by_bias_V


def _log_softmax(
    state_Rd: torch.Tensor, weights_dV: torch.Tensor, bias_V: torch.Tensor, buffer: torch.Tensor | None
) -> torch.Tensor:
    """log p of every word at each of some positions, [R, V], in the memory of `buffer` where there is one."""
    if buffer is None:
        buffer = state_Rd.new_empty(len(state_Rd), len(bias_V))
    scores = torch.addmm(bias_V, state_Rd, weights_dV, out=buffer[: len(state_Rd)])
    return torch.log_softmax(scores, dim=1, out=scores)


@dataclass(frozen=True, slots=True)
class DecoderTrace:
    """What the backward pass needs of the forward pass."""

    z_Bh: torch.Tensor
    targets: Targets
    word_Ue: torch.Tensor  # E of each distinct word read
    lstm: LSTMTrace
    softmax: SoftmaxTrace


@dataclass(frozen=True, slots=True)
class Decoder:
    latent: int  # h
    cells: int  # d
    vocabulary: int  # targets.Vocabulary.size
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

    def losses(self, z_Bh: torch.Tensor, targets: Targets, parts: Parts) -> tuple[torch.Tensor, DecoderTrace]:
        """(-log p(s'|z) of each text, summed over its words and its end, in nats [B]; what backward needs)."""
        state_Pd, word_Ue, lstm = self._states(z_Bh, targets, parts)
        loss_P, softmax = word_losses(state_Pd, targets.said, parts["decoder.W_out"], parts["decoder.b_out"])
        losses_B = _sum_by_text(loss_P[:, None], targets)[:, 0]
        return losses_B, DecoderTrace(z_Bh, targets, word_Ue, lstm, softmax)

    def backward(
        self, trace: DecoderTrace, by_losses_B: torch.Tensor, parts: Parts
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Gradients (of z [B, h], of each part), given that of each text's loss. Uses up the trace."""
        targets, batch = trace.targets, trace.targets.batch
        by_state_Pd, by_W_out, by_b_out = word_gradient(
            trace.softmax, by_losses_B[targets.text], parts["decoder.W_out"], parts["decoder.b_out"]
        )
        by_packed_Pd = by_state_Pd[batch.packed_words]
        by_input_PG, by_lstm = self._lstm.backward(
            trace.lstm,
            by_packed_Pd[batch.step_offsets[-2] :],
            self._recurrent(parts),
            batch,
            by_earlier_Pd=by_packed_Pd,
        )
        by_z_BG = _sum_by_text(by_input_PG, targets)
        by_word_UG = embedding_bag(targets.positions_of_read, by_input_PG, targets.positions_of_read_begin, mode="sum")
        by_E = torch.zeros_like(parts["decoder.E"])
        by_E[targets.read] = by_word_UG @ parts["decoder.W_x"].t()
        return by_z_BG @ parts["decoder.W_z"].t(), {
            "decoder.E": by_E,
            "decoder.W_x": trace.word_Ue.t() @ by_word_UG,
            "decoder.W_z": trace.z_Bh.t() @ by_z_BG,
            **{f"decoder.{name}": gradient for name, gradient in by_lstm.items()},
            "decoder.W_out": by_W_out,
            "decoder.b_out": by_b_out,
        }

    def cross_entropy(self, z_Bh: torch.Tensor, targets: Targets, parts: Parts) -> float:
        """-log p(s'|z) of some texts for each of their words, the ends among them, in nats (Fig. 3)."""
        return self.losses(z_Bh, targets, parts)[0].sum().item() / len(targets.said)

    def generate(self, z_Bh: torch.Tensor, parts: Parts, max_words: int) -> list[list[int]]:
        """The ids of the likeliest next word, again and again: of each z at most `max_words`, without the end.

        To look at what was learnt: every word reads all of the text again, so that no second copy of the cell is kept.
        """
        said = np.empty((len(z_Bh), 0), np.int64)
        while said.shape[1] < max_words and not (said == END).any(axis=1).all():
            # Texts that are over go on with the others, and are cut at their ends below.
            ids = np.column_stack([np.where(said == END, UNKNOWN, said), np.full(len(said), END)])
            targets = targets_of(Ragged(np.arange(len(said) + 1) * ids.shape[1], ids.ravel()), self.vocabulary)
            state_Pd = self._states(z_Bh, targets.to(z_Bh.device), parts)[0]
            last_Bd = state_Pd.unflatten(0, ids.shape)[:, -1]
            scores_BV = torch.addmm(parts["decoder.b_out"], last_Bd, parts["decoder.W_out"])
            said = np.column_stack([said, scores_BV.argmax(1).cpu().numpy()])
        return [row[: row.index(END)] if END in row else row for row in said.tolist()]

    def _states(
        self, z_Bh: torch.Tensor, targets: Targets, parts: Parts
    ) -> tuple[torch.Tensor, torch.Tensor, LSTMTrace]:
        """(y at each position [P, d], E of each distinct word read [U, e], the LSTM's trace)."""
        word_Ue = parts["decoder.E"][targets.read]
        input_PG = (word_Ue @ parts["decoder.W_x"])[targets.read_at]
        input_PG += (z_Bh @ parts["decoder.W_z"])[targets.text]
        _, trace = self._lstm.forward(input_PG, self._recurrent(parts), targets.batch)
        return sum_by_word(self._lstm.states(trace), targets.batch), word_Ue, trace

    @property
    def _lstm(self) -> LSTM:
        return LSTM(self.cells, forget_gate=True)

    def _recurrent(self, parts: Parts) -> Parts:
        return {name: parts[f"decoder.{name}"] for name, _ in self._lstm.parts}


def initial_decoder(decoder: Decoder, generator: np.random.Generator) -> Mapping[str, torch.Tensor]:
    """Parts to start from, float64, drawn in the order of `Decoder.parts`.

    E is uniform in ±1; every other matrix uniform in ±1/√(its rows), so that a sum over them is about as large as what
    is summed; biases are 0, the forget gate's 1, so that a new decoder remembers.
    """
    found = {}
    for name, shape in decoder.parts:
        if len(shape) == 1:
            found[name] = torch.zeros(shape, dtype=torch.float64)
        else:
            reach = 1.0 if name == "decoder.E" else shape[0] ** -0.5
            found[name] = torch.from_numpy((2 * generator.random(shape) - 1) * reach)
    found["decoder.b"][decoder.cells : 2 * decoder.cells] = 1
    return found


def _sum_by_text(of_position_PX: torch.Tensor, targets: Targets) -> torch.Tensor:
    """[B, X] for each text, the sum over its positions, in a fixed order."""
    positions = torch.arange(len(of_position_PX), device=of_position_PX.device)
    return embedding_bag(positions, of_position_PX, targets.text_begins, mode="sum")
