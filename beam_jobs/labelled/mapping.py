"""Which columns of a file are the texts and the label: flags, or a TOML file like that of a log.

    header = false                 # delimited text only, as are delimiter, quote and quoted_newlines

    [columns]                      # ours = yours: a name, a dotted path into nested JSON, or a number from 1
    first = 2
    second = 3
    label = 1

Labelled texts have `text` instead of `first` and `second`.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from beam_jobs.mapping import Column, ColumnMapping, NamedColumns, read_mapping_of
from schemas.errors import UsageError
from schemas.labelled import Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledColumns(NamedColumns):
    """The file's column for each of ours."""

    EXPECTED: ClassVar[tuple[str, ...]] = ("text", "first", "second", "label")

    text: Column = None
    first: Column = None
    second: Column = None
    label: Column = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledMapping(ColumnMapping):
    """What the columns mean. Raises UsageError where they are neither of pairs nor of texts."""

    columns: LabelledColumns = field(default_factory=LabelledColumns)

    def __post_init__(self) -> None:
        ColumnMapping.__post_init__(self)
        named = set(self.columns.named())
        if named not in ({"first", "second", "label"}, {"text", "label"}):
            raise UsageError(
                asked="labelled pairs or texts were to be read",
                found=f"of their columns {', '.join(sorted(named)) if named else 'none'} was named",
                follows="what is a text and what is its label cannot be told",
                do="name first, second and label (pairs), or text and label (texts)",
            )

    @property
    def unit(self) -> Unit:
        return "texts" if self.columns.text not in (None, "") else "pairs"


def read_labelled_mapping(path: str) -> LabelledMapping:
    """The mapping in a TOML file. Raises UsageError and StageError as that of a log."""
    return read_mapping_of(path, LabelledMapping, {"columns": LabelledColumns})
