"""Options that several commands take: what they mean is said once."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from clicktower.schemas.errors import UsageError
from clicktower.training.model.recipe import Compute

AdultList = Annotated[
    str | None, Parameter(help="Your own list of adult words, one per line, instead of the built-in one.")
]
ComputeOptions = Annotated[Compute, Parameter(name="*")]
Documents = Annotated[
    str,
    Parameter(
        help="The documents that are searched: `id<TAB>title` lines, or CSV, JSON lines or Parquet with id and title."
    ),
]
Into = Annotated[str, Parameter(help="The store: a folder or URI that holds the output of all stages.")]
Json = Annotated[bool, Parameter(help="Print the result as one JSON object; progress goes to stderr.")]
Model = Annotated[
    str, Parameter(help="The folder that `train` printed, or the URI of a release, whose live model is used.")
]
Positive = Annotated[int, Parameter(validator=Number(gte=1))]
Qrels = Annotated[str, Parameter(help="Judgments in TREC format: query id, 0, document id, grade.")]
Queries = Annotated[str, Parameter(help="Judged queries, `id<TAB>text`.")]
ReleaseUri = Annotated[str, Parameter(help="The folder or URI of the releases, which `publish` writes to.")]
Seed = Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))]
Set = Annotated[
    list[str] | None,
    Parameter(
        help="field=value for any field of the command's settings, which `clicktower settings` lists; may be repeated."
        " A field that has an option of its own may not be set to another value here."
    ),
]
SetInFile = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        help="section.field=value in place of the TOML file's, checked as that is; may be repeated. A path is relative"
        " to the file's folder.",
    ),
]
Shards = Annotated[str, Parameter(help="The folder that `build` printed.")]


STANDARD_INPUT = "/dev/stdin"  # what the command line makes of `-`, which cyclopts takes for an option


@contextmanager
def log_files(logs: Sequence[str]) -> Iterator[list[str]]:
    """The logs with a file in place of standard input: a private temporary one, which goes with the command.

    A log is read more than once, to plan the work and by several workers; so standard input is copied first. Raises
    UsageError for a terminal.
    """
    if STANDARD_INPUT not in logs:
        yield list(logs)
        return
    if sys.stdin.isatty():
        raise UsageError("Standard input is a terminal, and should be a log.", "Pipe the log into the command.")
    with TemporaryDirectory(prefix="clicktower-") as folder:  # for its owner alone
        file = Path(folder, "stdin")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield [str(file) if log == STANDARD_INPUT else log for log in logs]
