"""The sheet that assessors fill in: a row for each pair of a query and a document, and an empty cell for its grade.

.csv or .tsv by its name, in UTF-8 with a byte order mark and all cells quoted, so that spreadsheets open it as it is.
"""

import csv
import io
from collections.abc import Sequence

from schemas.errors import UsageError
from training.judging.cells import check, guarded
from training.judging.pool import Item

GRADES = ("bad", "fair", "good", "excellent")  # what each grade from 0 on is called
COLUMNS = ("query_id", "query", "document_id", "title", "grade", "check")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_GRADE_HEADER = (
    "grade: 0 Bad (not what was asked for); 1 Fair (near it, of some use); 2 Good (what was asked for);"
    " 3 Excellent (exactly what was asked for)"
)


def sheet_bytes(items: Sequence[Item], name: str) -> bytes:
    """The sheet of these items. Raises UsageError where `name` ends neither with .csv nor with .tsv."""
    delimiter = next((sign for ending, sign in DELIMITERS.items() if name.lower().endswith(ending)), None)
    if delimiter is None:
        raise UsageError(
            asked=f"a sheet for assessors was to be written to {name}",
            found="the ending of its name is unknown",
            do="use .csv or .tsv",
        )
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow([*COLUMNS[:4], _GRADE_HEADER, f"check of {len(items)} rows"])
    for item in items:
        cells = (item.query_id, item.query, item.document_id, item.title)
        writer.writerow([*map(guarded, cells), "", check(*cells)])
    return b"\xef\xbb\xbf" + text.getvalue().encode("utf-8", "replace")
