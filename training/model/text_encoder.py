"""What encodes texts by the model of a folder: without torch, which loads in seconds, where the kernels serve it."""

from typing import TYPE_CHECKING

from training.model.compiled_model import CompiledModel, load_compiled

if TYPE_CHECKING:
    from training.model.model import Ensemble, Model


def load_text_encoder(folder: str) -> "CompiledModel | Model | Ensemble":
    """Raises as `model.load_encoder`, which loads any model whole."""
    if compiled := load_compiled(folder):
        return compiled
    from training.model.model import load_encoder

    return load_encoder(folder)
