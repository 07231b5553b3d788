"""clicktower build-labelled"""

from typing import Annotated, Literal

from cyclopts import Parameter

from flows.config.toml_file import with_fields
from flows.show import console, present
from schemas.errors import UsageError


def build_labelled(
    files: Annotated[list[str], Parameter(negative=())],
    *,
    into: str,
    dev: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    first: str | None = None,
    second: str | None = None,
    text: str | None = None,
    label: str | None = None,
    no_header: bool = False,
    delimiter: str | None = None,
    mapping: str | None = None,
    format: Literal["delimited", "jsonl", "parquet"] | None = None,
    label_kind: Literal["class", "value"] = "class",
    set: list[str] | None = None,
    beam_options: list[str] | None = None,
    json: bool = False,
) -> None:
    """Turn labelled pairs (text, text, label) or labelled texts (text, label) into
    shards with the words and texts of click shards.

    No sentence is on both sides of the split: pairs link sentences, so connected
    components are held out as a whole, by a keyed hash. Every line has one fate
    in the ledger.

        clicktower build-labelled questions.tsv --first 2 --second 3 --label 1 --no-header --into store
        clicktower build-labelled train.csv --dev dev.csv --delimiter , --first premise --second hypothesis \\
            --label gold --into store
        clicktower build-labelled scored.jsonl --first a --second b --label score --label-kind value --into store
        clicktower build-labelled reviews.parquet --text review --label stars --into store

    Parameters
    ----------
    files
        Files, patterns, folders or URIs: delimited text, JSON lines (plain or compressed with gzip or zstd) or Parquet.
    into
        The store: a folder or URI that holds the output of all stages.
    dev
        Files to hold out, instead of a share of `files`; lines of `files` with a sentence of these are dropped.
    first
        The column of a pair's first text: a name, a dotted path into JSON, or a number from 1.
    second
        The column of its second text.
    text
        The column of the text, where a line has one text only.
    label
        The column of the label.
    no_header
        The first line of delimited text is already a row; its columns are then numbers.
    delimiter
        The delimiter of delimited text, if it is not a tab.
    mapping
        A TOML file that says all this, instead of the flags (docs/labelled.md has an example).
    format
        The format of the files; by default it follows from the ending of the first file's name.
    label_kind
        class: a name or number from a fixed set; value: a real number (--set lowest=0 --set highest=5 sets its bounds).
    set
        field=value for any field of the settings; may be repeated.
    beam_options
        Options of the Beam runner; write them after a bare `--`.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.engine.engine_options import with_engines
    from beam_jobs.labelled.labelled_config import LabelledColumns, LabelledMapping, format_of, read_labelled_mapping
    from beam_jobs.labelled.labelled_stage import LabelledConfig
    from beam_jobs.labelled.labelled_stage import build_labelled as run
    from flows.config.settings import Settings

    columns = {"first": first, "second": second, "text": text, "label": label}
    named = {name: _column(column) for name, column in columns.items() if column is not None}
    if mapping and (named or no_header or delimiter):
        raise UsageError(
            asked=f"the columns were to be named by {mapping}",
            found="and also by flags",
            do="use one or the other",
        )
    found = (
        read_labelled_mapping(mapping)
        if mapping
        else LabelledMapping(columns=LabelledColumns(**named), header=not no_header, delimiter=delimiter or "\t")
    )
    config = LabelledConfig(mapping=found, format=format or format_of(files[0]), label=label_kind)
    with console.progress_bar("build-labelled") as progress:
        result = run(
            files,
            store=into,
            config=with_fields(config, set or []),
            dev=dev or (),
            beam_options=with_engines(beam_options or (), Settings().engines),
            progress=progress,
        )
    console.emit(result.to_json(), json, present.stage_with_details)


def _column(name: str) -> str | int:
    return int(name) if name.isdecimal() else name
