"""Small labelled data that can be learnt, made into shards by the stage that users run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from clicktower.beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping
from clicktower.beam_jobs.labelled.labelled_stage import build_labelled_shards
from tests.training.small_shards import KINDS, THINGS

Line = tuple[str, ...]


def built(folder: Path, lines: Iterable[Line], **config: Any) -> str:
    """The stage folder of labelled pairs (three columns) or texts (two)."""
    rows = list(lines)
    columns = LabelledColumns(first=1, second=2, label=3) if len(rows[0]) == 3 else LabelledColumns(text=1, label=2)
    file = folder / "lines.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    settings = {"dev_share": 0.2, "table_rows": 50_700} | config
    asked = LabelledConfig(mapping=LabelledMapping(columns=columns, header=False), **settings)
    return build_labelled_shards([str(file)], store=str(folder / "store"), config=asked).folder


def questions(number: int, *, seed: int = 0) -> list[Line]:
    """Pairs about two things each; `same` where they are one thing. No sentence is in two pairs."""
    rng, things = np.random.default_rng(seed), list(THINGS)
    found = []
    for n in range(number):
        thing = things[rng.integers(len(things))]
        other = thing if n % 2 else things[rng.choice([t for t in range(len(things)) if things[t] != thing])]
        first, second = (KINDS[k] for k in rng.integers(len(KINDS), size=2))
        found.append((f"{first} {thing} {2 * n}", f"{other} {second} {2 * n + 1}", "same" if n % 2 else "other"))
    return found


def statements(number: int, *, seed: int = 0) -> list[Line]:
    """Texts of one thing each, among words that say nothing; the class is what kind of thing it is."""
    rng, things = np.random.default_rng(seed), list(THINGS)
    kinds = {thing: ("tool", "home", "part")[at % 3] for at, thing in enumerate(things)}
    found = []
    for n in range(number):
        thing = things[rng.integers(len(things))]
        words = [*rng.permutation(KINDS)[:2], thing, str(n)]
        found.append((" ".join(rng.permutation(words)), kinds[thing]))
    return found
