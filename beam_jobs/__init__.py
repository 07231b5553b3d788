"""Search log -> private daily aggregate -> training shards, as Beam jobs on Arrow batches."""

import logging


def _is_asked_for(record: logging.LogRecord) -> bool:
    return "apitools not found" not in record.getMessage()


# Importing Beam warns, on the root logger, that Google client libraries are missing; nobody asked for them.
logging.getLogger().addFilter(_is_asked_for)
