"""What was measured on held-out data after an epoch (training.objectives.Watched), in the words of a line."""

from collections.abc import Mapping
from typing import Any

# The first of these that was measured stands for an epoch while training goes on.
_SHORT = {
    "dev_ndcg@10": "dev NDCG@10 {:.3f}",
    "dev_accuracy": "dev accuracy {:.3f}",
    "dev_word_repeat": "dev word {:.3f}",
}
_LONG = {
    "dev_loss": "held-out loss {:.3f}",
    "dev_accuracy": "accuracy {:.3f}",
    "dev_area_under_roc": "area under ROC {:.3f}",
    "dev_word_repeat": "{:.3f} nats a word",
    "dev_word_reformulate": "{:.3f} reformulated",
    "dev_kl": "KL {:.2f}",
}


def shortly(measured: Mapping[str, Any]) -> str:
    """The figure that stands for an epoch; empty where nothing was measured."""
    return next(iter(_known(measured, _SHORT)), "")


def in_full(measured: Mapping[str, Any]) -> list[str]:
    """What a finished training tells of its last epoch, in a fixed order."""
    return _known(measured, _LONG)


def counted(measured: Mapping[str, Any]) -> str:
    """What training counted: examples of labels or of texts said again, or pairs of clicks."""
    return "examples" if {"dev_accuracy", "dev_kl"} & set(measured) else "pairs"


def _known(measured: Mapping[str, Any], forms: Mapping[str, str]) -> list[str]:
    return [form.format(measured[name]) for name, form in forms.items() if measured.get(name) is not None]
