"""Paths, patterns, folders, tables and URIs -> the files of a log.

A folder, also one that a pattern matches, is read in depth: no file in it is left out quietly. Hidden files and those
that engines write beside their data (`_SUCCESS`, `_committed_17`, `.part-0.parquet.crc`) are skipped and counted. Of a
table of a data lake (lake_tables) only the files of its current version are there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pkgutil import resolve_name
from typing import Protocol

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError

_READERS = "clicktower.beam_jobs.sources.lake_tables"
_MARKS = re.compile(r"(.+)/(?:_delta_log/.+|metadata/[^/]+\.metadata\.json|\.hoodie/.+|\.hoodie_partition_metadata)")


class LogTable(Protocol):
    """A version of a table (lake_tables.LakeTable)."""

    @property
    def folder(self) -> str: ...

    @property
    def files(self) -> frozenset[str]: ...


# By folder: its table, or None if it is no table.
Tables = dict[str, LogTable | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFiles:
    """The files of a log in order, each once and with the table that it belongs to, and how many were `skipped`."""

    tables: dict[str, LogTable | None] = field(default_factory=dict)
    skipped: frozenset[str] = frozenset()

    @property
    def paths(self) -> list[str]:
        return list(self.tables)


def find_files(logs: Sequence[str]) -> LogFiles:
    """The files that paths, patterns, folders, tables and URIs name. Raises UsageError and StageError."""
    tables: Tables = {}
    files: dict[str, LogTable | None] = {}
    skipped: frozenset[str] = frozenset()
    for log in logs:
        found = expand(log, tables)
        if not found.tables:
            hidden = f" ({len(found.skipped)} hidden ones are no log)" if found.skipped else ""
            raise UsageError(
                f"There is no file {log}{hidden}, and nothing that the pattern matches.",
                "Check the path; quote a pattern, so that the shell leaves it alone.",
            )
        files |= found.tables
        skipped |= found.skipped
    return LogFiles(tables=files, skipped=skipped - files.keys())


def expand(log: str, tables: Tables) -> LogFiles:
    """The files that one path, pattern, folder, table or URI names; maybe none.

    A table's own folder, or the `.metadata.json` that an Iceberg catalogue names, stands for all files of its current
    version. `tables`: the results of earlier calls; one dictionary serves for the logs of one command.

    Raises UsageError for a pipe, an unknown kind of URI, and a table whose rows are not those of its files, StageError
    for a file, folder or table that cannot be read, and for a URI whose package is not installed.
    """
    try:
        return _expand(log, tables)
    except OSError as error:
        raise unreadable(error.filename or log, error) from None


def _expand(log: str, tables: Tables) -> LogFiles:
    if log in ("-", "/dev/stdin") or storage.is_pipe(log):
        name = "Standard input" if log in ("-", "/dev/stdin") else f"The pipe {log}"
        raise UsageError(
            f"{name} can be read once, and a log is read more often: to plan the work, and by several workers.",
            "Write it to a file first (`... > log.ndjson`), and give that file; `check` and `ingest` take `-`.",
        )
    place = absolute(log).rstrip("/")
    if place.endswith(".metadata.json"):
        return _whole(resolve_name(f"{_READERS}:iceberg_table")(place))
    files: dict[str, LogTable | None] = {}
    skipped: list[str] = []
    for name in storage.expand(place):
        if _is_hidden(name.split("/"), place.split("/")) or storage.is_pipe(name):
            skipped.append(name)
            continue
        is_folder = storage.is_folder(name)
        table = _table_around(name if is_folder else name.rpartition("/")[0], tables)
        if table is not None and table.folder == name:
            files |= _whole(table).tables
            continue
        listed = storage.walk(name) if is_folder else [name]
        inside = [] if table is not None or not is_folder else _tables_among(listed, name, tables)
        for below in inside:
            files |= _whole(below).tables
        for file in listed:
            holder = table or next((below for below in inside if file.startswith(f"{below.folder}/")), None)
            if holder is not None:
                files |= {file: holder} if file in holder.files else {}
            elif _is_hidden(file[len(name) :].split("/")):
                skipped.append(file)
            else:
                files[file] = None
    return LogFiles(tables=dict(sorted(files.items())), skipped=frozenset(skipped))


def _whole(table: LogTable) -> LogFiles:
    return LogFiles(tables=dict.fromkeys(sorted(table.files), table))


def _table_around(folder: str, tables: Tables) -> LogTable | None:
    """The table that a folder, or the nearest folder above it, is."""
    while folder and not folder.endswith(":/"):
        if folder not in tables:
            tables[folder] = _table_of(folder)
        if (table := tables[folder]) is not None:
            return table
        folder = folder.rpartition("/")[0]
    return None


def _tables_among(files: Sequence[str], folder: str, tables: Tables) -> list[LogTable]:
    """The tables in a folder whose files are these; none in a hidden folder."""
    found = []
    for root in dict.fromkeys(filter(None, map(folder_marked_by, files))):
        if not _is_hidden(root[len(folder) :].split("/")):
            if root not in tables:
                tables[root] = _table_of(root)
            found.append(tables[root])
    return [table for table in found if table is not None]


def folder_marked_by(file: str) -> str | None:
    """The folder of the table that has a file of this name, if only tables have such files."""
    match = _MARKS.fullmatch(file)
    return match[1] if match else None


_TABLES_HAVE = ("_delta_log", "metadata", ".hoodie", ".hoodie_partition_metadata")


def _table_of(folder: str) -> LogTable | None:
    """As lake_tables.table_of, which is loaded for a folder that may be a table."""
    try:
        if not any(storage.exists(storage.join(folder, name)) for name in _TABLES_HAVE):
            return None
    except PermissionError:  # a folder above the log, which its reader need not see
        return None
    return resolve_name(f"{_READERS}:table_of")(folder)


def absolute(uri: str) -> str:
    """As storage.absolute: engines write `file:/log`, `file:///log` or `/log`, and `s3a://`, for the same file."""
    return storage.absolute(re.sub("^s3[an]:", "s3:", uri))


# As Spark has it: a folder such as `_day=1` is a partition's.
_HIDDEN = re.compile(r"\..*|_[^=]*|.*\.crc")


def _is_hidden(parts: Sequence[str], pattern: Sequence[str] = ()) -> bool:
    """Whether a file, or a folder that it is in, is hidden or an engine's own; what the pattern spells out is not."""
    return any(
        _HIDDEN.fullmatch(part)
        and not any(part == one or (part[0] == one[:1] and fnmatchcase(part, one)) for one in pattern)
        for part in parts
        if part
    )


def unreadable(file: str, error: OSError) -> StageError:
    """The error for a file that the system cannot read."""
    return StageError(
        f"{file} cannot be read: {error.strerror or type(error).__name__}. Nothing of it was kept.",
        "Make the file readable, or leave it out.",
    )
