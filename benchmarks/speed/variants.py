"""What takes part: the trainer on its paths and with its options, and the arrangements of stock parts."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch

from benchmarks.peers.stock_towers import Arrangement, StockTower, Where, small_gradient, small_start
from benchmarks.peers.stock_training import StockTraining
from benchmarks.speed.agreement import COMPARED_STEP, Parts, Trainee, parts_of, reference_gradient, require_agreement
from benchmarks.speed.contest import Tell
from benchmarks.speed.trainer import Trainer
from clicktower.schemas.section import changed
from clicktower.training.model.kernel_towers import can_encode
from clicktower.training.model.objective_settings import Clicks, Fixed
from clicktower.training.model.parameters import CPU, Device, initial_parameters, layout_of
from clicktower.training.model.recipe import Nesterov, Recipe
from clicktower.training.towers.tower_settings import LSTM
from clicktower.training.trainer.job import arithmetic_of
from clicktower.training.trainer.shard_data import MicroBatch, ShardData

Kind = Literal["compiled", "reference", "stock", "other"]

# Trained for a few seconds only, so the step is small: no variant runs into texts that are learnt by heart.
STEP, MOMENTUM = 1e-4, 0.9
MICRO_BATCH = 512
SMALL_POOL = "shared negatives, a title for four pairs"

# The same model: what is written first, then what was found to be good; also the fastest, which has no library's cell.
_BUCKETS = {"three buckets": Arrangement(buckets=3), "a bucket for each length": Arrangement(buckets=0)}
_THREADS: tuple[tuple[Where, str], ...] = (("inside", ""), ("beside", ", a part for each thread"))
GOOD_ARRANGEMENTS = {
    f"nn.LSTM, sparse, {buckets}{threads}": replace(arrangement, threads=where)
    for buckets, arrangement in _BUCKETS.items()
    for where, threads in _THREADS
}
THREE_BUCKETS = [name for name in GOOD_ARRANGEMENTS if "three" in name]
GOOD_ARRANGEMENTS["no library cell: a loop over shrinking prefixes in autograd"] = Arrangement(
    cell="loop", threads="beside"
)
ARRANGEMENTS = {
    "nn.LSTM, dense, one padded batch": Arrangement(distinct_words=False, sparse=False),
    "nn.LSTM, sparse, packed": Arrangement(packed=True),
    **GOOD_ARRANGEMENTS,
}
# Not the same model: beside the others, never the `plain` of a ratio.
OTHERS = {"smaller model: nn.LSTM behind a bag of 96 columns": Arrangement(cell="small", buckets=0, threads="beside")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to train, from a start. What it must compute is what the reference does from `model`."""

    kind: Kind
    recipe: Recipe
    start: Parts  # its own parameters
    model: Parts  # what they come to as W, W_rec and b
    pull_back: Callable[[Parts], Parts]  # the gradient of its own parameters, from that of W, W_rec and b
    make: Callable[[float, float], Trainee]  # of step and momentum


def base_recipe(cells: int, minibatch: int) -> Recipe:
    """The paper's LSTM in two towers, with the pairs' own fixed negatives, so that all variants are given the same."""
    micro_batch = min(MICRO_BATCH, minibatch // 2)  # so that two threads have something to do
    return Recipe(name="lstm", tower=LSTM(cells=cells), objective=Clicks(negatives=Fixed()), minibatch=minibatch,
                  micro_batch=micro_batch)  # fmt: skip


def start_of(recipe: Recipe, table_rows: int) -> Parts:
    """Where a run of the recipe starts."""
    layout = layout_of(recipe, table_rows)
    return {tower: parts_of(initial_parameters(layout, tower), layout) for tower in recipe.objective.towers}


def trainers(recipe: Recipe, data: ShardData, *, threads: int, devices: dict[str, Device]) -> dict[str, Variant]:
    """The trainer's own variants on some devices, named by what a row is to begin with."""
    small = max(recipe.micro_batch // 4, recipe.clicks.num_negatives)
    options: dict[str, dict] = {
        "exact": {"reduction": "exact"},
        "fast": {"reduction": "fast"},
        "shared negatives": {"objective.negatives": "pool"},
        SMALL_POOL: {"objective.negatives": "pool", "objective.negatives.size": small},
        "full softmax over shared negatives": {"objective.negatives": "pool", "objective.negatives.softmax": True},
    }
    start = start_of(recipe, data.word_rows.trigram_rows)
    found = {}
    for place, device in devices.items():
        for option, changes in options.items():
            asked = changed(recipe, changes)
            kinds: list[Kind] = ["compiled"] if can_encode(asked) and device == CPU else []
            for kind in (*kinds, "reference"):
                make = partial(_trainer, asked, start, data, kind, threads, device)
                found[f"{place}{kind}, {option}"] = Variant(
                    kind=kind, recipe=asked, start=start, model=start, pull_back=lambda gradient: gradient, make=make
                )
    return found


def stock(recipe: Recipe, data: ShardData, *, threads: int, device: torch.device) -> dict[str, Variant]:
    """The arrangements of stock parts."""
    model = start_of(recipe, data.word_rows.trigram_rows)
    small = {side: small_start(parts, seed) for seed, (side, parts) in enumerate(model.items())}
    small_model = {side: parts | {"W": small[side]["bag"] @ small[side]["projection"]} for side, parts in model.items()}
    found = {}
    for name, arrangement in (ARRANGEMENTS | OTHERS).items():
        if device.type != "cpu" and arrangement.threads == "beside":
            arrangement, name = replace(arrangement, threads="inside"), name.partition(", a part")[0]
        is_small = arrangement.cell == "small"
        start = small if is_small else model
        found[name] = Variant(
            kind="other" if name in OTHERS else "stock",
            recipe=recipe,
            start=start,
            model=small_model if is_small else model,
            pull_back=partial(_small_gradient, small) if is_small else lambda gradient: gradient,
            make=partial(_stock_training, arrangement, start, data, recipe.clicks.gamma, threads, device),
        )
    return found


def compare(variants: dict[str, Variant], minibatch: list[MicroBatch], data: ShardData, tell: Tell) -> dict[str, float]:
    """Each variant's error against the reference. Raises SystemExit where one computes something else."""
    of, loss, gradient = None, 0.0, Parts()
    errors = {}
    for name, variant in variants.items():
        key = replace(variant.recipe, reduction="exact"), id(variant.model)
        if key != of:  # one at a time: each is 300 MB
            layout = layout_of(variant.recipe, data.word_rows.trigram_rows)
            loss, gradient = reference_gradient(variant.model, minibatch, data, layout)
            of = key
        trainee = variant.make(COMPARED_STEP, 0.0)
        own = variant.pull_back(gradient)
        errors[name] = require_agreement(name, trainee, variant.start, minibatch, loss, own)
        trainee.close()
        tell(f"{name}: off by {errors[name]:.1g}")
    return errors


def _trainer(
    recipe: Recipe,
    start: Parts,
    data: ShardData,
    kind: Kind,
    threads: int,
    device: Device,
    step: float,
    momentum: float,
) -> Trainer:
    name = ("cuda" if device.fused else "cuda-eager") if device.place.type == "cuda" else "cpu"
    arithmetic = arithmetic_of("compiled" if kind == "compiled" else "torch", recipe, name)
    recipe = replace(recipe, optimiser=Nesterov(step=step, momentum_edge=momentum, momentum_middle=momentum))
    return Trainer(recipe, start, data, arithmetic=arithmetic, threads=threads, device=device)


def _stock_training(
    arrangement: Arrangement,
    start: Parts,
    data: ShardData,
    gamma: float,
    threads: int,
    device: torch.device,
    step: float,
    momentum: float,
) -> StockTraining:
    towers = {side: StockTower(arrangement, parts).to(device) for side, parts in start.items()}
    return StockTraining(
        towers, data, gamma=gamma, step=step, momentum=momentum, threads=threads, where=arrangement.threads
    )


def _small_gradient(start: Parts, gradient: Parts) -> Parts:
    return {side: small_gradient(start[side], parts) for side, parts in gradient.items()}
