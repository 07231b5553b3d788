"""The forms of log that ingest and check know: a new one is a file that defines a LogForm, and its place below."""

from beam_jobs.sources import delimited, jsonl, parquet, ubi
from beam_jobs.sources.mapping import Events, Mapping
from beam_jobs.sources.source import LogForm
from schemas.errors import UsageError

FORMS: dict[str, LogForm] = {
    form.name: form for form in (ubi.FORM, delimited.ORCAS, delimited.FORM, jsonl.FORM, parquet.FORM)
}


def form_of(name: str) -> LogForm:
    """The form of that name. Raises UsageError where there is none."""
    if name not in FORMS:
        raise UsageError(
            asked=f"a log in the format `{name}` was to be read",
            found="that format is unknown",
            do=f"use one of: {', '.join(FORMS)}",
        )
    return FORMS[name]


def check_mapping(form: LogForm, mapping: Mapping | None) -> None:
    """Raises UsageError where a form needs a mapping, has no use for one, or for something in it."""
    asked = f"a log in the format `{form.name}` was to be read"
    if form.mapping == "columns":
        named = mapping.columns.named() if mapping else {}
        lacking = [name for name in ("query", "document_id") if name not in named]
        if lacking:
            raise UsageError(
                asked=asked,
                found="there is no mapping of its columns" if not mapping else f"its mapping has no {lacking[0]}",
                follows="the meaning of its columns is unknown",
                do="give --mapping FILE with at least query and document_id below [columns]; see docs/data.md",
            )
    elif mapping and (
        form.mapping == "none" or mapping != Mapping(events=mapping.events) or mapping.events.search != Events().search
    ):
        also = ", but for click and impression in [events]" if form.mapping == "events" else ""
        raise UsageError(
            asked=asked,
            found="its columns are known, and a mapping of them was given",
            do=f"leave the mapping out{also}",
        )
    if mapping and mapping.columns.line_id is not None and not form.takes_line_id:
        raise UsageError(
            asked=asked,
            found="its mapping has line_id",
            do="leave that out: lines of text are identified by their bytes",
        )
    text_only = ("delimiter", "header", "quote", "quoted_newlines")
    given = [name for name in text_only if mapping and getattr(mapping, name) != getattr(Mapping(), name)]
    if given and not form.takes_delimiter:
        raise UsageError(
            asked=asked, found=f"its mapping has {given[0]}", do="leave that out: it is for delimited text"
        )
