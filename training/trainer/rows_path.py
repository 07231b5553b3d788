"""The compiled path's updates with torch's gradients, for towers and objectives whose gradients the kernel lacks."""

from collections.abc import Mapping

import numpy as np
import torch

from clicktower.training.model.parameters import Encoder
from clicktower.training.trainer.kernel_path import Addend, CompiledPath, TouchedRows
from clicktower.training.trainer.large_update import Towers, WorkerShare


class RowsPath(CompiledPath):
    """As CompiledPath, of the batches of an objective."""

    def micro_batch_gradients(
        self, share: WorkerShare, towers: Towers, rows: Mapping[str, TouchedRows]
    ) -> tuple[np.ndarray, list[tuple[str, Addend]]]:
        layout = towers.layout
        points = {name: layout.split(torch.from_numpy(tower_rows.ahead_RG)) for name, tower_rows in rows.items()}
        place = {name: torch.from_numpy(tower_rows.place_of_row) for name, tower_rows in rows.items()}

        def table_at(name: str, index: torch.Tensor) -> torch.Tensor:
            return points[name][0].index_select(0, place[name].index_select(0, index))

        parts, part_rows = {name: parts for name, (_, parts) in points.items()}, layout.touched(torch.empty(0).long())
        encoder = Encoder(towers.recipe, layout, table_at, parts, towers.device)
        results = list(share.threads.map(lambda batch: batch.gradient(encoder, share.update), share.micro_batches))
        addends = [
            (name, addend)
            for gradients, _ in results
            for name, gradient in gradients
            for addend in (
                _addend(gradient.rows, gradient.table_RG),
                _addend(part_rows, layout.join(gradient.table_RG[:0], gradient.parts)),
            )
        ]
        return np.array([float(loss) for _, loss in results]), addends


def _addend(rows: torch.Tensor, values: torch.Tensor) -> Addend:
    rows, values = rows.to(torch.int32), values.contiguous()
    addend = Addend(rows.data_ptr(), values.data_ptr(), len(rows))
    addend.kept = rows, values  # the kernel reads their memory
    return addend
