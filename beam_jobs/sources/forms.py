"""The log formats of ingest and check: a new one is a file that defines its source, and an entry below."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

from clicktower.beam_jobs.sources.mapping import UTF8, Events, Mapping
from clicktower.schemas.errors import UsageError

if TYPE_CHECKING:
    from clicktower.beam_jobs.sources.source import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class LogForm:
    """A log format, as `--format` names it.

    `code`: "module:name" of the class or function that makes its source of a mapping. `mapping`: what a user specifies:
    the columns, or only the meaning of events.
    """

    name: str
    code: str
    mapping: Literal["columns", "events", "none"]
    takes_delimiter: bool = False
    takes_line_id: bool = False

    def source(self, mapping: Mapping) -> "Source":
        """The source, whose code this imports; it opens nothing yet."""
        return resolve_name(self.code)(mapping=mapping)


_SOURCES = "clicktower.beam_jobs.sources"
FORMS = {
    form.name: form
    for form in (
        LogForm(name="ubi", code=f"{_SOURCES}.ubi:ubi_source", mapping="events"),
        LogForm(name="orcas", code=f"{_SOURCES}.delimited:orcas_source", mapping="none"),
        LogForm(
            name="delimited", code=f"{_SOURCES}.delimited:DelimitedSource", mapping="columns", takes_delimiter=True
        ),
        LogForm(name="jsonl", code=f"{_SOURCES}.jsonl:JsonSource", mapping="columns"),
        LogForm(name="parquet", code=f"{_SOURCES}.parquet:ParquetSource", mapping="columns", takes_line_id=True),
    )
}


def form_of(name: str) -> LogForm:
    """The format with that name. Raises UsageError for an unknown name."""
    if name not in FORMS:
        raise UsageError(f"The format `{name}` of a log is unknown.", f"Use one of {', '.join(FORMS)}.")
    return FORMS[name]


def check_mapping(form: LogForm, mapping: Mapping | None) -> None:
    """Raises UsageError if a format lacks a mapping that it needs, or has one that it cannot use."""
    if form.mapping == "columns":
        named = mapping.columns.named() if mapping else {}
        lacking = [name for name in ("query", "document_id") if name not in named]
        if lacking:
            raise UsageError(
                f"A log in the format `{form.name}` needs a mapping of its columns"
                + (f", and this mapping has no {lacking[0]}." if mapping else "."),
                "Give --mapping FILE with at least query and document_id below [columns]; see docs/data.md.",
            )
    elif mapping and (
        form.mapping == "none"
        or mapping != Mapping(events=mapping.events, encoding=mapping.encoding)
        or mapping.events.search != Events().search
    ):
        also = (
            ", but for encoding, and click, impression and conversion in [events]" if form.mapping == "events" else ""
        )
        raise UsageError(
            f"The columns of the format `{form.name}` are known, and a mapping is given.",
            f"Leave the mapping out{also}.",
        )
    if mapping and mapping.columns.line_id is not None and not form.takes_line_id:
        raise UsageError(
            f"The mapping has line_id; lines of the format `{form.name}` are identified by their bytes.",
            "Leave line_id out.",
        )
    text_only = ("delimiter", "header", "quote", "quoted_newlines", "escape")
    text_settings = [name for name in text_only if mapping and getattr(mapping, name) != getattr(Mapping(), name)]
    if text_settings and not form.takes_delimiter:
        raise UsageError(
            f"The mapping has {text_settings[0]}, which is for delimited text and not for the format `{form.name}`.",
            "Leave it out.",
        )
    if mapping and mapping.encoding != UTF8 and form.name == "parquet":
        raise UsageError("The mapping has encoding, which is for text; Parquet says its own.", "Leave it out.")
