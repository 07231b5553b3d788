"""An environment that holds clicktower's wheel and only what some of its extras declare, as a worker image does.

Making it by an installer would take minutes. So it is a folder of links to the packages that are installed here, those
alone that the declared requirements lead to, and Python is started without its own site-packages.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


def declared(extras: set[str]) -> set[str]:
    """The names of all distributions that `clicktower[extras]` leads to, by pyproject.toml and what they declare."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [Requirement(f"clicktower[{','.join(sorted(extras))}]")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        for extra in {"", *asked.extras} - {done for dist, done in seen if dist == name}:
            seen.add((name, extra))
            if name == "clicktower":
                lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
                waiting += map(Requirement, lines)
            else:
                of_this = map(Requirement, metadata.requires(name) or ())
                waiting += [one for one in of_this if not one.marker or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def build_wheel(folder: Path, *, compiler: bool) -> Path:
    """The wheel of this source, built in a copy of it by way of the sdist, where there is a compiler or none, without
    a warning of Setuptools.
    """
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / "source" / name)
    without = {} if compiler else {"CC": "false", "CXX": "false"}
    command = [sys.executable, "-m", "uv", "build", "--out-dir", str(folder)]
    built = subprocess.run(
        command, cwd=folder / "source", env=os.environ | without, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr[-5000:]
    assert re.findall(r"\w*Warning: .*", built.stderr) == []
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, extras: set[str], folder: Path) -> None:
    """Fill a folder, which takes the place of site-packages, with the wheel and links to what its extras lead to."""
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for name in declared(extras) - {"clicktower"}:
        files = metadata.distribution(name).files or ()
        where = Path(str(metadata.distribution(name).locate_file("")))
        # Two levels: several distributions may share a top folder (google/, nvidia/).
        for file in {Path(*file.parts[:2]) for file in files if ".." not in file.parts}:
            if file.name in ("__pycache__",) or not (where / file).exists():
                continue
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / file).is_symlink():
                (folder / file).symlink_to(where / file)


def clicktower(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of clicktower with the packages of `site`, the standard library, and nothing else."""
    return python(
        site, "import sys; from clicktower.flows.cli import run; sys.exit(run(sys.argv[1:]))", *words, cwd=cwd
    )


def python(site: Path, code: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run code in the same way."""
    return subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        cwd=cwd,
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin", "HOME": str(cwd), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def imports(site: Path, modules: list[str]) -> list[str]:
    """Those of the modules that can be found there."""
    code = "import importlib.util, sys; print([one for one in sys.argv[1:] if importlib.util.find_spec(one)])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *modules],
        env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return re.findall(r"'([^']+)'", done.stdout)
