"""Texts a second through VAR-Siamese's generative step: ours beside nn.LSTM, nn.Linear, F.cross_entropy and autograd.

    CLICKTOWER_DATA=/path/to/data python benchmarks/generative.py [--json] [--record] [--repeats 5] [--texts 128]

Real questions (question_pairs), repeated: a bidirectional LSTM to μ and σ, a sample, an LSTM and a full softmax over
the vocabulary, loss and gradient of every parameter. From index arrays on: laying texts out counts, the optimizer's
step, the same for all, does not. One thread, as the trainer gives a micro-batch. Before anything is timed, losses and
gradients are compared; a peer that computes something else ends the benchmark. Peers take turns; a figure is the median
over the rounds, a ratio the median over rounds of two figures of one round.

    padded        stock parts, all positions through the softmax (ignore_index)
    real words    stock parts, only positions that have a word
    ours          training.generative and the variational tower

Every other process on the machine shows in the figures: run it on a quiet one.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.peers.stock_generative import Sizes, StockGenerative, StockTexts, Tensors  # noqa: E402
from benchmarks.real_pairs import table_of  # noqa: E402
from benchmarks.speed.contest import Entrant, in_turns, rounded  # noqa: E402
from schemas.text_columns import normalise_column  # noqa: E402
from training.generative.decoder import Decoder  # noqa: E402
from training.generative.objective import generative_gradient  # noqa: E402
from training.generative.targets import targets_of  # noqa: E402
from training.generative.vocabulary import vocabulary_of  # noqa: E402
from training.ragged import Ragged  # noqa: E402
from training.text_batch import TextTable, text_batch  # noqa: E402
from training.towers.bilstm import BidirectionalLSTM  # noqa: E402
from training.towers.lstm import LSTM  # noqa: E402
from training.towers.variational import Variational  # noqa: E402
from training.trigram_embedding import table_gradient, word_inputs  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "generative.json"
KAPPA, TOLERANCE = 0.5, 1e-4  # of each gradient's norm; float32 leaves some 1e-6
ARRANGEMENTS = ("padded", "real words")


class Bench:
    """The same model twice, and texts to repeat. The stock one has torch's start; ours is made from it."""

    def __init__(self, texts: Sequence[str], max_words: int, sizes: dict[str, int], seed: int = 1) -> None:
        torch.manual_seed(seed)
        vocabulary = vocabulary_of(texts, max_words)
        table = table_of(normalise_column(pa.array(texts, pa.string())))
        rows, trigrams = np.unique(table.trigrams.values, return_inverse=True)  # only those that occur
        self.texts = TextTable(table.words, Ragged(table.trigrams.offsets, trigrams))
        self.ids = vocabulary.ids(texts)
        self.sizes = Sizes(vocabulary=vocabulary.size, **sizes)
        stocks = {name: StockGenerative(self.sizes, len(rows), name) for name in ARRANGEMENTS}
        self.stocks, first = stocks, stocks[ARRANGEMENTS[0]]
        first.one_bias()
        for stock in stocks.values():
            stock.load_state_dict(first.state_dict())
        self.tower = Variational(BidirectionalLSTM(LSTM(self.sizes.cells, forget_gate=True)), self.sizes.latent)
        self.decoder = Decoder(self.sizes.latent, self.sizes.decoder_cells, vocabulary.size, self.sizes.word_columns)
        start = {name: value.detach() for name, value in first.named_parameters()}
        self.table_RG = first.bag.weight.detach() @ first.input_weights()
        self.tower_parts = {name: part.contiguous() for name, part in first.tower_parts(start).items()}
        self.decoder_parts = {name: part.contiguous() for name, part in first.decoder_parts(start).items()}
        self.noise = torch.randn(len(texts), self.sizes.latent)

    def ours(self, index: np.ndarray) -> tuple[float, Tensors]:
        """(the loss of the texts `index`, its gradients by the table, the tower's parts and the decoder's)."""
        batch = text_batch([(self.texts, index)])
        targets = targets_of(self.ids.take(index), self.sizes.vocabulary)
        word_UG = word_inputs(self.table_RG[batch.rows], batch)
        sorted_Nd, trace = self.tower.forward(word_UG, self.tower_parts, batch)
        vectors_Bd = torch.empty_like(sorted_Nd)
        vectors_Bd[batch.order] = sorted_Nd
        losses, by_vectors_Bd, by_decoder = generative_gradient(
            vectors_Bd, self.noise[index], targets, KAPPA, self.decoder, self.decoder_parts
        )
        by_word_UG, by_tower = self.tower.backward(trace, by_vectors_Bd[batch.order], self.tower_parts, batch)
        by_table_RG = table_gradient(by_word_UG, batch)
        loss = (losses.words_B + KAPPA * losses.divergence_B).sum().item()
        return loss, {"rows": batch.rows, "table": by_table_RG, **by_tower, **by_decoder}

    def stock(self, arrangement: str, index: np.ndarray) -> float:
        """The loss of the texts `index`; its gradients are in the parameters."""
        taken = self.texts.words.take(index)
        words, local = np.unique(taken.values, return_inverse=True)
        trigrams = self.texts.trigrams.take(words)
        lengths = taken.lengths
        at = taken.offsets[:-1, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
        said = self.ids.take(index)
        texts = StockTexts(
            torch.from_numpy(trigrams.values),
            torch.from_numpy(trigrams.offsets[:-1]),
            torch.from_numpy(local[at]),
            torch.from_numpy(lengths),
            list(torch.from_numpy(said.values).split(said.lengths.tolist())),
        )
        return self.stocks[arrangement].gradient(texts, self.noise[index], KAPPA)

    def agreement(self, arrangement: str, index: np.ndarray) -> float:
        """The largest relative error of loss and gradients between ours and a peer; SystemExit beyond TOLERANCE."""
        loss, found = self.ours(index)
        stock = self.stocks[arrangement]
        worst = abs(self.stock(arrangement, index) - loss) / abs(loss)
        theirs = {name: parameter.grad for name, parameter in stock.named_parameters()}
        bag = theirs["bag.weight"].to_dense()[found["rows"]]
        expected = {"bag": bag, **stock.tower_parts(theirs), **stock.decoder_parts(theirs)}
        found["bag"] = found["table"] @ stock.input_weights().T  # by the bag, through W = bag times that
        for name, values in expected.items():
            worst = max(worst, float(torch.linalg.norm(found[name] - values) / torch.linalg.norm(values)))
        if not worst <= TOLERANCE:
            raise SystemExit(f"{arrangement} and ours compute different things: off by {worst:.2g}")
        return worst

    def entrants(self) -> dict[str, Entrant]:
        """What takes turns: each does the loss and gradient of some texts so many times."""

        def ours(index: np.ndarray, passes: int) -> None:
            for _ in range(passes):
                self.ours(index)

        def stock(arrangement: str) -> Entrant:
            def work(index: np.ndarray, passes: int) -> None:
                for _ in range(passes):
                    self.stock(arrangement, index)

            return work

        return {"ours": ours, **{name: stock(name) for name in ARRANGEMENTS}}


def read_questions(data: Path) -> list[str]:
    """The distinct questions of the training pairs that have a word, in order of first appearance."""
    lines = (data / "question_pairs" / "train.tsv").read_text(encoding="utf-8").split("\n")
    found = dict.fromkeys(question for line in lines if line for question in line.split("\t")[1:3])
    return [question for question in found if question.strip()]


def measure(options: argparse.Namespace, data: Path) -> dict:
    """Everything that is printed, as one JSON object."""
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    sizes = {name: getattr(options, name) for name in ("cells", "latent", "decoder_cells", "word_columns")}
    bench = Bench(read_questions(data), options.max_words, sizes)
    drawn = np.random.default_rng(1).permutation(len(bench.texts))[: options.repeats * options.texts]
    rounds = np.split(drawn, options.repeats)
    error = max(bench.agreement(name, rounds[0]) for name in ARRANGEMENTS)
    rates = in_turns(
        bench.entrants(), rounds, len, seconds=options.seconds, tell=lambda told: print(told, file=sys.stderr)
    )
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **{f"ratio_to_{name.replace(' ', '_')}": rounded(rates["ours"].over(rates[name])) for name in ARRANGEMENTS},
        "error": error,
        "texts": options.texts,
        "words_of_a_text": rounded(float(bench.texts.words.lengths.mean())),
        "vocabulary": bench.sizes.vocabulary,
        **sizes,
        "kappa": KAPPA,
        "dtype": "float32",
        "threads": 1,
        "repeats": options.repeats,
        "variants": {name: rate.summary() for name, rate in rates.items()},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "load_before": round(load, 2)},
        "torch": torch.__version__,
    }


def table(result: dict) -> str:
    rows = [f"{'':<14}{'texts/s':>10}{'per core-second':>18}"]
    for name, row in result["variants"].items():
        rows.append(f"{name:<14}{row['per_second']:>10,}{row['per_second_of_processor']:>18,}")
    rows += [f"{name} = {value}" for name, value in result.items() if name.startswith("ratio_")]
    return "\n".join([*rows, f"largest relative error between them {result['error']:.0e}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="rounds; a figure is the median over them")
    parser.add_argument("--seconds", type=float, default=1.0, help="each is busy for at least about this a round")
    parser.add_argument("--texts", type=int, default=128, help="of a micro-batch")
    parser.add_argument("--max-words", type=int, default=8_000, help="of the vocabulary")
    parser.add_argument("--cells", type=int, default=128, help="of each direction of the encoder; the paper has 1,000")
    parser.add_argument("--latent", type=int, default=256, help="the paper has 1,000")
    parser.add_argument("--decoder-cells", type=int, default=256, help="the paper has 1,000")
    parser.add_argument("--word-columns", type=int, default=128, help="the paper has 300")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--record", action="store_true", help=f"also write it to {RESULT.relative_to(ROOT)}")
    options = parser.parse_args()
    if "CLICKTOWER_DATA" not in os.environ:
        raise SystemExit("set CLICKTOWER_DATA to the folder of real data (it has question_pairs/train.tsv)")
    result = measure(options, Path(os.environ["CLICKTOWER_DATA"]))
    if options.record:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
