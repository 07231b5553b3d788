"""The model card of a release: README.md with metadata for model hubs and what people should know first.

Statements about the log come from the manifests in the model's store; if they are missing, the card says so. The
metadata is YAML whose values are JSON, which is YAML too. The text is in model_card.md.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from jinja2 import Environment, PackageLoader

from schemas import storage
from schemas.errors import StageError
from schemas.manifest import Manifest
from schemas.release import Release
from schemas.stage import StageResult, open_result
from training.models.model import Ensemble, Model

_COUNTS = {
    "train_pairs": "query and title pairs to train on",
    "dev_pairs": "pairs held out",
    "train_queries": "queries to train on",
    "pool_documents": "titles that unclicked ones are drawn from",
}


def model_card(release: Release, model: Model | Ensemble, trained: StageResult) -> str:
    """README.md of a release, of a model's stage and the builds behind it, found in the store that it is in."""
    cards = Environment(
        loader=PackageLoader("flows", "releases"), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )  # Markdown: nothing is escaped
    cards.filters |= {
        "json": lambda value: json.dumps(value, ensure_ascii=False),
        "number": lambda value: f"{value:,}",
        "cell": lambda text: text.replace("|", "\\|"),
        "tower": _tower,
        "measure": _measure,
        "interval": _interval,
    }
    members = model.members if isinstance(model, Ensemble) else (model,)
    names = [member.recipe.name for member in members]
    table = release.evaluation
    ours = table.get("systems", {}).get("model") or {}
    return cards.get_template("model_card.md").render(
        release=release, members=members, names=names, name=" + ".join(names), contract=release.text_contract,
        index=release.index, query_tower=release.query_tower, table=table, ours=ours,
        ndcgs=[name for name in ours if name.startswith("ndcg@")],
        measured=[
            {"type": measure.replace("@", "_at_"), "value": round(value["mean"], 4), "name": _measure(measure)}
            for measure, value in ours.items()
        ],
        against=table.get("difference", {}).get("measures", {}).get("ndcg@10"),
        builds=_builds(trained),
    )  # fmt: skip


def _builds(trained: StageResult) -> list[dict[str, Any]]:
    store = trained.folder.rstrip("/").rsplit("/", 2)[0]
    members = trained.manifest.request.inputs.get("models")
    trainings = [_manifest(store, "train", digest) for digest in members] if members else [trained.manifest]
    shards = dict.fromkeys(str(training.request.inputs.get("shards")) for training in trainings if training)
    found = []
    for digest in shards:
        if build := _manifest(store, "build", digest):
            counts, metrics = build.outcome.counts, build.outcome.metrics
            found.append({
                "digest": build.digest,
                "window": _window(metrics.get("window") or {}),
                "ledger": build.outcome.ledger,
                "counts": [(what, counts[name]) for name, what in _COUNTS.items() if name in counts],
                "privacy_gate": metrics.get("privacy_gate"),
            })  # fmt: skip
    return found


def _manifest(store: str, stage: str, digest: str) -> Manifest | None:
    try:
        return open_result(storage.join(store, stage, digest)).manifest
    except (StageError, OSError):
        return None


def _window(window: Mapping[str, Any]) -> str:
    if window.get("from") and window.get("to"):
        missing = window.get("missing") or []
        return f"{window['from']} to {window['to']}" + (f", without {', '.join(missing)}" if missing else "")
    return "not known: the log has no dates"


def _tower(member: Model) -> str:
    tower = member.recipe.tower
    settings = asdict(tower)
    sizes = [f", {name} {settings[name]}" for name in ("hidden", "window", "hops", "latent") if name in settings]
    gates = [name for name in ("forget_gate", "peepholes") if settings.get(name)]
    return f"{tower.kind}, {tower.cells} cells{''.join(sizes)}" + (f", with {' and '.join(gates)}" if gates else "")


def _measure(name: str) -> str:
    return name.replace("ndcg", "NDCG").replace("collection_", "collection ").replace("mrr", "MRR")


def _interval(value: Mapping[str, float]) -> str:
    interval = f" [{value['low']:.3f}, {value['high']:.3f}]" if "low" in value and "high" in value else ""
    return f"{value['mean']:.3f}{interval}"
