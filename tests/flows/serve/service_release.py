"""Small releases whose documents say in id and title which release they are of."""

from pathlib import Path

import numpy as np

from clicktower.flows.releases.publish import Published, publish
from tests.flows.releases.catalogue import CONFIG, WORDS


def publish_named(model: str, to: str, name: str, folder: Path, num_documents: int = 300) -> Published:
    """A release whose ids begin with `name-`, and whose titles end with that name."""
    rng = np.random.default_rng(0)
    path = folder / f"{name}.tsv"
    titles = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(num_documents)]
    path.write_text("".join(f"{name}-{at}\t{title} {name}\n" for at, title in enumerate(titles)))
    return publish(model, documents=str(path), to=to, config=CONFIG)
