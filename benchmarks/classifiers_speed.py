"""Labelled pairs a second through a step of learning: ours beside nn.LSTM, nn.Linear, F.cross_entropy and autograd.

    CLICKTOWER_DATA=/path/to/data python benchmarks/classifiers_speed.py [--json] [--record] [--repeats 5] [--pairs 128]

Real question pairs (question_pairs) by training.model.recipe, of VAR-Siamese the half that learns
labels: loss and gradient of every parameter of one micro-batch, from pairs as index arrays on. Laying texts out counts,
the optimizer's step does not. Sizes are the recipes', dropout is off. One thread, as the trainer gives a micro-batch.
Before anything is timed, losses and gradients are compared; a peer that computes something else ends the benchmark.
Peers take turns; a figure is the median over the rounds, a ratio the median over rounds of two figures of one round.

    each side     stock parts, the encoder once for first questions and once for second ones
    both sides    stock parts, the encoder once for all questions
    ours          LabelledBatch.gradient of training.trainer.classify

No question stands in two pairs, so encoding a text once for several pairs, as ours does, gains nothing here.

Every other process on the machine shows in the figures: run it on a quiet one.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.peers.stock_bilstm import Tensors, stock_texts  # noqa: E402
from benchmarks.peers.stock_classifiers import StockClassifier  # noqa: E402
from benchmarks.real_questions import QuestionPair, occurring_rows, read_question_pairs  # noqa: E402
from benchmarks.speed.contest import Entrant, in_turns, rounded  # noqa: E402
from benchmarks.speed.step import figures, repeated, require_same, rows_of, run, step_arguments, tell  # noqa: E402
from clicktower.schemas.section import changed  # noqa: E402
from clicktower.training.model.parameters import Encoder, Layout  # noqa: E402
from clicktower.training.model.recipe import Recipe  # noqa: E402
from clicktower.training.model.recipe import recipe as named_recipe  # noqa: E402
from clicktower.training.towers.text_table import WordRows  # noqa: E402
from clicktower.training.trainer.classify import batch as batch_of  # noqa: E402
from clicktower.training.trainer.classify import classify_task  # noqa: E402
from clicktower.training.trainer.labelled_shards import LabelledShard, LabelledShards  # noqa: E402
from clicktower.training.trainer.shard_data import MicroBatch  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "classifiers_speed.json"
CLASSES = ("0", "1")
RECIPES = {
    named.name: changed(named, {"objective.dropout": 0.0})
    for named in map(named_recipe, ("siamese-lstm", "siamese-max", "gated-attention", "var-siamese"))
}
ARRANGEMENTS = ("each side", "both sides")


class Questions:
    """Labelled pairs as a shard, each text in one pair."""

    def __init__(self, pairs: Sequence[QuestionPair]) -> None:
        texts = [text for pair in pairs for text in (pair.first, pair.second)]
        table, num_rows = occurring_rows(texts)
        first = np.arange(0, len(texts), 2, dtype=np.int32)
        labels = np.array([CLASSES.index(pair.label) for pair in pairs], np.int32)
        self.shard = LabelledShard(
            texts=table, strings=pa.chunked_array([texts]), sides=(first, first + 1), labels=labels
        )
        self.shards = LabelledShards(
            train=(self.shard,),
            dev=(),
            train_names=("train",),
            unit="pairs",
            classes=CLASSES,
            word_rows=WordRows(num_rows),
        )


class Bench:
    """A recipe's model twice. The stock one has torch's start; ours is made from it."""

    def __init__(self, questions: Questions, recipe: Recipe, word_columns: int, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.shard, self.task = questions.shard, classify_task(questions.shards, recipe)
        num_rows = questions.shards.word_rows.trigram_rows
        self.stock_model = StockClassifier(recipe, num_rows, word_columns, len(CLASSES))
        self.layout = Layout(recipe=recipe, word_rows=self.task.word_rows, outputs=self.task.outputs)
        start = {name: value.detach() for name, value in self.stock_model.named_parameters()}
        matrix = self.layout.join(self.stock_model.encoder.table(), self.stock_model.parts(start))
        self.encoder = Encoder.of(self.layout, {"shared": matrix})

    def ours(self, rows: np.ndarray) -> tuple[float, torch.Tensor, Tensors]:
        """(the loss of the pairs `rows`, the rows of W they touch, gradients of these and of all parts)."""
        examples = self.task.examples(MicroBatch(0, rows, 0), 0)
        batch = batch_of(examples)
        ((_, gradient),), loss = batch.gradient(self.encoder, 1)
        return loss.item(), batch.texts.rows, {"table": gradient.table_RG, **gradient.parts}

    def stock(self, arrangement: str, rows: np.ndarray) -> float:
        """The loss of the pairs `rows`; its gradients are in the parameters."""
        sides = [side[rows] for side in self.shard.sides]
        together = sides if arrangement == "each side" else [np.concatenate(sides)]
        labels = torch.from_numpy(self.shard.labels[rows].astype(np.int64))
        return self.stock_model.gradient([stock_texts(self.shard.texts, index) for index in together], labels)

    def agreement(self, arrangement: str, rows: np.ndarray) -> float:
        """The largest relative error of loss and gradients between ours and a peer; SystemExit beyond TOLERANCE."""
        loss, touched, found = self.ours(rows)
        stock = self.stock_model
        their_loss = self.stock(arrangement, rows)
        theirs = stock.parts({name: parameter.grad for name, parameter in stock.named_parameters()})
        expected = {**stock.encoder.of_autograd(touched), **theirs}
        found |= stock.encoder.of_table(touched, found["table"])
        return require_same(arrangement, (loss, found), (their_loss, expected))

    def entrants(self) -> dict[str, Entrant]:
        """What takes turns."""
        stocks = {name: repeated(partial(self.stock, name)) for name in ARRANGEMENTS}
        return {"ours": repeated(self.ours), **stocks}


def without_repeats(pairs: Iterable[QuestionPair]) -> list[QuestionPair]:
    """The pairs of two questions neither of which stood in an earlier one that was taken."""
    seen: set[str] = set()
    found = []
    for pair in pairs:
        both = {pair.first, pair.second}
        if len(both) == 2 and not both & seen:
            seen |= both
            found.append(pair)
    return found


def measure(options: argparse.Namespace, data: Path) -> dict:
    """What is printed."""
    questions = Questions(without_repeats(read_question_pairs(data)))
    drawn = np.random.default_rng(1).permutation(len(questions.shard))[: options.repeats * options.pairs]
    rounds = np.split(drawn, options.repeats)
    found = {}
    for name, recipe in RECIPES.items():
        tell(name)
        bench = Bench(questions, recipe, options.word_columns)
        error = max(bench.agreement(arrangement, rounds[0]) for arrangement in ARRANGEMENTS)
        found[name] = figures(in_turns(bench.entrants(), rounds, len, seconds=options.seconds, tell=tell), error)
    return {
        "recipes": found,
        "pairs": options.pairs,
        "words_of_a_text": rounded(float(questions.shard.texts.words.lengths.mean())),
        "word_columns": options.word_columns,
    }


def table(result: dict) -> str:
    return "\n\n".join("\n".join([name, *rows_of(found, "pairs")]) for name, found in result["recipes"].items())


def main() -> None:
    parser = step_arguments(__doc__, RESULT)
    parser.add_argument("--pairs", type=int, default=128, help="of a micro-batch")
    run(parser, measure, table, RESULT)


if __name__ == "__main__":
    main()
