"""One small model and one release of it for all tests here; `live` is a copy that a test may damage."""

import shutil
from collections.abc import Iterator

import pytest

from clicktower.flows.releases.publish import publish
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.s3_server import S3Server
from tests.trained_model import trained_stage


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")), labels={"simulated": True})


@pytest.fixture(scope="session")
def documents(tmp_path_factory) -> str:
    return write_documents(tmp_path_factory.mktemp("catalogue") / "documents.tsv")


@pytest.fixture(scope="session")
def published(model, documents, tmp_path_factory):
    return publish(model, documents=documents, to=str(tmp_path_factory.mktemp("live")), config=CONFIG)


@pytest.fixture
def live(published, tmp_path) -> str:
    """A copy of the published release that a test may damage."""
    return str(shutil.copytree(published.uri, tmp_path / "live"))


@pytest.fixture
def on_s3(tmp_path, monkeypatch) -> Iterator[S3Server]:
    """A server that this process and those it starts find by the environment."""
    s3fs = pytest.importorskip("s3fs")
    with S3Server(tmp_path / "s3") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield server
        s3fs.S3FileSystem.clear_instance_cache()
