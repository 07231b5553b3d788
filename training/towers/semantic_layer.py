"""The last layer of DSSM and CLSM: tanh(W_s h + b_s) of a text's hidden vector, itself a tanh.

Shapes: N texts, H hidden units, d dimensions of the embedding.
"""

import torch

from training.towers.tower import Parts, Shapes


def semantic_parts(hidden: int, dimensions: int) -> Shapes:
    """The hidden layer's bias b, then this layer's own."""
    return ("b", (hidden,)), ("W_s", (hidden, dimensions)), ("b_s", (dimensions,))


def semantic_vectors(hidden_NH: torch.Tensor, parts: Parts) -> torch.Tensor:
    """The embeddings, [N, d]."""
    return torch.addmm(parts["b_s"], hidden_NH, parts["W_s"]).tanh_()


def semantic_gradient(
    hidden_NH: torch.Tensor, vectors_Nd: torch.Tensor, by_vectors_Nd: torch.Tensor, parts: Parts
) -> tuple[torch.Tensor, Parts]:
    """Gradients (of the hidden tanh's arguments [N, H], of b, W_s and b_s), given that of the embeddings."""
    by_argument_Nd = (1 - vectors_Nd.square()).mul_(by_vectors_Nd)
    by_hidden_NH = (by_argument_Nd @ parts["W_s"].t()).mul_(1 - hidden_NH.square())
    by_parts = {
        "b": by_hidden_NH.sum(0),
        "W_s": hidden_NH.t() @ by_argument_Nd,
        "b_s": by_argument_Nd.sum(0),
    }
    return by_hidden_NH, by_parts
