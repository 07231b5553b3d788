"""A tower's gradient as a matrix like its parameters."""

import torch

from clicktower.training.model.parameters import Layout, RowGradient


def dense(gradient: RowGradient, layout: Layout) -> torch.Tensor:
    table = gradient.table_RG.new_zeros(layout.table_rows, layout.columns)
    return layout.join(table.index_copy_(0, gradient.rows, gradient.table_RG), gradient.parts)
