"""Making a release: encode the titles, write and read back everything, measure its searches against exact ones.

The release is not live yet.
"""

import hashlib
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from heapq import nsmallest
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader

from clicktower.flows.releases import query_onnx as in_onnx
from clicktower.flows.releases import release_folder
from clicktower.flows.releases.encode_texts import encode_titles
from clicktower.flows.releases.index_recall import RecallQueries, build_index
from clicktower.flows.releases.measured_figures import figures
from clicktower.flows.releases.release_documents import CANDIDATES, Rows, write_rows
from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.schemas import storage
from clicktower.schemas.documents import Documents, UnfitRows, read_documents
from clicktower.schemas.errors import StageError
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.manifest import Manifest, Request, output_files
from clicktower.schemas.release import CARD, GOLDEN, MODEL, PER_QUERY, QUERY_TOWER, Release, read_folder
from clicktower.schemas.release import release_folder as release_folder_of
from clicktower.schemas.stage import Progress, StageResult, open_result
from clicktower.schemas.text_contract import keyed_digest, words
from clicktower.training.model.embedding import AnyEncoder, members_of, search_vectors
from clicktower.training.model.model import Model, load_encoder
from clicktower.training.model.model_folder import DESCRIPTION, WEIGHTS
from clicktower.training.ranking.bm25 import INDEX, TitleBM25
from clicktower.training.ranking.ndcg import measure_name
from clicktower.training.ranking.title_ranking import WORDS, WordMatches, mixed, with_best_by_terms


def make_release(
    to: str,
    request: Request,
    trained: StageResult,
    documents: str,
    config: PublishConfig,
    evaluated: StageResult | None,
    progress: Progress,
    *,
    workers: int = 1,
) -> tuple[Release, float, tuple[UnfitRows, ...]]:
    """(the release, complete but not live; milliseconds per search; the rows that are no documents)."""
    started = time.monotonic()
    digest, catalogue = request.digest, read_documents(documents, config.columns)
    folder = release_folder_of(to, digest)
    with release_folder.building(folder) as built:
        for name in (WEIGHTS, DESCRIPTION):
            _copy(trained, name, storage.join(built, MODEL, name))
        model = load_encoder(storage.join(built, MODEL))
        titles = encode_titles(to, trained, model, catalogue.titles, workers=workers, progress=progress)
        rows = Rows(documents=catalogue.table, vectors_TD=titles.vectors_TD, text_of_N=titles.text_of_N)
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
            built, rows, vectors_ND, queries, config,
            similarity=model.similarity, progress=progress, earlier=titles.earlier,
        )  # fmt: skip
        asked_at = time.monotonic()
        queries.scores(search, config.recall_at)
        milliseconds = round((time.monotonic() - asked_at) / len(queries) * 1000, 3)
        progress("write what other languages read", 0, None)
        expected = in_onnx.golden(model, _draw_titles(catalogue, config, in_onnx.NUM_TITLES))
        storage.write_atomic(storage.join(built, GOLDEN), "".join(expected.lines()).encode())
        release = Release(
            digest=digest,
            text_contract=model.text_contract,
            num_documents=len(rows),
            dimensions=titles.vectors_TD.shape[1],
            index=index,
            evaluation=_table(evaluated),
            inputs=request.inputs,
            labels=trained.manifest.outcome.labels,
            created=datetime.now(UTC).isoformat(timespec="microseconds"),
            evaluated=_copy_evaluation(evaluated, built),
            query_tower=_write_query_tower(model, expected, built),
            golden={"file": GOLDEN, "num_texts": len(expected)},
            encoded=titles.counts,
            similarity=model.similarity,
            lexical=Analyser(config.language).contract,
            stage_version=request.stage_version,
            config=request.config,
        )
        card = model_card(release, model, trained)
        storage.write_atomic(storage.join(built, CARD), card.encode("utf-8", "replace"))
        files = output_files(built)
        release = replace(release, files=files, duration_seconds=round(time.monotonic() - started, 3))
        release_folder.place(built, release, folder)
    for part in titles.parts:
        storage.remove(part)
    return read_folder(folder), milliseconds, catalogue.unfit


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
