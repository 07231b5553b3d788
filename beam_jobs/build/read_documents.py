"""A documents file in parts that workers read: byte ranges of lines, a whole gzip file, row groups of Parquet."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet

from beam_jobs.sources.read_lines import Unit, plan_reading, read_blocks
from schemas import storage
from schemas.documents import as_documents, not_of_form, parse_documents, require_documents


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentsPart:
    """What one worker reads in one go: a unit of lines, or a row group of a Parquet file."""

    uri: str
    form: str  # one of documents.FORMS
    lines: Unit | None = None
    row_group: int = -1


def plan_documents(uri: str) -> list[DocumentsPart]:
    """The parts of a documents file; at most its footer is read for it. Raises UsageError and StageError."""
    form = require_documents(uri)
    if form != ".parquet":
        return [DocumentsPart(uri=uri, form=form, lines=unit) for unit in plan_reading([uri]).units]
    try:
        with storage.open_read(uri) as file:
            num_row_groups = pyarrow.parquet.ParquetFile(file).num_row_groups
    except pa.ArrowInvalid as error:
        raise not_of_form(uri, error) from None
    return [DocumentsPart(uri=uri, form=form, row_group=number) for number in range(num_row_groups)]


def read_documents_part(part: DocumentsPart) -> Iterator[pa.Table]:
    """Ids and titles (which may be null) of one part, some at a time. Raises StageError for bytes of another form."""
    if part.lines is not None:
        for block in read_blocks(part.lines):
            yield parse_documents(part.uri, part.form, block.data)
        return
    try:
        with storage.open_read(part.uri) as file:
            read = pyarrow.parquet.ParquetFile(file).read_row_group(part.row_group, columns=["id", "title"])
        yield as_documents(read)
    except (pa.ArrowInvalid, KeyError) as error:
        raise not_of_form(part.uri, error) from None
