"""Search log -> private daily aggregate -> training shards, as Beam jobs on Arrow batches."""

import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

# Importing Beam warns that Google's client libraries are missing or incomplete (other packages install a part of them).
# Most users do not need them; a user with a gs:// path gets that path's own error.
_OF_GOOGLE = ("apitools not found", "Failed to import GCSFileSystem")


def _is_asked_for(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_GOOGLE)


for _name in (None, "apache_beam.io.filesystems"):
    logging.getLogger(_name).addFilter(_is_asked_for)


class _Unused(MetaPathFinder):
    # Beam imports pandas wherever it is installed; Arrow does at the first conversion of an array, by itself
    # (https://github.com/apache/arrow/pull/3893), and would take None in sys.modules for pandas.
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in ("pandas", "pymongo"):
            raise ModuleNotFoundError(f"{fullname} is kept out of this process (beam_jobs)")


def keep_out_unused_imports() -> None:
    """Keep this process from importing pandas and MongoDB's client, unless it already has.

    They take a quarter of the time and a fifth of the memory of importing Beam. Beam and Arrow work without them, and
    nothing here uses them. Call it only in a process that belongs to one command or job: any other code in the process
    would find them not installed.
    """
    sys.meta_path.insert(0, _Unused())
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)  # it warns if it is missing
