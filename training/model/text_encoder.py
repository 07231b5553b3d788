"""The encoder of a model folder: without torch, which loads in seconds, if the kernels support its towers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from clicktower.training.model.compiled_model import CompiledModel, compiled_model
from clicktower.training.model.embedding import AnyEncoder
from clicktower.training.model.model_folder import Stored, encoder_of, read_model, reading_model


class _NotCompiled(Exception):
    """The kernels do not support a tower."""


def load_text_encoder(folder: str) -> AnyEncoder:
    """The encoder of a model folder. Raises as `model.load_encoder`."""
    with reading_model(folder):
        return text_encoder_of(read_model(folder))


def text_encoder_of(stored: Stored) -> AnyEncoder:
    """The encoder of a model folder's content. Raises as `encoder_of`."""
    try:
        return encoder_of(stored, _compiled)
    except _NotCompiled:
        from clicktower.training.model.model import trained_model

        return encoder_of(stored, trained_model)


def _compiled(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> CompiledModel:
    model = compiled_model(description, weights)
    if model is None:
        raise _NotCompiled
    return model
