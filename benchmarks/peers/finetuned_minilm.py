"""The same transformer as minilm.py, fine-tuned on clicks: what a user would otherwise do, and a teacher for towers.

    python benchmarks/peers/finetuned_minilm.py --model FOLDER --shards store/build/DIGEST --into FINE_TUNED \\
        [--texts texts.parquet --vectors vectors.parquet]
    python benchmarks/peers/minilm.py --model FINE_TUNED ...                     how it ranks

Runs in an environment of its own, which has torch and sentence-transformers: they are no dependency of this project.
One epoch of the pairs that towers train on, those of the shards without their held-out queries, in minibatches of 64,
softmax over their titles at temperature 1/20, AdamW with a step of 5e-5 that rises over the first tenth and falls to
zero, 64 word pieces at most, matrix products in bfloat16. With --texts, as `clicktower texts` wrote them, their vectors
are written for `train --teacher`. Prints one JSON object.
"""

import argparse
import json
import random
import resource
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer

PAIRS, STEP, SCALE, MAX_PIECES = 64, 5e-5, 20, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "shards", "into"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts")
    parser.add_argument("--vectors")
    options = parser.parse_args()
    pairs = [pair for shard in sorted(Path(options.shards).glob("*/train-*")) for pair in pairs_of(shard)]

    torch.manual_seed(options.seed)
    random.Random(options.seed).shuffle(pairs)
    model = SentenceTransformer(options.model, device="cpu")
    model.max_seq_length = MAX_PIECES
    started = time.perf_counter()
    loss = fine_tune(model, pairs)
    seconds = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    model.save(options.into)
    if options.texts:
        texts = pq.read_table(options.texts)
        vectors = model.encode(texts["text"].to_pylist(), batch_size=128)
        column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
        pq.write_table(texts.append_column("vector", column), options.vectors)
    report = {
        "pairs": len(pairs),
        "seconds": round(seconds),
        "threads": torch.get_num_threads(),
        "core_seconds": round(usage.ru_utime + usage.ru_stime),
        "last_loss": round(loss, 3),
    }
    print(json.dumps(report))


def pairs_of(shard: Path) -> list[tuple[str, str]]:
    """(query, clicked title) of each pair of a shard (schemas/shard.py), as normalised texts."""
    texts, pairs = (pa.ipc.open_file(shard / f"{name}.arrow").read_all() for name in ("texts", "pairs"))
    sides = (texts["text"].take(pairs[side].combine_chunks()).to_pylist() for side in ("query", "clicked"))
    return list(zip(*sides, strict=True))


def fine_tune(model: SentenceTransformer, pairs: list[tuple[str, str]]) -> float:
    """One epoch; the mean loss of its last 50 minibatches. What is left of the last minibatch is not used."""
    model.train()
    num_steps = len(pairs) // PAIRS
    optimiser = torch.optim.AdamW(model.parameters(), lr=STEP)
    rise = 0.1 * num_steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / rise) * max(0, (num_steps - step) / num_steps)
    )
    losses = []
    for step in range(num_steps):
        batch = pairs[step * PAIRS : (step + 1) * PAIRS]
        sides = (model.preprocess([pair[side] for pair in batch]) for side in (0, 1))
        with torch.autocast("cpu", torch.bfloat16):
            vectors = [model(pieces)["sentence_embedding"].float() for pieces in sides]
        query, title = map(torch.nn.functional.normalize, vectors)
        loss = torch.nn.functional.cross_entropy(query @ title.T * SCALE, torch.arange(len(batch)))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return sum(losses[-50:]) / len(losses[-50:])


if __name__ == "__main__":
    main()
