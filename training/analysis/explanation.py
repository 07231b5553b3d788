"""A model's reading of some texts: traces and keywords of each, the score of a pair, topics and gates of queries."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import from_bytes
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import words
from clicktower.training.analysis.classifying import probabilities
from clicktower.training.analysis.keywords import CountingRule, Keywords, keywords
from clicktower.training.analysis.traces import Direction, TracedText, attention_json, require_traces, trace
from clicktower.training.model.embedding import Side, scores_one_by_one, search_vectors
from clicktower.training.model.model import Model
from clicktower.training.model.objective_settings import Clicks
from clicktower.training.model.recipe import Recipe
from clicktower.training.ranking.ndcg import bootstrap_interval

CONFIDENCE, RESAMPLES = 0.95, 2_000
POSITIONS = 12  # positions of the reading order that are shown separately
CELLS = 5
LEAST_QUERIES = 2  # queries from which a cell must take a word to name it


@dataclass(kw_only=True, slots=True)
class Topics:
    """Which words each cell represents (Table III), and how often each word was a keyword of a query.

    For each query the 5 cells with the largest |y| of the final vector take part; a cell takes a keyword of the query
    if it declares that word itself. A word that a cell took from only one query is counted but not named: it says
    nothing about the cell, and might reveal who typed it. The grid has the first `rows` queries as typed, each with the
    words that its cells took.
    """

    cells: dict[tuple[Direction, int], Counter[str]] = field(default_factory=dict)
    keywords: Counter[str] = field(default_factory=Counter)
    num_queries: int = 0
    rows: int = 0
    grid: list[tuple[str, dict[tuple[Direction, int], list[str]]]] = field(default_factory=list)

    def add(self, query: TracedText, keywords: Keywords) -> None:
        """Collect one more query. A word that is twice in it counts once."""
        self.num_queries += 1
        self.keywords.update({query.words[at] for at in keywords.keywords})
        taken: dict[tuple[Direction, int], list[str]] = {}
        for direction_counts in keywords.counted:
            for column, cell in enumerate(direction_counts.cells[:CELLS]):
                of_cell = [
                    *dict.fromkeys(query.words[at] for at in keywords.keywords if direction_counts.declared[at, column])
                ]
                if of_cell:
                    taken[direction_counts.direction, cell] = of_cell
                    self.cells.setdefault((direction_counts.direction, cell), Counter()).update(of_cell)
        if len(self.grid) < self.rows:
            self.grid.append((query.text, taken))


def topics_json(topics: Topics, *, num_cells: int = 10, num_words: int = 12) -> dict[str, Any]:
    """The cells that took keywords of the most queries, each with its most frequent words.

    Of each word {"word", "queries": in how many the cell took it, "of": in how many it was a keyword}; of each query of
    the grid {"query", "cells"}, a cell with the words that it took.
    """
    busiest = sorted(topics.cells.items(), key=lambda item: (-item[1].total(), item[0]))[:num_cells]
    return {
        "queries": topics.num_queries,
        "cells_per_query": CELLS,
        "least_queries": LEAST_QUERIES,
        "cells_with_words": len(topics.cells),
        "cells": [
            {
                "direction": direction,
                "cell": cell,
                "keywords": words.total(),
                "distinct": len(words),
                "words": [
                    {"word": word, "queries": count, "of": topics.keywords[word]}
                    for word, count in sorted(words.items(), key=lambda item: (-item[1], item[0]))[:num_words]
                    if count >= LEAST_QUERIES
                ],
            }
            for (direction, cell), words in busiest
        ],
        "grid": [
            {
                "query": query,
                "cells": [{"direction": way, "cell": cell, "words": words} for (way, cell), words in taken.items()],
            }
            for query, taken in topics.grid
        ],
    }


@dataclass(kw_only=True, slots=True)
class InputGates:
    """Whether the input gate closes at unimportant words: its value at keywords and at other words (section V-A).

    The gate's value at a word is the mean over all cells of a direction. A word without a count in that direction (the
    one read first) is neither keyword nor other word: there the previous state is zero, and the gate means something
    else. Keywords are words at which cells move, and a cell moves by i ∘ y_g, so part of the difference follows from
    the definition; the comparison by position shows what remains among words at the same position, and the mean |y_g|
    whether the gate or the candidate distinguishes words. Empty for an RNN, which has no input gate.
    """

    # For each text and each of its words with a count, in reading order: its position (1 is the first), whether it is a
    # keyword, gate, |y_g|; float64 [4, words].
    words: dict[Direction, list[np.ndarray]] = field(default_factory=dict)

    def add(self, text: TracedText, counted: Keywords) -> None:
        """Collect one more text."""
        is_keyword = np.zeros(len(text.words))
        is_keyword[list(counted.keywords)] = 1
        for direction in text.traces:
            if "i" in direction.states:
                gate = direction.states["i"].mean(axis=1, dtype=np.float64)
                candidate = np.abs(direction.states["y_g"]).mean(axis=1, dtype=np.float64)
                position = np.arange(1, len(gate) + 1)
                read = np.stack([position, *(of_word[direction.reading] for of_word in (is_keyword, gate, candidate))])
                self.words.setdefault(direction.direction, []).append(read[:, 1:])


def gates_json(gates: InputGates) -> list[dict[str, Any]]:
    """For each direction the means with n and standard deviation, the difference within texts with its interval, and
    the means by position.

    A value that cannot be computed (no word of a kind, a spread of one, no text with both) is None.
    """
    rows = []
    for direction, texts in gates.words.items():
        position, is_keyword, gate, candidate = np.concatenate(texts, axis=1)
        key, plain = is_keyword == 1, is_keyword == 0
        with_both = [(text[2], text[1] == 1) for text in texts if 0 < text[1].sum() < text.shape[1]]
        places = [(p, key & (position == p), plain & (position == p)) for p in range(2, POSITIONS + 1)]
        rows.append(
            {
                "direction": direction,
                "keywords": _spread(gate[key]),
                "others": _spread(gate[plain]),
                "difference": _interval(np.array([text[keys].mean() - text[~keys].mean() for text, keys in with_both])),
                "candidate": {"keywords": _spread(candidate[key]), "others": _spread(candidate[plain])},
                "by_position": [
                    {"position": p, "keywords": _spread(gate[keys]), "others": _spread(gate[plains])}
                    for p, keys, plains in places
                    if keys.any() and plains.any()
                ],
            }
        )
    return rows


def _spread(values: np.ndarray) -> dict[str, float | int | None]:
    if not len(values):
        return {"n": 0, "mean": None, "sd": None}
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"n": len(values), "mean": float(np.mean(values)), "sd": sd}


def _interval(differences: np.ndarray) -> dict[str, float | int] | None:
    if len(differences) < 2:
        return None
    low, high = bootstrap_interval(differences, confidence=CONFIDENCE, num_resamples=RESAMPLES)
    return {
        "texts": len(differences),
        "mean": float(np.mean(differences)),
        "low": float(low[0]),
        "high": float(high[0]),
        "confidence": CONFIDENCE,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One model's reading. Parts that were not requested are empty or None."""

    name: str
    recipe: Recipe
    texts: tuple[TracedText, ...]
    counted: tuple[Keywords, ...]  # of each text
    gates: InputGates  # of the queries
    scores: tuple[float, ...] = ()  # R of each query and the title after it: their cosine, or minus their distance
    classes: tuple[dict[str, float], ...] = ()  # a classifier's probabilities: of the pair, or of each text
    topics: Topics | None = None
    cost: tuple[dict[str, Any], ...] = ()  # by epoch


def explain_model(
    name: str,
    model: Model,
    texts: Sequence[tuple[str, Side]],
    queries: Sequence[str] = (),
    rule: CountingRule | None = None,
    *,
    side: Side = "query",
    grid: int = 0,
    cost: Sequence[dict[str, Any]] = (),
    progress: Progress = silent,
) -> Explanation:
    """A model's reading of one text, or of queries each followed by a title, and of a set of queries (or titles, as
    `side` says).

    grid: the number of queries that are shown themselves.

    Raises UsageError for a tower without traces, a text without a word, or queries none of which has one.
    """
    require_traces(model.recipe)
    rule = rule or CountingRule()
    traced = tuple(trace(model, text, side) for text, side in texts)
    counted = tuple(keywords(text.traces, rule) for text in traced)
    gates, topics = InputGates(), Topics(rows=grid)
    for number, query in enumerate(queries):
        progress(f"{name}: queries", number, len(queries))
        if words(query):  # a text without a word has no embedding
            read = trace(model, query, side)
            word_marks = keywords(read.traces, rule)
            topics.add(read, word_marks)
            gates.add(read, word_marks)
    if queries and not topics.num_queries:
        raise UsageError(
            f"None of the {len(queries):,} queries to explain has a word.", "Give queries of at least one word."
        )
    return Explanation(
        name=name,
        recipe=model.recipe,
        texts=traced,
        counted=counted,
        gates=gates,
        scores=tuple(_score(model, texts[at : at + 2]) for at in range(0, len(texts) - 1, 2)),
        classes=_classes(model, [text for text, _ in texts]),
        topics=topics if queries else None,
        cost=tuple(cost),
    )


def called(explanation: Explanation, number: int) -> str:
    """The name of a text: by the side that reads it in a click model, otherwise by its position."""
    if isinstance(explanation.recipe.objective, Clicks):
        return "query" if explanation.texts[number].side == "query" else "title"
    return "text" if len(explanation.texts) == 1 else ("first text", "second text")[number]


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Everything but the traces, as plain values."""
    by_distance = explanation.recipe.objective.similarity == "euclidean"
    score = explanation.scores[0] if len(explanation.scores) == 1 else None
    return {
        "name": explanation.name,
        "recipe": explanation.recipe.name,
        "tower": explanation.recipe.tower.kind,
        "cells": explanation.recipe.tower.cells,
        "similarity": explanation.recipe.objective.similarity,
        "cosine": score if not by_distance else None,
        "distance": abs(score) if by_distance and score is not None else None,
        "scores": list(explanation.scores),
        "classes": list(explanation.classes),
        "texts": [
            {
                "text": text.text,
                "side": text.side,
                "called": called(explanation, number),
                "words": list(text.words),
                **counted.to_json(),
                "attention": None if text.attention is None else attention_json(text.attention),
            }
            for number, (text, counted) in enumerate(zip(explanation.texts, explanation.counted, strict=True))
        ],
        "attenuation": gates_json(explanation.gates),
        "topics": topics_json(explanation.topics) if explanation.topics else None,
        "cost": list(explanation.cost),
    }


def _score(model: Model, texts: Sequence[tuple[str, Side]]) -> float:
    """R(Q, D) as `search` computes it."""
    first, second = (search_vectors(model, [text], side) for text, side in texts)
    return float(scores_one_by_one(model.similarity, first, second[0])[0])


def _classes(model: Model, texts: Sequence[str]) -> tuple[dict[str, float], ...]:
    """A classifier's answer: for two texts if it classifies pairs, otherwise for each text."""
    outputs = model.outputs
    if not (texts and outputs.unit) or (outputs.unit == "pairs" and len(texts) != 2):
        return ()
    places = np.arange(len(texts))
    sides = (places[:1], places[1:]) if outputs.unit == "pairs" else (places,)
    shares = probabilities(model, list(texts), sides, outputs.classes)
    return tuple(dict(zip(outputs.classes, row, strict=True)) for row in shares.tolist())


def training_cost(folder: str) -> list[dict[str, Any]]:
    """{"epoch", "train_loss", "dev_loss"} of each epoch, with "train_loss_after" where it was measured; empty if the
    folder has no curves (a release has none).

    Raises StageError for damaged curves.
    """
    path = storage.join(folder, "curves.json")
    if not storage.exists(path):
        return []
    try:
        return [
            {"epoch": point["epoch"], "train_loss": point["train_loss"], "dev_loss": point.get("dev_loss")}
            | {name: point[name] for name in ("train_loss_after",) if name in point}
            for point in from_bytes(storage.read_bytes(path))
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StageError(
            f"The curves in {path} are damaged ({type(error).__name__}).", "Train again, or copy the folder again."
        ) from None
