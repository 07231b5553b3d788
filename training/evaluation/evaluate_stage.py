"""Evaluation: model + documents + queries + qrels -> NDCG table with intervals, TREC runs, examples.

    python: evaluate("store/train/DIGEST", documents="documents.tsv", queries="queries.tsv",
    qrels="qrels.txt", store="store", config=EvaluateConfig())

Reads the model of a train stage, or of a release (model_source). Writes below STORE/evaluate/DIGEST/ATTEMPT/:

    table.json                              what `metrics` of the manifest holds
    per_query.json                          for every query: every measure of every system, the best cosine of ours,
                                            and the part of each slice that it is in; ids and numbers only
    examples.json                           queries with the ranked titles of ours beside BM25's
    runs/SYSTEM.run                         the judged documents re-ranked, TREC form
    runs/SYSTEM.collection.run              the best of the whole collection

BM25 and the random order are the same beside every model, so each is an output of its own (measured_row).

A slice groups the queries in which systems may differ: by length, spelling, intent, frequency, seen or new.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.content_filters import adult_list as read_adult_list
from clicktower.schemas.documents import Documents, read_documents, require_documents
from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import are_click_derived, read_qrels, read_queries, run_lines
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.manifest import Outcome, to_bytes
from clicktower.schemas.stage import Progress, Stage, StageResult, require_present, run_stage, silent
from clicktower.schemas.text_contract import keyed_digest, words
from clicktower.training.evaluation.row import (
    BASELINE,
    BM25_ROW,
    RANDOM_ORDER,
    ComparisonInputs,
    EvaluateConfig,
    measured_baseline,
)
from clicktower.training.model.model import load_encoder
from clicktower.training.model.model_folder import model_source
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.measure import JudgedCollection, Measured, System, judged_collection, measure
from clicktower.training.ranking.ndcg import gains_of, judged_pairs
from clicktower.training.ranking.title_ranking import TitleRanking

LONGEST = 4  # the number of words from which on queries form one part
# After Jansen, Booth and Spink (Information Processing & Management 44, 2008), as far as a query alone shows.
NAVIGATIONAL = re.compile(
    r"https?:|\bwww\b|\w\.(?:com|org|net|edu|gov|co)\b|\b(?:web ?site|home ?page|log ?in|sign ?in)\b"
)
TRANSACTIONAL = re.compile(
    r"\b(?:buy|order|purchase|price[sd]?|cheap(?:est)?|discounts?|coupons?|deals?|for sale|download|rent(?:al)?|chat)\b"
)

# A slice's parts in their order, and for each query (in the order of the qrels) the part it is in, or None.
Slice = tuple[Sequence[str], Sequence[str | None]]


def slices(collection: JudgedCollection, frequencies: Mapping[str, int] | None = None) -> dict[str, Slice]:
    """Every slice with data.

    `frequencies`: how often each query was asked, by id, for head, torso and tail: the most frequent queries that make
    up a third of all searches, those of the second third, and the rest.
    """
    texts = [words(collection.queries[query_id]) for query_id in collection.qrels]
    result: dict[str, Slice] = {
        "query length": (
            [*(f"{n} word{'s' * (n > 1)}" for n in range(1, LONGEST)), f"{LONGEST} words and more"],
            [_length(len(text)) for text in texts],
        ),
        "spelling": _spelling(collection, texts),
    }
    intents = [_intent(collection.queries[query_id].casefold()) for query_id in collection.qrels]
    if any(intents):
        result["intent"] = (
            ["navigational", "transactional", "other"],
            [intent or "other" if text else None for intent, text in zip(intents, texts, strict=True)],
        )
    if frequencies and any(frequencies.get(query_id) for query_id in collection.qrels):
        result["frequency"] = _frequency(list(collection.qrels), frequencies)
    return result


def read_frequencies(uri: str) -> dict[str, int]:
    """How often each query was asked: query id TAB count. Raises UsageError or StageError, naming the line."""
    counts: dict[str, int] = {}
    for query_id, text in read_queries(uri).items():
        if not text.strip().isdigit():
            raise StageError(
                f"In {uri} the line of {query_id} ends in no whole number; each must hold a query id, a tab and a"
                " frequency.",
                "Correct that line, or leave --frequencies out.",
            )
        counts[query_id] = int(text)
    return counts


def _length(count: int) -> str | None:
    if not count:
        return None
    return f"{LONGEST} words and more" if count >= LONGEST else f"{count} word{'s' * (count > 1)}"


def _spelling(collection: JudgedCollection, texts: Sequence[Sequence[str]]) -> Slice:
    """Whether a query has a word that no title has: misspelled, or not used by the catalogue, so words cannot match."""
    vocabulary = {word for title in collection.titles for word in words(title)}
    parts = ["all words known", "a word in no title", "no word in any title"]

    def part(text: Sequence[str]) -> str | None:
        num_known = sum(word in vocabulary for word in text)
        return None if not text else parts[0] if num_known == len(text) else parts[1] if num_known else parts[2]

    return parts, [part(text) for text in texts]


def _intent(query: str) -> str | None:
    """Whether a query names or requests a site, or wants to buy or obtain something, by English words."""
    return "navigational" if NAVIGATIONAL.search(query) else "transactional" if TRANSACTIONAL.search(query) else None


def _frequency(query_ids: Sequence[str], frequencies: Mapping[str, int]) -> Slice:
    """Head, torso, tail: a query is in the head while the more frequent ones make up less than a third of all."""
    parts = ["head", "torso", "tail"]
    with_frequency = sorted((q for q in query_ids if frequencies.get(q)), key=lambda q: (-frequencies[q], q))
    total = sum(frequencies[q] for q in with_frequency)
    before = np.cumsum([0, *(frequencies[q] for q in with_frequency)])[:-1]
    part_of = {
        q: parts[int(3 * more_frequent // total)] for q, more_frequent in zip(with_frequency, before, strict=True)
    }
    return parts, [part_of.get(query_id) for query_id in query_ids]


EVALUATE = Stage("evaluate", version=6)
OURS, VECTORS = "model", "vectors"

RULES = {
    "discount": "log2(rank + 1)",
    "ties": "as trec_eval: scores as 32-bit floats, then descending document id",
    "queries": "adult and spam ones are left out, as from a log; those of one text are one, with the judgments of all",
    "unjudged": "an unjudged document takes its place in the ranking and gains nothing",
    "no_results": "a query without results has the value 0 and is never dropped",
    "no_relevant": "a query without a relevant document has the value 0",
    "unknown_documents": "a judged document outside the collection cannot be returned; the best order still has it",
    "interval": "percentile bootstrap over queries",
    "p": "two-sided paired randomisation test; p_holm is corrected over the measures of the comparison",
}
CLICK_DERIVED_SENTENCE = (
    "the judgments are derived from clicks, by no judge: they hold what the log showed, and lean to its order where"
    " clicks are few"
)


def evaluate(
    model: str,
    *,
    documents: str,
    queries: str,
    qrels: str,
    store: str,
    config: EvaluateConfig,
    adult_list: str | None = None,
    frequencies: str | None = None,
    progress: Progress = silent,
) -> StageResult:
    """The evaluated model: `metrics` holds the table of ours, its vectors alone, BM25 and a random order.

    Ours is the whole score (title_ranking). Its vectors alone are what a release exports; they are left out if nothing
    else has a share.

    model: the folder of a training or a release, or a release's URI. adult_list: of terms, in place of the built-in
    list: such queries are not measured. frequencies: how often each query was asked (id,
    tab, count), to distinguish head, torso and tail. Raises UsageError or StageError for files that are missing,
    malformed, or that do not belong together.
    """
    trained = model_source(model)
    require_documents(documents)
    judged, adult = (read_queries(queries), read_qrels(qrels)), read_adult_list(adult_list)
    frequency_of = read_frequencies(frequencies) if frequencies else None
    inputs = {
        "model": trained.digest,
        "documents": storage.fingerprint(documents),
        "queries": storage.fingerprint(queries),
        "qrels": storage.fingerprint(qrels),
        **({"adult_list": adult.digest} if adult_list else {}),
        **({"frequencies": storage.fingerprint(frequencies)} if frequencies else {}),
    }

    def produce(folder: str) -> Outcome:
        require_present(trained.outputs)
        catalogue = read_documents(documents)  # only here: a finished result needs no table of titles
        collection = judged_collection(
            catalogue, *judged,
            min_judged=config.min_judged, relevant_grade=config.relevant_grade, adult_terms=adult.terms,
        )  # fmt: skip
        gains_of(judged_pairs(collection.qrels).grades, config.gain)  # it refuses bad grades before anything is encoded
        comparison = ComparisonInputs(
            documents=catalogue, collection=collection, training_queries=(), training_titles=(), config=config
        )
        files = {name: value for name, value in inputs.items() if name not in ("model", "frequencies")}
        baseline, bm25 = measured_baseline(store, BM25_ROW, files, comparison, progress)
        floor, _ = measured_baseline(store, RANDOM_ORDER, files, comparison, progress)
        measured = {
            **{
                name: measure(system, collection, config.rules, what=f"rank with {name}", progress=progress)
                for name, system in _systems(trained.folder, catalogue, config, bm25, progress).items()
            },
            BASELINE: baseline,
            RANDOM_ORDER.name: floor,
        }
        metrics = table(collection, measured, config)
        shown = examples(collection, measured, config)
        metrics["example_queries"] = [example["query"] for example in shown]
        _write(folder, _per_query(collection, measured, frequency_of), measured, metrics, shown)
        labels = dict(trained.labels)
        if are_click_derived(collection.qrels):
            labels["judgments"] = "click-derived"
        return Outcome(counts=collection.counts, metrics=metrics, labels=labels)

    return run_stage(store, EVALUATE.request(config, inputs), produce, progress)


def table(collection: JudgedCollection, measured: Mapping[str, Measured], config: EvaluateConfig) -> dict[str, Any]:
    """The means with intervals, ours against the baseline, their rules, and caveats."""
    names = list(measured[OURS].per_query)
    difference_QM = measured[OURS].values_QM - measured[BASELINE].values_QM
    differences = zip(names, config.intervals(difference_QM), config.p_values(difference_QM), strict=True)
    return {
        "n": len(collection.qrels),
        "n_informative": len(collection.qrels) - collection.counts["queries_of_one_grade"],
        "systems": {
            name: dict(zip(names, config.intervals(system.values_QM), strict=True)) for name, system in measured.items()
        },
        "difference": {
            "of": OURS,
            "to": BASELINE,
            "measures": {name: interval | p for name, interval, p in differences},
        },
        "confidence": config.confidence,
        "gain": config.gain,
        "rules": RULES,
        "warnings": warnings(collection),
        "run_files": {name: f"runs/{name}.run" for name in measured},
    }


def _systems(
    model: str, documents: Documents, config: EvaluateConfig, bm25: System | None, progress: Progress
) -> dict[str, System]:
    encoder = load_encoder(model)
    index = bm25 if isinstance(bm25, TitleBM25) else None
    ours = TitleRanking(encoder, documents.titles, config.language, bm25=index, progress=progress)
    return {OURS: ours, VECTORS: ours.vectors} if encoder.word_share or encoder.lexical_share else {OURS: ours}


def warnings(collection: JudgedCollection) -> list[str]:
    counts = collection.counts
    sentences = {
        "queries_left_out_without_text": "judged queries have no text in the queries file and were left out",
        "queries_left_out_adult": "judged queries are adult and were left out, as they leave a log",
        "queries_left_out_spam": "judged queries are spam and were left out, as they leave a log",
        "queries_of_equal_text": "judged queries have the text of another: they are one, with the judgments of both",
        "judgments_of_unknown_documents": "judgments are of unknown documents: no system can return them",
        "judgments_of_several_grades": "judged pairs were given different grades: the lower median counts",
        "queries_without_words": "queries have no word: they have no results and count 0",
        "queries_of_one_grade": "queries have judgments of one single grade: they cannot tell two systems apart",
    }
    warned = [f"{counts[name]:,} {sentence}" for name, sentence in sentences.items() if counts[name]]
    warned += [rows.sentence for rows in collection.unfit]
    return [CLICK_DERIVED_SENTENCE, *warned] if are_click_derived(collection.qrels) else warned


def _per_query(
    collection: JudgedCollection, measured: Mapping[str, Measured], frequencies: Mapping[str, int] | None
) -> dict[str, Any]:
    """All measures of each query, in the order of `query_ids`, without any text."""
    best = [measured[OURS].retrieved[query_id].values() for query_id in collection.qrels]
    return {
        "query_ids": list(collection.qrels),
        "systems": {
            name: {m: values.tolist() for m, values in system.per_query.items()} for name, system in measured.items()
        },
        "best_score": [max(scores) if scores else None for scores in best],
        "slices": {
            name: {"parts": list(parts), "of_query": [None if part is None else parts.index(part) for part in of_query]}
            for name, (parts, of_query) in slices(collection, frequencies).items()
        },
    }


_MOST_TITLES = 10  # of each ranking


def examples(
    collection: JudgedCollection, systems: Mapping[str, Measured], config: EvaluateConfig
) -> list[dict[str, Any]]:
    """Up to `num_examples` queries with the best titles of ours and of the baseline over the full collection.

    Four in ten gained most in NDCG@10 over the collection, three in ten lost most, three in ten are drawn from the
    queries that share no word with any relevant title (by a keyed draw, so not the flattering ones); the rest is drawn.
    `why` names the group.
    """
    analyser = Analyser(config.language)
    gained_Q = (systems[name].per_query["collection_ndcg@10"] for name in (OURS, BASELINE))
    difference = dict(zip(collection.qrels, np.subtract(*gained_Q).tolist(), strict=True))

    def shares_no_word(query_id: str) -> bool:
        relevant = [d for d, grade in collection.qrels[query_id].items() if grade >= config.relevant_grade]
        titles = [collection.titles[collection.row_of[d]] for d in relevant if d in collection.row_of]
        in_query = set(analyser.terms(collection.queries[query_id]))
        return bool(titles) and not any(in_query.intersection(analyser.terms(title)) for title in titles)

    drawn = sorted(collection.searchable, key=lambda query_id: keyed_digest(query_id, config.seed, b"examples"))
    by_gain = sorted(drawn, key=lambda query_id: -difference[query_id])
    wishes = [
        ("gain", [q for q in by_gain if difference[q] > 0], 0.4),
        ("loss", [q for q in reversed(by_gain) if difference[q] < 0], 0.3),
        ("no shared word", [q for q in drawn if shares_no_word(q)], 0.3),
        ("drawn", drawn, 1),
    ]
    why_of: dict[str, str] = {}
    for why, candidates, share in wishes:
        fresh = [query_id for query_id in candidates if query_id not in why_of]
        number = min(round(share * config.num_examples), config.num_examples - len(why_of))
        why_of |= dict.fromkeys(fresh[:number], why)
    row_of_query = {query_id: row for row, query_id in enumerate(collection.qrels)}
    shown = []
    for query_id, why in why_of.items():
        measures, rankings = {}, {}
        for name in (OURS, BASELINE):
            of_query = {m: v[row_of_query[query_id]] for m, v in systems[name].per_query.items()}
            measures[name] = {m: round(float(value), 4) for m, value in of_query.items()}
            results = list(systems[name].retrieved[query_id].items())[:_MOST_TITLES]
            rankings[name] = ranked_titles(collection, query_id, ((d, round(score, 4)) for d, score in results))
        query = collection.queries[query_id]
        shown.append({"query_id": query_id, "query": query, "why": why, "measures": measures, "rankings": rankings})
    return shown


def ranked_titles(
    collection: JudgedCollection, query_id: str, results: Iterable[tuple[str, float]]
) -> list[dict[str, Any]]:
    """A query's results as people read them, best first; the grade is None without a judgment."""
    return [
        {
            "rank": rank,
            "id": document_id,
            "title": collection.titles[collection.row_of[document_id]] if document_id in collection.row_of else "",
            "score": score,
            "grade": collection.qrels[query_id].get(document_id),
        }
        for rank, (document_id, score) in enumerate(results, start=1)
    ]


def _write(folder: str, per_query: dict, measured: Mapping[str, Measured], metrics: dict, shown: list[dict]) -> None:
    for name, value in {"table": metrics, "per_query": per_query, "examples": shown}.items():
        storage.write_atomic(storage.join(folder, f"{name}.json"), to_bytes(value))
    for name, system in measured.items():
        for kind, run in (("run", system.judged), ("collection.run", system.retrieved)):
            lines = "".join(run_lines(run, f"clicktower-{name}"))
            storage.write_atomic(storage.join(folder, "runs", f"{name}.{kind}"), lines.encode())
