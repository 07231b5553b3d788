"""A release of version 1, with a LanceDB table of documents: listed, verified and removed, but no longer searched."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clicktower.flows.releases.kept_releases import list_releases, rollback, verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease, search
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import seal, to_bytes
from clicktower.schemas.release import read_pointer
from clicktower.training.model.model_folder import model_source
from tests.flows.releases.catalogue import CONFIG

EARLIER = "e" * 24


@pytest.fixture
def earlier(live) -> str:
    """A URI whose live release, of the same model, is as version 1 wrote it."""
    digest = read_pointer(live).release
    folder = Path(live, "releases", digest).rename(Path(live, "releases", EARLIER))
    folder.joinpath("documents.lance").mkdir()
    Path(folder, "documents.arrow").rename(Path(folder, "documents.lance", "data.lance"))
    record = Path(folder, "release.json")
    value = json.loads(record.read_text()) | {"schema_version": "1.3", "digest": EARLIER}
    for file in value["files"]:
        file["path"] = file["path"].replace("documents.arrow", "documents.lance/data.lance")
    storage.write_atomic(str(record), to_bytes(seal(value)))
    pointer = Path(live, "pointer.json")
    storage.write_atomic(str(pointer), to_bytes(seal(json.loads(pointer.read_text()) | {"release": EARLIER})))
    return live


def test_the_error_names_the_command_that_makes_it_searchable(earlier, model, documents):
    command = rf"`clicktower publish --model store/train/{Path(model).name} --documents documents.tsv --to {earlier}`"
    with pytest.raises(StageError, match=rf"is of an earlier version, whose .* LanceDB table. Publish .*{command}"):
        search(earlier, "angle bracket")
    assert verify(earlier) == []
    assert model_source(earlier).digest == Path(model).name, "its model is still evaluated beside a candidate"
    [listed] = list_releases(earlier)
    assert (listed["state"], listed["wrong"]) == ("live", "it is of an earlier version, and is not searched")
    made = publish(model, documents=documents, to=earlier, config=CONFIG)
    assert made.release.encoded["reused"] == 0
    assert (made.is_live, made.pointer.previous) == (True, EARLIER)
    assert search(earlier, "angle bracket", 3)
    assert verify(earlier) == []


def test_no_rollback_goes_there_and_it_is_removed_like_any_other(earlier, model, documents):
    made = publish(model, documents=documents, to=earlier, config=replace(CONFIG, keep=0))
    with pytest.raises(StageError, match="is of an earlier version"):
        rollback(earlier)
    with pytest.raises(StageError, match="is of an earlier version"):
        OpenRelease(earlier, digest=EARLIER)
    assert read_pointer(earlier).release == made.release.digest
    assert made.removed == []
    next_one = publish(model, documents=documents, to=earlier, config=replace(CONFIG, keep=0, num_recall_queries=10))
    assert next_one.removed == [EARLIER]
