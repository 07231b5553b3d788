"""Clicked pairs and titles by the million, to see what the stages take of time and memory (docs/running.md).

    CLICKTOWER_DATA=/path/to/data python benchmarks/many_titles.py 10000000 --into /tmp/many

Writes documents.tsv and four log files in ORCAS's columns. A title is half of one real product title, half of another,
and a number; its query is two to four of its words. The same count makes the same lines.
"""

import argparse
import gzip
import os
import random
from contextlib import ExitStack
from pathlib import Path

FILES = 4


def make(count: int, real: Path, into: Path) -> None:
    """`real`: documents.tsv of real titles."""
    rng = random.Random(7)
    titles = [line.split("\t")[1].split() for line in real.read_text(encoding="utf-8").splitlines()]
    (into / "log").mkdir(parents=True)
    with ExitStack() as files:
        documents = files.enter_context((into / "documents.tsv").open("w", encoding="utf-8"))
        logs = [
            files.enter_context(gzip.open(into / "log" / f"clicks-{file}.tsv.gz", "wt", 1, encoding="utf-8"))
            for file in range(FILES)
        ]
        for number in range(count):
            first, second = rng.choice(titles), rng.choice(titles)
            words = [*first[: max(1, len(first) // 2)], *second[len(second) // 2 :], str(rng.randrange(1_000))]
            query = rng.sample(words, min(len(words), rng.randint(2, 4)))
            url = f"https://shop.example/{number}"
            print(f"D{number:08d}", " ".join(words), sep="\t", file=documents)
            log = logs[number % FILES]
            print(f"Q{number:08d}", " ".join(query).lower(), f"D{number:08d}", url, sep="\t", file=log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--into", type=Path, required=True, help="a new folder")
    options = parser.parse_args()
    if "CLICKTOWER_DATA" not in os.environ:
        raise SystemExit("set CLICKTOWER_DATA to the folder of real data (it has homedepot/documents.tsv)")
    make(options.count, Path(os.environ["CLICKTOWER_DATA"]) / "homedepot" / "documents.tsv", options.into)


if __name__ == "__main__":
    main()
