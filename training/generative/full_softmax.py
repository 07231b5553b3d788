"""-log p of the word said at each position, by a softmax over the whole vocabulary, and its gradient.

    s = y W_out + b_out,    -log p(w) = log Σ_v exp(s_v) - s_w,    d(-log p(w)) / ds_v = p(v) - [v = w]

Positions come in blocks, so that memory is bounded whatever the batch: BLOCK scores at once. The first few blocks are
kept for the backward pass (as log p, overwritten there by the gradient), those beyond are computed again.

Shapes: P positions, d cells, V words.
"""

from dataclasses import dataclass

import torch

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
