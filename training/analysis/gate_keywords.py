"""Keywords from the gates of whatever a release holds: one recurrent tower, or several models side by side.

Of models side by side the recurrent ones are asked, and a word is a keyword if at least half of them say so. A text of
more than MOST_TRACED words is not traced.
"""

from dataclasses import dataclass

import numpy as np

from schemas.words import words
from training.analysis.keywords import CountingRule, keywords
from training.analysis.traces import RECURRENT, Side, trace
from training.ensemble import Ensemble
from training.model import Model

MOST_TRACED = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class GateKeywords:
    """Of each word of a text the share of the most active cells that move at it, and the numbers of the keywords."""

    moved: tuple[float, ...]
    keywords: tuple[int, ...]


def gate_keywords(encoder: Model | Ensemble, text: str, side: Side) -> GateKeywords | None:
    """None for towers without gates or state, and for a text that is too long. Raises UsageError without a word."""
    members = encoder.members if isinstance(encoder, Ensemble) else (encoder,)
    recurrent = [member for member in members if member.recipe.tower in RECURRENT]
    if not recurrent or len(words(text)) > MOST_TRACED:
        return None
    moved, said = [], []
    for member in recurrent:
        found = keywords(trace(member, text, side).traces, CountingRule())
        moved.append([most / len(found.counted[0].cells) for most in found.most])
        said.append([number in found.keywords for number in range(len(found.most))])
    least = min(map(len, moved))  # models may read different numbers of words
    share = np.mean([row[:least] for row in moved], axis=0)
    votes = np.mean([row[:least] for row in said], axis=0)
    return GateKeywords(moved=tuple(share.tolist()), keywords=tuple(np.flatnonzero(votes >= 0.5).tolist()))
