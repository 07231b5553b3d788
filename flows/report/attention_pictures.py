"""Where the hops of a self-attentive tower look in a text, as heat maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flows.report.heat_map import Scale, heat_map, legend
from flows.report.word_columns import word_columns
from training.analysis.attention import overall, overlap


def attention_pictures(weights_rT: np.ndarray, words: Sequence[str]) -> dict[str, Any]:
    """A row for each hop, and below one for all of them: the colours of each picture go from 0 to its largest."""
    columns = word_columns(words)
    shown: list[tuple[np.ndarray, str, str, int | None]] = [(weights_rT, "hops", "hops", 1)]
    if len(weights_rT) > 1:
        shown.append((overall(weights_rT)[None], "overall", "row", None))
    pictures = []
    for values, title, rows, first in shown:
        scale = Scale(low=0.0, high=float(values.max()))
        picture = heat_map(values.T, columns, range(len(values)), scale, title, rows=rows, first=first)
        pictures.append({"picture": picture, "legend": legend(scale, size=7)})
    return {"pictures": pictures, "num_hops": len(weights_rT), "overlap": overlap(weights_rT)}
