"""Whether the documents that were clicked are in the documents file."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.read_documents import plan_documents, read_documents_part
from schemas.stage import Progress, silent
from schemas.text_columns import normalise_column

_MAX_SHAPES_FROM = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class ClickedDocuments:
    """`titled`: ids of those with a title. `shapes`: how most ids look, in the log and in the file (9 a digit)."""

    titled: pa.Array
    num_documents: int
    clicked: int  # distinct
    clicked_titled: int
    clicks: int
    clicks_titled: int
    shapes: tuple[str, str]


def find_clicked(uri: str, exposures: pa.Table, progress: Progress = silent) -> ClickedDocuments:
    """What the file has of the documents in EXPOSURES. It is read once; of its titles nothing is kept.

    Raises UsageError and StageError, as reading documents does.
    """
    wanted = pc.unique(exposures["document_id"].combine_chunks())
    parts = plan_documents(uri)
    found: list[pa.Array] = []
    first: Sequence[str] = ()
    total = 0
    for number, part in enumerate(parts):
        for table in read_documents_part(part):
            total += table.num_rows
            ids = table["id"].combine_chunks()
            first = first or ids[:_MAX_SHAPES_FROM].drop_null().to_pylist()
            here = table.filter(pc.is_in(ids, value_set=wanted))
            has_word = pc.not_equal(normalise_column(here["title"].fill_null("")), "")
            found.append(here["id"].combine_chunks().filter(has_word))
        progress("reading the documents (parts)", number + 1, len(parts))
    titled = pa.concat_arrays([pa.array([], pa.string()), *found])
    clicked = exposures.filter(pc.greater(exposures["clicks"], 0))
    is_titled = pc.is_in(clicked["document_id"], value_set=titled)
    distinct = pc.unique(clicked["document_id"].combine_chunks())
    return ClickedDocuments(
        titled=titled,
        num_documents=total,
        clicked=len(distinct),
        clicked_titled=pc.sum(pc.is_in(distinct, value_set=titled)).as_py() or 0,
        clicks=pc.sum(clicked["clicks"]).as_py() or 0,
        clicks_titled=pc.sum(clicked["clicks"].filter(is_titled)).as_py() or 0,
        shapes=(_shape(distinct[:_MAX_SHAPES_FROM].to_pylist()), _shape(first)),
    )


def _shape(ids: Sequence[str]) -> str:
    """How most ids look, with 9 for digits and a, A for letters: nothing of any id is in it."""
    shapes = Counter(re.sub(r"[a-z]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"\d+", "9", each))) for each in ids)
    if not shapes:
        return ""
    shape = shapes.most_common(1)[0][0]
    return shape if shape.isascii() and len(shape) <= 30 else "other"
