"""Logs that are tables of a data lake: the Parquet files that a Delta or an Iceberg table consists of now, and where
each of them has a column of the table.

Beside them lie the files of earlier versions, whose rows have been deleted or rewritten since. Iceberg knows a column
by the number of its field, whatever it is called in a file; a column that is younger than a file is null in its rows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from clicktower.beam_jobs.sources.log_files import absolute
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A column, or a value within structs: its dotted path, its type, and the number of its field, if it has one."""

    name: str
    kind: pa.DataType
    field_id: int | None = None


def leaves(schema: pa.Schema) -> list[Leaf]:
    """The columns, and the values within structs, in order."""
    result: list[Leaf] = []

    def visit(name: str, field: pa.Field) -> None:
        if pa.types.is_struct(field.type):
            for number in range(field.type.num_fields):
                inner = field.type.field(number)
                visit(f"{name}.{inner.name}", inner)
        else:
            field_id = (field.metadata or {}).get(_FIELD_ID)
            result.append(Leaf(name=name, kind=field.type, field_id=None if field_id is None else int(field_id)))

    for column in schema:
        visit(column.name, column)
    return result


@dataclass(frozen=True, kw_only=True, slots=True)
class LakeTable:
    """A version of a table: the `folder`, or the metadata file, that names it; its files and columns.

    `outside`: the columns whose values a file may lack without being null, and where they are. `by_id`: whether fields
    have numbers; then `name_mapping` (pyiceberg's) gives those of files that were written without, and `has_evolved`
    tells whether names may have changed.
    """

    folder: str
    files: frozenset[str]
    leaves: tuple[Leaf, ...]
    outside: Mapping[str, str] = field(default_factory=dict)
    by_id: bool = False
    name_mapping: Any = None
    has_evolved: bool = False

    def name_in(self, file: str, schema: pa.Schema, file_leaves: Sequence[Leaf], column: str) -> str | None:
        """The dotted path in a file, whose schema and leaves are given, of a column of the table; None if the file has
        none and its rows are null there. Raises UsageError for a file without what tells its columns, or values that
        are elsewhere.
        """
        leaf = next(leaf for leaf in self.leaves if leaf.name == column)
        name: str | None = column if any(column == each.name for each in file_leaves) else None
        if self.by_id:
            ids: dict[int | None, str] = {each.field_id: each.name for each in file_leaves if each.field_id is not None}
            if not ids and self.name_mapping is not None:
                ids = _mapped_ids(file, schema, self.name_mapping)
            elif not ids and self.has_evolved:
                raise UsageError(
                    f"{file} does not number its columns, and the table {self.folder} has no name mapping and more than"
                    " one schema: which column is which cannot be known.",
                    "Rewrite the file with the table's own engine (rewrite_data_files), or write the table as Parquet"
                    " files.",
                )
            if ids:
                name = ids.get(leaf.field_id)
        if name is None and column in self.outside:
            raise UsageError(
                f"The table {self.folder} keeps the column {column!r} {self.outside[column]}, and {file} lacks it.",
                "Leave the column out of the mapping, or write the table as Parquet files.",
            )
        return name


def _mapped_ids(file: str, schema: pa.Schema, name_mapping: Any) -> dict[int | None, str]:
    from pyiceberg.io.pyarrow import pyarrow_to_schema

    try:
        numbered = pyarrow_to_schema(schema, name_mapping, downcast_ns_timestamp_to_us=True)
    except (TypeError, ValueError) as error:
        raise _unreadable(file, error) from None
    return {number: numbered.find_column_name(number) or "" for number in numbered.field_ids}


def delta_table(folder: str) -> LakeTable:
    """The current version of a Delta table. Errors: as log_files.expand."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ModuleNotFoundError as error:
        raise _not_installed(folder, "a Delta table", error) from None
    try:
        table = DeltaTable(folder)
        facts = table.metadata()
        if facts.configuration.get("delta.columnMapping.mode", "none") != "none":
            raise _unusable(folder, "renames columns without rewriting its files (delta.columnMapping.mode)")
        has_deleted = "deletionVectors" in (table.protocol().reader_features or ())
        if has_deleted and any(batch.num_rows for batch in table.deletion_vectors()):
            raise _unusable(folder, "marks deleted rows beside its files (deletion vectors)")
        return LakeTable(
            folder=folder,
            files=frozenset(
                _delta_file(folder, path) for path in pa.table(table.get_add_actions())["path"].to_pylist()
            ),
            leaves=tuple(leaves(pa.schema(table.schema().to_arrow()))),
            outside=dict.fromkeys(facts.partition_columns, "in the names of its folders"),
        )
    except (DeltaError, OSError, ValueError) as error:
        raise _unreadable(folder, error) from None


def _delta_file(folder: str, path: str) -> str:
    """The file of a path in Delta's log: relative or absolute, and with the escapes of a URI."""
    path = unquote(path)
    return absolute(path if "://" in path or path.startswith("/") else storage.join(folder, path))


def iceberg_table(metadata: str, folder: str | None = None) -> LakeTable:
    """The version of an Iceberg table that a metadata file describes. Errors: as log_files.expand."""
    try:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.table import StaticTable
        from pyiceberg.transforms import IdentityTransform
    except ModuleNotFoundError as error:
        raise _not_installed(metadata, "of an Iceberg table", error) from None
    try:
        table = StaticTable.from_metadata(metadata, {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})
        tasks = list(table.scan().plan_files())
        schema, schemas = table.schema(), table.schemas()
        columns = tuple(leaves(schema.as_arrow()))
        outside = {
            leaf.name: "as a default in its schema"
            for leaf in columns
            if schema.find_field(leaf.field_id or 0).initial_default is not None
        } | {
            leaf.name: "in the values of its partitions"
            for leaf in columns
            for spec in table.specs().values()
            for part in spec.fields_by_source_id(leaf.field_id or 0)
            if isinstance(part.transform, IdentityTransform)
        }
    except (OSError, ValueError, ValidationError) as error:
        raise _unreadable(metadata, error) from None
    if any(task.delete_files for task in tasks):
        raise _unusable(metadata, "marks deleted rows beside its files (delete files)")
    if formats := {task.file.file_format.name for task in tasks} - {"PARQUET"}:
        raise _unusable(metadata, f"has files of another format than Parquet ({', '.join(sorted(formats))})")
    return LakeTable(
        folder=folder or metadata,
        files=frozenset(absolute(task.file.file_path) for task in tasks),
        leaves=columns,
        outside=outside,
        by_id=True,
        name_mapping=table.name_mapping(),
        has_evolved=len(schemas) > 1,
    )


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


_METADATA = re.compile(r"v?(\d+)(-.*)?(\.gz)?\.metadata\.json")


def table_of(folder: str) -> LakeTable | None:
    """The table that a folder is, in its current version; None if it is no table, or may not be looked into.

    Raises UsageError for a table whose rows are not those of its files, StageError for one that cannot be read.
    """
    try:
        if storage.exists(storage.join(folder, "_delta_log")):
            return delta_table(folder)
        if any(storage.exists(storage.join(folder, name)) for name in (".hoodie", ".hoodie_partition_metadata")):
            raise UsageError(
                f"{folder} is a Hudi table, or a partition of one: rows of earlier versions lie beside those of today,"
                " and in logs of changes.",
                "Write its current snapshot as Parquet files with its own engine, and give those.",
            )
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
    return iceberg_table(storage.join(folder, "metadata", newest[0]), folder)
