"""Lines of the same texts, met in one bucket -> one row for each pair or text, and the fates of the other lines."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.labelled.rows import LABELLED_LINE
from schemas.negatives import absorb

# A line with where it came from and the key that brings lines of the same texts together.
KEYED = LABELLED_LINE.append(pa.field("dev", pa.bool_(), nullable=False)).append(
    pa.field("key", pa.uint64(), nullable=False)
)
_SAME = ["dev", "first", "second", "first_id", "second_id", "key"]


def keyed(lines: pa.RecordBatch, *, ordered: bool, dev: bool) -> pa.Table:
    """KEYED rows. Not `ordered`: the text that sorts first (by its UTF-8 bytes) is `first`. dev: of the dev file."""
    columns = {name: lines[name] for name in LABELLED_LINE.names}
    if not ordered:
        is_turned = pc.fill_null(pc.less(columns["second"], columns["first"]), False)
        for one, other in (("first", "second"), ("first_id", "second_id")):
            a, b = lines[one], lines[other]
            columns[one], columns[other] = pc.if_else(is_turned, b, a), pc.if_else(is_turned, a, b)
    key = absorb(columns["first_id"].to_numpy().copy(), columns["second_id"].to_numpy())
    flags = pa.array(np.full(len(lines), dev))
    return pa.table([*columns.values(), flags, pa.array(key)], schema=KEYED)


def distinct(lines: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """(KEYED: one row for all lines of the same texts and file, in no order; the lines dropped, by fate).

    `lines`: all KEYED rows of their keys. Lines of the same texts with different labels are all dropped: which of them
    is right cannot be told.
    """
    found = lines.group_by(_SAME).aggregate([("label", "count_distinct"), ("label", "count"), ("label", "min")])
    num_lines, num_labels = found["label_count"].to_numpy(), found["label_count_distinct"].to_numpy()
    agrees = num_labels == 1
    fates = {
        "label_conflict": int(num_lines[~agrees].sum()),
        "label_repeated": int((num_lines[agrees] - 1).sum()),
    }
    rows = found.rename_columns({"label_min": "label"}).filter(pa.array(agrees))
    return rows.select(KEYED.names).cast(KEYED).combine_chunks(), fates
