"""What a source makes of files, for tests: its rows, its rejects and its count of lines."""

from collections import Counter

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.schemas.search_log import LOG_ROW

NAMES = [name for name in LOG_ROW.names if name not in ("weight", "line_hash")]


def read_all(logs, config: IngestConfig):
    """(rows as dicts without their hash, [(file, offset, reason)], lines), of all units in order."""
    source = open_source(config)
    rows, rejects, num_lines, stored = [], [], 0, 0
    plan = source.plan([str(log) for log in logs])
    for unit in plan.units:
        for block in source.read(unit):
            assert block.rows.schema.equals(LOG_ROW)
            block.rows.validate(full=True)
            given = block.rows.num_rows + len(block.reject_reasons) + block.num_action_lines
            given += block.num_blank_lines
            assert given == block.num_lines  # a line is a row, a reject, an action or blank
            rows += block.rows.select(NAMES).to_pylist()
            rejects += [
                (unit.file, offset, reason)
                for offset, reason in zip(block.reject_offsets.tolist(), block.reject_reasons, strict=True)
            ]
            num_lines += block.num_lines
            stored += block.stored_bytes
    if rows:
        assert stored <= plan.stored_bytes
    return rows, rejects, num_lines


def as_set(rows):
    """Rows in any order, repeats counted."""
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)
