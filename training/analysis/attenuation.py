"""Whether the input gate closes at unimportant words: its mean at keywords against that at other words (section V-A).

The gate's value at a word is the mean over all cells of a direction. A word without a count in that direction (the one
read first) is neither keyword nor other word: there the state before is zero, and the gate is another thing. Keywords
are words at which cells move, and a cell moves by i ∘ y_g, so a part of the difference comes with the definition; the
comparison by position shows what is left of it among words that stand at the same place, and the mean |y_g| whether it
is the gate or the candidate that tells words apart.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from training.analysis.keywords import Keywords
from training.analysis.traces import Direction, TracedText
from training.ranking.significance import bootstrap_interval

CONFIDENCE, RESAMPLES = 0.95, 2_000
POSITIONS = 12  # of the reading order that are told apart


@dataclass(kw_only=True, slots=True)
class Attenuation:
    """Input gates at keywords and at other words, by the position at which they were read (1 is the first)."""

    direction: Direction
    keywords: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    keyword_positions: list[int] = field(default_factory=list)
    other_positions: list[int] = field(default_factory=list)
    keyword_candidates: list[float] = field(default_factory=list)  # mean |y_g|
    other_candidates: list[float] = field(default_factory=list)
    differences: list[float] = field(default_factory=list)  # of each text with both kinds: keywords - others


@dataclass(kw_only=True, slots=True)
class InputGates:
    """The gates of many texts, for each direction. Empty for an RNN, which has no input gate."""

    directions: dict[Direction, Attenuation] = field(default_factory=dict)

    def add(self, text: TracedText, counted: Keywords) -> None:
        """Collect one more text."""
        chosen = np.zeros(len(text.words), bool)
        chosen[list(counted.keywords)] = True
        for trace in text.traces:
            if "i" not in trace.states:
                continue
            into = self.directions.setdefault(trace.direction, Attenuation(direction=trace.direction))
            gate = trace.states["i"].mean(axis=1, dtype=np.float64)[trace.reading][1:]
            candidate = np.abs(trace.states["y_g"]).mean(axis=1, dtype=np.float64)[trace.reading][1:]
            key = chosen[trace.reading][1:]
            positions = np.arange(2, len(key) + 2)
            into.keywords += gate[key].tolist()
            into.others += gate[~key].tolist()
            into.keyword_positions += positions[key].tolist()
            into.other_positions += positions[~key].tolist()
            into.keyword_candidates += candidate[key].tolist()
            into.other_candidates += candidate[~key].tolist()
            if key.any() and not key.all():
                into.differences.append(float(gate[key].mean() - gate[~key].mean()))


def as_json(found: Attenuation) -> dict[str, Any]:
    """Means with n and standard deviation, the difference within texts with its interval, and the means by position.

    What cannot be computed (no word of a kind, a spread of one, no text with both) is None.
    """
    return {
        "direction": found.direction,
        "keywords": _spread(found.keywords),
        "others": _spread(found.others),
        "difference": _interval(found.differences),
        "candidate": {"keywords": _spread(found.keyword_candidates), "others": _spread(found.other_candidates)},
        "by_position": [
            {"position": p, "keywords": _spread(at_keywords), "others": _spread(at_others)}
            for p in range(2, POSITIONS + 1)
            if (at_keywords := _at(found.keywords, found.keyword_positions, p))
            and (at_others := _at(found.others, found.other_positions, p))
        ],
    }


def _at(values: list[float], positions: list[int], position: int) -> list[float]:
    return [value for value, at in zip(values, positions, strict=True) if at == position]


def _spread(values: list[float]) -> dict[str, float | int | None]:
    if not values:
        return {"n": 0, "mean": None, "sd": None}
    return {
        "n": len(values),
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if values[1:] else None,
    }


def _interval(differences: list[float]) -> dict[str, float | int] | None:
    if len(differences) < 2:
        return None
    low, high = bootstrap_interval(np.array(differences), confidence=CONFIDENCE, num_resamples=RESAMPLES)
    return {
        "texts": len(differences),
        "mean": float(np.mean(differences)),
        "low": float(low[0]),
        "high": float(high[0]),
        "confidence": CONFIDENCE,
    }
