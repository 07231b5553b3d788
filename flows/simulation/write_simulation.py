"""Write a whole simulation below one folder.

    OUT/log/ubi-00000.ndjson.gz ...   the lines, in UBI's form, each labelled as simulated
    OUT/documents.tsv                 id, title
    OUT/judgments/                    queries.dev.tsv, qrels.dev.txt, queries.test.tsv, qrels.test.txt
    OUT/truth/lines.parquet           every line's file, number (from 1) and fate
    OUT/truth/searches.parquet        every search: client, role, what was typed, intent
    OUT/SIMULATED.json                config, counts, files; written last

Memory holds the catalogue and two blocks of searches, however long the log is.
"""

import dataclasses
import gzip
import json
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from clicktower.flows.simulation import simulated_shop
from clicktower.flows.simulation.log_lines import FATE_NAMES, Lines, log_lines, query_id
from clicktower.flows.simulation.simulated_searches import (
    INTENT,
    ROLES,
    WHAT,
    Population,
    Searches,
    draw_searches,
    result_pages,
)
from clicktower.flows.simulation.simulation_config import VERSION, SimulationConfig, bits, uniform
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import Request
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import normalise, words

JudgedQuery = tuple[str, dict[int, int]]  # its text, and the grades of documents
BLOCK_SEARCHES = 8_192
FILE_NAME = "SIMULATED.json"
SENTENCE = (
    "This log is simulated: no person made these searches, and no figure measured on it says anything about real "
    "people, products or search engines. Every line says so in its application field."
)


def simulate(out: str, *, config: SimulationConfig, progress: Progress = silent) -> dict:
    """Simulate a log. Returns path, counts, ledger and the label `simulated`; the same config gives the same bytes.

    It is written beside OUT and renamed at the end, so OUT is complete if it exists. Raises UsageError (OUT holds
    something else, or is not a local folder) and StageError (it cannot be written).
    """
    if not storage.is_local(out):
        raise UsageError(
            f"A simulation is written to a local folder, and {out} is remote.",
            "Simulate into a local folder and copy it.",
        )
    folder = Path(storage.filesystem(out)[1])
    if (finished := _finished(folder, config)) is not None:
        return _result(finished, out, config, reused=True)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"There is something else in {out}, which a simulation would overwrite.",
            "Name another folder, or remove that one.",
        )
    try:
        with storage.building(str(folder)) as built:
            for part in ("log", "judgments", "truth"):
                Path(built, part).mkdir(parents=True)
            record = _write(Path(built), config, progress)
            storage.place(built, str(folder))
    except OSError as error:
        raise StageError(
            f"The simulation cannot be written to {out} ({error.strerror or type(error).__name__}). Nothing was left"
            " behind.",
            "Check the space and the rights of that folder.",
        ) from error
    return _result(record, out, config, reused=False)


def simulate_block(
    config: SimulationConfig, catalogue: simulated_shop.Catalogue, population: Population, numbers: np.ndarray
) -> tuple[Searches, Lines]:
    """The searches of these numbers and their lines: a slice of the log, independent of other slices."""
    searches = draw_searches(config, catalogue, population, numbers)
    return searches, log_lines(config, population, searches, result_pages(catalogue, searches))


def _result(counts: dict, out: str, config: SimulationConfig, *, reused: bool) -> dict:
    request = Request(stage="simulate", stage_version=VERSION, config=dataclasses.asdict(config), inputs={})
    return {**counts, "digest": request.digest, "path": str(out), "reused": reused}


def _finished(folder: Path, config: SimulationConfig) -> dict | None:
    """The record of a folder made with the same config, if all its files are there with their sizes."""
    try:
        record = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        same = record["version"] == VERSION and record["config"] == dataclasses.asdict(config)
        has_all_files = all((folder / name).stat().st_size == size for name, size in record["files"].items())
    except (OSError, ValueError, KeyError):
        return None
    return record if same and has_all_files else None


def _write(folder: Path, config: SimulationConfig, progress: Progress) -> dict:
    catalogue = simulated_shop.draw_catalogue(config.seed, config.documents, config.shared_titles)
    _write_documents(folder / "documents.tsv", catalogue)
    judged = draw_judged(config, catalogue)
    for name, queries in judged.items():
        _write_judged(folder / "judgments", name, queries)
    counts, fates = _write_log(folder, config, catalogue, progress)

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    record = {
        "stage": "simulate",
        "labels": {"simulated": True},
        "note": SENTENCE,
        "version": VERSION,
        "config": dataclasses.asdict(config),
        "counts": {**counts, "documents": len(catalogue), **{f"judged_{k}": len(v) for k, v in judged.items()}},
        "ledger": {"total": counts["lines"], "lines": fates},
        "files": {str(path.relative_to(folder)): path.stat().st_size for path in paths},
    }
    (folder / FILE_NAME).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


def _write_log(
    folder: Path, config: SimulationConfig, catalogue: simulated_shop.Catalogue, progress: Progress
) -> tuple[dict[str, int], dict[str, int]]:
    """Write the log; returns counts of searches, lines and difficulties, and of lines by fate."""
    population, counts, fates = Population(config), Counter[str](), np.zeros(len(FATE_NAMES), int)
    with ExitStack() as open_files:
        files = LogFiles(folder, config.files, open_files)
        # Compressing takes about as long as drawing: a thread of its own does it, one block behind.
        thread = open_files.enter_context(ThreadPoolExecutor(1))
        behind: Future | None = None
        for begin in range(0, config.num_searches, BLOCK_SEARCHES):
            numbers = np.arange(begin, min(begin + BLOCK_SEARCHES, config.num_searches))
            searches, lines = simulate_block(config, catalogue, population, numbers)
            counts.update(_counts_of(searches, lines))
            fates += np.bincount(lines.fate, minlength=len(fates))
            order = np.argsort(bits(config.seed, "shuffle", begin, np.arange(len(lines.text))))
            if behind:
                behind.result()
            behind = thread.submit(files.write, population, searches, lines, order)
            progress("simulating searches", int(numbers[-1]) + 1, config.num_searches)
        if behind:
            behind.result()
    return dict(counts), {name: count for name, count in zip(FATE_NAMES, fates.tolist(), strict=True) if count}


def _counts_of(searches: Searches, lines: Lines) -> dict[str, int]:
    num_of_kind = np.bincount(searches.kind, minlength=len(WHAT)).tolist()
    role = np.bincount(searches.who.role, minlength=len(ROLES)).tolist()
    altered = searches.altered.sum(axis=0).tolist()
    return {
        "searches": len(searches.numbers),
        "lines": len(lines.text),
        **{f"searches_{name}": count for name, count in zip(WHAT, num_of_kind, strict=True)},
        **{f"searches_by_{name}": count for name, count in zip(ROLES, role, strict=True)},
        **dict(zip(("misspelled_at_random", "odd_case", "odd_spaces"), altered, strict=True)),
    }


_NAME = pa.dictionary(pa.int8(), pa.string())
LINES = pa.schema({"file": pa.int32(), "line": pa.int64(), "fate": _NAME})
SEARCHES = pa.schema(
    {"query_id": pa.string(), "client_id": pa.string(), "role": _NAME, "what": _NAME, "intent": pa.int64()}
)


class LogFiles:
    """`log/` and the two Parquet files of `truth/` below a folder.

    A block's lines are shuffled over all files, so a search and its events are in different files.
    """

    def __init__(self, folder: Path, num_files: int, open_files: ExitStack) -> None:
        self._files = []
        for number in range(num_files):
            raw = open_files.enter_context((folder / "log" / f"ubi-{number:05d}.ndjson.gz").open("wb"))
            # Without name and time in the header, equal lines give equal bytes.
            zipped = gzip.GzipFile(filename="", mode="wb", compresslevel=1, fileobj=raw, mtime=0)
            open_files.callback(zipped.close)
            self._files.append(zipped)
        self._lines, self._searches = (
            open_files.enter_context(pq.ParquetWriter(folder / "truth" / f"{name}.parquet", schema))
            for name, schema in (("lines", LINES), ("searches", SEARCHES))
        )
        self._num_lines = [0] * num_files
        self._turn = 0

    def write(self, population: Population, searches: Searches, lines: Lines, order: np.ndarray) -> None:
        """Append a block: its searches as they are, its lines in `order`."""
        self._searches.write_table(_searches_table(population, searches))
        shares = enumerate(np.array_split(order, len(self._files)))
        truth = [self._write_lines((number + self._turn) % len(self._files), lines, rows) for number, rows in shares]
        self._lines.write_table(pa.concat_tables(truth))  # at once: each row group costs memory until the end
        self._turn += 1

    def _write_lines(self, at: int, lines: Lines, rows: np.ndarray) -> pa.Table:
        """Append the truth about lines to file `at`."""
        text = "".join(f"{lines.text[row]}\n" for row in rows.tolist())
        self._files[at].write(text.encode("utf-8", "surrogateescape"))
        numbers = np.arange(len(rows)) + self._num_lines[at] + 1
        self._num_lines[at] += len(rows)
        fates = pa.DictionaryArray.from_arrays(pa.array(lines.fate[rows]), pa.array(FATE_NAMES))
        return pa.table([np.full(len(rows), at, np.int32), numbers, fates], schema=LINES)


def _searches_table(population: Population, searches: Searches) -> pa.Table:
    actors = zip(searches.who.actor.tolist(), searches.has_client.tolist(), strict=True)
    return pa.table(
        [
            [query_id(number) for number in searches.numbers.tolist()],
            [population.client(actor) if has_client else None for actor, has_client in actors],
            pa.DictionaryArray.from_arrays(pa.array(searches.who.role.astype(np.int8)), pa.array(ROLES)),
            pa.DictionaryArray.from_arrays(pa.array(searches.kind), pa.array(WHAT)),
            pa.array(searches.intents.number, mask=searches.kind != INTENT),
        ],
        schema=SEARCHES,
    )


def _write_documents(path: Path, catalogue: simulated_shop.Catalogue) -> None:
    for begin in range(0, len(catalogue), BLOCK_SEARCHES):
        numbers = np.arange(begin, min(begin + BLOCK_SEARCHES, len(catalogue)))
        ids = map(simulated_shop.document_id, numbers.tolist())
        _write_rows(path, zip(ids, simulated_shop.titles_of(catalogue, numbers), strict=True), append=begin > 0)


def _write_judged(folder: Path, name: str, queries: list[JudgedQuery]) -> None:
    with_ids = [(f"{name}{number:05d}", query) for number, query in enumerate(queries)]
    _write_rows(folder / f"queries.{name}.tsv", ((query_id, text) for query_id, (text, _) in with_ids))
    qrels = (
        (f"{query_id} 0 {simulated_shop.document_id(document)} {grade}",)
        for query_id, (_, grade_of) in with_ids
        for document, grade in grade_of.items()
    )
    _write_rows(folder / f"qrels.{name}.txt", qrels)


def _write_rows(path: Path, rows: Iterable[tuple[str, ...]], append: bool = False) -> None:
    with path.open("a" if append else "w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


# Judged queries of the simulated shop: queries that people could ask, with about fifteen graded documents each.

NUM_JUDGED = 15
QUOTA = {3: 4, 2: 4, 1: 3}  # of each grade, if there are as many; the others have grade 0
OF_TYPE, OF_NEAR_TYPE, ELSEWHERE = 160, 24, 48  # documents that a judge sees
MISLEADING = 3  # of the zeros: those with the most words of the query
_BATCH = 256


def draw_judged(config: SimulationConfig, catalogue: simulated_shop.Catalogue) -> dict[str, list[JudgedQuery]]:
    """The judged queries of dev and of test, no text twice. Fewer than asked for if the shop is too small for more.

    Their intents follow those of the log in number, so the log contains what they ask for only by chance.
    """
    sets: dict[str, list[JudgedQuery]] = {"dev": [], "test": []}
    seen: set[str] = set()
    for begin in range(config.intents, config.intents + 40 * config.num_judged_queries, _BATCH):
        for query in _judge(catalogue, np.arange(begin, begin + _BATCH)):
            least = min(sets.values(), key=len)
            if len(least) >= config.num_judged_queries:
                return sets
            if normalise(query[0]) not in seen:
                seen.add(normalise(query[0]))
                least.append(query)
    return sets


def _judge(catalogue: simulated_shop.Catalogue, numbers: np.ndarray) -> list[JudgedQuery]:
    intents = simulated_shop.draw_intents(catalogue, numbers)
    seed = catalogue.seed
    near = simulated_shop.near_types()[intents.type]
    columns = []
    for kind, count, salt in ((intents.type, OF_TYPE, 0), (near, OF_NEAR_TYPE, 1)):
        start, size = catalogue.type_start[kind][:, None], np.diff(catalogue.type_start)[kind][:, None]
        place = (uniform(seed, "judged documents", numbers[:, None], salt, np.arange(count)) * size).astype(np.int64)
        columns.append(np.where(size > 0, catalogue.order[np.minimum(start + place, len(catalogue) - 1)], 0))
    columns.append(
        (uniform(seed, "judged documents", numbers[:, None], 2, np.arange(ELSEWHERE)) * len(catalogue)).astype(np.int64)
    )
    target = intents.source[:, None].astype(np.int64)  # the product itself is always among them
    shown = np.concatenate([target, *columns], axis=1)
    truth = simulated_shop.grades(intents, catalogue, shown)
    judged = []
    for row, intent in enumerate(intents.rows()):
        text, _ = simulated_shop.phrase(catalogue.seed, intent, 0)
        grade_of = dict(zip(shown[row].tolist(), truth[row].tolist(), strict=True))
        chosen = _choose(text, grade_of, catalogue)
        if len({grade_of[d] for d in chosen}) > 1:  # a single grade for all has no information
            judged.append((text, {document: grade_of[document] for document in chosen}))
    return judged


def _choose(text: str, grade_of: dict[int, int], catalogue: simulated_shop.Catalogue) -> list[int]:
    """Some documents of each grade, by number; among the zeros are some that share words with the text."""
    chosen = [d for grade, quota in QUOTA.items() for d in [d for d, g in grade_of.items() if g == grade][:quota]]
    zeros = [d for d, g in grade_of.items() if g == 0]
    query_words = set(words(text))
    titles = simulated_shop.titles_of(catalogue, np.array(zeros, int))
    overlap = {d: len(query_words & set(words(title))) for d, title in zip(zeros, titles, strict=True)}
    zeros.sort(key=lambda d: -overlap[d])
    zeros = zeros[:MISLEADING] + zeros[MISLEADING:][::-1]
    return sorted(chosen + zeros[: NUM_JUDGED - len(chosen)])
