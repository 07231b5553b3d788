"""Updates a second at printed sizes, ours beside stock parts: Lin et al.'s and Deudon's models, DSSM and CLSM.

    CLICKTOWER_DATA=/path/to/data python benchmarks/printed_sizes.py [--json] [--record] [--repeats 5]

Real questions (question_pairs), for lin-yelp the first of each pair; a whole update, from texts as index arrays to the
new parameters, of the recipes as they are but for dropout, on one thread. Words have vectors of their own. The stock
model is classifiers_speed's (nn.LSTM on packed sequences, autograd) with torch's fused optimisers; W's rows are sparse.
Losses and gradients are compared before anything is timed. Ours adds up exactly, stock in floating point.

DSSM and CLSM are Palangi et al.'s, with the recipes' minibatch, on real clicked pairs (homedepot); stock parts step
W without momentum (peers.stock_training).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import nn, optim

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.classifiers_speed import CLASSES, without_repeats  # noqa: E402
from benchmarks.peers.stock_bags import StockBag  # noqa: E402
from benchmarks.peers.stock_bilstm import Tensors, stock_texts  # noqa: E402
from benchmarks.peers.stock_classifiers import StockClassifier  # noqa: E402
from benchmarks.peers.stock_training import StockTraining  # noqa: E402
from benchmarks.real_pairs import read_pairs  # noqa: E402
from benchmarks.real_questions import QuestionPair, read_question_pairs  # noqa: E402
from benchmarks.speed.agreement import COMPARED_STEP, Parts, Trainee, reference_gradient, require_agreement  # noqa: E402
from benchmarks.speed.contest import in_turns, rounded  # noqa: E402
from benchmarks.speed.step import figures, repeated, require_same, rows_of, run, step_arguments, tell  # noqa: E402
from benchmarks.speed.trainer import Trainer  # noqa: E402
from benchmarks.speed.variants import MOMENTUM, start_of  # noqa: E402
from benchmarks.training import NUM_NEGATIVES, entrant, num_pairs  # noqa: E402
from clicktower.schemas.section import changed  # noqa: E402
from clicktower.training.model.parameters import Layout, layout_of  # noqa: E402
from clicktower.training.model.recipe import Nesterov, Recipe  # noqa: E402
from clicktower.training.model.recipe import recipe as named_recipe  # noqa: E402
from clicktower.training.model.recipe_kinds import SGD  # noqa: E402
from clicktower.training.towers.text_table import Ragged, TextTable, WordRows, list_offsets  # noqa: E402
from clicktower.training.towers.tower_kinds import CLSM  # noqa: E402
from clicktower.training.trainer.classify import batch as batch_of  # noqa: E402
from clicktower.training.trainer.classify import classify_task  # noqa: E402
from clicktower.training.trainer.job import arithmetic_of  # noqa: E402
from clicktower.training.trainer.labelled_shards import LabelledShard, LabelledShards  # noqa: E402
from clicktower.training.trainer.large_update import Towers, Workers, WorkerShare, large_update  # noqa: E402
from clicktower.training.trainer.optimisers import MomentumSchedule, start_state  # noqa: E402
from clicktower.training.trainer.reference_path import ReferencePath  # noqa: E402
from clicktower.training.trainer.shard_data import MicroBatch, Order, ShardData, pair_lengths  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "printed_sizes.json"
RECIPES = {
    name: changed(named_recipe(name), {"objective.dropout": 0.0})
    for name in ("lin-yelp", "lin-max", "lin-snli", "deudon")
}

CLICK_RECIPES = "paper-dssm", "paper-clsm-1", "paper-clsm-3", "paper-clsm-5"


class Bench:
    """A recipe's model twice. The stock one has torch's start; ours is made from it."""

    def __init__(self, pairs: Sequence[QuestionPair], recipe: Recipe) -> None:
        torch.manual_seed(1)
        torch.sparse.check_sparse_tensor_invariants.disable()  # or torch warns of what its own AdaGrad makes
        self.recipe, self.shards = recipe, _shards(pairs, recipe)
        (self.shard,), self.task = self.shards.train, classify_task(self.shards, recipe)
        num_words, self.updates = self.shards.word_rows.trigram_rows, 0
        self.stock_model = StockClassifier(recipe, num_words, recipe.word_vectors.columns, len(CLASSES))
        self.layout = Layout(recipe=recipe, word_rows=self.task.word_rows, outputs=self.task.outputs)
        encoder = self.stock_model.encoder
        matrix = self.layout.join(encoder.bag.weight.detach(), self._parts(_values(self.stock_model)))
        self.towers = Towers(
            layout=self.layout,
            rows={"shared": start_state(recipe, matrix)},
            schedule=MomentumSchedule(0.9, 0.9, 1 << 20),
            path=ReferencePath(batch_of=batch_of),
        )
        words = [encoder.bag.weight]
        others = [parameter for parameter in self.stock_model.parameters() if parameter is not words[0]]
        step = recipe.optimiser.step
        if isinstance(recipe.optimiser, SGD):  # L2 by the optimiser's own decay, where its gradient costs nothing
            head = [self.stock_model.hidden.weight, self.stock_model.out.weight]
            others = [parameter for parameter in others if all(parameter is not weights for weights in head)]
            decayed = {"params": head, "weight_decay": 2 * recipe.objective.l2 * recipe.minibatch}
            self.optimisers = [optim.SGD(words, step), optim.SGD([{"params": others}, decayed], step, fused=True)]
        elif recipe.optimiser.kind == "adagrad":
            self.optimisers = [optim.Adagrad(words, step), optim.Adagrad(others, step, fused=True)]
        else:
            self.optimisers = [optim.SparseAdam(words, step), optim.Adam(others, step, fused=True)]

    def ours(self, rows: np.ndarray) -> None:
        """An update by the examples `rows`."""
        batches = np.split(rows, range(self.recipe.micro_batch, len(rows), self.recipe.micro_batch))
        share = [batch_of(self.task.examples(MicroBatch(0, batch, 0), 0)) for batch in batches]
        self.updates += 1
        large_update(self.towers, WorkerShare(share, self.updates, len(share), Workers()))

    def stock_gradient(self, rows: np.ndarray) -> float:
        """The loss of the examples `rows`; its gradients are in the parameters."""
        sides = [side[rows] for side in self.shard.sides]
        labels = torch.from_numpy(self.shard.labels[rows].astype(np.int64))
        return self.stock_model.gradient([stock_texts(self.shard.texts, np.concatenate(sides))], labels)

    def stock(self, rows: np.ndarray) -> None:
        """An update by the examples `rows`."""
        if isinstance(self.recipe.optimiser, SGD):
            self.stock_model.l2 = 0
        self.stock_gradient(rows)
        if isinstance(self.recipe.optimiser, SGD):
            dense = [p for p in self.stock_model.parameters() if p is not self.stock_model.encoder.bag.weight]
            nn.utils.clip_grad_value_(dense, self.recipe.optimiser.clip_value)
        for optimiser in self.optimisers:
            optimiser.step()

    def agreement(self, rows: np.ndarray) -> float:
        """The largest relative error of loss and gradients between ours and the peer; SystemExit beyond TOLERANCE."""
        batch = batch_of(self.task.examples(MicroBatch(0, rows, 0), 0))
        ((_, gradient),), loss = batch.gradient(self.towers.look_ahead(1), 1)
        their_loss = self.stock_gradient(rows)
        found = {name: value.grad for name, value in self.stock_model.named_parameters()}
        words = self.stock_model.encoder.bag.weight.grad.to_dense()[batch.texts.rows]
        expected = {"words": words, **self._parts(found)}
        return require_same(
            "stock", (loss.item(), {"words": gradient.table_RG, **gradient.parts}), (their_loss, expected)
        )

    def _parts(self, values: Tensors) -> Tensors:
        encoder = {name.removeprefix("encoder.lstm."): value for name, value in values.items()}
        return {"W_in": self.stock_model.encoder.input_weights(encoder), **self.stock_model.parts(values)}


def _values(model: nn.Module) -> Tensors:
    return {name: value.detach() for name, value in model.named_parameters()}


def _shards(pairs: Sequence[QuestionPair], recipe: Recipe) -> LabelledShards:
    """The questions as texts whose words have a row each."""
    unit = "texts" if recipe.objective.features.kind == "plain" else "pairs"
    texts = [text.lower().split() for pair in pairs for text in (pair.first, pair.second)]
    number: dict[str, int] = {}
    words = np.array([number.setdefault(word, len(number)) for text in texts for word in text])
    rows = Ragged(np.arange(len(number) + 1), np.arange(len(number)))
    first = np.arange(0, len(texts), 2, dtype=np.int32)
    shard = LabelledShard(
        texts=TextTable(Ragged(list_offsets(np.array(list(map(len, texts)))), words), rows),
        strings=pa.chunked_array([[" ".join(text) for text in texts]]),
        sides=(first, first + 1) if unit == "pairs" else (first,),
        labels=np.array([CLASSES.index(pair.label) for pair in pairs], np.int32),
    )
    return LabelledShards(
        train=(shard,), dev=(), train_names=("train",), unit=unit, classes=CLASSES, word_rows=WordRows(len(number))
    )


def measure(options: argparse.Namespace, data: Path) -> dict:
    """What is printed."""
    pairs = without_repeats(read_question_pairs(data))[:4096]
    found = {}
    for name, recipe in RECIPES.items():
        tell(name)
        drawn = np.random.default_rng(1).permutation(len(pairs))
        rounds = np.split(drawn[: options.repeats * recipe.minibatch], options.repeats)
        error = Bench(pairs, recipe).agreement(rounds[0][: recipe.micro_batch])
        bench = Bench(pairs, recipe)
        entrants = {"ours": repeated(bench.ours), "stock": repeated(bench.stock)}
        found[name] = figures(in_turns(entrants, rounds, len, seconds=options.seconds, tell=tell), error)
        found[name]["parameters"] = bench.layout.rows * bench.layout.columns
        found[name]["words_of_a_text"] = rounded(float(bench.shard.texts.words.lengths.mean()))
    return {"recipes": found | _measure_clicks(options, data)}


def _measure_clicks(options: argparse.Namespace, folder: Path) -> dict:
    """The figures of DSSM and CLSM."""
    data, result = read_pairs(folder, NUM_NEGATIVES), {}
    for name in CLICK_RECIPES:
        tell(name)
        recipe = named_recipe(name)
        lengths = [pair_lengths(data.train[0])]
        order = Order(lengths=lengths, micro_batch=recipe.micro_batch, minibatch=recipe.minibatch, seed=recipe.seed)
        rounds = [[minibatch] for minibatch in order.epoch(0)[: options.repeats]]
        layout, start = layout_of(recipe, data.word_rows.trigram_rows), start_of(recipe, data.word_rows.trigram_rows)
        error = click_agreement(recipe, start, data, rounds[0][0])
        trainees = _click_trainees(recipe, start, data, recipe.optimiser.step, MOMENTUM)
        entrants = {name: entrant(trainee) for name, trainee in trainees.items()}
        result[name] = figures(in_turns(entrants, rounds, num_pairs, seconds=options.seconds, tell=tell), error)
        result[name]["parameters"] = len(start) * layout.rows * layout.columns
        for trainee in trainees.values():
            trainee.close()
    return result


def click_agreement(recipe: Recipe, start: Parts, data: ShardData, minibatch: Sequence[MicroBatch]) -> float:
    """The largest relative error of both first updates, from the reference in float64; SystemExit beyond TOLERANCE."""
    loss, gradient = reference_gradient(start, minibatch, data, layout_of(recipe, data.word_rows.trigram_rows))
    errors = []
    for name, trainee in _click_trainees(recipe, start, data, COMPARED_STEP, 0.0).items():
        errors.append(require_agreement(name, trainee, start, minibatch, loss, gradient))
        trainee.close()
    return max(errors)


def _click_trainees(recipe: Recipe, start: Parts, data: ShardData, step: float, momentum: float) -> dict[str, Trainee]:
    ours = replace(recipe, optimiser=Nesterov(step=step, momentum_edge=momentum, momentum_middle=momentum))
    window = recipe.tower.window if isinstance(recipe.tower, CLSM) else 0
    towers = {side: StockBag(parts, window) for side, parts in start.items()}
    return {
        "ours": Trainer(ours, start, data, arithmetic=arithmetic_of("auto", recipe, "cpu"), threads=1),
        "stock": StockTraining(towers, data, gamma=recipe.clicks.gamma, step=step, momentum=momentum, threads=1),
    }


def table(result: dict) -> str:
    return "\n\n".join("\n".join([name, *rows_of(found, "examples")]) for name, found in result["recipes"].items())


def main() -> None:
    run(step_arguments(__doc__, RESULT), measure, table, RESULT)


if __name__ == "__main__":
    main()
