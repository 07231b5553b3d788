"""The encoder of a model folder: without torch, which loads in seconds, if the kernels support the model."""

from typing import TYPE_CHECKING

from training.model.compiled_model import CompiledModel, load_compiled

if TYPE_CHECKING:
    from training.model.model import Ensemble, Model


def load_text_encoder(folder: str) -> "CompiledModel | Model | Ensemble":
    """The encoder of a model folder. Raises as `model.load_encoder`."""
    if compiled := load_compiled(folder):
        return compiled
    from training.model.model import load_encoder

    return load_encoder(folder)
