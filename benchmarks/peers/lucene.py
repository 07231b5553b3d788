"""Apache Lucene itself, by the program Lucene.java beside this file and the jars that `make engines` brings."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from clicktower.flows.config.settings import Settings

PROGRAM = Path(__file__).with_name("Lucene.java")


class Best(NamedTuple):
    """The best titles of some queries: by query, then best first; equal scores by row of the title."""

    queries: np.ndarray  # int64 [results]: rows
    titles: np.ndarray  # int64 [results]: rows
    scores: np.ndarray  # float32 [results]


def jars() -> Path:
    """The folder of Lucene's jars, which may not be there."""
    return Path(Settings().engines) / "lucene"


def tokens(texts: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The tokens of each (analyser of Lucene.java, text without a line break)."""
    lines = _run(["tokens"], ("\t".join(case) for case in texts)).split("\n")[:-1]
    return [line.split("\t") if line else [] for line in lines]


def search(analyser: str, k1: float, b: float, titles: Iterable[str], queries: Sequence[str], k: int) -> Best:
    """The k best titles of each query by BM25."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "titles")
        file.write_text("".join(f"{title}\n" for title in titles), encoding="utf-8")
        lines = _run(["search", analyser, str(k1), str(b), str(file), str(k)], queries)
    columns = np.array(lines.split(), np.float64).reshape(-1, 3).T
    return Best(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2].astype(np.float32))


def _run(arguments: Sequence[str], lines: Iterable[str]) -> str:
    command = ["java", "-XX:+UseSerialGC", "-cp", f"{jars()}/*", str(PROGRAM), *arguments]
    given = "".join(f"{line}\n" for line in lines).encode()
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout.decode()
