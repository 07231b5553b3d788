"""Rows of Table IV with the paper's 200,000 pairs and 50,000 rows of trigrams, beside fewer pairs.

    CLICKTOWER_DATA=/path/to/data python benchmarks/paper_size.py --work /tmp/paper-size --record

No click log of that size is at hand, so one is simulated over homedepot's train judgments: a query at random, typed
as it stands or altered (a word left out, two swapped, a misspelling, a plural), one of its judged titles at random, and
a click with ERR's probability for the grade, (2^grade - 1) / 8, until there are enough distinct pairs of query and
title. Smaller logs are its first pairs. It has more spellings than the judgments, and no more needs or truth. `real` is
homedepot's own clicks. Of Microsoft's ORCAS (https://microsoft.github.io/msmarco/ORCAS) pairs are drawn at random, and
ranked on the judgments of TREC's Deep Learning track; documents that are neither drawn nor judged are left out:

    zcat msmarco-docs.tsv.gz | cut -f 1,3 > titles.tsv
    python benchmarks/paper_size.py --work /tmp/orcas --record /tmp/orcas \\
        --orcas orcas.tsv titles.tsv msmarco-test2019-queries.tsv 2019qrels-docs.txt

Every log trains the rows as printed, with negatives of clicked titles, on as many pairs (--budget, two passes over
200,000), so that logs differ in their data and not in their updates. Judged queries are in no log, and nothing is
chosen on them. paper_size.json is written after each log with what is done; a command that was killed is given again
and continues, and one with more logs adds them.
"""

import argparse
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.quality import (  # noqa: E402
    CLAIMED,
    PRINTED_POOL,
    RESULTS,
    ROWS,
    Dataset,
    Judges,
    build_shards,
    by_epoch,
    differences,
    encoded,
    first_grades,
    mean_core_seconds,
    of_measures,
    print_row,
    rows_of,
    train,
)
from clicktower.schemas.documents import Documents, read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.schemas.stage import silent  # noqa: E402
from clicktower.schemas.text_contract import comparison_forms, normalise, normalise_column  # noqa: E402
from clicktower.training.evaluation.measured_row import evaluate_baseline  # noqa: E402

TRAINED = ("paper-dssm", "paper-clsm-1", "paper-rnn-288", CLAIMED)
BM25 = ("bm25", "bm25-printed")  # stemmed, and with words by white space
SIZES, REAL = (200_000, 20_000, 66_000), "real"
PAPER = Dataset(table_rows=50_000)
ALL_PAIRS = "dev_share=0"  # of the log: none is held out, since nothing is chosen
BUDGET = 400_000
LOG_SEED, ALTERED, SHORT = 1, 0.2, 4  # P(each alteration of a query); a word below four letters is never misspelt

Click = tuple[str, str]  # a query and the id of a document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=Path, help="folder for logs and the store")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=SIZES,
        metavar="PAIRS",
        help="pairs of each log, in the order of training",
    )
    parser.add_argument("--budget", type=int, default=BUDGET, help="pairs that each training takes")
    parser.add_argument("--rows", nargs="+", default=TRAINED, choices=[*TRAINED], metavar="ROW")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="training seeds")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--orcas", nargs=4, metavar=("LOG", "TITLES", "QUERIES", "QRELS"),
        help="ORCAS or another log in its columns, documents as id<TAB>title, judged queries, and their qrels",
    )  # fmt: skip
    parser.add_argument(
        "--record", nargs="?", type=Path, const=RESULTS, help="folder for paper_size.json (benchmarks/results)"
    )
    options = parser.parse_args()
    if options.orcas:
        log, titles, queries, qrels = map(Path, options.orcas)
    else:
        data = Path(os.environ["CLICKTOWER_DATA"], "homedepot")
        titles, queries, qrels = (data / name for name in ("documents.tsv", "queries.dev.tsv", "qrels.dev.txt"))
    documents, judged = read_documents(str(titles)), read_queries(str(queries))
    if options.orcas:
        largest = drawn(log, documents, judged, max(options.sizes))
        documents = only(documents, {document for _, document in largest}.union(*first_grades(qrels).values()))
    else:
        largest = simulated(data, documents, judged, max(options.sizes))
    logs = {f"{size}": largest[:size] for size in options.sizes}
    if not options.orcas:  # second, after the largest
        first, *others = logs.items()
        logs = dict([first, (REAL, orcas_lines(data / "clicks.orcas.tsv")), *others])

    dev = Judges(documents, queries, qrels, PAPER.language)
    value = {
        "when": "",
        "command": f"python benchmarks/paper_size.py {' '.join(sys.argv[1:])}",
        "machine": machine(),
        "seeds": options.seeds,
        "budget": options.budget,
        "table_rows": PAPER.table_rows,
        "documents": len(documents),
        "n": len(dev.collection.qrels),
        "logs": {},
    }
    means: dict[str, dict[str, np.ndarray]] = {}
    for name, clicks in logs.items():
        folder = written(clicks, documents, options.work / "logs" / name)
        shards = build_shards(folder, PAPER, options.work, queries, PRINTED_POOL, ALL_PAIRS)
        pairs = shards["counts"]["train_pairs"]
        epochs = max(1, round(options.budget / pairs))
        inputs = dev.inputs(shards["path"])
        table = {one: [evaluate_baseline(ROWS[one], inputs, silent).measured] for one in BM25}
        facts: dict[str, dict] = {}
        for row in options.rows:
            models = [
                train(f"{row}:epochs={epochs}", seed, shards["path"], options.work / "store", options.threads)
                for seed in options.seeds
            ]
            systems, _ = encoded([model["data"] for model in models], dev)
            table[row] = [dev.measure(system) for system in systems]
            facts[row] = {
                "core_seconds": mean_core_seconds(models),
                "clipped_share": round(float(np.mean([by_epoch(model, "clipped_share") for model in models])), 3),
            }
            print_row(f"{name} {row}", table[row])
        means[name] = {row: np.mean([of_measures(one) for one in of], axis=0) for row, of in table.items()}
        value["when"] = datetime.now(UTC).isoformat(timespec="seconds")
        value["logs"][name] = {
            "train_pairs": pairs,
            "queries": len({query for query, _ in clicks}),
            "documents": len({document for _, document in clicks}),
            "epochs": epochs,
            **rows_of(table, facts),
            "minus_bm25_printed": differences({row: means[name][row] - means[name][BM25[1]] for row in options.rows}),
        }
        value["moves"] = moves(means, options.rows)
        if options.record:
            (options.record / "paper_size.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def moves(means: dict[str, dict[str, np.ndarray]], rows: Iterable[str]) -> dict:
    """What a row, and the LSTM's lead over it, has more with one log than with another: of each two in order."""
    first, *others = means
    return {
        f"{first} - {other}": {
            "rows": differences({row: means[first][row] - means[other][row] for row in rows}),
            "leads": differences(
                {row: lead(means[first], row) - lead(means[other], row) for row in rows if row != CLAIMED}
            ),
        }
        for other in others
    }


def lead(means: dict[str, np.ndarray], row: str) -> np.ndarray:
    return means[CLAIMED] - means[row]


def simulated(data: Path, documents: Documents, judged: dict[str, str], size: int) -> list[Click]:
    """The first `size` distinct pairs of a simulated log."""
    chance = random.Random(LOG_SEED)
    queries, known = read_queries(str(data / "queries.train.tsv")), set(documents.ids)
    grades = {
        id: [(document, grade) for document, grade in of.items() if document in known]
        for id, of in first_grades(data / "qrels.train.txt").items()
        if id in queries
    }
    ids = [id for id, of in grades.items() if of]

    def clicks() -> Iterator[Click]:
        while True:
            id = chance.choice(ids)
            document, grade = chance.choice(grades[id])
            if chance.random() < (2**grade - 1) / 8:
                yield typed(normalise(queries[id]), chance), document

    return distinct(clicks(), documents, judged, size)


def typed(query: str, chance: random.Random) -> str:
    """A query as another person types it."""
    words = query.split()
    if len(words) > 2 and chance.random() < ALTERED:
        del words[chance.randrange(len(words))]
    if len(words) > 1 and chance.random() < ALTERED:
        at = chance.randrange(len(words) - 1)
        words[at : at + 2] = reversed(words[at : at + 2])
    for alter in (misspelt, in_number):
        if chance.random() < ALTERED:
            at = chance.randrange(len(words))
            words[at] = alter(words[at], chance)
    return " ".join(words)


def misspelt(word: str, chance: random.Random) -> str:
    """The word with a letter left out, doubled or exchanged with the next one; never the first letter."""
    if len(word) < SHORT or not word.isalpha():
        return word
    at = chance.randrange(1, len(word) - 1)
    letter, following = word[at], word[at + 1]
    return word[:at] + chance.choice((following, 2 * letter + following, following + letter)) + word[at + 2 :]


def in_number(word: str, _: random.Random) -> str:
    """The plural of a word, or the singular of a plural, as far as an s makes it."""
    if len(word) < SHORT or not word.isalpha():
        return word
    return word.removesuffix("s") if word.endswith("s") else f"{word}s"


def drawn(log: Path, documents: Documents, judged: dict[str, str], size: int) -> list[Click]:
    """`size` distinct pairs of an ORCAS log, in random order."""
    lines = orcas_lines(log)
    random.Random(LOG_SEED).shuffle(lines)
    return distinct(iter(lines), documents, judged, size)


def orcas_lines(log: Path) -> list[Click]:
    table = csv.read_csv(
        log,
        read_options=csv.ReadOptions(column_names=["id", "query", "document", "url"]),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=csv.ConvertOptions(
            include_columns=["query", "document"],
            column_types=dict.fromkeys(("query", "document"), pa.string()),
            strings_can_be_null=False,
        ),
    )
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def distinct(clicks: Iterator[Click], documents: Documents, judged: dict[str, str], size: int) -> list[Click]:
    """The first `size` clicks whose query and title, in their normalised form, no click before them has.

    Clicks of judged queries, in any order of their words, and on documents without a title are left out.
    """
    title_of = dict(zip(documents.ids, normalise_column(documents.table["title"]).to_pylist(), strict=True))
    taken = set(forms(judged.values()))
    seen: dict[tuple[str, str], Click] = {}
    while some := list(islice(clicks, 10_000)):
        queries = [normalise(query) for query, _ in some]
        for query, form, (_, document) in zip(queries, forms(queries), some, strict=True):
            if form not in taken and document in title_of:
                seen.setdefault((query, title_of[document]), (query, document))
            if len(seen) == size:
                return list(seen.values())
    return list(seen.values())


def forms(texts: Iterable[str]) -> list[str]:
    return comparison_forms(pa.array([normalise(text) for text in texts], pa.string())).to_pylist()


def only(documents: Documents, ids: set[str]) -> Documents:
    """The documents with these ids."""
    kept = documents.table.filter(pc.is_in(documents.table["id"], value_set=pa.array(sorted(ids), pa.string())))
    return Documents(table=kept, num_untitled=0)


def written(clicks: Sequence[Click], documents: Documents, folder: Path) -> Path:
    """A folder with a log in ORCAS's columns and its documents, as build_shards reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = {query: number for number, query in enumerate(dict.fromkeys(query for query, _ in clicks))}
    lines = {
        "clicks.orcas.tsv": (f"{ids[query]}\t{query}\t{document}\t-\n" for query, document in clicks),
        "documents.tsv": map("{}\t{}\n".format, documents.ids, documents.titles),
    }
    for name, text in lines.items():
        (folder / name).write_text("".join(text), encoding="utf-8")
    return folder


if __name__ == "__main__":
    main()
