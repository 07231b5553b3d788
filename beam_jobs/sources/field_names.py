"""The names of a log's fields: which of ours they mean by custom, and which of them may be shown.

Where a log has no header, its first line stands where the names would be; JSON may hold ids or queries as keys, and a
table that was turned on its side holds them as columns. So a name is shown only if each part of it is in the lists
below, or is what a user wrote in the mapping, or nearly so. The others are counted.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from clicktower.beam_jobs.sources.mapping import UTF8, ColumnMapping, Events, NamedColumns
from clicktower.beam_jobs.sources.mapping import Mapping as LogMapping
from clicktower.beam_jobs.sources.source import LogForm
from clicktower.schemas.errors import UsageError

# Our column -> its usual names, likeliest first. Two parts are a key within an object of that name. Names are compared
# without case, `_`, `-`, `.`, `@` and spaces: `queryId`, `query_id` and `Query ID` are equal.
ALIASES: dict[str, tuple[str, ...]] = {
    "query_id": (
        "query_id", "qid", "search_id", "sid", "query.id", "search.id", "request_id", "search_request_id", "query_uid",
        "query_uuid", "search_uuid", "query_guid", "qry_id",
    ),
    "client_id": (
        "client_id", "user_id", "visitor_id", "anon_id", "anonymous_id", "cookie_id", "device_id", "customer_id", "uid",
        "client", "user", "visitor", "user.id", "client.id", "visitor.id", "uuid", "session_id", "session",
    ),
    "query": (
        "user_query", "query", "query_text", "search_term", "search_query", "search_text", "search.query",
        "search.text", "query.text", "keywords", "keyword", "q", "term", "phrase", "search_phrase", "text", "search",
    ),
    "document_id": (
        "object_id", "document_id", "doc_id", "product_id", "item_id", "product.id", "item.id", "document.id", "doc.id",
        "object.id", "sku", "asin", "did", "click_url", "clicked_url", "url", "product", "item", "document", "doc",
        "article_id", "listing_id", "internal_id",
    ),
    "position": ("ordinal", "position", "rank", "item_rank", "pos", "index", "click_rank", "result_position", "slot"),
    "time": (
        "timestamp", "time", "ts", "datetime", "date_time", "event_time", "query_time", "created_at", "at", "date",
        "epoch", "unix_time", "time_stamp",
    ),
    "event": ("action_name", "event", "event_type", "event_name", "action", "action_type", "type", "interaction"),
    "user_agent": ("user_agent", "ua", "agent", "http_user_agent", "browser"),
    "application": ("application", "app", "app_name", "application_name"),
}  # fmt: skip

# Names that mean none of our columns, and are as usual: of UBI, of search engines, of labelled pairs, of objects around
# the fields.
_OTHERS = """
    event_attributes query_attributes object_id_field object_detail message message_type dwell_time page_id page
    query_response_id query_response_hit_ids query_response_objects_ids result_count results_count num_results results
    attributes properties params parameters payload data context meta metadata fields record body request response log
    source hit hits row value values key name title description category brand price currency quantity language locale
    country city region ip ip_address host referrer referer path status method device platform os version variant test
    experiment filter filters sort order order_id user_name customer account account_id email phone tenant tenant_id
    site store shop channel count score label gold_label relevance grade clicked clicks click impressions impression
    purchase dwell x y page_depth scroll_depth trail id line_id number
    sentence sentence1 sentence2 premise hypothesis question1 question2 text1 text2 text_a text_b is_duplicate target
"""

_NAME = re.compile(r"[A-Za-z_@][A-Za-z0-9_.@ -]{0,59}")
_LONG_DIGITS = re.compile(r"\d{5,}|[0-9a-fA-F]{12,}")
_WORD = re.compile(r"[A-Za-z_-]{4,60}")  # without a digit: `user` is near to `user12`, which may be a person
_NEAR = 0.8
_MAX_LISTED = 40


def plain_name(name: str) -> str:
    """A name reduced to lower-case letters and digits."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_KNOWN = frozenset(
    plain_name(name)
    for alias in (*_OTHERS.split(), *(alias for aliases in ALIASES.values() for alias in aliases))
    for name in (alias, *alias.split("."))
)


def is_name(text: str) -> bool:
    """Whether a text has the form of a field's name, though it may be a value: `lamp` has it too."""
    return bool(_NAME.fullmatch(text.strip())) and not _LONG_DIGITS.search(text)


def may_be_shown(name: str, typed: Collection[str] = ()) -> bool:
    """Whether a name, or a dotted path of names, is known without the log. `typed`: the user's own names."""
    if name in typed:
        return True
    parts = name.split(".")
    typed_parts = [part for typed_name in typed for part in typed_name.split(".")]
    return is_name(name) and all(plain_name(part) in _KNOWN or _is_near(part, typed_parts) for part in parts)


def _is_near(part: str, typed_parts: Collection[str]) -> bool:
    if part in typed_parts:
        return True
    return bool(_WORD.fullmatch(part) and difflib.get_close_matches(part, typed_parts, n=1, cutoff=_NEAR))


def listed(names: Iterable[str], typed: Collection[str] = ()) -> str:
    """Names for an error: those that may be shown, and how many others there are."""
    names = list(names)
    shown = [name for name in names if may_be_shown(name, typed)]
    num_hidden = len(names) - len(shown[:_MAX_LISTED])
    text = ", ".join(map(repr, shown[:_MAX_LISTED]))
    are, they = ("is", "it") if num_hidden == 1 else ("are", "they")
    hidden = f"{num_hidden:,} that {are} not shown, since {they} may be text of the log"
    return text if not num_hidden else f"{text} and {hidden}" if text else hidden


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint at the name that was probably meant, for an error; empty if no name that may be shown is similar."""
    near = difflib.get_close_matches(name, [candidate for candidate in names if may_be_shown(candidate, [name])], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_mapping(form: LogForm, mapping: LogMapping | None) -> None:
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
        or mapping != LogMapping(events=mapping.events, encoding=mapping.encoding)
        or mapping.events.search != Events().search
    ):
        also = (
            ", but for encoding, and click, impression and conversion in [events]" if form.mapping == "events" else ""
        )
        raise UsageError(
            f"The columns of the format `{form.name}` are known, and a mapping is given.",
            f"Leave the mapping out{also}.",
        )
    if mapping and mapping.columns.line_id is not None and form.is_text:
        raise UsageError(
            f"The mapping has line_id; lines of the format `{form.name}` are identified by their bytes.",
            "Leave line_id out.",
        )
    text_only = ("delimiter", "header", "quote", "quoted_newlines", "escape")
    text_settings = [name for name in text_only if mapping and getattr(mapping, name) != getattr(LogMapping(), name)]
    if text_settings and not form.takes_delimiter:
        raise UsageError(
            f"The mapping has {text_settings[0]}, which is for delimited text and not for the format `{form.name}`.",
            "Leave it out.",
        )
    if mapping and mapping.encoding != UTF8 and not form.is_text:
        raise UsageError("The mapping has encoding, which is for text; Parquet says its own.", "Leave it out.")


def check_columns(headers: Mapping[str, Sequence[str]], mapping: ColumnMapping) -> None:
    """Raise UsageError if a mapped column is in no file, in only some of them, or in one twice.

    `headers` holds the column names of each file.
    """
    typed = [column for column in mapping.columns.named().values() if isinstance(column, str)]
    for ours, column in mapping.columns.named().items():
        lacking = [
            file
            for file, header in headers.items()
            if (column > len(header) if isinstance(column, int) else column not in header)
        ]
        having = [file for file in headers if file not in lacking]
        if lacking and having:
            raise UsageError(
                f"The mapping gives {ours} the column {column!r}; {having[0]} has it and {lacking[0]} has not: that"
                f" has only {listed(headers[lacking[0]], typed)}.",
                "Give files of one form at a time, each with its mapping.",
            )
        if lacking:
            header = headers[lacking[0]]
            hint = nearest(column, header) if isinstance(column, str) else ""
            raise UsageError(
                f"The mapping gives {ours} the column {column!r}; {lacking[0]} has only the columns"
                f" {listed(header, typed)}{hint}.",
                "Name one of its columns in the mapping.",
            )
        for file, header in headers.items():
            if isinstance(column, str) and header.count(column) > 1:
                raise UsageError(
                    f"The mapping gives {ours} the column {column!r}; {file} has {header.count(column)} columns of"
                    " that name.",
                    "Give its number, counted from 1.",
                )


def check_keys(seen: Collection[str], columns: NamedColumns) -> None:
    """Check the mapped keys of JSON lines against those seen. A key that no line has may come later or never; but it is
    probably misspelt if it is expected, or nearly equal to another.
    """
    names = {ours: str(column) for ours, column in columns.named().items()}
    unmapped = set(seen) - set(names.values())
    for ours, name in names.items():
        if ours == "query" and names.get("query_id") in seen:
            continue  # it may be missing, since the lines seen identify their search
        if seen and name not in seen and (ours in columns.EXPECTED or nearest(name, unmapped)):
            raise UsageError(
                f"The mapping gives {ours} the column {name!r}; the first lines have only"
                f" {listed(sorted(seen), names.values())}{nearest(name, unmapped)}.",
                "Name one of their keys in the mapping.",
            )
