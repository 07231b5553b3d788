"""Making a release: encode the titles, write and read back everything, measure its searches against exact ones.

The release is not live yet. Its figures are what its evaluation measured of the vectors alone, and of the whole score
it serves; the recall of its searches is against those that compare every document.
"""

import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from heapq import nsmallest
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader

from clicktower.flows.config.guard_rules import PublishConfig
from clicktower.flows.releases import query_onnx as in_onnx
from clicktower.flows.releases.release_documents import (
    CANDIDATES,
    EarlierRows,
    IndexSearch,
    RecallQueries,
    Rows,
    recall,
    write_rows,
)
from clicktower.schemas import storage
from clicktower.schemas.documents import Documents, UnfitRows, read_documents
from clicktower.schemas.errors import StageError
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.manifest import Manifest, Request, output_files
from clicktower.schemas.release import CARD, GOLDEN, MODEL, PER_QUERY, QUERY_TOWER, Release, Similarity
from clicktower.schemas.stage import Progress, StageResult, open_result
from clicktower.schemas.text_contract import keyed_digest, normalise, words
from clicktower.training.evaluation.evaluate_stage import OURS, VECTORS
from clicktower.training.model.embedding import AnyEncoder, keys_at_once, members_of, scores_one_by_one, search_vectors
from clicktower.training.model.model import Model, load_encoder
from clicktower.training.model.model_folder import DESCRIPTION, WEIGHTS
from clicktower.training.ranking.bm25 import INDEX, TitleBM25
from clicktower.training.ranking.measure import score_blocks, top_k
from clicktower.training.ranking.ndcg import measure_name
from clicktower.training.ranking.title_ranking import WORDS, WordMatches, mixed, with_best_by_terms

PART_TITLES = 65_536  # are encoded in a second; more in parts, which a publisher that is killed leaves to the next
DEEP = 10  # an index is also measured, and used, at this multiple of `recall_at` results


def build_index(
    folder: str,
    rows: Rows,
    vectors_ND: np.ndarray,
    queries: RecallQueries,
    config: PublishConfig,
    *,
    similarity: Similarity,
    progress: Progress,
    earlier: EarlierRows | None = None,
) -> tuple[dict[str, Any], IndexSearch]:
    """(the index as recorded in a release, the search that a release has).

    The index visits as few partitions as reach `min_recall` against exact search, at `recall_at` results and at ten
    times as many; if no number of partitions does, the search is exact, and `note` says so. Recall is measured on the
    given queries. vectors_ND: of the documents, as `write_rows` read them. earlier: a release whose partitions are
    continued while few texts are new (`new_texts` of the record counts them since the centres were made).

    Raises StageError if even the exact search misses documents, which means that the vectors are not those that were
    encoded.
    """
    depths = sorted({min(depth, len(rows)) for depth in (config.recall_at, DEEP * config.recall_at)})
    limits_QK = _kth_scores(rows, queries, depths, similarity)
    facts: dict[str, Any] = {"min_recall": config.min_recall, "num_queries": len(queries)}
    if queries.rank:
        facts["candidates"] = CANDIDATES
    tried: list[dict[str, Any]] = []
    if config.index == "ivf" or (config.index == "auto" and len(rows) > config.index_above):
        from clicktower.flows.releases.ivf_index import build_ivf

        if built := build_ivf(
            folder, rows, vectors_ND, queries, config, list(zip(depths, limits_QK.T, strict=True)), facts, tried,
            similarity=similarity, progress=progress, earlier=earlier,
        ):  # fmt: skip
            return built
    exact = IndexSearch(vectors_ND, similarity=similarity)
    reached = recall(queries.scores(exact, depths[0]), limits_QK[:, 0], depths[0])
    if reached < config.min_recall:
        raise StageError(
            f"Even exact search has a recall@{depths[0]} of only {reached:.3f}, below {config.min_recall}. What is"
            " live stays as it is.",
            "Check the disk, and publish again.",
        )
    record = {"kind": "none", "recall": reached, "recall_at": config.recall_at, **facts, "tried": tried}
    if tried:
        best = max(attempt["recall"] for attempt in tried)
        record["note"] = f"the ivf index found at most {best:.3f} of the nearest: searches are exact, and slower"
    return record, exact


def _kth_scores(rows: Rows, queries: RecallQueries, depths: Sequence[int], similarity: Similarity) -> np.ndarray:
    """The exact score of each query's k-th best document, for each k of `depths`, float32 [queries, depths].

    All documents are compared at once, with rounding; the scores of the nearest are then recomputed as searches do.
    """
    of_texts, limits = keys_at_once(similarity, rows.vectors_TD), []
    num_ranked = [max(depth, queries.num_nearest) for depth in depths]

    def keys(block: slice) -> np.ndarray:
        return of_texts(queries.vectors_QD[block])[:, rows.text_of_N]

    for start, key_BN in score_blocks(len(queries), len(rows), keys):
        nearest_BK, _ = top_k(key_BN, min(max(num_ranked), len(rows)))
        for number, nearest_K in enumerate(nearest_BK, start):
            near = partial(_nearness, rows, similarity, queries.vectors_QD[number])
            rank = partial(queries.rank, number) if queries.rank else lambda rows_K, near: near(rows_K)
            scores = {size: rank(nearest_K[:size], near) for size in set(num_ranked)}
            limits.append([np.sort(scores[size])[-depth] for size, depth in zip(num_ranked, depths, strict=True)])
    return np.array(limits)


def _nearness(rows: Rows, similarity: Similarity, query_D: np.ndarray, rows_K: np.ndarray) -> np.ndarray:
    return scores_one_by_one(similarity, rows.vectors_TD[rows.text_of_N[rows_K]], query_D)


_IN_WORDS = {
    "ndcg@10": "NDCG@10 {:.3f} among judged documents",
    "collection_ndcg@10": "NDCG@10 {:.3f} among all",
    "collection_recall@100": "recall@100 {:.3f}",
}

Measures = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """`whole` and `vectors`: each measure's mean and interval; None if it was not measured."""

    n: int  # judged queries
    whole: Measures | None
    vectors: Measures | None
    more: tuple[str, ...]  # what the whole score counts besides the vectors

    def of_vectors(self) -> str:
        """What the vectors of an export reach, in a sentence, and what the service does beside them."""
        if self.whole is None:
            return "The release was published without an evaluation: what its vectors reach was not measured."
        more = " and ".join(self.more)
        if self.vectors is None:
            return (
                f"These vectors alone were not measured: {means_in_words(self.whole)} are of the service's whole score,"
                f" which also counts {more}."
            )
        alone = f"These vectors alone reach {means_in_words(self.vectors)} ({self.n:,} queries)"
        if not more:
            return f"{alone}, and so does the service, which ranks by them."
        return f"{alone}; the service's whole score, which also counts {more}, reaches {means_in_words(self.whole)}."


def figures(evaluation: Mapping[str, Any], encoder: AnyEncoder) -> Figures:
    """The figures of a release's evaluation, which is empty if there was none, and lacks vectors before version 4."""
    systems = evaluation.get("systems", {})
    shares = {
        "each word's best match in a title": encoder.word_share,
        "the terms that query and title share (BM25)": encoder.lexical_share,
    }
    more = tuple(name for name, share in shares.items() if share)
    whole = systems.get(OURS) or None
    return Figures(n=evaluation.get("n", 0), whole=whole, vectors=systems.get(VECTORS) if more else whole, more=more)


def means_in_words(measures: Measures) -> str:
    return ", ".join(words.format(measures[name]["mean"]) for name, words in _IN_WORDS.items() if name in measures)


def make_release(
    built: str,
    uri: str,
    request: Request,
    trained: StageResult,
    documents: str,
    config: PublishConfig,
    evaluated: StageResult | None,
    progress: Progress,
    *,
    workers: int = 1,
) -> tuple[Release, float, tuple[UnfitRows, ...], Sequence[str]]:
    """(the release in the local folder `built`, complete but for its record; milliseconds per search; the rows that are
    no documents; files at the URI to remove once the release is placed).
    """
    started, catalogue = time.monotonic(), read_documents(documents, config.columns)
    for name in (WEIGHTS, DESCRIPTION):
        _copy(trained, name, storage.join(built, MODEL, name))
    model = load_encoder(storage.join(built, MODEL))
    rows, earlier, encoded, parts = _encode_titles(uri, trained, model, catalogue, workers=workers, progress=progress)
    progress("write documents and read them back", 0, None)
    vectors_ND = write_rows(built, rows)
    progress("measure the index against exact search", 0, None)
    bm25 = TitleBM25(catalogue.titles, config.language)
    bm25.write(storage.join(built, INDEX))
    matches = WordMatches(model, catalogue.titles) if model.word_share else None
    if matches:
        matches.write(storage.join(built, WORDS))
    queries = _recall_queries(model, bm25, matches, catalogue, config)
    index, search = build_index(
        built, rows, vectors_ND, queries, config, similarity=model.similarity, progress=progress, earlier=earlier
    )
    asked_at = time.monotonic()
    queries.scores(search, config.recall_at)
    milliseconds = round((time.monotonic() - asked_at) / len(queries) * 1000, 3)
    progress("write what other languages read", 0, None)
    expected = in_onnx.golden(model, _draw_titles(catalogue, config, in_onnx.NUM_TITLES))
    storage.write_atomic(storage.join(built, GOLDEN), "".join(expected.lines()).encode())
    release = Release(
        digest=request.digest,
        text_contract=model.text_contract,
        num_documents=len(rows),
        dimensions=model.dimensions,
        index=index,
        evaluation=_table(evaluated),
        inputs=request.inputs,
        labels=trained.manifest.outcome.labels,
        created=datetime.now(UTC).isoformat(timespec="microseconds"),
        evaluated=_copy_evaluation(evaluated, built),
        query_tower=_write_query_tower(model, expected, built),
        golden={"file": GOLDEN, "num_texts": len(expected)},
        encoded=encoded,
        similarity=model.similarity,
        lexical=Analyser(config.language).contract,
        stage_version=request.stage_version,
        config=request.config,
    )
    card = model_card(release, model, trained)
    storage.write_atomic(storage.join(built, CARD), card.encode("utf-8", "replace"))
    release = replace(release, files=output_files(built), duration_seconds=round(time.monotonic() - started, 3))
    return release, milliseconds, catalogue.unfit, parts


def _encode_titles(
    uri: str, trained: StageResult, model: AnyEncoder, catalogue: Documents, *, workers: int, progress: Progress
) -> tuple[Rows, EarlierRows | None, dict[str, int], Sequence[str]]:
    """(the documents with vectors from the document tower, in the form that searches compare; the release that some
    are from; how many titles are encoded now, taken from parts of a killed publisher and reused; files to remove after
    the release is placed).

    Raises StageError for a vector that is not finite.
    """
    row_of: dict[str, int] = {}
    text_of_N = np.array([row_of.setdefault(normalise(title), len(row_of)) for title in catalogue.titles], np.int64)
    distinct = list(row_of)
    vectors_TD = np.empty((len(distinct), model.dimensions), np.float32)
    progress("look for vectors of an earlier release", 0, None)
    earlier, missing = None, np.arange(len(distinct))
    if any(not name.startswith(storage.BUILDING) for name in storage.list_folders(storage.join(uri, "releases"))):
        from clicktower.flows.releases.encode_texts import earlier_rows

        earlier = earlier_rows(uri, trained, model, distinct)
    if earlier:
        is_there = earlier.row_of_T >= 0
        vectors_TD[is_there] = earlier.vectors_ND[earlier.row_of_T[is_there]]
        missing = np.flatnonzero(~is_there)
    texts, parts, resumed = [distinct[row] for row in missing], list[str](), 0
    reused = len(distinct) - len(texts)

    def tell(num_encoded: int) -> None:
        progress("encode titles", reused + num_encoded, len(distinct))

    if len(texts) > PART_TITLES:
        from clicktower.flows.releases.encode_texts import encode_parts

        vectors_TD[missing], resumed, parts = encode_parts(uri, trained, model, texts, PART_TITLES, workers, tell)
    elif texts:
        tell(0)
        vectors_TD[missing] = search_vectors(model, texts, "document")
    counts = {"titles": len(distinct), "encoded": len(texts) - resumed, "resumed": resumed, "reused": reused}
    return Rows(documents=catalogue.table, vectors_TD=vectors_TD, text_of_N=text_of_N), earlier, counts, parts


def _table(evaluated: StageResult | None) -> dict[str, Any]:
    """The figures of an evaluation, without its example queries and file names."""
    metrics = evaluated.manifest.outcome.metrics if evaluated else {}
    return {name: value for name, value in metrics.items() if name not in ("example_queries", "run_files")}


def _copy_evaluation(evaluated: StageResult | None, built: str) -> dict[str, Any]:
    """Copy the evaluation's inputs and its values per query, so that a later candidate can be compared in pairs."""
    if evaluated is None:
        return {}
    manifest = evaluated.manifest
    if f"{manifest.attempt}/{PER_QUERY}" in (file.path for file in manifest.files):
        _copy(evaluated, PER_QUERY, storage.join(built, PER_QUERY))
    return {"inputs": dict(manifest.request.inputs), "config": dict(manifest.request.config)}


def _write_query_tower(model: AnyEncoder, expected: in_onnx.Golden, built: str) -> dict[str, Any]:
    """Write query.onnx if it reproduces the golden vectors; otherwise return the reason."""
    try:
        graph = in_onnx.query_onnx(model)
    except in_onnx.CannotExport as error:
        return {"file": None, "reason": error.problem}
    difference = in_onnx.onnx_difference(graph, expected)
    if difference > in_onnx.TOLERANCE:
        text = f"its vectors would differ by up to {difference:.1g} from the model's; {in_onnx.TOLERANCE:g} is allowed"
        return {"file": None, "reason": text}
    storage.write_atomic(storage.join(built, QUERY_TOWER), graph)
    return {"file": QUERY_TOWER, "opset": in_onnx.OPSET, "max_difference": difference, "num_texts": len(expected)}


def _copy(stage: StageResult, name: str, to: str) -> None:
    """Copy a file of a stage's output after checking every byte against its recorded hash."""
    recorded = {file.path: file.sha256 for file in stage.manifest.files}
    content = storage.read_bytes(storage.join(stage.data, name))
    if hashlib.sha256(content).hexdigest() != recorded.get(f"{stage.manifest.attempt}/{name}"):
        raise StageError(
            f"{name} of {stage.folder} has other bytes than were written: the release would not be what was evaluated.",
            f"Run {stage.manifest.request.stage} again.",
        )
    storage.write_atomic(to, content)


def _recall_queries(
    model: AnyEncoder, bm25: TitleBM25, matches: WordMatches | None, documents: Documents, config: PublishConfig
) -> RecallQueries:
    """Two words of a title each, ranked as searches rank."""
    titles = _draw_titles(documents, config, config.num_recall_queries)
    texts = [_two_words(title, config.seed) for title in titles]
    vectors_QD, words, terms = search_vectors(model, texts, "query"), model.word_share, model.lexical_share
    if not (words or terms):
        return RecallQueries(vectors_QD=vectors_QD)

    def rank(number: int, nearest: np.ndarray, near: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        text = texts[number]
        rows = with_best_by_terms(bm25, text, nearest, CANDIDATES)
        of_words = matches.scores_of(text, rows) if matches else None
        return mixed(near(rows), of_words, bm25.relative_scores_of(text, rows) if terms else None, words, terms)

    return RecallQueries(vectors_QD=vectors_QD, rank=rank)


def _two_words(title: str, seed: int) -> str:
    """Two of a title's words, drawn: an index finds about as much for them as for real queries (0.981 and 0.977 of the
    ten best of a million product titles, benchmarks/serving.py), and more for longer parts of titles.
    """
    of_title = words(title)
    places = random.Random(f"{seed} {title}").sample(range(len(of_title)), min(2, len(of_title)))
    return " ".join(of_title[place] for place in sorted(places))


def _draw_titles(documents: Documents, config: PublishConfig, num_titles: int) -> list[str]:
    """Titles drawn by a keyed hash of their ids."""
    titled = zip(documents.ids, documents.titles, strict=True)
    drawn = nsmallest(num_titles, titled, key=lambda document: keyed_digest(document[0], config.seed, b"recall"))
    return [title for _, title in drawn]


# The model card: README.md with metadata for model hubs and what people should know first.
#
# Statements about the log come from the manifests in the model's store; if they are missing, the card says so. The
# metadata is YAML whose values are JSON, which YAML includes. The text is in model_card.md.

_COUNTS = {
    "train_pairs": "query and title pairs to train on",
    "dev_pairs": "pairs held out",
    "train_queries": "queries to train on",
    "pool_documents": "titles that unclicked ones are drawn from",
}
_OF_ALL = ("collection_ndcg@10", "collection_recall@100")  # beside NDCG of judged documents


def model_card(release: Release, model: AnyEncoder, trained: StageResult) -> str:
    """README.md of a release, from the model's stage and the builds behind it, in the same store."""
    cards = Environment(
        loader=PackageLoader("clicktower.flows", "releases"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # Markdown: nothing is escaped
    cards.filters |= {
        "json": lambda value: json.dumps(value, ensure_ascii=False),
        "number": lambda value: f"{value:,}",
        "cell": lambda text: text.replace("|", "\\|"),
        "tower": _tower,
        "training": _training,
        "measure": measure_name,
        "interval": _interval,
    }
    members = members_of(model)
    names = [member.name for member in members]
    table, measured = release.evaluation, figures(release.evaluation, model)
    ours = measured.whole or {}
    return cards.get_template("model_card.md").render(
        release=release, members=members, names=names, name=" + ".join(names), contract=release.text_contract,
        index=release.index, query_tower=release.query_tower, table=table, ours=ours,
        measured=measured,
        columns=[name for name in ours if name.startswith("ndcg@") or name in _OF_ALL],
        metrics=[
            {"type": measure.replace("@", "_at_"), "value": round(value["mean"], 4), "name": measure_name(measure)}
            for measure, value in (measured.vectors or {}).items()
        ],
        against=table.get("difference", {}).get("measures", {}).get("ndcg@10"),
        builds=_builds(trained),
    )  # fmt: skip


def _builds(trained: StageResult) -> list[dict[str, Any]]:
    store = trained.folder.rstrip("/").rsplit("/", 2)[0]
    members = trained.manifest.request.inputs.get("models")
    trainings = [_manifest(store, "train", digest) for digest in members] if members else [trained.manifest]
    shards = dict.fromkeys(str(training.request.inputs.get("shards")) for training in trainings if training)
    builds = []
    for digest in shards:
        if build := _manifest(store, "build", digest):
            counts, metrics = build.outcome.counts, build.outcome.metrics
            builds.append({
                "digest": build.digest,
                "window": _window(metrics.get("window") or {}, _times(store, build)),
                "ledger": build.outcome.ledger,
                "counts": [(label, counts[name]) for name, label in _COUNTS.items() if name in counts],
                "privacy_gate": metrics.get("privacy_gate"),
            })  # fmt: skip
    return builds


def _manifest(store: str, stage: str, digest: str) -> Manifest | None:
    if not str(digest).isalnum():  # a stranger's record may hold any text
        return None
    try:
        return open_result(storage.join(store, stage, digest)).manifest
    except (StageError, OSError):
        return None


def _times(store: str, build: Manifest) -> list[str]:
    """The first and last times of the lines that a build was made from, as far as its ingests are there."""
    days = [_manifest(store, "ingest", digest) for digest in build.request.inputs.get("days") or ()]
    of_days = [day.outcome.metrics.get(name) for day in days if day for name in ("first_time", "last_time")]
    return sorted(filter(None, of_days))


def _window(window: Mapping[str, Any], times: list[str]) -> str:
    if window.get("from") and window.get("to"):
        begins = window.get("begins")
        missing = [date for date in window.get("missing") or [] if not begins or date > begins]
        return f"{begins or window['from']} to {window['to']}" + (f", without {', '.join(missing)}" if missing else "")
    return f"{times[0][:10]} to {times[-1][:10]}" if times else "not known: the log has no dates"


def _tower(member: Any) -> str:
    if not isinstance(member, Model):
        return f"imported, {member.settings.pooling} of the tokens, of which it reads {member.settings.max_tokens:,}"
    tower = member.recipe.tower
    settings = asdict(tower)
    sizes = [f", {name} {settings[name]}" for name in ("hidden", "window", "hops", "latent") if name in settings]
    gates = [name for name in ("forget_gate", "peepholes") if settings.get(name)]
    return f"{tower.kind}, {tower.cells} cells{''.join(sizes)}" + (f", with {' and '.join(gates)}" if gates else "")


def _training(member: Any) -> str:
    if not isinstance(member, Model):
        return "trained elsewhere"
    printed = "as printed in arXiv:1502.06922" if member.recipe.as_printed else "not those that arXiv:1502.06922 prints"
    return f"{member.recipe.epochs} epochs; settings {printed}"


def _interval(value: Mapping[str, float]) -> str:
    interval = f" [{value['low']:.3f}, {value['high']:.3f}]" if "low" in value and "high" in value else ""
    return f"{value['mean']:.3f}{interval}"
