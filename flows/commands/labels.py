"""clicktower build-labelled, evaluate-labelled, judgments: labels of sentences, and grades of documents from clicks."""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import Into, Json, Model
from clicktower.flows.commands.stages import ALL_DATES, StageFlags, WindowFlags
from clicktower.flows.config.toml_file import read_toml, with_fields, with_options
from clicktower.flows.report import headlines
from clicktower.flows.show import console, present
from clicktower.schemas.errors import UsageError


def build_labelled(
    files: Annotated[list[str], Parameter(negative=())],
    *,
    dev: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    first: str | None = None,
    second: str | None = None,
    text: str | None = None,
    label: str | None = None,
    no_header: bool = False,
    delimiter: str | None = None,
    mapping: str | None = None,
    format: Literal["delimited", "jsonl", "parquet"] | None = None,
    label_kind: Literal["class", "value"] | None = None,
    published: Literal["snli", "quora", "quora-bimpm", "yelp"] | None = None,
    flags: StageFlags,
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
        clicktower build-labelled snli_1.0_train.jsonl --dev snli_1.0_dev.jsonl --published snli --into store

    Args:
        files: Files, patterns, folders or URIs: delimited text, JSON lines (plain or compressed with gzip or zstd) or
            Parquet.
        dev: Files to hold out, instead of a share of `files`; lines of `files` that share a sentence with them are
            dropped, unless you --set keep_shared=true, as --published quora-bimpm does.
        first: The column of a pair's first text: a name, a dotted path into JSON, or a number from 1.
        second: The column of its second text.
        text: The column of the text, where a line has one text only.
        label: The column of the label.
        no_header: The first line of delimited text is already a row; its columns are then numbers.
        delimiter: The delimiter of delimited text, if it is not a tab.
        mapping: A TOML file that says all this, instead of the flags (docs/model.md has an example).
        format: The format of the files; by default it follows from the ending of the first file's name.
        label_kind: class (the default): a name or number from a fixed set; value: a real number (--set lowest=0 --set
            highest=5 sets its bounds).
        published: The files are a published data set's original ones, instead of naming columns (docs/model.md).
    """
    from clicktower.beam_jobs.labelled import labelled_stage
    from clicktower.beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping, format_of
    from clicktower.beam_jobs.labelled.labelled_stage import PUBLISHED

    columns = {"first": first, "second": second, "text": text, "label": label}
    named = {name: _column(column) for name, column in columns.items() if column is not None}
    by_flags = named or no_header or delimiter
    if (mapping and by_flags) or (published and (by_flags or mapping or format or label_kind)):
        raise UsageError(
            f"The columns are named by {published or mapping}, and also by flags.", "Use one or the other."
        )
    if published:
        config = PUBLISHED[published]
    else:
        mapping_of_columns = (
            read_toml(mapping, LabelledMapping, subject="mapping", see="docs/model.md")
            if mapping
            else LabelledMapping(columns=LabelledColumns(**named), header=not no_header, delimiter=delimiter or "\t")
        )
        config = LabelledConfig(mapping=mapping_of_columns, format=format or format_of(files[0]))
    options: dict[str, Any] = {"mapping.delimiter": delimiter, "mapping.header": False if no_header else None}
    options |= {"format": format, "label": label_kind} | {f"mapping.columns.{name}": named[name] for name in named}
    config = with_options(config, options, flags.set)
    result = flags.run("build-labelled", labelled_stage.build_labelled_shards, files, config=config, dev=dev or ())
    console.emit(result.to_json(), flags.json, present.stage_with_details)


def _column(name: str) -> str | int:
    return int(name) if name.isdecimal() else name


def judgments(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    dates: WindowFlags = ALL_DATES,
    k: int | None = None,
    trained_on: str | None = None,
    min_impressions: int | None = None,
    flags: StageFlags,
) -> None:
    """Derive graded judgments from the clicks of a later period, corrected for where
    documents were shown.

    Writes queries.tsv and qrels.txt, which `evaluate` takes, logged.run, the ranking
    that was shown, the propensities of ranks, and lists for OpenSearch's Search
    Relevance Workbench. They are labelled click-derived, and so is every evaluation
    with them.

        clicktower judgments --days store --from 2026-10-01 --to 2026-10-14 --trained-on store/build/DIGEST --into store

    Args:
        days: A store, or folders that `ingest` printed, as in `build`: days after those of training.
        k: How many distinct people must have issued a query; by default 5.
        trained_on: The folder of a build; days that it was made from, or that are not later, are refused.
        min_impressions: How often a document must have been shown for a query to get a grade; by default 10.
    """
    from clicktower.beam_jobs.judgments import judgments_stage
    from clicktower.beam_jobs.judgments.judge_clicks import JudgmentsConfig

    config = with_options(JudgmentsConfig(), {"k": k, "min_impressions": min_impressions}, flags.set)
    more = {"window": dates.window(), "trained_on": trained_on}
    result = flags.run("judgments", judgments_stage.derive_judgments, days, config=config, **more)
    console.emit(
        result.to_json(), flags.json, lambda value: present.stage_with_details(value, headlines.propensities(value))
    )


def evaluate_labelled(
    *,
    model: Model,
    labelled: str,
    into: Into,
    word_vectors: str | None = None,
    set: list[str] | None = None,
    report: str | None = None,
    json: Json = False,
) -> None:
    """Evaluate a model on labelled pairs or texts, compared with baselines that see
    words alone: majority, TF-IDF, BM25 and word mover's distance, naive Bayes.

    A model trained on these labels is evaluated by its classes; any model by the cosine
    of two texts, a variational one by W₂ too. Classes: accuracy (of a similarity at
    thresholds chosen on the training part) and area under ROC. Values: Spearman's rank
    correlation. All on the held-out part, with intervals.

        clicktower evaluate-labelled --model store/train/DIGEST --labelled store/build-labelled/DIGEST --into store \\
            --report labelled.html

    The page shows the distribution of similarities in each class, the confusion matrix and
    calibration of a classifier, where the hops of a self-attentive model look, and rows
    that it got wrong. It contains their texts, so it is as private as your data.

    Args:
        labelled: The folder that `build-labelled` printed.
        word_vectors: A file of word vectors (GloVe or word2vec), to compare with word mover's distance on them, as its
            paper has it, too.
        set: field=value for any field of the settings, such as sides=document (`clicktower settings
            evaluate-labelled`); may be repeated.
        report: The file for a page about the result (self-contained HTML).
    """
    from clicktower.flows.report.labelled_page import labelled_blocks, write_labelled_page
    from clicktower.training.evaluation import evaluate_labelled_stage
    from clicktower.training.evaluation.evaluate_labelled_stage import EvaluateLabelledConfig

    config = with_fields(EvaluateLabelledConfig(), set or [])
    with console.progress_bar("evaluate-labelled") as progress:
        result = evaluate_labelled_stage.evaluate_labelled(
            model, labelled, store=into, config=config, word_vectors=word_vectors, progress=progress
        )
    value = result.to_json()
    if report:
        write_labelled_page(report, value)
        value["report"] = report

    def show(value: dict) -> None:
        present.stage_result(value)
        console.show(labelled_blocks(value))
        for path in filter(None, (value["path"], value.get("report"))):
            console.output.print(console.plain(present.relative_path(path)), soft_wrap=True)

    console.emit(value, json, show)
