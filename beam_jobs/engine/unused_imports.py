"""What Beam imports where it is installed and nothing here uses: kept out of processes that are all our own.

pandas and a client of MongoDB are a quarter of the time that Beam takes to import, and a fifth of the memory. Beam does
without either where it is not installed, and so does Arrow. Only for a process that belongs to one command or job:
whoever else runs in it would be told that they are not installed.
"""

import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

_UNUSED = frozenset({"pandas", "pymongo"})


class _NotHere(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname in _UNUSED:
            raise ModuleNotFoundError(f"{fullname} is kept out of this process (beam_jobs.engine.unused_imports)")


def keep_out() -> None:
    """From here on an import of any of them fails in this process, unless it has been imported already."""
    sys.meta_path.insert(0, _NotHere())
    logging.getLogger("apache_beam.io.mongodbio").setLevel(logging.ERROR)  # it warns that there is none
