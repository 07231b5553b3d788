"""The best point of a sweep as TOML: the [train] section of a pipeline.toml, which `clicktower train --recipe` reads
too. All fields are in it, so that it means the same when a later version changes a named recipe."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from training.recipes import Recipe, names

HEAD = """\
# The first of {points} points by {measure}, with its first seed: the whole recipe, as `clicktower sweep` found it.
# It was chosen on {watched}; evaluate it on judgments that chose nothing.
#
# To train it:       clicktower train --recipe best.toml --shards store/build/DIGEST --into store
# In a pipeline:     put this section into pipeline.toml, or write there [train] recipe = "best.toml"

[train]
recipe = {recipe}
{word_vectors}
[train.set]
"""


def best_toml(table: Mapping[str, Any], recipe: Recipe, word_vectors: str | None = None) -> str:
    """What to write down of the first point of a table (the JSON of training.sweep.stage), whose recipe this is, and
    the file that its words start from."""
    varied = table["rows"][0]["fields"]
    fields = asdict(recipe)
    name = fields.pop("name")
    if name not in names():  # a recipe of somebody's own: all of it is set
        fields, name = {"name": name, **fields}, names()[0]
    first = {field: fields.pop(field) for field in varied if field in fields}
    head = HEAD.format(
        points=len(table["rows"]),
        measure=table["measure"],
        watched=table["watched"],
        recipe=json.dumps(name),
        word_vectors=f"word_vectors = {json.dumps(word_vectors)}\n" if word_vectors else "",
    )
    parts = [
        ("# What the sweep varied:", first),
        ("# The rest:" if first else "", fields),
    ]
    lines = [line for note, some in parts if some for line in (note, *map(_line, some.items())) if line]
    return head + "\n".join(lines) + "\n"


def _line(field: tuple[str, Any]) -> str:
    name, value = field
    return f"{name} = {json.dumps(value)}"  # text, numbers, true and false are written alike in JSON and TOML
