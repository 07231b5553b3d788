"""schemas <- beam_jobs, training <- flows: each engine's worker image carries its own stack and nothing else."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import house

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "schemas": {"schemas"},
    "beam_jobs": {"schemas", "beam_jobs"},
    "training": {"schemas", "training"},
    "flows": {"schemas", "beam_jobs", "training", "flows"},
    "clicktower": {"schemas", "training", "flows", "clicktower"},
}
OURS = set(ALLOWED)
FOREIGN = {
    "schemas": {"apache_beam", "ray", "torch", "prefect", "lancedb", "rich", "cyclopts", "pandas", "polars"},
    "beam_jobs": {"ray", "torch", "prefect", "lancedb", "cyclopts"},
    "training": {"apache_beam", "prefect", "lancedb", "cyclopts"},
}


def modules(package: str) -> list[str]:
    """All of its modules, but for what is compiled, which is a plain library and no module."""
    return [house.module_of(file) for file in sorted((ROOT / package).rglob("*.py"))]


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_follow_the_dependency_direction(package):
    """Read from the source, so that an import inside a function counts too."""
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top, *inner = name.split(".")
                assert top not in OURS - {"clicktower"}, f"{file} imports {name} without `clicktower.`"
                ours = (inner or [top])[0] if top == "clicktower" else top
                assert ours not in OURS or ours in ALLOWED[package], f"{file} imports {name}"
                assert top not in FOREIGN.get(package, set()), f"{file} imports {name}"


def test_no_file_and_no_folder_imports_itself_by_way_of_others():
    modules = house.imports()
    assert house.circles(modules) == []
    assert house.circles(house.folders(modules)) == []
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]], "one is found where there is one"


def test_the_page_that_says_where_things_are_names_what_is_there():
    """Its main path: every function is defined in one of the files beside it, every path leads somewhere."""
    page = (ROOT / "docs" / "developing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| (`.*) \| (`.*) \|$", page, re.MULTILINE)
    assert len(rows) >= 14
    for row in rows:
        names, paths = (re.findall(r"`([\w./]+)`", cell) for cell in row)
        folder = str(Path(paths[0]).parent)
        files = [ROOT / (path if "/" in path else f"{folder}/{path}") for path in paths]
        said = "".join(file.read_text(encoding="utf-8") for file in files)
        for name in names:
            assert re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", said), (name, paths)
    for path in re.findall(r"`((?:beam_jobs|training|flows|schemas|tests)/[\w./]+)`", page):
        assert (ROOT / path.removesuffix("NAME.py")).exists(), path


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(FOREIGN))
def test_importing_a_package_loads_no_foreign_engine(package):
    """Loaded for real, all of it, in a process of its own: what a worker image would load."""
    code = (
        "import importlib, sys\n"
        f"for name in {modules(package)!r}: importlib.import_module(name)\n"
        f"print(sorted(set(sys.modules) & {FOREIGN[package]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_only_settings_reads_the_environment_for_configuration():
    """No environment variable alters a result: only flows/config/settings.py reads any."""
    readers = [
        str(file.relative_to(ROOT))
        for package in OURS
        for file in (ROOT / package).rglob("*.py")
        if "os.environ.get" in (text := file.read_text(encoding="utf-8")) or "os.getenv" in text
    ]
    assert readers == []
