"""Rules of the whole suite: quiet engines, one thread of torch, and no silent skips in CI."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests.sockets import MAY_LISTEN, listeners

os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what is to go on in the background with Ctrl-C ignored, and every process below it inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

EXAMPLES = "CLICKTOWER_EXAMPLES"  # how many inputs a test by properties tries, where it does not say itself

# No test says how long a thing may take: on a busy machine it takes longer.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "thorough", settings.get_profile("unhurried"), max_examples=int(os.environ.get(EXAMPLES, 100))
)
settings.load_profile("thorough" if EXAMPLES in os.environ else "unhurried")

# Files that take half a minute or more, longest first. They wait for other processes, so in a parallel run the others
# are dealt out between them, and none of them is left alone at its end.
LONG = ("test_rehearsal", "test_crash_points", "test_signal_points", "test_prefect_ray", "test_ray_training",
        "test_docs_run", "test_standalone_flink", "test_run", "test_sweep_on_ray", "test_ray_cluster",
        "test_prefect_server", "test_bad_input", "test_canaries", "test_same_result", "test_object_store",
        "test_killed_publishers", "test_extras", "test_ray_scripts", "test_google_storage", "test_reuse", "test_live",
        "test_ingest_day",
        "test_terms_beside_lucene", "test_bm25_beside_lucene")  # fmt: skip
_skipped: list[str] = []
_outcomes: dict[str, Counter] = {"with real engines": Counter(), "all others": Counter()}


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than cores where engines are tested, which wait for other processes; each may hold 2 GB."""
    return min(len(os.sched_getaffinity(0)) + ("not engine" not in config.option.markexpr), 8)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files among others; tests of a GPU are left out, not skipped, where there is none, as on CI's machines."""
    of_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if of_gpu:
        import torch

        if not torch.cuda.is_available():
            config.hook.pytest_deselected(items=of_gpu)
            items[:] = [item for item in items if item not in of_gpu]
    files = list(dict.fromkeys(item.path for item in items))
    others = [path for path in files if path.stem not in LONG]
    place = {path: at / max(len(others), 1) for at, path in enumerate(others)}
    place |= {path: LONG.index(path.stem) / len(LONG) for path in files if path.stem in LONG}
    # Of a file the long tests are last: no other can need what they make, since `make test` leaves them out.
    is_long = {item: item.get_closest_marker("rehearsal") is not None for item in items}
    items.sort(key=lambda item: (place[item.path], item.path.stem not in LONG, is_long[item]))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name no test: a gzip's hold the second they were made in, and parallel workers must agree on names."""
    return argname if isinstance(val, bytes) else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    half = _outcomes["with real engines" if "engine" in report.keywords else "all others"]
    half["seconds"] += report.duration
    if report.when == "call" or report.outcome != "passed":
        half[report.outcome if report.when == "call" or report.skipped else "errors"] += 1
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(f"{report.nodeid}: {report.longrepr[2] if isinstance(report.longrepr, tuple) else ''}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With CLICKTOWER_NO_SKIPS set (CI), a test that did not run is a test that failed."""
    if _skipped and os.environ.get("CLICKTOWER_NO_SKIPS") and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter) -> None:
    for half, found in _outcomes.items():
        if said := ", ".join(f"{number:,} {what}" for what, number in sorted(found.items()) if what != "seconds"):
            terminalreporter.line(f"{half}: {said}; {found['seconds']:,.0f} s of tests")
    if _skipped and os.environ.get("CLICKTOWER_NO_SKIPS"):
        terminalreporter.section("skipped where nothing may be skipped", red=True)
        for line in _skipped:
            terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _only_this_machine_can_connect(request: pytest.FixtureRequest) -> Iterator[None]:
    """While a test of an engine runs, nothing of it listens to other machines, unless it is to be a cluster of such."""
    if request.node.get_closest_marker("several_machines"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(MAY_LISTEN, "1")
            yield
        return
    if not request.node.get_closest_marker("engine"):
        yield
        return
    with listeners() as found:
        yield
    assert not found, "\n".join(["these listen to other machines:", *sorted(found)])


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets; a test that asks for it is skipped, with the reason, where there is none."""
    folder = os.environ.get("CLICKTOWER_DATA", "")
    if not folder:
        pytest.skip("CLICKTOWER_DATA is not set: no real data to measure on")
    if not Path(folder, "homedepot_log").is_dir():
        pytest.skip(f"CLICKTOWER_DATA = {folder} has no homedepot_log")
    return Path(folder)


@pytest.fixture(scope="session")
def lucene() -> ModuleType:
    """Apache Lucene's tokens and rankings; a test that asks for it is skipped, with the reason, where there is none."""
    from benchmarks.peers import lucene

    if not lucene.jars().is_dir():
        pytest.skip(f"there is no {lucene.jars()}: run `make engines`")
    if not which("java"):
        pytest.skip("there is no java on the PATH")
    return lucene
