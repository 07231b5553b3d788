"""How large the house is: files, lines, folders, circles, names used twice, and the files of the main path.

python -m tests.house            # counts
python -m tests.house --path     # and the files that a plain run loads (main_path)
"""

import argparse
import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("clicktower", "schemas", "beam_jobs", "training", "flows")
Graph = Mapping[str, set[str]]


def product_files() -> list[Path]:
    return [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]


def module_of(file: Path) -> str:
    """As it is imported: the packages beside `clicktower` are in it once it is installed."""
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    return name if name.split(".")[0] == "clicktower" else f"clicktower.{name}"


def imports() -> dict[str, set[str]]:
    """Module -> the product's modules that it imports anywhere, in functions and for types too."""
    files = {module_of(file): file for file in product_files()}
    found: dict[str, set[str]] = {}
    for module, file in files.items():
        names = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= (inner & files.keys()) or {node.module}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        found[module] = (names & files.keys()) - {module}
    return found


def folders(modules: Graph) -> dict[str, set[str]]:
    """Folder -> the folders that its files import from. A package's own files are a folder of the package's name."""
    packages = {module_of(file) for file in product_files() if file.name == "__init__.py"}

    def folder(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    found: dict[str, set[str]] = defaultdict(set)
    for module, imported in modules.items():
        found[folder(module)] |= {folder(other) for other in imported} - {folder(module)}
    return dict(found)


def circles(graph: Graph) -> list[list[str]]:
    """The sets of more than one node that can each be reached from all others of theirs (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def types_named_twice() -> dict[str, int]:
    """Public classes whose name more than one file defines."""
    names = Counter(
        node.name
        for file in product_files()
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: number for name, number in sorted(names.items()) if number > 1}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--path", action="store_true", help="and list the files that a plain run loads")
    asked = parser.parse_args()
    files = product_files()
    lines = {file: file.read_text(encoding="utf-8").count("\n") for file in files}
    modules = imports()
    print(f"product: {len(files)} files, {sum(lines.values()):,} lines of Python")
    for package in PACKAGES:
        own = [file for file in files if file.relative_to(ROOT).parts[0] == package]
        loose = sum(file.parent == ROOT / package for file in own)
        print(f"  {package:10}{len(own):4} files, {sum(lines[file] for file in own):6,} lines, {loose} at the top")
    tests = subprocess.run(["git", "ls-files", "tests/*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    written = [(ROOT / name).read_text(encoding="utf-8").count("\n") for name in tests.stdout.split()]
    print(f"tests: {len(written)} files, {sum(written):,} lines")
    print(f"circles of files: {circles(modules)}, of folders: {circles(folders(modules))}")
    sizes = Counter(str(file.parent.relative_to(ROOT)) for file in files)
    print(f"folders of more than 20 files: { ({name: size for name, size in sizes.items() if size > 20}) }")
    names = Counter(file.name for file in files if file.name != "__init__.py")
    print(f"file names used twice: {sorted(name for name, number in names.items() if number > 1)}")
    print(f"type names used twice: {types_named_twice()}")
    if asked.path:
        from tests.main_path import ENTRIES, loaded_from

        path = sorted(loaded_from(ENTRIES))
        print(f"main path: {len(path)} files, {sum(lines[file] for file in path):,} lines")
        for file in path:
            print(f"  {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
