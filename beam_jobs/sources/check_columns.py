"""Whether files have the columns that a mapping names, looked at before anything is read."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Table

from beam_jobs.mapping import ColumnMapping, nearest
from schemas.errors import UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_. -]{0,59}")
_MAX_LISTED = 40


def check_columns(headers: Table[str, Sequence[str]], mapping: ColumnMapping) -> None:
    """Nothing. Raises UsageError where a mapped column is in no file, in one file but not in another, or in one twice.

    `headers` holds the names of the columns of each file.
    """
    for ours, column in mapping.columns.named().items():
        lacking = [file for file, header in headers.items() if not has_column(header, column)]
        having = [file for file in headers if file not in lacking]
        asked = f"the mapping gives {ours} the column {column!r}"
        if lacking and having:
            raise UsageError(
                asked=asked,
                found=f"{having[0]} has it and {lacking[0]} has not; that has only {listed(headers[lacking[0]])}",
                follows="nothing of it was kept",
                do="give files of one form at a time, each with its mapping",
            )
        if lacking:
            header = headers[lacking[0]]
            hint = nearest(column, filter(_NAME.fullmatch, header)) if isinstance(column, str) else ""
            raise UsageError(
                asked=asked,
                found=f"{lacking[0]} has only the columns {listed(header)}{hint}",
                follows="nothing of it was kept",
                do="name one of these in the mapping",
            )
        for file, header in headers.items():
            if isinstance(column, str) and header.count(column) > 1:
                raise UsageError(
                    asked=asked,
                    found=f"{file} has {header.count(column)} columns of that name",
                    follows="nothing of it was kept",
                    do="give its number, counted from 1",
                )


def has_column(header: Sequence[str], column: str | int) -> bool:
    """Whether a file with these columns has one by a name or number."""
    return column <= len(header) if isinstance(column, int) else column in header


def listed(names: Iterable[str]) -> str:
    """Names of columns for an error. What does not look like names is not quoted: it may be a line of the log."""
    names = list(names)
    if not all(_NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
        return f"{len(names)} that do not look like names (they are not quoted, since they may be a line of the log)"
    return ", ".join(map(repr, names[:_MAX_LISTED])) + (", ..." if len(names) > _MAX_LISTED else "")
