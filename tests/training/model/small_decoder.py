"""A small decoder with its texts, for tests of what it computes and of what uses it."""

import numpy as np
import torch

from clicktower.training.model.decoder import END, Decoder, Targets, targets_of
from clicktower.training.towers.text_table import Ragged, list_offsets

SMALL = Decoder(latent=2, cells=2, vocabulary=5, word_columns=3)
TEXTS = [[2, 4, 4, END], [3, END], [END], [4, 2, 1, 3, END]]


def targets(texts: list[list[int]], decoder: Decoder = SMALL) -> Targets:
    ids = Ragged(list_offsets(np.array([len(text) for text in texts])), np.array([i for text in texts for i in text]))
    return targets_of(ids, decoder.vocabulary)


def some_parts(decoder: Decoder, seed: int = 1) -> dict[str, torch.Tensor]:
    """As a decoder starts, moved a little, so that no bias is a round number."""
    generator = np.random.Generator(np.random.Philox(seed))
    found = dict(decoder.initial(generator))
    return {name: part + torch.from_numpy(0.3 * generator.normal(size=part.shape)) for name, part in found.items()}


def some_z(num_texts: int, decoder: Decoder = SMALL) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(2).normal(size=(num_texts, decoder.latent)))


def as_arrays(parts: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: part.numpy().copy() for name, part in parts.items()}
