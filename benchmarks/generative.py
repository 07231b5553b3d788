"""Texts a second through VAR-Siamese's generative step: ours beside nn.LSTM, nn.Linear, F.cross_entropy and autograd.

    CLICKTOWER_DATA=/path/to/data python benchmarks/generative.py [--json] [--record] [--repeats 5] [--texts 128]

Real questions (question_pairs), repeated: a bidirectional LSTM to μ and σ, a sample, an LSTM and a full softmax over
the vocabulary, loss and gradient of every parameter. From index arrays on: laying texts out counts, the optimizer's
step, the same for all, does not. One thread, as the trainer gives a micro-batch. Before anything is timed, losses and
gradients are compared; a peer that computes something else ends the benchmark. Peers take turns; a figure is the median
over the rounds, a ratio the median over rounds of two figures of one round.

    padded        stock parts, all positions through the softmax (ignore_index)
    real words    stock parts, only positions that have a word
    ours          training.model.decoder and the variational tower

Every other process on the machine shows in the figures: run it on a quiet one.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.peers.stock_bilstm import Tensors, stock_texts  # noqa: E402
from benchmarks.peers.stock_generative import Sizes, StockGenerative  # noqa: E402
from benchmarks.real_questions import occurring_rows, read_questions  # noqa: E402
from benchmarks.speed.contest import Entrant, in_turns, rounded  # noqa: E402
from benchmarks.speed.step import figures, repeated, require_same, rows_of, run, step_arguments, tell  # noqa: E402
from clicktower.training.model.decoder import FIRST_WORD, Decoder, targets_of, vocabulary_of, word_ids  # noqa: E402
from clicktower.training.towers.bilstm import VariationalTower  # noqa: E402
from clicktower.training.towers.text_batch import text_batch  # noqa: E402
from clicktower.training.towers.tower import word_inputs  # noqa: E402
from clicktower.training.towers.tower_kinds import Variational  # noqa: E402
from clicktower.training.trainer.generate import RephrasingBatch  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "generative.json"
KAPPA = 0.5
ARRANGEMENTS = ("padded", "real words")


class Bench:
    """The same model twice, and texts to repeat. The stock one has torch's start; ours is made from it."""

    def __init__(self, texts: Sequence[str], max_words: int, sizes: dict[str, int], seed: int = 1) -> None:
        torch.manual_seed(seed)
        vocabulary = vocabulary_of(texts, max_words)
        self.texts, num_rows = occurring_rows(texts)
        self.ids = word_ids(texts, vocabulary)
        self.sizes = Sizes(vocabulary=FIRST_WORD + len(vocabulary), **sizes)
        stocks = {name: StockGenerative(self.sizes, num_rows, name) for name in ARRANGEMENTS}
        self.stocks, first = stocks, stocks[ARRANGEMENTS[0]]
        for stock in stocks.values():
            stock.load_state_dict(first.state_dict())
        self.tower = VariationalTower(Variational(cells=self.sizes.cells, latent=self.sizes.latent, forget_gate=True))
        self.decoder = Decoder(
            self.sizes.latent, self.sizes.decoder_cells, self.sizes.vocabulary, self.sizes.word_columns
        )
        start = {name: value.detach() for name, value in first.named_parameters()}
        self.table_RG = first.encoder.table()
        self.tower_parts = {name: part.contiguous() for name, part in first.tower_parts(start).items()}
        self.decoder_parts = {name: part.contiguous() for name, part in first.decoder_parts(start).items()}
        self.noise = torch.randn(len(texts), self.sizes.latent)

    def ours(self, index: np.ndarray) -> tuple[float, Tensors]:
        """(the loss of the texts `index`, its gradients by the table, the tower's parts and the decoder's)."""
        batch = text_batch([(self.texts, index)])
        made = RephrasingBatch(
            texts=batch,
            targets=targets_of(self.ids.take(index), self.sizes.vocabulary),
            noise_Bh=self.noise[index],
            decoder=self.decoder,
        )
        at = {"table": self.table_RG[batch.rows], **self.tower_parts, **self.decoder_parts}
        leaves = {name: values.detach().requires_grad_() for name, values in at.items()}
        sorted_Nd, _ = self.tower.forward(word_inputs(leaves["table"], batch), leaves, batch)
        vectors_Bd = torch.empty_like(sorted_Nd).index_copy(0, batch.order, sorted_Nd)
        words, divergence = made.losses(vectors_Bd, leaves)
        loss = words + KAPPA * divergence
        found = torch.autograd.grad(loss, list(leaves.values()))
        return loss.item(), {"rows": batch.rows, **dict(zip(leaves, found, strict=True))}

    def stock(self, arrangement: str, index: np.ndarray) -> float:
        """The loss of the texts `index`; its gradients are in the parameters."""
        ids = self.ids.take(index)
        said = list(torch.from_numpy(ids.values).split(ids.lengths.tolist()))
        return self.stocks[arrangement].gradient(stock_texts(self.texts, index), said, self.noise[index], KAPPA)

    def agreement(self, arrangement: str, index: np.ndarray) -> float:
        """The largest relative error of loss and gradients between ours and a peer; SystemExit beyond TOLERANCE."""
        loss, found = self.ours(index)
        stock, rows = self.stocks[arrangement], found["rows"]
        their_loss = self.stock(arrangement, index)
        theirs = {name: parameter.grad for name, parameter in stock.named_parameters()}
        expected = {**stock.encoder.of_autograd(rows), **stock.tower_parts(theirs), **stock.decoder_parts(theirs)}
        found |= stock.encoder.of_table(rows, found["table"])
        return require_same(arrangement, (loss, found), (their_loss, expected))

    def entrants(self) -> dict[str, Entrant]:
        """What takes turns."""
        stocks = {name: repeated(partial(self.stock, name)) for name in ARRANGEMENTS}
        return {"ours": repeated(self.ours), **stocks}


def measure(options: argparse.Namespace, data: Path) -> dict:
    """What is printed."""
    sizes = {name: getattr(options, name) for name in ("cells", "latent", "decoder_cells", "word_columns")}
    bench = Bench(read_questions(data), options.max_words, sizes)
    drawn = np.random.default_rng(1).permutation(len(bench.texts))[: options.repeats * options.texts]
    rounds = np.split(drawn, options.repeats)
    error = max(bench.agreement(name, rounds[0]) for name in ARRANGEMENTS)
    return {
        **figures(in_turns(bench.entrants(), rounds, len, seconds=options.seconds, tell=tell), error),
        "texts": options.texts,
        "words_of_a_text": rounded(float(bench.texts.words.lengths.mean())),
        "vocabulary": bench.sizes.vocabulary,
        **sizes,
        "kappa": KAPPA,
    }


def table(result: dict) -> str:
    return "\n".join(rows_of(result, "texts"))


def main() -> None:
    parser = step_arguments(__doc__, RESULT)
    parser.add_argument("--texts", type=int, default=128, help="of a micro-batch")
    parser.add_argument("--max-words", type=int, default=8_000, help="of the vocabulary")
    parser.add_argument("--cells", type=int, default=128, help="of each direction of the encoder; the paper has 1,000")
    parser.add_argument("--latent", type=int, default=256, help="the paper has 1,000")
    parser.add_argument("--decoder-cells", type=int, default=256, help="the paper has 1,000")
    run(parser, measure, table, RESULT)


if __name__ == "__main__":
    main()
