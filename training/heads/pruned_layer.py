"""A hidden layer each of whose units sees one row or one column of M (Lin et al., arXiv:1703.03130, appendix A).

    M^v   r groups of p units; group i sees row i of M alone
    M^h   2u groups of q units; group j sees column j of M alone

The softmax layer above sees them all: (r p + 2u q) C weights, without its biases 52,500 for Yelp (p = 150, q = 10),
63,750 for Age (25, 20) and 45,000 for SNLI (300, 10), as Table 4 prints them. M is a matrix of any features
(training.heads.features); for SNLI it is the gated encoder's F_r. The appendix calls M r by u; its numbers need 2u.

The weights W_v have a matrix for each row, W_h one for each column; hidden units are those of M^v, group after group,
then those of M^h. Shapes as in training.heads.head, with r rows of w = 2u features each.
"""

from dataclasses import dataclass

import torch

from training.heads.head import Gradients
from training.towers.tower import Parts, Shapes


@dataclass(frozen=True, slots=True)
class PrunedLayer:
    rows: int
    row_width: int
    row_units: int  # p
    column_units: int  # q

    @property
    def units(self) -> int:
        return self.rows * self.row_units + self.row_width * self.column_units

    @property
    def parts(self) -> Shapes:
        return (
            ("head.W_v", (self.rows, self.row_width, self.row_units)),
            ("head.W_h", (self.row_width, self.rows, self.column_units)),
        )

    def forward(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """As training.heads.hidden_layer.HiddenLayer.forward."""
        features_Brw = features_BF.unflatten(1, (self.rows, -1))
        at_rows_Brp = torch.einsum("brw,rwp->brp", features_Brw, parts["head.W_v"])
        at_columns_Bwq = torch.einsum("brw,wrq->bwq", features_Brw, parts["head.W_h"])
        return torch.cat([at_rows_Brp.flatten(1), at_columns_Bwq.flatten(1)], dim=1)

    def backward(
        self, features_BF: torch.Tensor, by_arrived_BH: torch.Tensor, parts: Parts
    ) -> tuple[torch.Tensor, Gradients]:
        """As training.heads.hidden_layer.HiddenLayer.backward."""
        features_Brw = features_BF.unflatten(1, (self.rows, -1))
        num_at_rows = self.rows * self.row_units
        by_rows_Brp = by_arrived_BH[:, :num_at_rows].unflatten(1, (self.rows, -1))
        by_columns_Bwq = by_arrived_BH[:, num_at_rows:].unflatten(1, (self.row_width, -1))
        by_features_Brw = torch.einsum("brp,rwp->brw", by_rows_Brp, parts["head.W_v"])
        by_features_Brw = by_features_Brw + torch.einsum("bwq,wrq->brw", by_columns_Bwq, parts["head.W_h"])
        return by_features_Brw.flatten(1), {
            "head.W_v": torch.einsum("brw,brp->rwp", features_Brw, by_rows_Brp),
            "head.W_h": torch.einsum("brw,bwq->wrq", features_Brw, by_columns_Bwq),
        }
