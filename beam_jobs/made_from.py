"""What else in a store was made from some outputs: shards from days, models from shards, and so on."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from schemas import manifest, storage


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    stage: str
    digest: str
    path: str
    created: str  # ISO 8601, UTC


def made_from(store: str, digests: Collection[str]) -> list[Made]:
    """The finished outputs, but ingests, whose requests name one of these digests or of an output found so."""
    stages = [name for name in storage.list_folders(store) if name not in ("ingest", "days", "private")]
    folders = [
        storage.join(store, stage, name) for stage in stages for name in storage.list_folders(f"{store}/{stage}")
    ]
    finished = [folder for folder in folders if storage.exists(storage.join(folder, manifest.FILE_NAME))]
    waiting = {folder: manifest.read(folder) for folder in finished}
    known, found = set(digests), list[Made]()
    while now := {folder: made for folder, made in waiting.items() if known & set(_texts(made.request.inputs))}:
        for folder, made in now.items():
            del waiting[folder]
            known.add(made.digest)
            found.append(Made(stage=made.request.stage, digest=made.digest, path=folder, created=made.created))
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inside in value.values():
            yield from _texts(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _texts(inside)
