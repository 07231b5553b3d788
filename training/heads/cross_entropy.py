"""The loss of labelled texts and pairs: l = -log softmax(logits)_label, and its gradient.

Shapes as in training.heads.head.
"""

import torch


def cross_entropy(logits_BC: torch.Tensor, labels_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(l of each text or pair [B], gradient of their SUM by the logits [B, C]); finite for any finite logits.

    `labels_B`: classes as integers from 0 to C - 1; on a CPU another one raises RuntimeError.
    """
    labels_B1 = labels_B.long()[:, None]
    logarithm_BC = torch.log_softmax(logits_BC, dim=1)
    losses_B = logarithm_BC.gather(1, labels_B1)[:, 0].neg()
    by_logits_BC = logarithm_BC.exp_()
    by_logits_BC.scatter_add_(1, labels_B1, by_logits_BC.new_full(labels_B1.shape, -1))
    return losses_B, by_logits_BC
