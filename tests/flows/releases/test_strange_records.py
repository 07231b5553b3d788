"""Records that somebody else could have written, their seals and hashes right: answered, or refused in two parts."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clicktower.flows.cli import run
from clicktower.flows.releases.publish import PublishConfig, publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import SEAL, from_bytes, seal, to_bytes
from clicktower.training.towers.text_table import WordRows
from tests.flows.releases.catalogue import WORDS
from tests.trained_model import trained_stage

RECORDS = ["pointer.json", "release.json", "model/model.json"]
DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
LESS_DEEP = b'{"a":' * 300 + b"1" + b"}" * 300  # which Python reads, and cannot write with an indent
STRANGE: list[Any] = [None, True, -5, 2**70, 1e300, "x", "../x", [], {}, [[]], [{"a": 1}], {"a": {"b": []}}]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A release with partitions, whose search reads every part of its index's record."""
    folder = tmp_path_factory.mktemp("sound")
    documents = folder / "documents.tsv"
    titles = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:3]]
    documents.write_text("".join(f"d{at}\t{title}\n" for at, title in enumerate(titles)))
    config = PublishConfig(index="ivf", recall_at=2, min_recall=0.1, num_recall_queries=5)
    published = publish(
        trained_stage(str(folder / "store")), documents=str(documents), to=str(folder / "live"), config=config
    )
    assert published.release.index["kind"] == "ivf"
    assert len(list(Path(published.uri, "releases").iterdir())) == 1
    return Path(published.uri)


@pytest.fixture
def copied(sound, tmp_path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "live"))


def path_of(uri: Path, name: str) -> Path:
    """Of a record of the only release."""
    return uri / name if name == "pointer.json" else next(uri.glob("releases/*")) / name


def write_record(uri: Path, name: str, content: bytes) -> None:
    """Write a record, and what the release says of it."""
    path_of(uri, name).write_bytes(content)
    if name == "model/model.json":
        release = json.loads(path_of(uri, "release.json").read_bytes())
        [file] = [file for file in release["files"] if file["path"] == name]
        file |= {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        write_record(uri, "release.json", to_bytes(seal(release)))


def changed_once(value: Any, strange: Any) -> Iterator[tuple[str, Any]]:
    """(place, value) of the value with one inner value replaced, at any depth, or left out."""
    if not isinstance(value, dict | list):
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
        for replaced in [strange] if strange is not ... else []:
            copy = value.copy()
            copy[key] = replaced
            yield str(key), copy
        if strange is ... and isinstance(value, dict):
            yield str(key), {name: kept for name, kept in value.items() if name != key}
        for place, inside in changed_once(inner, strange):
            copy = value.copy()
            copy[key] = inside
            yield f"{key}.{place}", copy


@pytest.mark.slow
@pytest.mark.parametrize("strange", [..., *STRANGE], ids=repr)
@pytest.mark.parametrize("name", RECORDS)
def test_any_value_of_a_record_is_read_or_refused(copied, name, strange):
    record = json.loads(path_of(copied, name).read_bytes())
    defects = []
    for place, changed in changed_once({key: value for key, value in record.items() if key != SEAL}, strange):
        write_record(copied, name, to_bytes(seal(changed) if SEAL in record else changed))
        try:
            opened = OpenRelease(str(copied))
            opened.load()
            opened.search("steel pipe", 2)
        except StageError as error:
            if not (error.problem and error.fix):
                defects.append(f"{place}: half an error")
        except Exception as error:
            defects.append(f"{place}: {type(error).__name__} {error}")
        write_record(copied, name, to_bytes(record))
    assert defects == []


@pytest.mark.parametrize("content", [DEEP, LESS_DEEP], ids=["too deep to read", "too deep to write"])
@pytest.mark.parametrize("name", RECORDS)
def test_a_deep_record_is_refused_by_every_command(copied, capsys, name, content):
    write_record(copied, name, content)
    uri = str(copied)
    commands = [["search", "--release", uri, "steel"], ["explain", "--release", uri, "steel", "d1"]]
    if name != "model/model.json":  # whose bytes are those that the release records
        commands += [["verify", uri], ["releases", "--to", uri]][: 2 if name == "pointer.json" else 1]
    for command in commands:
        assert run([*command, "--json"]) == 1
        error = json.loads(capsys.readouterr().out)["error"]
        assert error["problem"].endswith(".")
        assert error["fix"].endswith(".")
    with pytest.raises(StageError):
        make_app(ServeConfig(release=uri))


def test_a_record_is_as_deep_as_any_that_is_written():
    assert from_bytes(b"[" * 64 + b"1" + b"]" * 64)
    for content in (b"[" * 65 + b"1" + b"]" * 65, LESS_DEEP, DEEP):
        with pytest.raises(ValueError, match="too deep"):
            from_bytes(content)


def test_words_that_no_row_of_a_model_is_for_are_refused_before_torch_is_loaded(copied):
    record = json.loads(path_of(copied, "model/model.json").read_bytes())
    own = [f"w{number}" for number in range(100_000)]
    contract = record["text_contract"] | WordRows(0, tuple(own)).text_contract()
    settings = record["recipe"] | {"word_vectors": {"kind": "tuned", "columns": 8}}
    changes = [{"words": own}, {"words": own, "text_contract": contract}, {"words": own, "recipe": settings},
               {"words": [own]}, {"words": 7}]  # fmt: skip
    for change in changes:
        write_record(copied, "model/model.json", json.dumps(record | change).encode())
        with pytest.raises(StageError, match="damaged file"), no_torch():
            OpenRelease(str(copied))


@contextmanager
def no_torch() -> Iterator[None]:
    """Importing what needs torch is an error that nobody expects."""
    name = "clicktower.training.model.model"
    module = sys.modules.get(name)
    sys.modules[name] = None
    try:
        yield
    finally:
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module
