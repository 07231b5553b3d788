"""Bring what the engines need into one folder: `make engines`, or python deploy/engines/install.py FOLDER [PIECE ...]

    prism             Beam's runner in Go                      needs go
    python-worker     what a Flink task manager starts         needs go
    flink-job-server  takes a job for Flink; a mini cluster    needs mvn, cc, and java to run
    flink             Flink's own jars, for a cluster          needs pip, and java to run
    dataflow          a Python environment for translating     needs uv, which `make setup` brings
    s3-server         an S3 server on a folder, to try one     needs go
    gcs-server        the same of Google Cloud Storage         needs go
    lucene            what our BM25 is held against            needs mvn, and java to run
    opensearch        what exports are loaded into             needs mvn, and java to run

Every version is pinned; a piece that is already there in its version stays. Go checks its downloads against its public
checksum database, Maven against the repository's checksums, pip against the SHA-256 below. If you have the binaries,
you need none of this: pass their paths to Beam (docs/running.md).
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
BEAM = metadata.version("apache-beam")  # Go programs and workers speak the version of the Python side
BEAM_IN_GO = "github.com/apache/beam/sdks/v2"
GO = "Install Go 1.26 or later, or give a published prism with --prism_location."
FLINK = "apache-flink-libraries==1.19.3"
FLINK_SHA256 = "4a58e3a1fb7d83340bc96b6c080624c6d792d69fae5d294b96224775204a9c60"
S3_SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
GCS_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"
JOB_SERVER_CLASS = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# Flink's own jars serve the job server; on a cluster the cluster's are the ones to load, and its logging.
JOB_SERVER_ONLY = ("flink-", "slf4j-")

WORKER = """\
#!/bin/sh
# Started by a Flink task manager for a job's Python side; written by deploy/engines/install.py.
# Each worker has a folder of its own, where it notes the job's options; the next ones clear it away.
set -eu
export PATH="{python}:$PATH" RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
find "{files}" -mindepth 1 -maxdepth 1 -mtime +1 -exec rm -r {{}} + || true
mine=$(mktemp -d "{files}/XXXXXXXX")
cd "$mine"
exec "{boot}" --semi_persist_dir="$mine" "$@"
"""


class Missing(Exception):
    """A piece cannot be made; the text says why, and what to do."""


def main(arguments: Sequence[str]) -> int:
    """Make the missing pieces. The exit code: 1 if one of them cannot be made."""
    named, *names = arguments or [str(HERE.parent.parent / ".engines")]
    folder = Path(named).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in names or PIECES:
        version, make = PIECES[name]
        target, mark = folder / name, folder / f"{name}.version"
        if target.exists() and mark.exists() and mark.read_text() == version:
            print(f"{name:17} {version}: there")
            continue
        try:
            mark.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                _replace(make(Path(work), target), target)
            mark.write_text(version)
            print(f"{name:17} {version}: made")
        except Missing as problem:
            failed = True
            print(f"{name:17} {version}: MISSING. {problem}")
    return int(failed)


def make_prism(work: Path, _target: Path) -> Path:
    """Beam's own except for one line: it would listen on every network and serve the files meant for workers."""
    _need("go", GO)
    module = f"{BEAM_IN_GO}@v{BEAM}"
    module_json = _run(["go", "mod", "download", "-json", module], "go could not fetch Beam's sources", cwd=work)
    source = work / "beam"
    shutil.copytree(json.loads(module_json)["Dir"], source, copy_function=shutil.copyfile)
    for folder in (source, *source.rglob("*/")):
        folder.chmod(0o755)
    server = source / "go/pkg/beam/runners/prism/internal/jobservices/server.go"
    opened, text = '"tcp", fmt.Sprintf(":%d", port)', server.read_text(encoding="utf-8")
    if text.count(opened) != 1:
        raise Missing(f"Beam {BEAM} opens its port in another way than the one before; give --prism_location.")
    server.write_text(text.replace(opened, opened.replace(":%d", "127.0.0.1:%d")), encoding="utf-8")
    _run(["go", "build", "-o", str(work / "prism"), "./go/cmd/prism"], "go could not build it", cwd=source)
    return work / "prism"


def make_python_worker(work: Path, target: Path) -> Path:
    """The script that sets the environment, and the program of Beam's worker image that starts and ends Python."""
    boot = target.with_name("python-worker-boot")
    os.replace(_go_install(f"{BEAM_IN_GO}/python/container@v{BEAM}", work) / "container", boot)
    script = work / "script"
    files = target.with_name("python-worker-files")
    files.mkdir(mode=0o700, exist_ok=True)
    script.write_text(WORKER.format(python=Path(sys.executable).parent, boot=boot, files=files))
    script.chmod(0o755)
    return script


def make_flink_job_server(work: Path, _target: Path) -> Path:
    """lib/ and flink-lib/ with all jars, one jar that holds only their names, and loopback.so."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), "cc")
    _need(compiler, "Install a C compiler.")
    _need("mvn", "Install Maven, or give the published job server with --flink_job_server_jar.")
    build = work / "made"
    _copy_jars("flink-job-server", build / "lib")
    (build / "flink-lib").mkdir()
    for jar in (build / "lib").glob("*.jar"):
        if jar.name.startswith(JOB_SERVER_ONLY):
            jar.rename(build / "flink-lib" / jar.name)
    _run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(build / "loopback.so"), str(HERE / "loopback.c"), "-ldl"],
        "the C compiler could not build loopback.c",
    )
    jars = sorted(path.relative_to(build).as_posix() for path in build.glob("*/*.jar"))
    manifest = f"Manifest-Version: 1.0\nMain-Class: {JOB_SERVER_CLASS}\nClass-Path: {' '.join(jars)}"
    with zipfile.ZipFile(build / "flink-job-server.jar", "w") as jar_file:
        jar_file.writestr("META-INF/MANIFEST.MF", "".join(f"{_folded(line)}\n" for line in manifest.splitlines()))
    return build


def make_flink(work: Path, _target: Path) -> Path:
    (work / "requirements.txt").write_text(f"{FLINK} --hash=sha256:{FLINK_SHA256}\n")
    _run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
         "--no-binary=:all:", "--require-hashes", "-r", str(work / "requirements.txt"), "-d", str(work)],
        "pip could not fetch Flink's jars",
    )  # fmt: skip
    build = work / "made"
    (build / "lib").mkdir(parents=True)
    with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
        for member in archive:
            if "/deps/lib/" in member.name and member.isfile():
                with (build / "lib" / Path(member.name).name).open("wb") as jar:
                    shutil.copyfileobj(archive.extractfile(member), jar)
    return build


def make_dataflow(work: Path, target: Path) -> Path:
    """A separate environment: Google's packages add a second to the start of every Beam process, and conflict with
    ours.
    """
    root, pins = HERE.parent.parent, work / "constraints.txt"
    pins.write_text("\n".join((_pins(root / "constraints.txt") | _pins(HERE / "dataflow-constraints.txt")).values()))
    uv, failed = [sys.executable, "-m", "uv"], "uv could not make the environment"
    _run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(target)], failed)
    python = str(target / "bin" / "python")
    _run(
        [*uv, "pip", "install", "--quiet", "--python", python, "--constraint", str(pins),
         "--editable", f"{root}[dataflow]"],
        failed,
    )  # fmt: skip
    return target  # environments cannot be moved, so this one is made in place


def make_s3_server(work: Path, _target: Path) -> Path:
    return _go_install(S3_SERVER, work) / "versitygw"


def make_gcs_server(work: Path, _target: Path) -> Path:
    return _go_install(GCS_SERVER, work) / "fake-gcs-server"


def make_lucene(work: Path, _target: Path) -> Path:
    _need("mvn", "Install Maven.")
    _copy_jars("lucene", work / "made")
    return work / "made"


def make_opensearch(work: Path, _target: Path) -> Path:
    """All jars of a node, those of its k-NN plugin too, and the program that starts it."""
    _need("mvn", "Install Maven.")
    build = work / "made"
    _copy_jars("opensearch", build)
    for archive in build.glob("*.zip"):
        with zipfile.ZipFile(archive) as plugin:
            plugin.extractall(build, [name for name in plugin.namelist() if name.endswith(".jar")])
        archive.unlink()
    shutil.copy(HERE / "opensearch" / "OpenSearch.java", build)
    return build


def _copy_jars(piece: str, folder: Path) -> None:
    """Copy the jars that a piece's pom.xml names, and theirs, into a new folder."""
    _run(
        ["mvn", "--batch-mode", "--quiet", "--strict-checksums", "-f", str(HERE / piece / "pom.xml"),
         "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"],
        "Maven could not fetch the jars",
    )  # fmt: skip


def _pins(path: Path) -> dict[str, str]:
    return {line.partition("==")[0]: line for line in path.read_text().splitlines()}


def _our_dependencies() -> str:
    """A name derived from our own dependencies, so that the environment is rebuilt when they change."""
    declared = [HERE.parent.parent / "pyproject.toml", HERE / "dataflow-constraints.txt"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in declared)).hexdigest()[:8]


PIECES: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "prism": (f"{BEAM} for this machine alone", make_prism),
    "python-worker": (f"{BEAM} for {Path(sys.executable).parent}, 2", make_python_worker),
    "flink-job-server": ("Beam 2.62.0 for Flink 1.19, for this machine alone", make_flink_job_server),
    "flink": (FLINK, make_flink),
    "dataflow": (f"apache-beam[gcp] {BEAM}, {_our_dependencies()}", make_dataflow),
    "s3-server": (S3_SERVER.rpartition("/")[2], make_s3_server),
    "gcs-server": (GCS_SERVER.rpartition("@")[2], make_gcs_server),
    "lucene": ("9.12.3", make_lucene),
    "opensearch": ("2.19.1", make_opensearch),
}


def _go_install(package: str, work: Path) -> Path:
    _need("go", GO)
    _run(["go", "install", package], "go could not build it", env=os.environ | {"GOBIN": str(work)})
    return work


def _need(program: str, do: str) -> None:
    if not shutil.which(program):
        raise Missing(f"There is no `{program}` on the PATH. {do}")


def _run(command: Sequence[str], failed: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """The output of the command."""
    process = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if process.returncode:
        output = "\n".join((process.stdout + process.stderr).strip().splitlines()[-15:])
        raise Missing(f"{failed} (code {process.returncode}). The command was: {' '.join(command)}\n{output}")
    return process.stdout


def _replace(source: Path, target: Path) -> None:
    if source == target:
        return
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(source, target)


def _folded(line: str) -> str:
    """A line of a jar's manifest: at most 72 bytes, continued after a space."""
    parts = [line[:72], *(line[i : i + 71] for i in range(72, len(line), 71))]
    return "\n ".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
