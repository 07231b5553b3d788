"""Search log -> private daily aggregate -> training shards, as Beam jobs on Arrow batches."""

import logging

import schemas  # noqa: F401  # before any engine: it says what engines are to tell their makers

# Importing Beam warns that Google's client libraries are missing, or half there (other packages bring a half of them).
# Nobody asked for them; who gives a gs:// path without them is told by that path's own error.
_OF_GOOGLE = ("apitools not found", "Failed to import GCSFileSystem")


def _is_asked_for(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_GOOGLE)


for _name in (None, "apache_beam.io.filesystems"):
    logging.getLogger(_name).addFilter(_is_asked_for)
