"""One simulated log that every engine reads, and what the runner without engines makes of it."""

import shutil
from pathlib import Path

import pytest

from clicktower.beam_jobs.engine.engines import FLINK_JOB_SERVER, PRISM, PYTHON_WORKER
from clicktower.flows.config.settings import Settings
from clicktower.flows.simulation.simulation_config import SimulationConfig
from clicktower.flows.simulation.write_simulation import simulate
from tests.beam_jobs.engine.outcome import Outcome, run_both_jobs
from tests.beam_jobs.engine.standalone_flink import Cluster

SEARCHES = 2_000


@pytest.fixture(scope="session")
def shop(tmp_path_factory) -> Path:
    """A folder with log/ and documents.tsv: some 20,000 lines with bots, repeats and lines that cannot be read."""
    folder = tmp_path_factory.mktemp("shop") / "data"
    simulate(str(folder), config=SimulationConfig(num_searches=SEARCHES, seed=5, searches_per_bot=60))
    return folder


@pytest.fixture(scope="session")
def expected(shop, tmp_path_factory) -> Outcome:
    """What FnApiRunner makes of it, in one process."""
    return run_both_jobs(shop, tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def engines() -> Path:
    return Path(Settings().engines)


@pytest.fixture(scope="session")
def prism(engines) -> Path:
    return _there(engines / PRISM)


@pytest.fixture(scope="session")
def flink(engines) -> Path:
    """Flink's job server, with its mini cluster."""
    if not shutil.which("java"):
        pytest.skip("there is no java on the PATH")
    return _there(engines / FLINK_JOB_SERVER)


@pytest.fixture(scope="module")
def cluster(flink, engines, tmp_path_factory):
    """A real Flink cluster: a job manager and two task managers, from the files in deploy/flink."""
    _there(engines / "flink" / "lib")
    _there(engines / PYTHON_WORKER)
    with Cluster(tmp_path_factory.mktemp("cluster"), engines) as started:
        yield started


def _there(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"there is no {path}: run `make engines`")
    return path
