"""Files that earlier versions wrote are still read; what a later major version wrote is refused."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError, UnknownVersionError, require_major
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.release import (
    Decision,
    Pointer,
    Release,
    read_decision,
    read_folder,
    read_pointer,
    write_decision,
)
from clicktower.schemas.search_log import VERSION_KEY as DAY_KEY

RELEASED = Path(__file__).parent / "released"
PINNED = ["02b9931fe7aa15c5", "5cfe4aef5c109296", "494a0db2f0568ccf", "d74a35db72cbd105"]


def read_json(name: str) -> dict:
    return json.loads((RELEASED / name).read_text(encoding="utf-8"))


def test_a_manifest_of_1_0_is_read_and_still_names_the_same_request():
    value = read_json("manifest-1.0.json")
    read = manifest.from_json(value)
    assert read.digest == value["digest"]
    assert read.outcome.ledger is not None
    assert read.outcome.ledger.check().total == value["outcome"]["ledger"]["total"]
    assert manifest.to_bytes(read.to_json()) == (RELEASED / "manifest-1.0.json").read_bytes()


def test_a_release_and_pointer_of_1_0_are_read(tmp_path):
    for name in ("release", "pointer"):
        (tmp_path / f"{name}.json").write_bytes((RELEASED / f"{name}-1.0.json").read_bytes())
    pointer = read_pointer(str(tmp_path))
    release = read_folder(str(tmp_path))
    assert pointer is not None
    assert pointer.release == release.digest


@pytest.mark.parametrize(("version", "similarity"), [("1.1", "cosine"), ("1.2", "euclidean")])
def test_a_release_pointer_and_decision_of_a_sealed_version_are_read(tmp_path, version, similarity):
    for name in ("release", "pointer"):
        (tmp_path / f"{name}.json").write_bytes((RELEASED / f"{name}-{version}.json").read_bytes())
    pointer = read_pointer(str(tmp_path))
    release = read_folder(str(tmp_path))
    assert pointer is not None
    assert pointer.release == release.digest
    assert release.similarity == similarity
    (tmp_path / "decisions").mkdir()
    record = tmp_path / "decisions" / f"{release.digest}.json"
    record.write_bytes((RELEASED / f"decision-{version}.json").read_bytes())
    decision = read_decision(str(tmp_path), release.digest)
    assert decision is not None
    assert decision.promote


def test_the_bytes_of_records_are_pinned(tmp_path):
    request = manifest.Request(
        stage="build", stage_version=3, config={"k": 5, "cöl": ("a", None)}, inputs={"days": ["x"], "log": {"a": "b"}}
    )
    outcome = manifest.Outcome(
        counts=Counter(rows=2), metrics={"ndcg": 0.5, "tiny": 1e-9, "rows": [(1, "é")]}, labels={"simulated": True},
        ledger=Ledger(total=4, lines={"search": 1, "repeat": 3, "blank_line": 0}), logical_digest="d",
    )  # fmt: skip
    files = [manifest.OutputFile(path="a/b", size_bytes=3, sha256="c")]
    facts = {"files": files, "created": "2026-01-01T00:00:00+00:00", "duration_seconds": 1.0}
    made = manifest.Manifest(request=request, outcome=outcome, attempt="a", software={"python": "3"}, **facts)
    release = Release(
        digest="d", text_contract={"version": 1}, num_documents=2, dimensions=3, index={"kind": "none", "recall": 1.0},
        evaluation={}, inputs={"model": "m"}, config={"columns": ()}, **facts,
    )  # fmt: skip
    pointer = Pointer(release="d", previous=None, swapped="2026-01-01", number=1)
    write_decision(
        str(tmp_path), "d", Decision(promote=True, reason="é", figures={"a": 1.5}), against=None, decided="x"
    )
    contents = [manifest.to_bytes(record.to_json()) for record in (made, release, pointer)]
    contents.append((tmp_path / "decisions/d.json").read_bytes())
    assert [hashlib.sha256(content).hexdigest()[:16] for content in contents] == PINNED


@pytest.mark.parametrize("name", ["release", "pointer"])
def test_a_1_1_without_its_seal_or_with_another_is_damaged(tmp_path, name):
    value = read_json(f"{name}-1.1.json")
    read = {"pointer": read_pointer, "release": read_folder}[name]
    for changed in (
        {key: entry for key, entry in value.items() if key != "seal"},
        value | {"seal": "0" * 64},
        value | {"schema_version": "1.7"},
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(changed))
        with pytest.raises(StageError, match="is damaged"):
            read(str(tmp_path))


@pytest.mark.parametrize("name", ["pointer", "release", "manifest"])
def test_a_later_major_version_is_refused(tmp_path, name):
    value = read_json(f"{name}-1.0.json") | {"schema_version": "3.0"}
    storage.write_atomic(str(tmp_path / f"{name}.json"), json.dumps(value).encode())
    read = {"pointer": read_pointer, "release": read_folder, "manifest": manifest.read}[name]
    with pytest.raises(UnknownVersionError, match=r"3\.0"):
        read(str(tmp_path))


def test_a_later_minor_version_is_read():
    require_major("a day", "1.7", "1.0")
    assert DAY_KEY
