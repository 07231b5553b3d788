"""What a model makes of some texts: traces and keywords of each, the score of a pair, topics and gates of queries."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.stage import Progress, silent
from schemas.words import words
from training.analysis.attention import as_json as attention_json
from training.analysis.attenuation import InputGates
from training.analysis.attenuation import as_json as attenuation_json
from training.analysis.keywords import CountingRule, Keywords, keywords
from training.analysis.keywords import as_json as keywords_json
from training.analysis.topics import Topics
from training.analysis.topics import as_json as topics_json
from training.analysis.traces import Side, TracedText, require_traces, trace
from training.labelled.classifying import probabilities
from training.models.model import Model
from training.ranking.embedding import scores_one_by_one, search_vectors, similarity_of
from training.recipes.recipe import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """One model's reading. Whatever was not asked for is empty or None."""

    name: str
    recipe: Recipe
    texts: tuple[TracedText, ...]
    counted: tuple[Keywords, ...]  # of each text
    gates: InputGates  # of the queries
    score: float | None = None  # of the first text and the second: their cosine, or minus their distance
    classes: tuple[dict[str, float], ...] = ()  # of a classifier, how likely each is: of the pair, or of each text
    topics: Topics | None = None
    cost: tuple[dict[str, Any], ...] = ()  # by epoch (explained)


def explained(
    name: str,
    model: Model,
    texts: Sequence[tuple[str, Side]],
    queries: Sequence[str] = (),
    rule: CountingRule | None = None,
    *,
    side: Side = "query",
    cost: Sequence[dict[str, Any]] = (),
    progress: Progress = silent,
) -> Explained:
    """A model's reading of one text, or of a query and a title, and of a set of queries (or titles, as `side` says).

    Raises UsageError for a tower without traces, a text without a word, or queries none of which has one.
    """
    require_traces(model.recipe)
    rule = rule or CountingRule()
    traced = tuple(trace(model, text, side) for text, side in texts)
    counted = tuple(keywords(text.traces, rule) for text in traced)
    gates, topics = InputGates(), Topics()
    for number, query in enumerate(queries):
        progress(f"{name}: queries", number, len(queries))
        if words(query):  # one without a word has no embedding
            read = trace(model, query, side)
            found = keywords(read.traces, rule)
            topics.add(read, found)
            gates.add(read, found)
    if queries and not topics.num_queries:
        raise UsageError(
            asked=f"{len(queries):,} queries were to be explained",
            found="not one of them has a word",
            do="give queries of at least one word",
        )
    return Explained(
        name=name,
        recipe=model.recipe,
        texts=traced,
        counted=counted,
        gates=gates,
        score=_score(model, texts) if len(texts) == 2 else None,
        classes=_classes(model, [text for text, _ in texts]),
        topics=topics if queries else None,
        cost=tuple(cost),
    )


def called(one: Explained, number: int) -> str:
    """What to call a text: by the side that reads it where clicks were learnt, else by its place."""
    if one.recipe.objective == "clicks":
        return "query" if one.texts[number].side == "query" else "title"
    return "text" if len(one.texts) == 1 else ("first text", "second text")[number]


def as_json(one: Explained) -> dict[str, Any]:
    """Everything but the traces, as plain values."""
    return {
        "name": one.name,
        "recipe": one.recipe.name,
        "tower": one.recipe.tower,
        "cells": one.recipe.cells,
        "similarity": similarity_of(one.recipe),
        "score": one.score,
        "classes": list(one.classes),
        "texts": [
            {
                "text": text.text,
                "side": text.side,
                "called": called(one, number),
                "words": list(text.words),
                **keywords_json(found),
                "attention": None if text.attention is None else attention_json(text.attention),
            }
            for number, (text, found) in enumerate(zip(one.texts, one.counted, strict=True))
        ],
        "attenuation": [attenuation_json(found) for found in one.gates.directions.values()],
        "topics": topics_json(one.topics) if one.topics else None,
        "cost": list(one.cost),
    }


def _score(model: Model, texts: Sequence[tuple[str, Side]]) -> float:
    """R(Q, D) as `search` computes it."""
    first, second = (search_vectors(model, [text], side) for text, side in texts)
    return float(scores_one_by_one(model.similarity, first, second[0])[0])


def _classes(model: Model, texts: Sequence[str]) -> tuple[dict[str, float], ...]:
    """What a classifier of pairs says of two texts, or a classifier of texts of each."""
    outputs = model.layout.outputs
    if not (texts and outputs.unit) or (outputs.unit == "pairs" and len(texts) != 2):
        return ()
    places = np.arange(len(texts))
    sides = (places[:1], places[1:]) if outputs.unit == "pairs" else (places,)
    found = probabilities(model, list(texts), sides, outputs.classes)
    return tuple(dict(zip(outputs.classes, row, strict=True)) for row in found.tolist())


# What training cost by the epoch, as the model folder keeps it (curves.json): for Fig. 7, RNN against LSTM.


def training_cost(folder: str) -> list[dict[str, Any]]:
    """{"epoch", "train_loss", "dev_loss"} of each epoch; empty where the folder has no curves (a release has none).

    Raises StageError for damaged curves.
    """
    path = storage.join(folder, "curves.json")
    if not storage.exists(path):
        return []
    try:
        return [
            {"epoch": point["epoch"], "train_loss": point["train_loss"], "dev_loss": point.get("dev_loss")}
            for point in json.loads(storage.read_bytes(path))
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StageError(
            asked=f"the curves in {path} were to be read",
            found=f"the file is damaged ({type(error).__name__})",
            do="train again, or copy the folder again",
        ) from None
