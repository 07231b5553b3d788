"""sweep.toml -> SweepConfig: the variants, the shards, the deciding measure; and its points."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from clicktower.flows.config.toml_file import RecipeFields, read_toml, recipe_fields, with_fields
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import Count, Seed, Uri, changed, section
from clicktower.training.model.recipe import DEFAULT, Compute, Recipe, Sources, recipe
from clicktower.training.sweep.sweep_stage import Halving
from clicktower.training.sweep.sweep_table import Point, measures, point_text, value_text
from clicktower.training.trainer.job import completed

# Fields of a recipe, and the recipe, which a sweep varies too.
VariedFields = Annotated[Mapping[str, Any], AfterValidator(lambda fields: recipe_fields(fields, ["recipe"]))]


@section
class JudgedSection:
    """Judgments to tune on: what is tuned on them must not be reported as a test result.

    Args:
        documents: The documents.
        queries: The judged queries.
        qrels: The judgments.
        adult_list: A file of adult terms, one per line, that replaces the built-in list: such queries are left out.
    """

    documents: Uri
    queries: Uri
    qrels: Uri
    adult_list: Uri | None = None


@section
class SampleSection:
    """Some points of the grid, at random.

    Args:
        points: How many.
        seed: More points with the same seed include these.
    """

    points: Count
    seed: Seed = 1


@section
class SweepConfig(Compute, Sources):
    """One sweep, as a sweep.toml describes it. Relative paths are relative to the TOML file's folder.

    Args:
        shards: The folder that `build` printed.
        into: The store of the models, and of the table in sweep/DIGEST.
        recipe: The recipe that is varied, by name or as a TOML file.
        word_vectors: As in `train`, unless a point says word_vectors = "none".
        epochs: The epochs of all trials; by default the recipe's.
        seeds: Every point is trained with each; by default with the recipe's.
        measure: What decides: dev_loss, dev_ndcg@10 and so on; by default NDCG with [judged], else the held-out loss
            where it can compare.
        max_trials: The most trials, points times seeds; more are refused.
        workers: Workers of a trial.
        engine: processes of this machine, ray, or auto for Ray if RAY_ADDRESS names a cluster.
        at_once: Concurrent trials, which share the cores; by default one, on Ray as many as fit.
        mlflow: A folder or a tracking server, for the finished trials.
        halving: Most points stop early.
        judged: Judgments to tune on.
        set: Recipe fields that all trials share.
        fields: The grid: a list of values for each recipe field, or of recipes for `recipe`.
        sample: Only so many random points of the grid.
        trial: Points given one by one.
    """

    shards: Uri
    into: Uri
    recipe: str = DEFAULT
    workers: Count = 1
    epochs: Count | None = None
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = ()
    measure: str | None = None
    max_trials: Count = 100
    engine: Literal["auto", "processes", "ray"] = "auto"
    at_once: Count | None = None
    mlflow: Uri | None = None
    halving: Halving | None = None
    judged: JudgedSection | None = None
    set: RecipeFields = field(default_factory=dict)
    fields: VariedFields = field(default_factory=dict)
    sample: SampleSection | None = None
    trial: tuple[VariedFields, ...] = ()


def read_sweep(path: str) -> SweepConfig:
    """The sweep that a TOML file describes, with absolute paths.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a wrong type, an unknown measure.
    """
    config = read_toml(path, SweepConfig, subject="sweep", see="the commented sweep.toml of the repository")
    if config.measure is not None and config.measure not in measures():
        raise UsageError(
            f"The sweep in {path} chooses by {config.measure!r}, which nothing measures.",
            f"Use one of {', '.join(measures())}.",
        )
    if config.epochs is not None and config.set.get("epochs", config.epochs) != config.epochs:
        raise UsageError(
            f"The sweep in {path} has epochs = {config.epochs}, and others in [set].", "Leave out one of the two."
        )
    return config


def expand_points(config: SweepConfig) -> list[Point]:
    """Every point, checked, in the file's order; of two points with the same recipe only the first.

    Raises UsageError: nothing varies, a field without values, more trials than the limit, or a point whose recipe is
    invalid, with the reason.
    """
    seeds = tuple(dict.fromkeys(config.seeds))
    if not config.fields and not config.trial and len(seeds) < 2:
        raise UsageError(
            "Nothing is varied: the sweep has no [fields] with lists of values and no [[trial]].",
            "Write, say, [fields] and below it optimiser.step = [0.001, 0.002, 0.004]; or seeds = [1, 2, 3] to see"
            " what the seed alone does.",
        )
    if seeds and any("seed" in varied for varied in (config.set, config.fields, *config.trial)):
        raise UsageError(
            "The sweep sets seeds, and seed as a field too.",
            "Keep seeds: its trials are taken together, with their mean and spread.",
        )
    size, num_seeds = _grid_size(config.fields), max(1, len(seeds))
    num_points = (min(config.sample.points, size) if config.sample else size) + len(config.trial)
    num_trials = num_points * num_seeds
    if num_trials > config.max_trials:
        raise UsageError(
            f"The sweep has {num_trials:,} trials ({num_points:,} points, {num_seeds} seeds), and max_trials is"
            f" {config.max_trials:,}. Each trial is a whole training, and the more points, the more of the best"
            " point's lead is luck.",
            f"Try fewer values, add [sample] with points = {max(1, config.max_trials // num_seeds)} to take some of"
            f" the grid at random, or set max_trials = {num_trials}.",
        )
    varied = [*(_combination(config.fields, at) for at in _chosen(config, size)), *config.trial]
    points: dict[Recipe, Point] = {}
    for fields in varied or [{}]:
        point = _point(config, fields, seeds)
        points.setdefault(point.recipes[0], point)
    return list(points.values())


def measure_of(config: SweepConfig, points: Sequence[Point]) -> str:
    """The measure that decides: as set, or the NDCG of judgments, for classifiers the accuracy, otherwise the held-out
    loss if it can compare the points.

    Raises UsageError if dev_loss is set but cannot compare them.
    """
    objectives = {recipe.objective.kind: recipe.objective for point in points for recipe in point.recipes}
    alternatives = objectives[min(objectives)].measures
    if len(objectives) > 1 or config.measure not in (None, "dev_loss", *alternatives):
        raise UsageError(
            f"The sweep chooses by {config.measure or 'what is held out'}, which not every trial measures: its points"
            f" learn {' and '.join(sorted(objectives))}.",
            f"Compare points of one objective, by {', '.join(['dev_loss', *alternatives])}.",
        )
    if not config.measure and "clicks" not in objectives:
        return alternatives[0] if alternatives else "dev_loss"
    is_one_loss = len({(r.clicks.gamma, r.clicks.num_negatives) for point in points for r in point.recipes}) == 1
    if config.measure == "dev_loss" and not is_one_loss:
        raise UsageError(
            "The sweep chooses by dev_loss, and its points differ in objective.gamma or objective.num_negatives,"
            " which the loss is made of: the smallest would win, whatever it teaches.",
            'Set measure = "dev_ndcg@10".',
        )
    return config.measure or ("dev_loss" if is_one_loss and not config.judged else "dev_ndcg@10")


def _grid_size(fields: Mapping[str, Any]) -> int:
    """The number of combinations of the fields' values. Raises UsageError for a field without a list of them."""
    for name, values in fields.items():
        if not isinstance(values, list):
            raise UsageError(
                f"The sweep varies {name} = {value_text(values)}, which is a single value.",
                f"Write a list, {name} = [{value_text(values)}, ...]; what all trials share belongs in [set].",
            )
        if not values:
            raise UsageError(
                f"The sweep's list of values for {name} is empty, and so is the grid.",
                "Give values to try, or leave the field out.",
            )
    return math.prod(map(len, fields.values())) if fields else 0


def _combination(fields: Mapping[str, Any], at: int) -> dict[str, Any]:
    """One of the combinations; the last field's values change first. A grid may be too large to list completely."""
    combination = {}
    for name, values in reversed(list(fields.items())):
        at, place = divmod(at, len(values))
        combination[name] = values[place]
    return dict(reversed(combination.items()))


def _chosen(config: SweepConfig, size: int) -> Sequence[int]:
    """The points of the grid to try. A larger sample contains a smaller one with the same seed: trials are reused."""
    if not config.sample or config.sample.points >= size:
        return range(size)
    draw, chosen = random.Random(config.sample.seed), set[int]()
    while len(chosen) < config.sample.points:
        chosen.add(draw.randrange(size))
    return sorted(chosen)


def _point(config: SweepConfig, fields: Mapping[str, Any], seeds: Sequence[int]) -> Point:
    shared = ({"epochs": config.epochs} if config.epochs is not None else {}) | dict(config.set)
    name = value_text(fields.get("recipe", config.recipe))
    changes = {field: value for field, value in (shared | dict(fields)).items() if field != "recipe"}
    assignments = [f"{field}={value_text(value)}" for field, value in changes.items()]
    try:
        # A point with `none` is trained without the file, to see what the file is worth.
        vectors = config.word_vectors if changes.get("word_vectors") != "none" else None
        first = completed(with_fields(recipe(name), assignments), vectors, config.teacher)
        recipes = tuple(changed(first, {"seed": seed}) for seed in seeds) or (first,)
    except UsageError as error:
        raise UsageError(
            f"The sweep cannot try {point_text(fields)}: {error.problem}", f"{error.fix} No trial was started."
        ) from None
    sets = [word for assignment in assignments for word in ("--set", assignment)]
    files = {"--word-vectors": vectors, "--start": config.start, "--teacher": config.teacher}
    options = ["--recipe", name, *(word for option, file in files.items() if file for word in (option, file)), *sets]
    return Point(fields=dict(fields), recipes=recipes, word_vectors=vectors, options=tuple(options))
