"""Ingests from which a person was erased: what is left of them, and where it is now.

    STORE/ingest/DIGEST/erased.json    {"schema_version": "1.0", "by": the digest of the ingest that took its place}

That file is the moment of an erasure: it is created once, by whoever comes first, and from then on everyone who asks
for DIGEST is led to the other. An ingest that says `erased_from` counts only where that file names it, so that what a
killed or beaten attempt left behind is never read. The file stays when the rest is gone: the same log, ingested
again, must not bring the person back.
"""

import json
from collections.abc import Mapping

from schemas import manifest, storage
from schemas.errors import require_major
from schemas.stage import StageResult, open_result

SCHEMA_VERSION = "1.0"
FILE_NAME = "erased.json"


def is_erased(folder: str) -> bool:
    return storage.exists(storage.join(folder, FILE_NAME))


def follow(folder: str) -> str:
    """The folder that an ingest's rows are in now: its own, or that of what the last erasure left of it."""
    seen = set()
    while is_erased(folder) and folder not in seen:
        seen.add(folder)
        folder = storage.join(folder.rsplit("/", 1)[0], successor(folder))
    return folder


def successor(folder: str) -> str:
    """The digest of the ingest that took the place of an erased one."""
    uri = storage.join(folder, FILE_NAME)
    value: Mapping[str, str] = json.loads(storage.read_bytes(uri))
    require_major(uri, value.get("schema_version"), SCHEMA_VERSION)
    return value["by"]


def mark_erased(folder: str, by: str) -> bool:
    """Let another ingest take the place of this one. False if another did before."""
    content = json.dumps({"schema_version": SCHEMA_VERSION, "by": by}, indent=1).encode()
    return storage.write_new(storage.join(folder, FILE_NAME), content)


def is_current(result: StageResult) -> bool:
    """Whether an ingest's rows count: it was not erased; if it is what an erasure left, it is the one that won."""
    source = result.manifest.request.inputs.get("erased_from")
    if is_erased(result.folder):
        return False
    if source is None:
        return True
    before = storage.join(result.folder.rsplit("/", 1)[0], source)
    return is_erased(before) and successor(before) == result.manifest.digest


def finished_ingests(store: str) -> list[StageResult]:
    """Every ingest of a store whose rows count, those of older versions of a day too."""
    folder = storage.join(store, "ingest")
    names = storage.list_folders(folder)
    found = [storage.join(folder, name) for name in names]
    opened = [open_result(uri) for uri in found if storage.exists(storage.join(uri, manifest.FILE_NAME))]
    return [result for result in opened if is_current(result)]
