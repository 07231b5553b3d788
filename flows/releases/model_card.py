"""The model card of a release: README.md with metadata for model hubs and what people should know first.

Statements about the log come from the manifests in the model's store; if they are missing, the card says so. The
metadata is YAML whose values are JSON, which is YAML too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from schemas import storage
from schemas.errors import StageError
from schemas.manifest import Manifest
from schemas.release import GOLDEN, MODEL, PER_QUERY, QUERY_TOWER, TABLE, Release
from schemas.stage import StageResult, open_result
from training.models.ensemble import Ensemble
from training.models.model import Model

_COMPARED = {"cosine": "length 1, compared by cosine", "euclidean": "compared by distance"}
_NAMES = {"model": "this model", "bm25": "BM25", "random": "random order"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The origin of a model: the manifests of its trainings, and of their shards if available."""

    trainings: Sequence[Manifest]
    builds: Sequence[Manifest]


def origin_of(trained: StageResult) -> Origin:
    """The trainings and builds behind a model's folder, found in the store that it is in."""
    store = trained.folder.rstrip("/").rsplit("/", 2)[0]
    members = trained.manifest.request.inputs.get("models")
    found = [_manifest(store, "train", digest) for digest in members] if members else [trained.manifest]
    trainings = [manifest for manifest in found if manifest]
    shards = dict.fromkeys(str(manifest.request.inputs.get("shards")) for manifest in trainings)
    builds = [manifest for digest in shards if (manifest := _manifest(store, "build", digest))]
    return Origin(trainings=trainings, builds=builds)


def model_card(release: Release, model: Model | Ensemble, origin: Origin) -> str:
    """README.md of a release."""
    parts = [
        _front_matter(release, model),
        *_opening(release, model),
        "## Data\n",
        *_data(release, origin),
        "\n## Model\n",
        *_model(release, model),
        "\n## Evaluation\n",
        *_evaluation(release.evaluation),
        "\n## Privacy\n",
        *_privacy(origin),
        "\n## Intended use and limits\n",
        *_limits(release),
        "\n## Files\n",
        *_files(release),
    ]
    return "\n".join(parts) + "\n"


def _manifest(store: str, stage: str, digest: str) -> Manifest | None:
    try:
        return open_result(storage.join(store, stage, digest)).manifest
    except (StageError, OSError):
        return None


def _recipes(model: Model | Ensemble) -> list[str]:
    members = model.members if isinstance(model, Ensemble) else (model,)
    return [member.recipe.name for member in members]


def _front_matter(release: Release, model: Model | Ensemble) -> str:
    name = f"clicktower {' + '.join(_recipes(model))}"
    metadata: dict[str, Any] = {
        "library_name": "clicktower",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-similarity", "semantic-search", "letter-trigrams", *dict.fromkeys(_recipes(model))],
    }
    ours = release.evaluation.get("systems", {}).get("model")
    if ours:
        task = {"type": "text-ranking", "name": "Ranking judged documents"}
        data = {"type": "judged-queries", "name": f"{release.evaluation['n']} judged queries"}
        metrics = [
            {"type": measure.replace("@", "_at_"), "value": round(value["mean"], 4), "name": _measure(measure)}
            for measure, value in ours.items()
        ]
        metadata["model-index"] = [{"name": name, "results": [{"task": task, "dataset": data, "metrics": metrics}]}]
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items()]
    return "\n".join(["---", *lines, "---", ""])


def _opening(release: Release, model: Model | Ensemble) -> Iterator[str]:
    yield f"# {' + '.join(_recipes(model))}, release {release.digest}\n"
    yield (
        f"Two towers trained by clicktower on the clicks of a search engine: a query lands near the titles that people"
        f" would click. This release serves {release.num_documents:,} documents as vectors of {release.dimensions:,}"
        f" dimensions; it was made {release.created[:10]}.\n"
    )
    if release.labels.get("simulated"):
        yield "**Trained on a simulated log: its figures say nothing about real people.**\n"


def _data(release: Release, origin: Origin) -> Iterator[str]:
    if not origin.builds:
        yield "The manifests of the training data were not beside the model when this release was made."
    for build in origin.builds:
        counts, metrics, ledger = build.outcome.counts, build.outcome.metrics, build.outcome.ledger
        rows = [("window", _window(metrics.get("window") or {}))]
        if ledger:
            rows += [("lines of the log", f"{ledger.total:,}, of which {ledger.of_kind('kept'):,} were used")]
        rows += [
            (what, f"{counts[name]:,}")
            for name, what in (
                ("train_pairs", "query and title pairs to train on"),
                ("dev_pairs", "pairs held out"),
                ("train_queries", "queries to train on"),
                ("pool_documents", "titles that unclicked ones are drawn from"),
            )
            if name in counts
        ]
        rows += [("shards", f"`{build.digest}`")]
        yield _table(("", ""), rows)


def _window(window: Mapping[str, Any]) -> str:
    if window.get("from") and window.get("to"):
        missing = window.get("missing") or []
        return f"{window['from']} to {window['to']}" + (f", without {', '.join(missing)}" if missing else "")
    return "not known: the log has no dates"


def _model(release: Release, model: Model | Ensemble) -> Iterator[str]:
    members = model.members if isinstance(model, Ensemble) else (model,)
    rows = []
    for member in members:
        recipe = member.recipe
        settings = asdict(recipe.tower)
        sizes = [name for name in ("hidden", "window", "hops", "latent") if name in settings]
        shape = "".join(f", {name} {settings[name]}" for name in sizes)
        gates = [name for name in ("forget_gate", "peepholes") if settings.get(name)]
        told = f"{recipe.tower.kind}, {recipe.tower.cells} cells{shape}"
        told += f", with {' and '.join(gates)}" if gates else ""
        rows.append((f"`{recipe.name}`", f"{told}; {member.num_parameters:,} parameters; {recipe.epochs} epochs"))
    contract = release.text_contract
    rows.append(("text contract", f"trigrams {contract['trigrams']}, Unicode {contract['unicode']},"
                                  f" {contract['table_rows']:,} rows"))  # fmt: skip
    rows.append(("model", f"`{release.inputs.get('model', '')}`"))
    yield _table(("", ""), rows)


def _evaluation(table: Mapping[str, Any]) -> Iterator[str]:
    systems = table.get("systems", {})
    if not systems or "n" not in table:
        yield "It was published without an evaluation: its ranking quality is unknown."
        return
    measures = [name for name in next(iter(systems.values())) if name.startswith("ndcg@")]
    header = ("", *map(_measure, measures))
    rows = [
        (_NAMES.get(system, system), *(_interval(values[measure]) for measure in measures))
        for system, values in systems.items()
    ]
    yield _table(header, rows)
    share = f"{table['confidence']:.0%} intervals over " if "confidence" in table else ""
    yield f"\nMeans with {share}{table['n']:,} judged queries; the rules are in `release.json`."
    if against := table.get("difference", {}).get("measures", {}).get("ndcg@10"):
        yield (
            f"Against BM25 at NDCG@10: {against['mean']:+.3f} [{against['low']:+.3f}, {against['high']:+.3f}],"
            f" p = {against['p']:.4f}."
        )
    for warning in table.get("warnings", ()):
        yield f"\nNote: {warning}."


def _privacy(origin: Origin) -> Iterator[str]:
    for build in origin.builds:
        if gate := build.outcome.metrics.get("privacy_gate"):
            yield f"A query was used only if at least k different people typed it: {gate}.\n"
    yield (
        "No user or client id, address or user agent reaches a release. The weights are made of letter trigrams of"
        " queries that passed the gate and of titles; the golden texts are those of the text contract and titles."
    )


def _limits(release: Release) -> Iterator[str]:
    index, tower = release.index, release.query_tower
    yield "- For ranking titles of this collection for typed queries; other text was not in its training.\n"
    yield "- It ranks by what people clicked: what was never shown was never clicked, and is ranked by its letters.\n"
    yield "- A text without a word has no vector. Word order beyond the recipe's reach is lost.\n"
    searched = "Exact search" if index["kind"] == "none" else f"The {index['kind']} index"
    yield f"- {searched} finds {index['recall']:.3f} of the {index['recall_at']} nearest documents."
    if not tower.get("file"):
        yield f"\n- There is no ONNX query tower: {tower['reason']}."


def _files(release: Release) -> Iterator[str]:
    tower = release.query_tower
    rows = [
        (f"`{MODEL}/`", "the weights (safetensors) and their description"),
        (f"`{TABLE}.lance`", f"id, title, vector (float32, {_COMPARED[release.similarity]}), a LanceDB table"),
        (f"`{GOLDEN}`", f"{release.golden['num_texts']} texts with words, trigram ids and expected vectors"),
    ]
    if tower.get("file"):
        rows.append((f"`{QUERY_TOWER}`", f"the query tower; its vectors differ by at most {tower['max_difference']:.1g}"
                                         " from the expected ones"))  # fmt: skip
    if release.evaluated:
        rows.append((f"`{PER_QUERY}`", "every measure of every system for every judged query"))
    yield _table(("file", "what"), [*rows, ("`release.json`", "all of this for programs, and the hash of every file")])


def _measure(name: str) -> str:
    return name.replace("ndcg", "NDCG").replace("collection_", "collection ").replace("mrr", "MRR")


def _interval(value: Mapping[str, float]) -> str:
    interval = f" [{value['low']:.3f}, {value['high']:.3f}]" if "low" in value and "high" in value else ""
    return f"{value['mean']:.3f}{interval}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)
