"""Files that earlier versions wrote are still read; what a later major version wrote is refused."""

import json
from pathlib import Path

import pytest

from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError, UnknownVersionError, require_major
from clicktower.schemas.release import SCHEMA_VERSION, read_decision, read_folder, read_pointer
from clicktower.schemas.search_log import VERSION_KEY as DAY_KEY

RELEASED = Path(__file__).parent / "released"


def read_json(name: str) -> dict:
    return json.loads((RELEASED / name).read_text(encoding="utf-8"))


def test_a_manifest_of_1_0_is_read_and_still_names_the_same_request():
    value = read_json("manifest-1.0.json")
    read = manifest.from_json(value)
    assert read.digest == value["digest"]
    assert read.outcome.ledger is not None
    assert read.outcome.ledger.check().total == value["outcome"]["ledger"]["total"]
    assert read.to_json() == value


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
    if version == SCHEMA_VERSION:  # and written as they were
        assert pointer.to_json() == read_json(f"pointer-{version}.json")
        assert release.to_json() == read_json(f"release-{version}.json")


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
