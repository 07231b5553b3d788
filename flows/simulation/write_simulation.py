"""`simulate`: the log, documents, judgments and truth of a simulated shop below one folder.

    OUT/log/ubi-00000.ndjson.gz ...   the lines, in UBI's form, each labelled as simulated
    OUT/documents.tsv                 id, title
    OUT/judgments/                    queries.dev.tsv, qrels.dev.txt, queries.test.tsv, qrels.test.txt
    OUT/truth/lines.parquet           every line's file, number, offset and fate
    OUT/truth/searches.parquet        every search: client, role, what was typed, intent, form
    OUT/truth/bots.tsv                client, kind: declared, undeclared, slow, clicking, crowd
    OUT/truth/heavy_people.tsv        client: people, though they search much
    OUT/truth/private_queries.tsv     what one person alone, and perhaps a crowd of bots, typed
    OUT/SIMULATED.json                config, counts, files; written last

Memory holds the catalogue, a byte for each person and two blocks of searches, however long the log is.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flows.simulation.log_lines import FATE_NAMES, ROLES, Lines, LogFiles, log_lines
from flows.simulation.people import PERSON, Population
from flows.simulation.phrases import Phrasebook, draw_intents, grades, private_text
from flows.simulation.searches import PRIVATE, WHAT, Searches, draw_searches, result_pages
from flows.simulation.simulated_catalogue import (
    Catalogue,
    ShopVocabulary,
    Titles,
    brand_numbers,
    document_id,
    draw_catalogue,
    load,
)
from flows.simulation.simulation_config import VERSION, SimulationConfig, bits_of, stream, uniform
from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.manifest import Request
from schemas.stage import Progress, silent
from schemas.words import normalise, words

# Judged queries of the simulated shop: queries that people could ask, with about fifteen graded documents each.


NUM_JUDGED = 15
QUOTA = {3: 4, 2: 4, 1: 3}  # of each grade where there are as many; the rest is graded 0
OF_TYPE, OF_NEAR_TYPE, ELSEWHERE = 160, 24, 48  # the documents that a judge is shown
MISLEADING = 3  # of the zeros: those that share most words with the query
_BATCH = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedQuery:
    text: str
    documents: tuple[int, ...]
    grades: tuple[int, ...]


def draw_judged(
    config: SimulationConfig, vocabulary: ShopVocabulary, catalogue: Catalogue, titles: Titles, phrasebook: Phrasebook
) -> dict[str, list[JudgedQuery]]:
    """The judged queries of dev and of test, no text twice. Fewer than asked for if the shop is too small for more.

    Their intents come after those of the log in number, so what they ask for may occur in the log only by chance.
    """
    sets: dict[str, list[JudgedQuery]] = {"dev": [], "test": []}
    seen: set[str] = set()
    for begin in range(config.intents, config.intents + 40 * config.num_judged_queries, _BATCH):
        for query in _judge(config, vocabulary, catalogue, titles, phrasebook, np.arange(begin, begin + _BATCH)):
            least = min(sets.values(), key=len)
            if len(least) >= config.num_judged_queries:
                return sets
            if normalise(query.text) not in seen:
                seen.add(normalise(query.text))
                least.append(query)
    return sets


def _judge(
    config: SimulationConfig,
    vocabulary: ShopVocabulary,
    catalogue: Catalogue,
    titles: Titles,
    phrasebook: Phrasebook,
    numbers: np.ndarray,
) -> list[JudgedQuery]:
    seed = config.seed
    intents = draw_intents(vocabulary, seed, catalogue, numbers)
    key = stream(seed, "judged documents")
    near = np.array([t.near for t in vocabulary.types])[intents.type]
    columns = []
    for kind, count, salt in ((intents.type, OF_TYPE, 0), (near, OF_NEAR_TYPE, 1)):
        start, size = catalogue.type_start[kind][:, None], np.diff(catalogue.type_start)[kind][:, None]
        place = (uniform(key, numbers[:, None], salt, np.arange(count)) * size).astype(np.int64)
        columns.append(np.where(size > 0, catalogue.order[np.minimum(start + place, len(catalogue) - 1)], 0))
    columns.append((uniform(key, numbers[:, None], 2, np.arange(ELSEWHERE)) * len(catalogue)).astype(np.int64))
    target = intents.source[:, None].astype(np.int64)  # the product itself is always among them
    shown = np.concatenate([target, *columns], axis=1)
    truth = grades(vocabulary, intents, catalogue, shown)
    judged = []
    for row in range(len(numbers)):
        text, _ = phrasebook.phrase(
            int(numbers[row]),
            int(intents.type[row]),
            tuple(intents.attributes[row].tolist()),
            int(intents.source[row]),
            bool(intents.by_model[row]),
            0,
        )
        grade_of = dict(zip(shown[row].tolist(), truth[row].tolist(), strict=True))
        chosen = _choose(text, grade_of, titles)
        if len({grade_of[d] for d in chosen}) > 1:  # one single grade for all carries no information
            judged.append(JudgedQuery(text=text, documents=tuple(chosen), grades=tuple(grade_of[d] for d in chosen)))
    return judged


def _choose(text: str, grade_of: dict[int, int], titles: Titles) -> list[int]:
    """Some documents of each grade, by number; among the zeros are some that share words with the text."""
    chosen = [d for grade, quota in QUOTA.items() for d in [d for d, g in grade_of.items() if g == grade][:quota]]
    zeros = [d for d, g in grade_of.items() if g == 0]
    asked = set(words(text))
    overlap = {
        d: len(asked & set(words(title))) for d, title in zip(zeros, titles.of(np.array(zeros, int)), strict=True)
    }
    zeros.sort(key=lambda d: -overlap[d])
    zeros = zeros[:MISLEADING] + zeros[MISLEADING:][::-1]
    return sorted(chosen + zeros[: NUM_JUDGED - len(chosen)])


BLOCK_SEARCHES = 8_192
FILE_NAME = "SIMULATED.json"
SENTENCE = (
    "This log is simulated: no person made these searches, and no figure measured on it says anything about real "
    "people, products or search engines. Every line says so in its application field."
)


def simulate(out: str, *, config: SimulationConfig, progress: Progress = silent) -> dict:
    """What was made: path, counts, ledger and the label `simulated`; the same config gives the same bytes.

    Written beside OUT and renamed at the end, so OUT is whole if it is there. Raises UsageError (OUT holds something
    else, or is not a local folder) and StageError (it cannot be written).
    """
    asked = f"a log of {config.num_searches:,} searches was to be simulated into {out}"
    if not storage.is_local(out):
        raise UsageError(asked=asked, found="it is not a local folder", do="simulate into a local folder and copy it")
    folder = Path(storage.filesystem(out)[1])
    if (finished := _finished(folder, config)) is not None:
        return _result(finished, out, config, reused=True)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            asked=asked,
            found="something else is there already",
            follows="it would be overwritten",
            do="name another folder, or remove that one",
        )
    attempt = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    try:
        for part in ("log", "judgments", "truth"):
            (attempt / part).mkdir(parents=True)
        made = _write(attempt, config, progress)
        if folder.exists():
            folder.rmdir()  # an empty one stood in the way
        attempt.rename(folder)
    except OSError as error:
        raise StageError(
            asked=asked,
            found=f"writing failed ({error.strerror or type(error).__name__})",
            follows="nothing was left behind",
            do="check the space and the rights of that folder",
        ) from error
    finally:
        shutil.rmtree(attempt, ignore_errors=True)
    return _result(made, out, config, reused=False)


def simulate_block(
    config: SimulationConfig,
    vocabulary: ShopVocabulary,
    catalogue: Catalogue,
    phrasebook: Phrasebook,
    population: Population,
    numbers: np.ndarray,
) -> tuple[Searches, Lines]:
    """The searches of these numbers and their lines: a slice of the log, the same whatever slice it is part of."""
    searches = draw_searches(config, vocabulary, catalogue, population, phrasebook, numbers)
    pages = result_pages(vocabulary, config.seed, catalogue, searches)
    return searches, log_lines(config, population, searches, pages)


def _result(made: dict, out: str, config: SimulationConfig, *, reused: bool) -> dict:
    request = Request(stage="simulate", stage_version=VERSION, config=dataclasses.asdict(config), inputs={})
    return {**made, "digest": request.digest, "path": str(out), "reused": reused}


def _finished(folder: Path, config: SimulationConfig) -> dict | None:
    """What is recorded in a folder made by the same config, if all its files are there with their sizes."""
    try:
        made = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        same = made["version"] == VERSION and made["config"] == dataclasses.asdict(config)
        whole = all((folder / name).stat().st_size == size for name, size in made["files"].items())
    except (OSError, ValueError, KeyError):
        return None
    return made if same and whole else None


def _write(folder: Path, config: SimulationConfig, progress: Progress) -> dict:
    vocabulary = load()
    catalogue = draw_catalogue(vocabulary, config.seed, config.documents, config.shared_titles)
    titles = Titles(vocabulary, config.seed, catalogue)
    phrasebook = Phrasebook(vocabulary, config.seed, brand_numbers(vocabulary, config.seed).tolist())
    population = Population(config)

    _write_documents(folder / "documents.tsv", titles, len(catalogue))
    judged = draw_judged(config, vocabulary, catalogue, titles, phrasebook)
    for name, queries in judged.items():
        _write_judged(folder / "judgments", name, queries)
    _write_rows(folder / "truth" / "bots.tsv", population.bots())
    _write_rows(folder / "truth" / "heavy_people.tsv", ((client,) for client in population.heavy_clients()))
    counts, fates = _write_log(folder, config, vocabulary, catalogue, phrasebook, population, progress)

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    made = {
        "stage": "simulate",
        "labels": {"simulated": True},
        "note": SENTENCE,
        "version": VERSION,
        "config": dataclasses.asdict(config),
        "counts": {**counts, "documents": len(catalogue), **{f"judged_{k}": len(v) for k, v in judged.items()}},
        "ledger": {"total": counts["lines"], "lines": fates},
        "files": {str(path.relative_to(folder)): path.stat().st_size for path in paths},
    }
    (folder / FILE_NAME).write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return made


def _write_log(
    folder: Path,
    config: SimulationConfig,
    vocabulary: ShopVocabulary,
    catalogue: Catalogue,
    phrasebook: Phrasebook,
    population: Population,
    progress: Progress,
) -> tuple[dict[str, int], dict[str, int]]:
    """Counts of searches, lines and difficulties, and of lines by fate."""
    counts: dict[str, int] = {"searches": 0, "lines": 0}
    fates = np.zeros(len(FATE_NAMES), int)
    typed_private = np.zeros(population.num_actors, bool)
    with ExitStack() as open_files:
        files = LogFiles(folder, config.files, open_files)
        # Compressing takes about as long as drawing: a thread of its own does it, one block behind.
        thread = open_files.enter_context(ThreadPoolExecutor(1))
        behind: Future | None = None
        for begin in range(0, config.num_searches, BLOCK_SEARCHES):
            numbers = np.arange(begin, min(begin + BLOCK_SEARCHES, config.num_searches))
            searches, lines = simulate_block(config, vocabulary, catalogue, phrasebook, population, numbers)
            typed_private[searches.author[searches.what == PRIVATE]] = True
            _add_counts(counts, searches, lines)
            fates += np.bincount(lines.fate, minlength=len(fates))
            order = np.argsort(bits_of(config.seed, "shuffle", begin, np.arange(len(lines.text))))
            if behind:
                behind.result()
            behind = thread.submit(files.write, population, searches, lines, order)
            progress("simulating searches", int(numbers[-1]) + 1, config.num_searches)
        if behind:
            behind.result()
    people = np.flatnonzero(typed_private).tolist()
    private = ((private_text(vocabulary, config.seed, person),) for person in people)
    _write_rows(folder / "truth" / "private_queries.tsv", private)
    return counts, {name: count for name, count in zip(FATE_NAMES, fates.tolist(), strict=True) if count}


def _add_counts(counts: dict[str, int], searches: Searches, lines: Lines) -> None:
    found = {"searches": len(searches.numbers), "lines": len(lines.text)}
    for name, count in zip(WHAT, np.bincount(searches.what, minlength=len(WHAT)).tolist(), strict=True):
        found[f"searches_{name}"] = count
    for name, count in zip(ROLES, np.bincount(searches.who.role, minlength=len(ROLES)).tolist(), strict=True):
        found[f"searches_by_{name}"] = count
    for name, column in zip(("misspelled_at_random", "odd_case", "odd_spaces"), searches.altered.T, strict=True):
        found[name] = int(column.sum())
    found["without_client"] = int((~searches.has_client).sum())
    found["not_in_the_titles_words"] = int((~searches.understood & (searches.who.role == PERSON)).sum())
    for name, count in found.items():
        counts[name] = counts.get(name, 0) + count


def _write_documents(path: Path, titles: Titles, num_documents: int) -> None:
    for begin in range(0, num_documents, BLOCK_SEARCHES):
        numbers = np.arange(begin, min(begin + BLOCK_SEARCHES, num_documents))
        ids = map(document_id, numbers.tolist())
        _write_rows(path, zip(ids, titles.of(numbers), strict=True), append=begin > 0)


def _write_judged(folder: Path, name: str, queries: list[JudgedQuery]) -> None:
    with_ids = [(f"{name}{number:05d}", query) for number, query in enumerate(queries)]
    _write_rows(folder / f"queries.{name}.tsv", ((query_id, query.text) for query_id, query in with_ids))
    qrels = (
        (f"{query_id} 0 {document_id(document)} {grade}",)
        for query_id, query in with_ids
        for document, grade in zip(query.documents, query.grades, strict=True)
    )
    _write_rows(folder / f"qrels.{name}.txt", qrels)


def _write_rows(path: Path, rows: Iterable[tuple[str, ...]], append: bool = False) -> None:
    with path.open("a" if append else "w", encoding="utf-8", newline="\n") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)
