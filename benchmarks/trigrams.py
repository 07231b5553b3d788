"""Titles a second, on one core, from raw titles to word and trigram indices: what `build` does to texts.

    CLICKTOWER_DATA=/path/to/data python benchmarks/trigrams.py [--repeats 5] [--json] [--record]

Measured: normalising, telling titles apart, and `index_words` (words, trigram ids of the distinct ones, Arrow tables),
on the titles of two real collections and on Chinese texts, beside plain Python that does the same a text, a word and a
trigram at a time, and must come to the same. Seconds are those of the processor, so that a busy machine changes little.
"""

import argparse
import json
import os
import platform
import sys
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import processor  # noqa: E402
from clicktower.beam_jobs.build.click_shards import index_words  # noqa: E402
from clicktower.schemas.text_contract import (  # noqa: E402
    COMPUTED_IDS,
    DEFAULT_TABLE_ROWS,
    normalise,
    normalise_column,
    split_normalised,
    trigram_ids,
    words_of_column,
)

RESULTS = ROOT / "benchmarks" / "results" / "trigrams.json"
COLLECTIONS = ("homedepot", "dbpedia_entity", "sogou_qt")
ALPHABET = {letter: code for code, letter in enumerate("abcdefghijklmnopqrstuvwxyz0123456789", start=1)}
MARK, BITS_64 = 0x110000, (1 << 64) - 1


def by_column(titles: pa.Array) -> tuple[pa.Table, pa.Table]:
    """WORDS and TEXTS of the distinct titles, as `build` makes them."""
    return index_words(normalise_column(titles).dictionary_encode().dictionary, DEFAULT_TABLE_ROWS)


def one_by_one(titles: list[str]) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """(trigram ids of each word, word numbers of each distinct title), the same in plain Python."""
    ids: dict[str, list[int]] = {}
    number: dict[str, int] = {}
    texts: dict[str, list[int]] = {}
    for title in titles:
        normalised = normalise(title)
        if normalised in texts:
            continue
        texts[normalised] = found = []
        for word in split_normalised(normalised):
            if word not in ids:
                ids[word], number[word] = ids_of_word(word), len(number)
            found.append(number[word])
    return ids, texts


def ids_of_word(word: str) -> list[int]:
    points = [MARK, *map(ord, word), MARK]
    letters = [None, *word, None]
    codes = [0 if letter is None else ALPHABET.get(letter, -1) for letter in letters]
    found = []
    for at in range(len(word)):
        a, b, c = codes[at : at + 3]
        if a >= 0 and b >= 0 and c >= 0:
            found.append((a * 37 + b) * 37 + c)
            continue
        mixed = 0xCBF29CE484222325
        for point in points[at : at + 3]:
            mixed = ((mixed ^ point) * 0x100000001B3) & BITS_64
        for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
            mixed = ((mixed ^ (mixed >> 33)) * factor) & BITS_64
        found.append(COMPUTED_IDS + (mixed ^ (mixed >> 33)) % (DEFAULT_TABLE_ROWS - COMPUTED_IDS))
    return found


def require_equal(titles: list[str]) -> None:
    """Raises SystemExit where the two ways come to different indices."""
    words, texts = by_column(pa.array(titles, pa.string()))
    ids, numbers = one_by_one(titles)
    if (
        dict(zip(words["word"].to_pylist(), words["trigrams"].to_pylist(), strict=True)) != ids
        or list(zip(texts["text"].to_pylist(), texts["words"].to_pylist(), strict=True)) != list(numbers.items())
        or words["word"].to_pylist() != list(ids)
    ):
        raise SystemExit("the column-wise indices differ from those of one text at a time")


def per_second(function: Callable[[], object], titles: int, repeats: int) -> int:
    """Titles a second of processor time, in the best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        function()
        best = min(best, time.process_time() - started)
    return round(titles / best)


def measure(titles: list[str], repeats: int) -> dict:
    require_equal(titles)
    column = pa.array(titles, pa.string())
    normalised = normalise_column(column)
    distinct = normalised.dictionary_encode().dictionary
    words = words_of_column(distinct)[1]
    steps: dict[str, Callable[[], object]] = {
        "normalise": lambda: normalise_column(column),
        "tell apart": lambda: normalised.dictionary_encode(),
        "words": lambda: words_of_column(distinct),
        "trigram ids of the distinct words": lambda: trigram_ids(words.dictionary),
    }
    whole = per_second(lambda: by_column(column), len(titles), repeats)
    plain = per_second(lambda: one_by_one(titles), len(titles), max(1, repeats // 2))
    return {
        "titles": len(titles),
        "characters_per_title": round(sum(map(len, titles)) / len(titles), 1),
        "words_per_title": round(len(words) / len(distinct), 2),
        "distinct_words": len(words.dictionary),
        "share_not_ascii": round(sum(not title.isascii() for title in titles) / len(titles), 4),
        "titles_per_second": whole,
        "titles_per_second_in_plain_python": plain,
        "ratio_to_plain_python": round(whole / plain, 2),
        "nanoseconds_per_title": {
            name: round(1e9 / per_second(step, len(titles), repeats)) for name, step in steps.items()
        },
    }


def read_titles(data: Path, collection: str) -> list[str]:
    lines = (data / collection / "documents.tsv").read_text(encoding="utf-8").split("\n")
    return [line.partition("\t")[2] for line in lines if line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--record", action="store_true", help="also write it to benchmarks/results")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    data = Path(os.environ["CLICKTOWER_DATA"])
    collections = {name: read_titles(data, name) for name in COLLECTIONS}
    both = collections["homedepot"] + collections["dbpedia_entity"]
    measured: dict[str, list[str]] = {"homedepot and dbpedia_entity": both, **collections}
    result: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{processor()}, one core",
        "versions": {
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "unicode": unicodedata.unidata_version,
        },
        "collections": {name: measure(titles, options.repeats) for name, titles in measured.items()},
    }
    if options.record:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(result))
        return
    print(f"{'':<32}{'titles':>9}{'titles/s':>12}{'plain Python':>14}{'ratio':>7}   ns per title")
    for name, row in result["collections"].items():
        steps = ", ".join(f"{step} {took}" for step, took in row["nanoseconds_per_title"].items())
        print(
            f"{name:<32}{row['titles']:>9,}{row['titles_per_second']:>12,}"
            f"{row['titles_per_second_in_plain_python']:>14,}{row['ratio_to_plain_python']:>7}   {steps}"
        )


if __name__ == "__main__":
    main()
