"""Small labelled builds, shared by the tests of this folder: nobody writes below them."""

import pytest

from tests.training.small_shards import write_shop
from tests.training.trainer.labelled_builds import built, questions, statements


@pytest.fixture(scope="session")
def pairs_build(tmp_path_factory) -> str:
    return built(tmp_path_factory.mktemp("pairs"), questions(240))


@pytest.fixture(scope="session")
def texts_build(tmp_path_factory) -> str:
    return built(tmp_path_factory.mktemp("texts"), statements(240))


@pytest.fixture(scope="session")
def clicks_build(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("clicks")), 120, 20)
