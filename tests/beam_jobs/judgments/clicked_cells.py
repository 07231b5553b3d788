"""Logs drawn by a position-based model with known propensities and attractiveness, as cells and as days."""

import numpy as np

from clicktower.beam_jobs.judgments.click_model import Cells
from tests.beam_jobs.build.day_folders import Query, Shown


def drawn_cells(
    seed: int, propensities: np.ndarray, *, num_pairs: int, impressions: int, attractiveness: np.ndarray | None = None
) -> tuple[Cells, np.ndarray]:
    """Cells of pairs shown `impressions` times at each rank, and each pair's attractiveness (uniform)."""
    draw = np.random.default_rng(seed)
    alpha = draw.uniform(0.02, 0.9, num_pairs) if attractiveness is None else attractiveness
    pair, rank = np.divmod(np.arange(num_pairs * len(propensities)), len(propensities))
    shown = np.full(len(pair), impressions)
    clicks = draw.binomial(shown, propensities[rank] * alpha[pair])
    return Cells(pair=pair, rank=rank, impressions=shown.astype(float), clicks=clicks.astype(float)), alpha


def drawn_day(
    seed: int, propensities: np.ndarray, attractiveness: np.ndarray, *, searches: int, order_noise: float
) -> tuple[list[Query], list[Shown]]:
    """What a day holds after `searches` of each query, float64 (queries, documents), for `make_day`.

    The engine shows the *least* attractive documents first, up to noise: raw shares of clicks mislead.
    """
    draw = np.random.default_rng(seed)
    queries: list[Query] = []
    shown: list[Shown] = []
    for number, alpha in enumerate(attractiveness):
        seen, clicked = np.zeros((2, len(alpha), len(propensities)), int)
        for _ in range(searches):
            page = np.argsort(alpha + order_noise * draw.normal(size=len(alpha)))[: len(propensities)]
            ranks = np.arange(len(page))
            seen[page, ranks] += 1
            is_clicked = draw.random(len(page)) < propensities[ranks] * alpha[page]
            clicked[page[is_clicked], ranks[is_clicked]] += 1
        queries.append((f"query {number:03d}", list(range(1 + 100 * number, 7 + 100 * number)), searches))
        shown += [
            (f"query {number:03d}", f"d{d}", int(r) + 1, int(seen[d, r]), int(clicked[d, r]))
            for d, r in zip(*np.nonzero(seen), strict=True)
        ]
    return queries, shown
