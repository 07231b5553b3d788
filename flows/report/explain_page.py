"""What models read in some texts -> explain.html: one file with its style and pictures inside, nothing loaded."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from flows.report.figures import (
    MOST,
    Line,
    Scale,
    gate_chart,
    heat_map,
    line_chart,
    own_scale,
    word_columns,
    word_lines,
)
from flows.report.templates import style, templates
from schemas import storage
from training.analysis.attention import overall, overlap
from training.analysis.attenuation import as_json as attenuation_json
from training.analysis.explained import Explained, called, evolution, topics_json
from training.analysis.keywords import CountingRule, Keywords, most_active, sentences
from training.analysis.traces import TracedText
from training.ranking.embedding import similarity_of
from training.wording import visible

SCORES = {
    "cosine": "cosine of the two texts, from −1 to 1",
    "euclidean": "minus W₂, the distance of the two texts’ distributions: 0 where they are the same",
}
Range = Literal["shared", "panel"]
PANELS = {
    "i": ("input gate", "how much of the word is let in"),
    "f": ("forget gate", "how much of the past is kept"),
    "o": ("output gate", "how much of the state shows"),
    "y_g": ("candidate", "what the word would add"),
    "c": ("cell state", "what was added up so far"),
    "y": ("output", "passed on"),
}
ARROWS = {"left to right": "→", "right to left": "←"}
OF_Y = {
    "embedding": "; after the last word the embedding",
    "hops": ", and what the hops weight",
    "maximum": "; the largest over the words is the embedding",
    "distribution": "; after the last word what μ and σ are made of",
}
TABLE_WORDS = 60
SHARED = Scale(low=-1.0, high=1.0)  # all but c lie within
SHADES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainPage:
    """Readings of the same texts and queries, by one model or two."""

    models: tuple[Explained, ...]
    rule: CountingRule
    colours: Range = "shared"
    simulated: bool = False


def write_explain_page(path: str, page: ExplainPage) -> None:
    """Write the page; it replaces an older one as a whole. Raises OSError where it cannot be written."""
    storage.write_atomic(path, render(page).encode("utf-8"))


def render(page: ExplainPage) -> str:
    """The page as HTML. Every text is escaped, and what cannot be printed is a mark."""
    pages = templates()
    pages.filters |= {"printable": visible}
    return pages.get_template("explain.html").render(
        style=style("report.css", "explain.css"),
        page=page,
        names=[one.name for one in page.models],
        title=_title(page),
        texts=[_text(page, number) for number in range(len(page.models[0].texts))],
        scores=[
            (one.name, one.score, SCORES[similarity_of(one.recipe)]) for one in page.models if one.score is not None
        ],
        topics=[(one.name, topics_json(one.topics)) for one in page.models if one.topics],
        gates=[
            (one.name, found, gate_chart(found))
            for one in page.models
            for found in map(attenuation_json, one.gates.directions.values())
            if found["keywords"]["n"] and found["others"]["n"]
        ],
        gateless=[one.name for one in page.models if one.topics and one.recipe.tower == "rnn"],
        cost=_cost(page.models),
        rules=sentences(page.rule),
        arrows=ARROWS,
        shared_legend=legend(SHARED),
    )


def _title(page: ExplainPage) -> str:
    texts = page.models[0].texts
    if not texts:
        return "What the cells stand for"
    return " / ".join(visible(t.text if len(t.text) <= 60 else t.text[:59] + "…") for t in texts)


def _text(page: ExplainPage, number: int) -> dict[str, Any]:
    """All that is shown of a text: its words shaded, the table of counts, and each model's pictures."""
    readings = [(one, one.texts[number], one.counted[number]) for one in page.models]
    return {
        "called": called(page.models[0], number),
        "shaded": [(one.name, _shaded(text, found)) for one, text, found in readings],
        "table": _table([(one.name, text, found) for one, text, found in readings]),
        "attention": [
            (one.name, attention_pictures(text.attention, text.words))
            for one, text, _ in readings
            if text.attention is not None
        ],
        "pictures": [_pictures(one, text, page) for one, text, _ in readings],
    }


def _shaded(text: TracedText, found: Keywords) -> list[tuple[str, int, bool, str]]:
    """(word, shade from 0 to 5, whether it is a keyword, what its counts are) of each word."""
    of = max(len(one.cells) for one in found.counted)
    keywords = set(found.keywords)
    told = [
        ", ".join(
            f"{ARROWS[one.direction]} {'no count' if count is None else f'{count} of {len(one.cells)} cells'}"
            for one, count in zip(found.counted, counts, strict=True)
        )
        for counts in zip(*(one.counts for one in found.counted), strict=True)
    ]
    return [
        (visible(word), -(-most * SHADES // of), at in keywords, told[at])
        for at, (word, most) in enumerate(zip(text.words, found.most, strict=True))
    ]


def _table(readings: Sequence[tuple[str, TracedText, Keywords]]) -> dict[str, Any]:
    """The table of counts: words as columns, one row per model and direction, as in Tables I and V to VIII."""
    longest = max((text for _, text, _ in readings), key=lambda text: len(text.words))
    most: Counter[int] = Counter()
    for _, _, found in readings:
        for at, count in enumerate(found.most):
            most[at] = max(most[at], count)
    chosen = sorted(sorted(most, key=lambda at: (-most[at], at))[:TABLE_WORDS])
    rows = [
        {
            "name": name,
            "direction": one.direction,
            "of": len(one.cells),
            "cells": [
                {
                    "count": one.counts[at],
                    "keyword": at in found.keywords,
                    "share": (one.counts[at] or 0) / len(one.cells),
                }
                if at < len(one.counts)
                else None
                for at in chosen
            ],
        }
        for name, _, found in readings
        for one in found.counted
    ]
    words = [(at + 1, visible(longest.words[at])) for at in chosen]
    return {"words": words, "rows": rows, "num_words": len(longest.words), "cut": len(longest.words) > TABLE_WORDS}


def _pictures(one: Explained, text: TracedText, page: ExplainPage) -> dict[str, Any]:
    columns = word_columns(text.words)
    directions = []
    for trace in text.traces:
        active = most_active(trace, page.rule.top_cells)
        panels = []
        for name, (title, meaning) in PANELS.items():
            if name in trace.states:
                values = trace.states[name]
                scale = SHARED if page.colours == "shared" else own_scale(values)
                panels.append(
                    {
                        "picture": heat_map(values, columns, active, scale, f"{title} {name}(t)"),
                        "legend": None if page.colours == "shared" else legend(scale),
                        "meaning": meaning + (OF_Y[trace.becomes] if name == "y" else ""),
                        "low": float(values.min()),
                        "high": float(values.max()),
                        "beyond": page.colours == "shared" and bool(abs(values).max() > SHARED.high),
                    }
                )
        reading, found = word_columns(text.words[trace.reading]), evolution(trace, page.rule.top_cells)
        lines = word_lines(found.cells, found.values, reading, f"y of the most active cells, {one.name}")
        directions.append({"direction": trace.direction, "panels": panels, "lines": lines})
    return {
        "name": one.name,
        "directions": directions,
        "forget": one.recipe.forget_gate,
        "gated": one.recipe.tower != "rnn",
        "ends_as_embedding": text.traces[0].becomes == "embedding",
        "words_each": columns.words_each,
        "most_columns": MOST,
        "one_word": len(text.words) == 1,
    }


def _cost(models: Sequence[Explained]) -> dict[str, Any] | None:
    """The training loss of each model by epoch, on a logarithmic scale; None unless there are two that have it."""
    known: list[Explained] = [one for one in models if one.cost]
    if len(known) < 2:
        return None
    lines = [Line(name=one.name, points=_points(one.cost), dots=_points(one.cost)) for one in known]
    return {
        "picture": line_chart(lines, "Training loss per pair", log=True),
        "rows": [
            {
                "name": one.name,
                "epochs": len(one.cost),
                "first": one.cost[0]["train_loss"],
                "last": one.cost[-1]["train_loss"],
                "dev": one.cost[-1]["dev_loss"],
            }
            for one in known
        ],
    }


def _points(cost: Sequence[Mapping[str, Any]]) -> list[tuple[float, float | None]]:
    return [(float(point["epoch"]), point["train_loss"]) for point in cost]


def legend(scale: Scale) -> Markup:
    """The colours with what they mean at both ends."""
    kind = "scale both" if scale.around_zero else "scale"
    return Markup('<p class="legend">{:.2g} <span class="{}" aria-hidden="true"></span> {:.2g}</p>').format(
        scale.low, kind, scale.high
    )


def attention_pictures(weights_rT: np.ndarray, words: Sequence[str]) -> dict[str, Any]:
    """Where the hops of a self-attentive tower look in a text: a row for each hop, and below one for all of them.

    The colours of each picture go from 0 to its largest.
    """
    columns = word_columns(words)
    shown: list[tuple[np.ndarray, str, str, int | None]] = [(weights_rT, "hops", "hops", 1)]
    if len(weights_rT) > 1:
        shown.append((overall(weights_rT)[None], "overall", "row", None))
    pictures = []
    for values, title, rows, first in shown:
        scale = Scale(low=0.0, high=float(values.max()))
        picture = heat_map(values.T, columns, range(len(values)), scale, title, rows=rows, first=first)
        pictures.append({"picture": picture, "legend": legend(scale)})
    return {"pictures": pictures, "num_hops": len(weights_rT), "overlap": overlap(weights_rT)}
