"""What the processes of a command imported: loading engines would be most of what a help or a reused stage costs."""

import os
import re

# Python then tells every import on stderr, and so do the processes that it starts.
TOLD = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
ENGINES = {"apache_beam", "lancedb", "pandas", "ray", "torch"}
_LINE = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\w+)", re.MULTILINE)


def imported(stderr: str) -> set[str]:
    """The top-level packages that were imported, of what a process with TOLD as its environment said."""
    return set(_LINE.findall(stderr))
