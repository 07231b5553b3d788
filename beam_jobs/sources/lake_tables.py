"""Logs that are tables of a data lake: the Parquet files that a Delta or an Iceberg table consists of now.

Beside them lie the files of earlier versions, whose rows have been deleted or rewritten since. So a folder or a pattern
inside a table, such as one of its partitions, gives only the files of the current version.
"""

import re

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError

# By folder: the files of its table, or None if it is no table.
Tables = dict[str, frozenset[str] | None]

_METADATA = re.compile(r"v?(\d+)(-.*)?(\.gz)?\.metadata\.json")
_PATTERN = re.compile(r"[*?\[]")


def expand(log: str, tables: Tables) -> list[str]:
    """As storage.expand, except that of a table only the files of its current version are there.

    A table's own folder, or the `.metadata.json` that an Iceberg catalogue names, stands for all of them. `tables`: the
    results of earlier calls; one dictionary serves for the logs of one command.

    Raises UsageError for a table whose rows are not those of its files, StageError for one that cannot be read.
    """
    place = _absolute(log).rstrip("/")
    if place.endswith(".metadata.json"):
        return sorted(_iceberg_files(place))
    folder = place
    while folder and not folder.endswith(":/"):
        if folder not in tables:
            tables[folder] = None if _PATTERN.search(folder) else _files_of_table(folder)
        current = tables[folder]
        if current is not None:
            return sorted(current) if folder == place else [file for file in storage.expand(log) if file in current]
        folder = folder.rpartition("/")[0]
    return storage.expand(log)


def _files_of_table(folder: str) -> frozenset[str] | None:
    try:
        if storage.exists(storage.join(folder, "_delta_log")):
            return _delta_files(folder)
        names = storage.list_names(storage.join(folder, "metadata"))
    except PermissionError:  # a folder above the log, which its reader need not see
        return None
    versions = [(int(match[1]), name) for name in names if (match := _METADATA.fullmatch(name))]
    if not versions:
        return None
    newest = [name for version, name in versions if version == max(versions)[0]]
    if len(newest) > 1:
        raise UsageError(
            f"The Iceberg table {folder} has {len(newest)} newest versions ({', '.join(newest)}): one of them was never"
            " committed.",
            "Give the path of the metadata file that the table's catalogue names.",
        )
    return _iceberg_files(storage.join(folder, "metadata", newest[0]))


def _delta_files(folder: str) -> frozenset[str]:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError as error:
        raise _not_installed(folder, "a Delta table", error) from None
    try:
        table = DeltaTable(folder)
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise _unusable(folder, "renames columns without rewriting its files (delta.columnMapping.mode)")
        has_deleted = "deletionVectors" in (table.protocol().reader_features or ())
        if has_deleted and any(batch.num_rows for batch in table.deletion_vectors()):
            raise _unusable(folder, "marks deleted rows beside its files (deletion vectors)")
        return frozenset(map(_absolute, table.file_uris()))
    except (DeltaError, OSError, ValueError) as error:
        raise _unreadable(folder, error) from None


def _iceberg_files(metadata: str) -> frozenset[str]:
    try:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import StaticTable
    except ModuleNotFoundError as error:
        raise _not_installed(metadata, "of an Iceberg table", error) from None
    try:
        table = StaticTable.from_metadata(metadata, {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
        tasks = list(table.scan().plan_files())
    except (OSError, ValueError, ValidationError) as error:
        raise _unreadable(metadata, error) from None
    if any(task.delete_files for task in tasks):
        raise _unusable(metadata, "marks deleted rows beside its files (delete files)")
    if formats := {task.file.file_format.name for task in tasks} - {"PARQUET"}:
        raise _unusable(metadata, f"has files of another format than Parquet ({', '.join(sorted(formats))})")
    return frozenset(_absolute(task.file.file_path) for task in tasks)


def _absolute(uri: str) -> str:
    """As storage.absolute: engines write `file:/log`, `file:///log` or `/log`, and `s3a://`, for the same file."""
    return storage.absolute(re.sub("^s3[an]:", "s3:", uri))


def _not_installed(table: str, kind: str, error: ModuleNotFoundError) -> UsageError:
    package = (error.name or "").partition(".")[0]
    return UsageError(
        f"{table} is {kind}, and the package {package} is not installed here.",
        "Install it (pip install 'clicktower[tables]').",
    )


def _unusable(table: str, reason: str) -> UsageError:
    return UsageError(
        f"The table {table} {reason}: its rows are not those of its files.",
        "Rewrite the table with its own engine (OPTIMIZE, REORG or rewrite_data_files), or write it as Parquet files.",
    )


def _unreadable(table: str, error: Exception) -> StageError:
    reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return StageError(f"The table {table} cannot be read ({reason}).", "Check its path, and that its files are there.")
