"""A small JSON record that carries the hash of its own content, so that a changed byte is noticed without another file.

{"schema_version": "1.1", ..., "seal": SHA-256 of the canonical JSON of all the rest}
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from schemas.manifest import canonical_json

SEAL = "seal"


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same record with its seal; an older seal is replaced."""
    rest = {name: entry for name, entry in value.items() if name != SEAL}
    return {**rest, SEAL: hashlib.sha256(canonical_json(rest)).hexdigest()}


def to_bytes(value: Mapping[str, Any]) -> bytes:
    """A record as it is written."""
    return json.dumps(value, indent=1, ensure_ascii=False).encode()


def is_respelled(content: bytes) -> bool:
    """Whether a sealed record has other bytes than `to_bytes` writes, though it parses to the same: 1e-5 and 1E-5."""
    value = json.loads(content)
    return SEAL in value and to_bytes(value) != content


def is_broken(value: Mapping[str, Any], *, since: str) -> bool:
    """Whether a parsed record is not what was sealed.

    since: the schema version from which on records of this kind are sealed; an earlier one may be without. One that
    names no version is of none.
    """
    if SEAL not in value:
        version = value.get("schema_version")
        return version is None or _minor(version) >= _minor(since)
    return sealed(value) != value


def _minor(version: object) -> int:
    text = str(version).partition(".")[2]
    return int(text) if text.isdigit() else 0
