"""Numbers, names and foreign text as a person reads them, alike in the terminal, in Markdown and in HTML."""

from collections.abc import Mapping
from typing import Any


def duration(seconds: float | None) -> str:
    """A time as people say it: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None:
        return "—"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def measure_name(key: str) -> str:
    """ndcg@10 -> NDCG@10; collection_ndcg@10 -> NDCG@10, all documents."""
    name = key.removeprefix("collection_").replace("ndcg", "NDCG").replace("mrr", "MRR").replace("_", " ")
    name = name[0].upper() + name[1:] if name else key
    return f"{name}, all documents" if key.startswith("collection_") else name


def visible(text: str) -> str:
    """Foreign text without what is not seen and does something: control characters, and marks that turn the
    direction of writing. Joiners stay: scripts and emoji are written with them."""
    return "".join(char if char.isprintable() or char in "\u200c\u200d" else "�" for char in text)


# What was measured on held-out data after an epoch (training.objectives.Watched), in the words of a line.


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
    """The name of what training counted: labelled examples, reconstructed texts, or pairs of clicks."""
    return "examples" if {"dev_accuracy", "dev_kl"} & set(measured) else "pairs"


def _known(measured: Mapping[str, Any], forms: Mapping[str, str]) -> list[str]:
    return [form.format(measured[name]) for name, form in forms.items() if measured.get(name) is not None]
