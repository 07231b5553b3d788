"""Options that several commands take: what they mean is said once."""

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

Documents = Annotated[
    str,
    Parameter(
        help="The documents that are searched: `id<TAB>title` lines, or CSV, JSON lines or Parquet with id and title."
    ),
]
Into = Annotated[str, Parameter(help="The store: a folder or URI that holds the output of all stages.")]
Json = Annotated[bool, Parameter(help="Print the result as one JSON object; progress goes to stderr.")]
K = Annotated[int, Parameter(help="How many distinct people must have issued a query.")]
Model = Annotated[
    str, Parameter(help="The folder that `train` printed, or the URI of a release, whose live model is used.")
]
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
