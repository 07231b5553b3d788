"""Features of a pair of matrices: the gated encoder (Lin et al., arXiv:1703.03130, section 4.3 and appendix B).

    F_h = batcheddot(M_h, W_fh)        row i of M_h times the i-th of r matrices
    F_p = batcheddot(M_p, W_fp)
    F_r = F_h ∘ F_p                    these are the features, no biases

It is the encoder of Memisevic's factored gated autoencoder. M_p is the premise, a pair's first text, and M_h its
hypothesis, the second. The paper leaves k, the width of the factors, open; the authors' program has it as wide as a row
of M, and also drops out M_h and M_p, where here dropout begins at F_r.

Shapes as in training.heads.head, with k factors in a row and F = r k.
"""

from dataclasses import dataclass

import torch

from training.heads.head import Gradients, Vectors
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class GatedTrace:
    premise_Brw: torch.Tensor
    hypothesis_Brw: torch.Tensor
    premise_factor_Brk: torch.Tensor  # F_p
    hypothesis_factor_Brk: torch.Tensor  # F_h


@dataclass(frozen=True, slots=True)
class Gated:
    rows: int
    vector_width: int  # w, numbers in a row of an embedding
    factors: int  # k

    @property
    def row_width(self) -> int:
        return self.factors

    @property
    def parts(self) -> Shapes:
        shape = (self.rows, self.vector_width, self.factors)
        return ("head.W_fh", shape), ("head.W_fp", shape)

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, GatedTrace]:
        """As training.heads.features.Features.forward."""
        premise_Brw, hypothesis_Brw = (vector_Bd.unflatten(1, (self.rows, -1)) for vector_Bd in vectors)
        trace = GatedTrace(
            premise_Brw,
            hypothesis_Brw,
            torch.einsum("brw,rwk->brk", premise_Brw, parts["head.W_fp"]),
            torch.einsum("brw,rwk->brk", hypothesis_Brw, parts["head.W_fh"]),
        )
        return (trace.premise_factor_Brk * trace.hypothesis_factor_Brk).flatten(1), trace

    def backward(self, trace: GatedTrace, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As training.heads.features.Features.backward."""
        by_product_Brk = by_features_BF.unflatten(1, (self.rows, -1))
        by_premise_factor_Brk = by_product_Brk * trace.hypothesis_factor_Brk
        by_hypothesis_factor_Brk = by_product_Brk * trace.premise_factor_Brk
        by_premise_Brw = torch.einsum("brk,rwk->brw", by_premise_factor_Brk, parts["head.W_fp"])
        by_hypothesis_Brw = torch.einsum("brk,rwk->brw", by_hypothesis_factor_Brk, parts["head.W_fh"])
        return (by_premise_Brw.flatten(1), by_hypothesis_Brw.flatten(1)), {
            "head.W_fh": torch.einsum("brw,brk->rwk", trace.hypothesis_Brw, by_hypothesis_factor_Brk),
            "head.W_fp": torch.einsum("brw,brk->rwk", trace.premise_Brw, by_premise_factor_Brk),
        }
