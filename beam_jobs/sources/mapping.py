"""What the columns of a log mean if its format does not say: a TOML file, or the same table in a config.

Labelled pairs and texts are mapped in the same way (labelled_rows).

    time_format = "iso"            # or "epoch_s", "epoch_ms"
    delimiter = ","                # delimited text only, as are header, quote and quoted_newlines

    [columns]                      # ours = yours: a name, a dotted path into nested JSON, or a number from 1
    query = "q"
    document_id = "product.id"

    [events]                       # values of the column that `event` names; every other value is some other action
    click = ["click", "tap"]

Without an `event` column a row with a document is a click that carries its query, and one without is a search: this
fits logs with one search per line and its clicks.
"""

import difflib
from collections.abc import Iterable
from dataclasses import field, fields
from typing import ClassVar, Literal

from schemas.errors import UsageError
from schemas.section import section

TimeFormat = Literal["iso", "epoch_s", "epoch_ms"]
Column = str | int | None


@section
class NamedColumns:
    """The file's column for each of ours: a name, a dotted path, or a number from 1; None if it has none.

    EXPECTED: those of our columns that some of the first lines must have.
    """

    EXPECTED: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for ours, column in self.named().items():
            if isinstance(column, int) and column < 1:
                raise UsageError(
                    f"The mapping gives {ours} the column {column}; columns are counted from 1.",
                    "Give a number from 1 on, or a name.",
                )

    def named(self) -> dict[str, str | int]:
        """Our name -> the file's column, for the columns that it has."""
        return {f.name: column for f in fields(self) if (column := getattr(self, f.name)) not in (None, "")}


@section
class Columns(NamedColumns):
    """The log's columns.

    `line_id`, for Parquet only: distinguishes rows that agree in all other columns. A line of text is identified by its
    bytes.
    """

    EXPECTED: ClassVar[tuple[str, ...]] = ("query",)

    query_id: Column = None
    client_id: Column = None
    query: Column = None
    document_id: Column = None
    position: Column = None
    time: Column = None
    event: Column = None
    user_agent: Column = None
    application: Column = None
    line_id: Column = None


@section
class Events:
    """The values of the event column that mean a search, an impression or a click."""

    search: tuple[str, ...] = ("search",)
    impression: tuple[str, ...] = ("impression",)
    click: tuple[str, ...] = ("click", "click_through")  # UBI names both

    def __post_init__(self) -> None:
        values = [*self.search, *self.impression, *self.click]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise UsageError(
                f"In the mapping, {', '.join(map(repr, twice))} stands for more than one of searches, impressions and"
                " clicks.",
                "Name each value once.",
            )

    def kinds(self) -> dict[str, str]:
        """Value -> kind."""
        return {value: kind for kind in ("search", "impression", "click") for value in getattr(self, kind)}


@section
class ColumnMapping:
    """What the columns mean, and how delimited text holds them. Raises UsageError for a value out of range.

    `header`: the first line of each file names its columns. `quote`: the mark around fields that contain the delimiter;
    "" for none; by default `"`, or none if tabs delimit. `quoted_newlines`: a quoted field may contain line ends; then
    one worker reads each file, because record boundaries are not recognisable in its middle.
    """

    columns: NamedColumns = field(default_factory=NamedColumns)
    delimiter: str = "\t"
    header: bool = True
    quote: str | None = None
    quoted_newlines: bool = False

    def __post_init__(self) -> None:
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote_mark or "x")):
            if len(mark.encode()) != 1 or mark in "\r\n":
                raise UsageError(f"The {name} {mark!r} of the mapping is not one ASCII character.", "Give one.")
        if self.quote_mark == self.delimiter:
            raise UsageError(
                "The quote and the delimiter of the mapping are the same.",
                "Give two characters.",
            )

    @property
    def quote_mark(self) -> str:
        """The mark that quotes fields, "" for none."""
        return self.quote if self.quote is not None else "" if self.delimiter == "\t" else '"'


@section
class Mapping(ColumnMapping):
    """What the columns of a log mean. Raises UsageError for a value out of range.

    `time_format`: iso (ISO 8601; a bare number is milliseconds since 1970), epoch_s or epoch_ms; UTC by default.
    """

    columns: Columns = field(default_factory=Columns)
    events: Events = field(default_factory=Events)
    time_format: TimeFormat = "iso"


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint at the name that was probably meant, for an error; empty if no name is similar."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
