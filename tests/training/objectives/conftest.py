"""Small labelled builds, shared by the tests of this folder: nobody writes below them."""

import pytest

from tests.training.objectives.labelled_builds import built, questions, statements
from tests.training.small_shards import shop, write_build


@pytest.fixture(scope="session")
def pairs_build(tmp_path_factory) -> str:
    return built(tmp_path_factory.mktemp("pairs"), questions(240))


@pytest.fixture(scope="session")
def texts_build(tmp_path_factory) -> str:
    return built(tmp_path_factory.mktemp("texts"), statements(240))


@pytest.fixture(scope="session")
def clicks_build(tmp_path_factory) -> str:
    pairs, pool = shop(120)
    dev, _ = shop(20, seed=9)
    return write_build(str(tmp_path_factory.mktemp("clicks")), {"train-00000": pairs, "dev-00000": dev}, pool)
