"""clicktower pool"""

from typing import Annotated, Any, Literal

from cyclopts import Parameter

from flows.commands.options import Json
from flows.report.blocks import Block, Items, Table
from flows.show import console
from flows.show.console import output, plain
from flows.show.present import stage_line
from schemas.errors import UsageError


def pool(
    runs: Annotated[list[str] | None, Parameter(negative=())] = None,
    *,
    queries: str | None = None,
    documents: str | None = None,
    sheet: str | None = None,
    depth: int = 10,
    num_queries: int | None = None,
    judged: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    seed: int = 0,
    read: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    qrels: str | None = None,
    write_queries: str | None = None,
    merge: Literal["median", "refuse"] = "median",
    allow_partial: bool = False,
    json: Json = False,
) -> None:
    """Make a sheet of what several systems found for people to judge, and read it back
    as qrels.

    First, the best ten documents of every run, each pair once, shuffled so that no
    assessor sees a system or a rank:

        clicktower pool bm25.collection.run model.collection.run --queries queries.tsv --documents documents.tsv \\
            --sheet sheet.csv

    An assessor opens the sheet in a spreadsheet, writes 0 to 3 (Bad, Fair, Good,
    Excellent) into its column `grade`, and saves it as CSV. Then

        clicktower pool --read anna.csv ben.csv --qrels qrels.txt

    writes what `evaluate` and `compare` take, and says how far assessors agree.
    Neither overwrites a file.

    Args:
        runs: TREC runs, such as runs/*.collection.run of an evaluation, or logged.run of `judgments`.
        queries: The queries of the runs, id<TAB>text.
        documents: The documents that were searched: id<TAB>title lines, or JSON lines or Parquet with id and title.
        sheet: The sheet to write: .csv or .tsv.
        depth: How many documents of each run and query.
        num_queries: The number of queries to draw; by default all.
        judged: Qrels of people; pairs judged there are skipped.
        seed: Decides the order of the sheet, and which queries are drawn.
        read: Completed sheets to read, one per assessor.
        qrels: The qrels to write: query id, 0, document id, grade.
        write_queries: Also write the judged queries, id<TAB>text: for queries from click-derived judgments, whose ids
            lose the prefix click-derived.
        merge: Where assessors differ: median (of an even number the lower middle grade), or refuse.
        allow_partial: Accept incomplete sheets. What is not judged later counts as not relevant.
    """
    if read and not runs:
        if not qrels or sheet:
            raise _usage("sheets were to be read", "no file was given for the qrels", "give --qrels FILE")
        from training.evaluation.judged_pool import read_pool

        result = read_pool(read, qrels=qrels, queries=write_queries, merge=merge, allow_partial=allow_partial)
        console.emit(result, json, show_judged)
        return
    if not runs or read or qrels or write_queries:
        raise _usage(
            "a pool was to be written or read",
            "it is not clear which",
            "give runs, --queries, --documents and --sheet to write a sheet, or --read SHEETS and --qrels to read some",
        )
    if not (queries and documents and sheet):
        raise _usage("a pool was to be written", "a file is missing", "give --queries, --documents and --sheet")
    if depth < 1 or (num_queries is not None and num_queries < 1):
        raise _usage("a pool was to be written", "--depth or --num-queries is below 1", "give at least 1")
    from training.evaluation.judged_pool import write_pool

    result = write_pool(
        runs, queries=queries, documents=documents, sheet=sheet, depth=depth, num_queries=num_queries,
        judged=judged or (), seed=seed,
    )  # fmt: skip
    console.emit(result, json, show_sheet)


def _usage(asked: str, found: str, do: str) -> UsageError:
    return UsageError(asked=asked, found=found, do=do)


def show_sheet(result: dict[str, Any]) -> None:
    """Print what the sheet contains, and what to do with it."""
    from training.evaluation.judged_pool import GRADES

    c = result["counts"]
    remarks = [f"the best {result['metrics']['depth']:,} of each run: {c['results']:,} results"]
    remarks += [f"{c['found_by_several']:,} of them repeat another run's"] if c["found_by_several"] else []
    remarks += [f"{c['judged_before']:,} pairs are judged already and left out"] if c["judged_before"] else []
    grades = ", ".join(f"{grade} {word.capitalize()}" for grade, word in enumerate(GRADES))
    remarks.append(f"write {grades} into the column grade, save as CSV, and read it with --read")
    headline = f"{c['pairs']:,} pairs of {c['queries']:,} queries to judge, from {c['runs']:,} runs"
    _show(result, headline, [Items(items=remarks)])


def show_judged(result: dict[str, Any]) -> None:
    """Print the number of judgments, their grades, and the agreement of assessors."""
    from training.evaluation.judged_pool import GRADES

    c, metrics = result["counts"], result["metrics"]
    grades = ", ".join(f"{c[f'grade_{grade}']:,} {word.capitalize()}" for grade, word in enumerate(GRADES))
    blocks: list[Block] = [Items(items=[grades])]
    if open_rows := c["rows_without_grade"] + c["rows_missing"]:
        blocks.append(Items(items=[f"not judged: {open_rows:,} of {c['judgments'] + open_rows:,}"], tone="alarm"))
    if metrics["agreement"]:
        remarks = [
            "kappa: Cohen's, agreement beyond chance; weighted: by the square of the steps apart",
            f"one grade of several: {metrics['merge']}",
        ]
        blocks += [_agreement(metrics["agreement"]), Items(items=remarks)]
    _show(result, f"{c['judgments']:,} judgments of {c['queries']:,} queries by people", blocks)


def _show(result: dict[str, Any], headline: str, blocks: list[Block]) -> None:
    stage_line("pool", headline, state="reused" if result["reused"] else "new")
    console.show(blocks)
    output.print(plain(result["path"]), soft_wrap=True)


def _agreement(agreement: list[dict[str, Any]]) -> Table:
    rows = []
    for row in agreement:
        kappas = ("-" if row[name] is None else f"{row[name]:.2f}" for name in ("kappa", "weighted_kappa"))
        same = f"{row['num_same'] / row['num_pairs']:.0%}"
        rows.append([f"{row['one']} and {row['other']}", f"{row['num_pairs']:,}", same, *kappas])
    return Table(
        caption="Agreement of assessors", header=("", "both judged", "the same", "kappa", "weighted"), rows=rows
    )
