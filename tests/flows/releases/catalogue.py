"""A small catalogue, and the settings that tests publish it with."""

from pathlib import Path

import numpy as np

from clicktower.flows.releases.publish import PublishConfig

CONFIG = PublishConfig(num_recall_queries=20)
WORDS = ["steel", "angle", "bracket", "hose", "garden", "grinder", "shelf", "pipe", "copper", "nail", "2x4", "ørn"]


def write_documents(path: Path, num_documents: int = 300, seed: int = 0) -> str:
    """Titles of one to five words; some occur twice."""
    rng = np.random.default_rng(seed)
    titles = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(num_documents)]
    path.write_text("".join(f"d{i}\t{title}\n" for i, title in enumerate(titles)))
    return str(path)
