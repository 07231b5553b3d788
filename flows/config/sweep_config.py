"""sweep.toml -> SweepConfig: what is tried, on which shards, what chooses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict

from flows.config.toml_file import absolute, check_names, read_toml
from schemas.errors import UsageError
from training.recipes.recipe import Recipe
from training.recipes.section import flat
from training.sweep.sweep_table import measures

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class JudgedSection:
    documents: str
    queries: str
    qrels: str
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class SampleSection:
    points: int
    seed: int = 1
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class HalvingSection:
    """As halving.Halving."""

    eta: int = 3
    min_epochs: int = 1
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """One sweep. Relative paths are relative to the TOML file's folder.

    `word_vectors`: a file that words start from, as in `train`. `set`: recipe fields that all trials share. `fields`:
    the grid, a list of values for each recipe field (or of recipes, for `recipe`), of which `sample` takes some points
    at random. `trial`: points told one by one. `engine`: processes, ray, or auto for Ray where RAY_ADDRESS names a
    cluster.
    """

    shards: str
    into: str
    recipe: str = "lstm-96"
    word_vectors: str | None = None
    epochs: int | None = None
    seeds: tuple[int, ...] = ()
    measure: str | None = None
    max_trials: int = 100
    workers: int = 1
    threads: int | None = None
    device: str = "auto"
    path: str = "auto"
    engine: Literal["auto", "processes", "ray"] = "auto"
    at_once: int | None = None
    halving: HalvingSection | None = None
    judged: JudgedSection | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    sample: SampleSection | None = None
    trial: tuple[Mapping[str, Any], ...] = ()
    __pydantic_config__ = _STRICT


def read_sweep(path: str) -> SweepConfig:
    """The sweep that a TOML file describes, its paths made absolute.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a wrong type, an unknown measure.
    """
    config = read_toml(path, SweepConfig, what="sweep", command="sweep")
    if config.measure is not None and config.measure not in measures():
        raise UsageError(
            asked=f"the sweep in {path} chooses by {config.measure!r}",
            found="nothing of that name is measured",
            do=f"use one of {', '.join(measures())}",
        )
    config = replace(
        config,
        set=flat(config.set, Recipe),
        fields=flat(config.fields, Recipe),
        trial=tuple(flat(point, Recipe) for point in config.trial),
    )
    check_names(path, "set", config.set, Recipe)
    check_names(path, "fields", config.fields, Recipe, also=["recipe"])
    for point in config.trial:
        check_names(path, "trial", point, Recipe, also=["recipe"])
    base = Path(path).resolve().parent
    judged = config.judged and JudgedSection(
        documents=absolute(config.judged.documents, base),
        queries=absolute(config.judged.queries, base),
        qrels=absolute(config.judged.qrels, base),
    )
    return replace(
        config,
        shards=absolute(config.shards, base),
        into=absolute(config.into, base),
        word_vectors=config.word_vectors and absolute(config.word_vectors, base),
        judged=judged,
    )
