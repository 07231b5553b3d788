"""The dotted names in comments, docstrings and pages, and whether there is what they name.

A name is one of ours (`clicks`, `trainer.clicks`, `search_log.QUERIES`, `Recipe.clicks`), a setting (`tower.cells`), of
a package that is installed, or an expression of the code beside it. Examples and names of files are no names of code.
"""

import ast
import builtins
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import clicktower
from clicktower.flows.config.settings_reference import CLASSES, settings_class
from clicktower.schemas.section import kinds_of_fields
from tests import house
from tests.documented import ROOT

ALIASES = {"np": "numpy", "pa": "pyarrow", "nn": "torch"}
CODE_FILES = ("cpp", "h", "inc", "py")
DATA_FILES = ("arrow", "css", "csv", "html", "json", "jsonl", "log", "md", "onnx", "parquet", "run", "safetensors",
              "toml", "tsv", "txt", "yaml", "gz", "mjs", "ndjson", "ipynb", "so")  # fmt: skip
# Columns of a log, parameters of a model, fields of JSON, hosts, abbreviations.
NO_CODE = re.compile(
    r"(a\.b(\.c)?|user\.id|product\.id|event_attributes\..*|query_attributes\..*|query\.(W|W_rec|b)"
    r"|shared\.head\.W_1|texts\.words|position\.ordinal|metrics\.bots|text_contract\.table_rows|u\.s\.a|\w+\.example|section\.field|NAME\..*)$"
)
_NAME = re.compile(r"(?<![\w./@<-])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+(?![\w/-])")


def in_python(source: str) -> Iterator[str]:
    """The comments and docstrings, without the examples in these: what is indented or typed after a blank line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            paragraphs = (ast.get_docstring(node) or "").split("\n\n")
            yield from (paragraph for paragraph in paragraphs if not paragraph.startswith(("    ", ">>>")))


_BLOCK = re.compile(r"^```.*?^```", re.M | re.S)


def in_page(text: str) -> Iterator[str]:
    """The code within the sentences of a page."""
    yield from re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))


def examples(text: str) -> str:
    """The blocks of code of a page."""
    return "\n".join(_BLOCK.findall(text))


def names(prose: str) -> list[str]:
    return _NAME.findall(prose)


def is_there(name: str, code: str = "") -> bool:
    """Whether anything has the name; `code` is that of the file which has it in its prose."""
    first, last = name.partition(".")[0], name.rpartition(".")[2]
    if last in DATA_FILES or NO_CODE.match(name):
        return True
    if last in CODE_FILES:
        return name in _code_files()
    if _is_ours(name) or name in _settings():
        return True
    if hasattr(builtins, first) or (not _modules_ending(first) and find_spec(ALIASES.get(first, first))):
        return True
    return name in code


def _is_ours(name: str) -> bool:
    """`clicks`, `trainer.clicks`, `trainer.clicks.Teacher`, `Teacher.gamma`, or all of it."""
    if _modules_ending(name):
        return True
    before, _, last = name.rpartition(".")
    if last in _members().get(before.rpartition(".")[2], ()):
        return not before.rpartition(".")[0] or _is_ours(before)
    return any(last in _top_level(module) for module in _modules_ending(before))


@cache
def _files() -> dict[str, Path]:
    return {house.module_of(file): file for file in house.product_files()}


@cache
def _modules_ending(name: str) -> list[str]:
    return [module for module in _files() if f".{module}".endswith(f".{name}")]


@cache
def _top_level(module: str) -> set[str]:
    """The names that a module defines; for `clicktower`, those of its interface, too."""
    found = set(clicktower.__all__ if module == "clicktower" else ())
    for node in ast.parse(_files()[module].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found


@cache
def _members() -> dict[str, set[str]]:
    """The methods and fields of our classes, by the name of the class."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in _files().values():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name] |= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
                found[node.name] |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)
                                     and isinstance(part.target, ast.Name)}  # fmt: skip
    return found


@cache
def _settings() -> set[str]:
    """As `--set` and as a pipeline.toml names them: `mapping.columns`, `ingest.mapping.columns`."""
    fields = {(command, name) for command in CLASSES for name in kinds_of_fields(settings_class(command))}
    return {name for _, name in fields} | {f"{command}.{name}" for command, name in fields}


@cache
def _code_files() -> set[str]:
    return {path.name for path in ROOT.rglob("*.*") if path.suffix[1:] in CODE_FILES and ".venv" not in path.parts}
