import json
from pathlib import Path

import numpy as np
import pytest

from clicktower.flows.releases import make_release as making
from clicktower.flows.releases.export_release import export
from clicktower.flows.releases.kept_releases import _damage_of_records, _records, list_releases, rollback, verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import search
from clicktower.schemas.errors import StageError, UnknownVersionError
from clicktower.schemas.manifest import seal, to_bytes
from clicktower.schemas.release import Decision, write_decision
from tests.flows.releases.catalogue import CONFIG, write_documents

DECISION = Decision(promote=False, reason="by 1e-05, too little", figures={"gain": 1e-05, "n": 3})


def test_a_damaged_release_is_refused_by_search_and_repaired_by_publish(live, model, documents):
    data = next(Path(live).glob("releases/*/documents.arrow"))
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(StageError, match="bytes and should have"):
        search(live, "angle bracket")
    made = publish(model, documents=documents, to=live, config=CONFIG)
    assert not made.reused
    assert "should have" in made.repaired[0]
    assert search(live, "angle bracket", 3)
    assert verify(live) == []
    Path(made.folder, "release.json").unlink()
    with pytest.raises(StageError, match=r"no release\.json"):
        search(live, "angle bracket")
    assert publish(model, documents=documents, to=live, config=CONFIG).repaired == ["release.json is missing"]
    assert search(live, "angle bracket", 3)


def test_a_repair_that_fails_takes_nothing_away(live, model, documents, monkeypatch):
    data = next(Path(live).glob("releases/*/documents.arrow"))
    data.write_bytes(data.read_bytes() + b"x")

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "build_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(model, documents=documents, to=live, config=CONFIG)
    assert data.exists()


def test_verify_finds_a_flipped_byte_and_a_file_that_nobody_published(live):
    data = next(Path(live).glob("releases/*/documents.arrow"))
    content = bytearray(data.read_bytes())
    content[len(content) // 3] ^= 1
    data.write_bytes(content)
    data.with_name("more.arrow").write_bytes(content)
    found = verify(live)
    assert len(found) == 2
    assert f"{data.name} has other bytes than were written" in found[0]
    assert "more.arrow is not of this output" in found[1]


@pytest.mark.parametrize("where", ["pointer.json", "release.json", "text contract"])
def test_an_unknown_major_version_is_refused(live, model, documents, where):
    path = Path(live, "pointer.json") if where == "pointer.json" else next(Path(live).glob("releases/*/release.json"))
    value = json.loads(path.read_text())
    if where == "text contract":
        value["text_contract"]["trigrams"] = "3.0"
    else:
        value["schema_version"] = "3.0"
    path.write_bytes(to_bytes(seal(value)))
    with pytest.raises(UnknownVersionError, match=r"version 3\.0"):
        search(live, "hose")
    if where == "pointer.json":
        with pytest.raises(UnknownVersionError):
            publish(model, documents=documents, to=live, config=CONFIG)


def test_a_damaged_pointer_is_an_error_for_search_publish_and_verify(live, model, documents):
    Path(live, "pointer.json").write_text('{"schema_version": "1.0", "rel')
    with pytest.raises(StageError, match=r"pointer\.json of .* is damaged"):
        search(live, "hose")
    with pytest.raises(StageError, match=r"pointer\.json of .* is damaged"):
        publish(model, documents=documents, to=live, config=CONFIG)
    assert verify(live) == [f"The file pointer.json of {live} is damaged."]


def test_a_release_of_a_later_minor_version_is_read(live):
    path = next(Path(live).glob("releases/*/release.json"))
    value = json.loads(path.read_text()) | {"schema_version": "2.7", "said_later": True}
    path.write_bytes(to_bytes(seal(value)))
    assert search(live, "hose", 1)


@pytest.mark.slow
def test_one_byte_flipped_in_any_file_is_found(live, model, documents, tmp_path):
    """Every file below the URI: of the releases, the pointer and the decisions; the lock file is empty."""
    publish(model, documents=write_documents(tmp_path / "new.tsv", 30), to=live, config=CONFIG, candidate=True)
    rng = np.random.default_rng(0)
    files = [path for path in Path(live).rglob("*") if path.is_file() and path.stat().st_size]
    names = {path.name for path in files}
    assert {"pointer.json", "release.json", "documents.arrow", "bm25.arrow", "query.onnx", "golden.jsonl"} <= names
    assert {path.parent.name for path in files} >= {"decisions", "model"}
    for path in files:
        content = path.read_bytes()
        for place in {len(content) - 1, int(rng.integers(len(content)))}:
            changed = bytearray(content)
            changed[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(changed)
            found = verify(live)
            assert found, f"{path.relative_to(live)}, byte {place}"
        path.write_bytes(content)
    assert verify(live) == []


def test_a_flipped_bit_in_any_byte_of_a_sealed_record_is_found(live, published):
    """In all of them: spaces, quotes and exponents too, where another byte would parse to the same."""
    write_decision(live, published.release.digest, DECISION, against=None, decided="2026-09-01")
    for path in (Path(live, "pointer.json"), Path(live, "decisions", f"{published.release.digest}.json")):
        content = path.read_bytes()
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 0x20 if chr(content[place]).isalpha() else 1 << (place % 8)  # another case, say
            path.write_bytes(changed)
            assert _damage_of_records(live, _records(live)), f"{path.name}, byte {place}"
        path.write_bytes(content)
    assert _damage_of_records(live, _records(live)) == []


def test_a_release_as_1_0_wrote_it_is_searched_verified_rolled_back_to_and_exported(live, model, tmp_path):
    """Without a seal, and without all that came with 1.1."""
    folder = next(Path(live, "releases").iterdir())
    value = json.loads((folder / "release.json").read_text())
    later = ("evaluated", "query_tower", "golden", "encoded", "seal")
    for name in ("README.md", "query.onnx", "golden.jsonl"):
        (folder / name).unlink()
        value["files"] = [file for file in value["files"] if file["path"] != name]
    old = {name: entry for name, entry in value.items() if name not in later} | {"schema_version": "1.0"}
    (folder / "release.json").write_text(json.dumps(old))
    pointer = json.loads(Path(live, "pointer.json").read_text())
    pointer = {"schema_version": "1.0", "release": pointer["release"], "previous": None, "swapped": pointer["swapped"]}
    Path(live, "pointer.json").write_text(json.dumps(pointer))
    assert verify(live) == []
    assert search(live, "hose", 1)
    made = publish(model, documents=write_documents(tmp_path / "new.tsv", 30), to=live, config=CONFIG)
    assert made.release.encoded["reused"]  # its vectors serve, too
    assert rollback(live).release.digest == old["digest"]
    assert export(live, form="parquet", into=str(tmp_path / "titles.parquet"))["counts"] == {"documents": 300}
    assert [one["state"] for one in list_releases(live)] == ["previous", "live"]
