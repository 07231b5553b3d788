"""Which of 537,088 questions ask the same: a question's vector, the nearest by W2, and the surest of those.

    CLICKTOWER_DATA=/path/to/data python benchmarks/duplicates.py --work /tmp/duplicates
        [--model store/train/DIGEST] [--questions 537088] [--asked 1000] [--record]

Deudon's VAR-Siamese retrieves duplicates among 537,088 questions in under a second. Here are the distinct questions of
question_pairs and, beyond those, simulated ones: real ones in which a seeded draw changes one to three words to others
of the collection. They are published to WORK/release by `publish`, with the given model or, as it is the time that is
measured, an untrained one of as many dimensions as `var-siamese` has. Questions changed in the same way are then asked,
so that they stand in the collection by chance only. Everything is of one thread, and the ways take turns question by
question, so that what else the machine does falls on all of them alike. With --record the run is kept in
benchmarks/results/duplicates.json.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import processor  # noqa: E402
from benchmarks.serving import in_turns, tell  # noqa: E402
from clicktower.flows.releases.publish import PublishConfig, publish  # noqa: E402
from clicktower.flows.releases.search import OpenRelease  # noqa: E402
from clicktower.schemas.manifest import Outcome, Request  # noqa: E402
from clicktower.schemas.stage import run_stage  # noqa: E402
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS, normalise, words  # noqa: E402
from clicktower.training.analysis.classifying import confidence_of  # noqa: E402
from clicktower.training.model.label_settings import MLP, Classify, W2Features  # noqa: E402
from clicktower.training.model.model import Model, write_model  # noqa: E402
from clicktower.training.model.parameters import Layout, Outputs, initial_parameters  # noqa: E402
from clicktower.training.model.recipe import Recipe  # noqa: E402
from clicktower.training.ranking.hybrid import Confidence  # noqa: E402
from clicktower.training.towers.text_table import WordRows  # noqa: E402
from clicktower.training.towers.tower_kinds import Variational  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "duplicates.json"
PUBLISHED = 537_088  # questions, in the paper
LIMIT_MS = 1_000
DEPTH, SHOWN = 100, 10


def read_questions(data: Path) -> list[str]:
    """The distinct questions of question_pairs, normalised, in order of first appearance."""
    lines = [line for split in ("train", "dev") for line in lines_of(data / "question_pairs" / f"{split}.tsv")]
    found = dict.fromkeys(normalise(text) for line in lines for text in line.split("\t")[1:])
    return [text for text in found if words(text)]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


class Changes:
    """Real questions with one to three words changed to others, drawn as often as they occur."""

    def __init__(self, questions: list[str], seed: int) -> None:
        self._cut = [question.split() for question in questions]
        self._words = np.array([word for of_question in self._cut for word in of_question])
        self._rng = np.random.default_rng(seed)

    def draw(self, number: int) -> list[str]:
        """So many of them; some may be the same, or as they were."""
        found = []
        for at in self._rng.integers(0, len(self._cut), number).tolist():
            changed = list(self._cut[at])
            for _ in range(int(self._rng.integers(1, 4))):
                changed[int(self._rng.integers(len(changed)))] = str(self._rng.choice(self._words))
            found.append(" ".join(changed))
        return found


def write_documents(path: Path, real: list[str], number: int) -> None:
    """The real questions, then simulated ones, each text once: `r` or `s` and a number, and the question."""
    changes, made = Changes(real, seed=0), dict.fromkeys(real)
    while len(made) < number:
        made |= dict.fromkeys(changes.draw(min(50_000, number - len(made))))
    rows = (f"{'r' if row < len(real) else 's'}{row:06d}\t{text}\n" for row, text in enumerate(list(made)[:number]))
    path.write_text("".join(rows), encoding="utf-8")


def untrained(store: str) -> str:
    """A model with the numbers that training would begin with: its answers mean nothing, and take as long."""
    asked = Recipe(
        name="untrained",
        tower=Variational(cells=48, latent=96),
        objective=Classify(features=W2Features(), head=MLP(units=1_000)),
    )

    def produce(folder: str) -> Outcome:
        outputs = Outputs(unit="pairs", classes=("0", "1"))
        layout = Layout(recipe=asked, word_rows=WordRows(DEFAULT_TABLE_ROWS), outputs=outputs)
        towers = {name: initial_parameters(layout, name) for name in asked.objective.towers}
        write_model(folder, Model.of(layout, towers))
        return Outcome()

    request = Request(stage="train", stage_version=1, config={"recipe": asked.name}, inputs={})
    return run_stage(store, request, produce).folder


class BruteForce:
    """The nearest by plain NumPy: one matrix product, the largest keys, and their vectors' distances."""

    def __init__(self, vectors_ND: np.ndarray) -> None:
        self._vectors_ND = vectors_ND
        self._half_square_N = (vectors_ND**2).sum(axis=1) / 2

    def best(self, query_D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(vectors, distances) of the nearest."""
        keys = self._vectors_ND @ query_D - self._half_square_N
        nearest = self._vectors_ND[np.argpartition(keys, len(keys) - DEPTH)[len(keys) - DEPTH :]]
        return nearest, np.linalg.norm(nearest - query_D, axis=1)


def measure(opened: OpenRelease, questions: list[str], confidence: Confidence) -> dict[str, Any]:
    """Whole answers, and their parts, in turns."""
    started = time.perf_counter()
    opened.load()
    found: dict[str, Any] = {"open_seconds": round(time.perf_counter() - started, 1)}
    search = opened.documents_search
    brute_force = BruteForce(search.vectors_of(np.arange(len(opened.ids))))
    asked = [(opened.vector(question), question) for question in questions]
    nearest = {question: search.vectors_of(search.best(query, DEPTH)[0][:DEPTH]) for query, question in asked}

    def again(query_D: np.ndarray, candidates_KD: np.ndarray) -> np.ndarray:
        return confidence(np.broadcast_to(query_D, candidates_KD.shape), candidates_KD)

    def by_brute_force(query_D: np.ndarray) -> np.ndarray:
        return np.argsort(-again(query_D, brute_force.best(query_D)[0]))[:SHOWN]

    tell("whole answers: vector, nearest, surest")
    whole: dict[str, Callable[[str], Any]] = {
        "ours": lambda question: opened.rerank(question, SHOWN, confidence, depth=DEPTH),
        "NumPy, all compared": lambda question: by_brute_force(opened.vector(question)),
    }
    found["answer"], _ = in_turns(whole, questions)
    tell("the parts")
    found["embedding"], _ = in_turns({"ours": opened.vector}, questions)
    by_vector: dict[str, Callable[[Any], np.ndarray]] = {
        "ours": lambda pair: np.sort(-search.best(pair[0], DEPTH)[1])[:DEPTH],
        "ours, all compared": lambda pair: np.sort(-search.exact(pair[0], DEPTH)[1])[:DEPTH],
        "NumPy, all compared": lambda pair: np.sort(brute_force.best(pair[0])[1]),
    }
    found["nearest"], answers = in_turns(by_vector, asked)
    exact = np.array(answers["ours, all compared"])
    worst = float(np.abs(np.array(answers["NumPy, all compared"]) - exact).max())
    if worst > 1e-3:
        raise SystemExit(f"NumPy finds other distances: they differ by up to {worst:.2g}")
    shares = [(ours <= limit).mean() for ours, limit in zip(answers["ours"], exact[:, -1], strict=True)]
    found["nearest"]["ours"]["recall_at_100"] = round(float(np.mean(shares)), 4)
    found["surest"], _ = in_turns({"ours": lambda pair: again(pair[0], nearest[pair[1]])}, asked)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True)
    parser.add_argument("--model")
    parser.add_argument("--questions", type=int, default=PUBLISHED)
    parser.add_argument("--asked", type=int, default=1_000)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    work, real = Path(given.work), read_questions(Path(os.environ["CLICKTOWER_DATA"]))
    work.mkdir(parents=True, exist_ok=True)
    documents = work / f"questions-{given.questions}.tsv"
    if not documents.exists():
        tell(f"writing {given.questions:,} questions, {len(real):,} of them real")
        write_documents(documents, real, given.questions)
    tell("publishing")
    model = given.model or untrained(str(work / "store"))
    started = time.perf_counter()
    config = PublishConfig(recall_at=SHOWN)
    made = publish(model, documents=str(documents), to=str(work / "release"), config=config)
    opened, index = OpenRelease(made.uri), made.release.index
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{processor()}, one of {len(os.sched_getaffinity(0))} cores",
        "load_at_start": round(os.getloadavg()[0], 1),
        "questions": opened.release.num_documents,
        "real_questions": min(len(real), given.questions),
        "model": "given" if given.model else "untrained",
        "dimensions": opened.release.dimensions,
        "publish": {
            "seconds": round(time.perf_counter() - started, 1),
            "reused": made.reused,
            "index": {name: index[name] for name in ("kind", "recall", "steps") if name in index},
        },
        "asked": given.asked,
        "limit_ms": LIMIT_MS,
    }
    confidence = confidence_of(opened.encoder)
    result |= measure(opened, Changes(real, seed=1).draw(given.asked), confidence)
    result["load_at_end"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result, indent=1))
    if given.record:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
