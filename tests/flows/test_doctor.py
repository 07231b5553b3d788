"""What the doctor says of machines and installations, this one and others."""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from flows.cli import run
from flows.config.settings import Surroundings
from flows.doctor import engines, machine, software
from flows.doctor.examine import judge_path, judge_reader, log_reader
from flows.doctor.finding import Finding, looked_at
from flows.doctor.machine import Limits, limits
from training.gpu.device_name import has_driver
from training.kernel import Status

GB = 10**9
CALM = Surroundings(**dict.fromkeys(Surroundings.model_fields, ""))


def around(**variables: str) -> Surroundings:
    return CALM.model_copy(update=variables)


# The command


def test_this_machine_can_run_it_and_json_is_one_object(tmp_path, capsys):
    assert run(["doctor", "--into", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["stage"], result["ready"]) == ("doctor", True)
    assert result["training_path"] in ("compiled", "reference")
    by_name = {one["name"]: one for one in result["findings"]}
    assert by_name["Python"]["facts"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert by_name["cores"]["facts"]["allowed"] == len(os.sched_getaffinity(0))
    assert not any(one["found"].startswith("could not be looked at") for one in result["findings"])
    assert list(tmp_path.iterdir()) == []


def test_the_log_reader_is_compiled_or_says_why_not():
    assert log_reader().state == "good"  # the build of this checkout had a compiler
    without = judge_reader("nothing was compiled when clicktower was installed: there was no working C++ compiler")
    assert (without.state, without.facts) == ("look", {"reader": "python"})
    assert "no working C++ compiler" in without.found


def test_what_is_in_the_way_exits_with_1_and_says_what_to_do(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(["doctor", "--into", str(tmp_path / "file" / "store")]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "✗ in the way of a run on this machine: 1 thing" in told
    assert "✗ disk the store's folder cannot be written" in told
    assert "→ choose another folder" in told


def test_a_store_of_an_unknown_protocol_is_wrong_usage(capsys):
    assert run(["doctor", "--into", "nowhere://bucket/x"]) == 2


@pytest.mark.slow
def test_no_engine_is_loaded_and_no_secret_or_user_is_told():
    """As a process of its own: what it imports decides how long it takes."""
    told = {
        "PREFECT_API_URL": "http://ann:geheim@127.0.0.1:9/api?key=geheim",
        "RAY_ADDRESS": "ray://ann:geheim@127.0.0.1:9",
    }
    code = (
        "import sys; from flows.cli import run; code = run(['doctor', '--json'])\n"
        "print(sorted({'torch', 'ray', 'prefect', 'apache_beam', 'lancedb'} & set(sys.modules)), file=sys.stderr)"
    )
    home = {"HOME": "/home/ann", "USER": "ann", "LOGNAME": "ann", "CLICKTOWER_ENGINES": "/home/ann/engines"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | told | home, capture_output=True, text=True, check=True
    )
    if not has_driver():
        assert done.stderr.strip() == "[]"
    assert "geheim" not in done.stdout
    assert not re.search(r"\bann\b", done.stdout)


def test_a_check_that_fails_itself_stops_no_other():
    def broken() -> Finding:
        raise ZeroDivisionError("private")

    fine = Finding(name="b", state="good", found="well")
    first, second = looked_at([("a", broken), ("b", lambda: fine)])
    assert (first.name, first.state, first.found) == ("a", "look", "could not be looked at (ZeroDivisionError)")
    assert second is fine


# Training


@pytest.mark.parametrize(
    ("status", "has_compiler", "state", "words"),
    [
        (Status(available=True, instructions="avx512", reason="x"), True, "good", "compiled kernel with avx512"),
        (Status(available=True, instructions="generic", reason="x"), True, "look", "without AVX2 or AVX-512"),
        (Status(available=False, instructions="", reason="none was built"), False, "look", "install a C++ compiler"),
        (Status(available=False, instructions="", reason="none was built"), True, "look", "touch pyproject.toml"),
        (Status(available=False, instructions="", reason="a processor without AVX2"), True, "look", "a processor"),
    ],
)  # fmt: skip
def test_the_path_that_training_takes_comes_with_its_reason_and_remedy(status, has_compiler, state, words):
    found = judge_path(status, has_compiler=has_compiler)
    assert found.state == state
    assert words in f"{found.found} {found.do}"
    if not status.available:
        assert status.reason in found.found
        assert "several times slower" in found.follows


def test_a_gpu_is_told_as_torch_sees_it():
    import torch

    assert machine.gpu(driver_files=()).state == "note"
    found = machine.gpu(driver_files=("/dev/null",))  # as if there were a driver's device
    assert found.state == ("good" if torch.cuda.is_available() else "look")
    assert len(found.facts["gpus"]) == torch.cuda.device_count()


# Software

REQUIRES = [
    "numpy>=2",
    'apache-beam>=2.70; extra == "beam"',
    'torch>=2.6; extra == "train"',
    'prefect>=3.4; extra == "flows"',
    'fastapi<0.151; extra == "flows"',
    'pytest>=8; extra == "dev"',
    'clicktower[beam]; extra == "all"',
    'apache-beam[gcp]>=2.70; extra == "dataflow"',
]
INSTALLED = {"numpy": "2.1", "apache-beam": "2.77.0", "torch": "2.15.0+cpu", "prefect": "3.8.8", "fastapi": "0.150.0"}


def test_what_is_declared_and_there_is_told_with_its_versions():
    found = software.judge_packages(software.needed(REQUIRES), INSTALLED)
    assert found.state == "good"
    assert found.found == "torch 2.15.0+cpu, apache-beam 2.77.0, prefect 3.8.8"


@pytest.mark.parametrize(
    ("without", "follows", "do"),
    [
        ("torch", "train, sweep, evaluate", "'clicktower[train]'"),
        ("apache-beam", "ingest, build", "'clicktower[beam]'"),
        ("numpy", "nothing works", "install clicktower again"),
    ],
)
def test_a_missing_package_is_in_the_way_and_named_with_what_it_stops(without, follows, do):
    there = {name: version for name, version in INSTALLED.items() if name != without}
    found = software.judge_packages(software.needed(REQUIRES), there)
    assert (found.state, found.facts["missing"]) == ("bad", [without])
    assert follows in found.follows
    assert do in found.do


def test_a_version_that_is_not_declared_is_told():
    found = software.judge_packages(software.needed(REQUIRES), INSTALLED | {"fastapi": "0.155.0"})
    assert (found.state, found.found) == ("look", "fastapi 0.155.0 (declared: <0.151)")


@pytest.mark.parametrize(("version", "state"), [("3.11.9", "good"), ("3.12.0rc1", "good"), ("3.13.1", "bad")])
def test_a_python_that_is_not_declared_is_in_the_way(version, state):
    assert software.judge_python(version, ">=3.11,<3.13").state == state


def test_the_tested_set_is_compared_where_it_is_at_hand():
    pins = "numpy==2.1\nPrefect==3.8.8\ntorch==2.15.0\nnot-here==1.0\n"
    assert software.judge_pinned(None, INSTALLED).state == "note"
    same = software.judge_pinned(pins, INSTALLED | {"torch": "2.15.0"})
    assert (same.state, same.facts) == ("good", {"pinned": 4, "installed": 3, "other": {}})
    other = software.judge_pinned(pins, INSTALLED | {"torch": "2.14.1"})
    assert other.state == "look"
    assert "1 of 3 packages have another version: torch 2.14.1 (tested: 2.15.0)" in other.found


# Machine


@pytest.mark.parametrize(
    ("quota", "allowed", "state", "words"),
    [
        (None, 8, "good", "8 cores"),
        (None, 2, "good", "2 of them for this process"),
        (8.0, 8, "good", "8 cores"),
        (1.5, 8, "look", "--threads 1 "),
        (3.0, 8, "look", "leaves 3 of them"),
    ],
)
def test_cores_that_may_not_be_used_are_told(quota, allowed, state, words):
    found = machine.judge_cores(model="P", present=8, allowed=allowed, quota=quota)
    assert found.state == state
    assert words in f"{found.found} {found.do}"


def control_groups(tmp_path: Path, own: str, files: dict[str, str]) -> Limits:
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text)
    (tmp_path / "own").write_text(own)
    return limits(tmp_path / "groups", tmp_path / "own")


def test_limits_of_control_groups_version_2_are_the_tightest_of_all_above(tmp_path):
    files = {
        "a/cpu.max": "150000 100000\n", "a/b/cpu.max": "max 100000\n", "a/b/memory.max": "3000\n",
        "a/b/memory.current": "1200\n", "a/b/memory.stat": "anon 700\ninactive_file 500\n", "a/memory.max": "max\n",
        "a/memory.current": "5000\n", "other/cpu.max": "1000 100000\n",
    }  # fmt: skip
    # 1.5 cores from a; of b's 3000 bytes 1200 are used, 500 of which can be had back.
    assert control_groups(tmp_path, "0::/a/b\n", files) == Limits(cores=1.5, memory_bytes=2300)


def test_limits_of_control_groups_version_1_as_a_container_sees_them(tmp_path):
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": "200000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": "4000\n", "memory/memory.usage_in_bytes": "1000\n",
        "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 100\n",
    }  # fmt: skip
    own = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n"
    assert control_groups(tmp_path, own, files) == Limits(cores=2.0, memory_bytes=3100)


def test_no_limit_is_none(tmp_path):
    files = {
        "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "1000\n",
    }  # fmt: skip
    assert control_groups(tmp_path, "2:memory:/\n1:cpu:/\n", files) == Limits(cores=None, memory_bytes=None)
    assert limits(tmp_path / "nothing", tmp_path / "nowhere") == Limits(cores=None, memory_bytes=None)


@pytest.mark.parametrize(
    ("available", "left", "state"),
    [
        (16 * GB, None, "good"),
        (3 * GB, None, "look"),
        (GB, None, "bad"),
        (16 * GB, GB, "bad"),
        (16 * GB, 30 * GB, "good"),
    ],
)
def test_memory_counts_what_the_control_group_leaves(available, left, state):
    found = machine.judge_memory(32 * GB, available, Limits(cores=None, memory_bytes=left))
    assert found.state == state
    assert ("control group" in found.found) == (left is not None and left < available)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"omp_proc_bind": "close"}, "unset OMP_PROC_BIND"),
        ({"gomp_cpu_affinity": "0"}, "unset GOMP_CPU_AFFINITY"),
        ({"kmp_affinity": "granularity=fine,compact"}, "unset KMP_AFFINITY"),
        ({"omp_wait_policy": "ACTIVE"}, "OMP_WAIT_POLICY=passive"),
        ({"omp_num_threads": "8"}, "unset OMP_NUM_THREADS"),
        ({"openblas_num_threads": "4"}, "unset OPENBLAS_NUM_THREADS"),
    ],
)
def test_variables_that_make_threads_collide_are_told(variables, words):
    found = machine.judge_threads(around(**variables), allowed=2, openmp=["torch"])
    assert found.state == "look"
    assert words in found.do


@pytest.mark.parametrize(
    "variables", [{}, {"omp_num_threads": "1"}, {"omp_proc_bind": "false"}, {"omp_wait_policy": "passive"}]
)
def test_variables_that_do_no_harm_are_left_alone(variables):
    assert machine.judge_threads(around(**variables), allowed=2, openmp=["torch"]).state == "good"


def test_two_openmp_pools_are_told_unless_they_wait_quietly():
    two = ["scikit_learn", "torch"]
    assert "2 OpenMP libraries" in machine.judge_threads(CALM, allowed=2, openmp=two).found
    for variables in ({"omp_wait_policy": "passive"}, {"omp_num_threads": "1"}):
        assert machine.judge_threads(around(**variables), allowed=2, openmp=two).state == "good"


def test_pinning_really_takes_cores_away():
    """What the finding about OMP_PROC_BIND says, seen here: torch's OpenMP library does it as soon as it is loaded."""
    library = Path(importlib.util.find_spec("torch").origin).parent / "lib" / "libgomp.so.1"
    if len(os.sched_getaffinity(0)) < 2 or not library.exists():
        pytest.skip("there is one core only, or torch brings another OpenMP library")
    code = f"import ctypes, os; ctypes.CDLL({str(library)!r}); print(len(os.sched_getaffinity(0)))"
    for bind, cores in (("true", 1), ("false", len(os.sched_getaffinity(0)))):
        around = os.environ | {"OMP_PROC_BIND": bind}
        done = subprocess.run([sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True)
        assert int(done.stdout) == cores


@pytest.mark.parametrize(
    ("free", "is_writable", "state"),
    [(50 * GB, True, "good"), (5 * GB, True, "look"), (GB // 2, True, "bad"), (50 * GB, False, "bad")],
)
def test_a_store_needs_room_and_leave_to_write(free, is_writable, state):
    assert machine.judge_disk(free, is_writable=is_writable).state == state


def test_a_store_that_is_not_there_yet_is_judged_by_the_folder_above(tmp_path):
    assert machine.disk(str(tmp_path / "a" / "b")).facts["writable"]
    assert machine.disk("memory://store").state == "note"


@pytest.mark.parametrize(("free", "state"), [(64 * 2**20, "look"), (4 * GB, "good")])
def test_little_shared_memory_is_told(free, state):
    assert machine.judge_shared_memory(free).state == state


# Engines


@pytest.mark.parametrize(
    ("told", "state", "version"),
    [
        ('openjdk version "17.0.9" 2023-10-17', "good", 17),
        ('java version "1.8.0_392"', "look", 8),
        ('openjdk version "21" 2023-09-19', "good", 21),
        ("no such thing", "look", None),
    ],
)
def test_a_java_that_flink_cannot_use_is_told(told, state, version):
    found = engines.judge_java(told)
    assert (found.state, found.facts.get("version")) == (state, version)


def test_engines_are_found_in_their_folder(tmp_path):
    assert "`make engines` brings it" in engines.prism(str(tmp_path)).found
    (tmp_path / "prism").touch()
    (tmp_path / "flink-job-server").mkdir()
    (tmp_path / "flink-job-server" / "flink-job-server.jar").touch()
    assert engines.prism(str(tmp_path)).state == "good"
    assert engines.flink(str(tmp_path)).found.startswith("in part: python-worker missing")


def test_servers_that_are_not_named_are_no_trouble():
    assert [engines.ray_server(CALM).state, engines.prefect_server(CALM).state] == ["note", "note"]
    assert [engines.ray_server(around(ray_address=name)).state for name in ("auto", "local")] == ["note", "note"]


def test_a_named_server_that_does_not_answer_is_told():
    with socket.socket() as taken:  # bound, and listening to nobody
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        for found in (
            engines.ray_server(around(ray_address=where)),
            engines.ray_server(around(ray_address=f"ray://{where}")),
            engines.prefect_server(around(prefect_api_url=f"http://{where}/api")),
        ):
            assert found.state == "look"
            assert f"{where}, where nobody answers" in found.found


@pytest.mark.parametrize(("status", "state"), [(200, "good"), (404, "look"), (401, "note")])
def test_a_prefect_server_is_asked_for_its_health(status, state):
    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = engines.prefect_server(around(prefect_api_url=f"http://127.0.0.1:{server.server_port}/api"))
        assert engines.ray_server(around(ray_address=f"127.0.0.1:{server.server_port}")).state == "good"
        server.shutdown()
    assert (found.state, asked) == (state, ["/api/health"])
