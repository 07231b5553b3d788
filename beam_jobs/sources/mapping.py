"""What the columns of a log mean if its format does not say: a TOML file, or the same table in a config.

Labelled pairs and texts are mapped in the same way (labelled_rows).

    time_format = "iso"            # or "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"
    null = ["", "-"]               # what stands for a missing value, in place of MARKS_OF_NOTHING
    encoding = "utf-8"             # of text; or "latin-1", "cp1252", "utf-16", "shift_jis", ...
    delimiter = ","                # delimited text only, as are header, quote, escape and quoted_newlines

    [columns]                      # ours = yours: a name, a dotted path into nested JSON, or a number from 1
    query = "q"
    document_id = "product.id"

    [events]                       # values of the column that `event` names; every other value is some other action
    click = ["click", "tap"]
    conversion = { add_to_cart = 3, purchase = 5 }      # what each counts, in clicks

Without an `event` column a row with a document is a click that carries its query, and one without is a search: this
fits logs with one search per line and its clicks.
"""

import codecs
from dataclasses import field, fields
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from clicktower.schemas.errors import UsageError
from clicktower.schemas.search_log import CLICK_WEIGHT
from clicktower.schemas.section import Unnamed, section

UTF8 = "utf-8"


def _known_encoding(name: str) -> str:
    """The usual name of an encoding of text. Raises UsageError for an unknown one."""
    try:
        "".encode(name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UsageError(
            f"The encoding {name!r} of the mapping is unknown.", "Give one such as utf-8, latin-1, cp1252 or utf-16."
        ) from None


TimeFormat = Literal["iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns"]
Column = str | int | None

# A person may search for `null`, so of MARKS_OF_NOTHING (schemas.text_contract) only these are no query.
NO_QUERY = ("", "\\N")


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
    """The log's columns: a name, a dotted path into nested JSON, or a number from 1.

    Args:
        query_id: The search: its line and the lines of its results have the same id.
        client_id: The person or the device. Without it there are no people, and no k of 1 or more keeps anything.
        query: What was typed.
        document_id: The document that was shown or clicked, as in the documents.
        position: Its rank, from 1.
        time: When it was.
        event: What it was; see `events`. Without it a row with a document is a click, and any other a search.
        user_agent: The program that searched, for declared bots.
        application: The site or app that was searched.
        line_id: For Parquet only: distinguishes rows that agree in all other columns. A line of text is identified by
            its bytes.
        dwell: How long a visit took; `min_dwell` says what is too short.
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
    dwell: Annotated[Column, Unnamed(at=None)] = None


@section
class Events:
    """The values of the event column that mean a search, an impression, a click or a conversion.

    Args:
        search: Values that mean a search.
        impression: Values that mean that a document was shown.
        click: Values that mean a click.
        conversion: Values that mean what may follow a click, such as a purchase, with the number of clicks that each
            counts as.
    """

    search: tuple[str, ...] = ("search",)
    impression: tuple[str, ...] = ("impression",)
    click: tuple[str, ...] = ("click", "click_through")  # UBI names both
    conversion: Annotated[dict[str, Annotated[float, Field(ge=0.001, le=1000)]], Unnamed(at={})] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        values = [*self.search, *self.impression, *self.click, *self.conversion]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise UsageError(
                f"In the mapping, {', '.join(map(repr, twice))} stands for more than one of searches, impressions,"
                " clicks and conversions.",
                "Name each value once.",
            )

    def kinds(self) -> dict[str, tuple[str, int]]:
        """Value -> kind and weight (LOG_ROW)."""
        return {
            **dict.fromkeys(self.search, ("search", 0)),
            **dict.fromkeys(self.impression, ("impression", 0)),
            **dict.fromkeys(self.click, ("click", CLICK_WEIGHT)),
            **{value: ("conversion", round(clicks * CLICK_WEIGHT)) for value, clicks in self.conversion.items()},
        }


@section
class ColumnMapping:
    """What the columns mean, and how delimited text holds them. Raises UsageError for a value out of range.

    Args:
        columns: Our columns, each with the file's.
        delimiter: The character between the fields of delimited text.
        header: The first line of each file names its columns.
        quote: The mark around fields that contain the delimiter; empty for no mark; by default ", or no mark if tabs
            delimit.
        quoted_newlines: A quoted field may contain line ends; one worker then reads each file.
        escape: The mark, such as a backslash, before a character that stands for itself; after a backslash n, r, t, b,
            0 are the usual controls.
        encoding: The encoding of text, by any name that Python knows; one worker reads each file in another than UTF-8.
    """

    columns: NamedColumns = field(default_factory=NamedColumns)
    delimiter: str = "\t"
    header: bool = True
    quote: str | None = None
    quoted_newlines: bool = False
    escape: Annotated[str | None, Unnamed(at=None)] = None
    encoding: Annotated[str, AfterValidator(_known_encoding), Unnamed(at=UTF8)] = UTF8

    def __post_init__(self) -> None:
        marks = (("delimiter", self.delimiter), ("quote", self.quote_mark or "x"), ("escape", self.escape or "x"))
        for name, mark in marks:
            if len(mark.encode()) != 1 or mark in "\r\n":
                raise UsageError(f"The {name} {mark!r} of the mapping is not one ASCII character.", "Give one.")
        if self.quote_mark == self.delimiter:
            raise UsageError("The quote and the delimiter of the mapping are the same.", "Give two characters.")
        if self.escape in (self.delimiter, self.quote_mark):
            raise UsageError(
                "The escape of the mapping is also its delimiter or its quote.",
                "Give another character; two quotes within quotes need no escape.",
            )
        if self.escape and self.quoted_newlines:
            raise UsageError(
                "The mapping has both escape and quoted_newlines, and an escaped quote may or may not end a record.",
                "Leave one of them out.",
            )

    @property
    def quote_mark(self) -> str:
        """The mark that quotes fields, "" for none."""
        return self.quote if self.quote is not None else "" if self.delimiter == "\t" else '"'


@section
class Mapping(ColumnMapping):
    """What the columns of a log mean. Raises UsageError for a value out of range.

    Args:
        events: What the values of the event column mean.
        time_format: iso (ISO 8601 and other usual forms, UTC by default), or the unit of numbers since 1970.
        min_dwell: The shortest dwell of a click that counts, in the unit of the column `dwell`.
        null: The texts that stand for a missing value, in every column; by default the usual marks, of which a query
            may be some.
    """

    columns: Columns = field(default_factory=Columns)
    events: Events = field(default_factory=Events)
    time_format: TimeFormat = "iso"
    min_dwell: Annotated[float | None, Field(gt=0), Unnamed(at=None)] = None
    null: Annotated[tuple[str, ...] | None, Unnamed(at=None)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.columns.dwell is None) != (self.min_dwell is None):
            present, absent = ("min_dwell", "dwell") if self.columns.dwell is None else ("dwell", "min_dwell")
            raise UsageError(
                f"The mapping has {present} and no {absent}.",
                "Name the column `dwell` below [columns], and the shortest dwell of a click that counts, `min_dwell`,"
                " above it.",
            )
