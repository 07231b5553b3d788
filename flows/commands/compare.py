"""clicktower compare"""

from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from flows.config.toml_file import with_fields
from flows.show import console, present
from flows.show.console import errors, output, plain
from schemas.errors import UsageError
from training.compare.cells import difference_cell, here_cell, ndcg_table, there_cell
from training.compare.compare_wording import (
    BM25,
    MEASURE,
    Comparison,
    against_chosen,
    answer,
    best,
    cautions,
    difference_remark,
    figure,
    legend,
    protocol,
    row_of,
    title_of,
    verdict,
    without_figures,
)
from training.wording import duration, measure_name, visible


def compare(
    *,
    shards: str,
    documents: str,
    queries: str,
    qrels: str,
    into: str,
    rows: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    against: str = "bm25",
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    set: list[str] | None = None,
    evaluate: list[str] | None = None,
    min_judged: int = 1,
    model: list[str] | None = None,
    run: list[str] | None = None,
    logged: str | None = None,
    topics: int = 500,
    skip_thought: str | None = None,
    frequencies: str | None = None,
    threads: int = 0,
    report: str | None = None,
    json: bool = False,
) -> None:
    """Compare every row of the paper's Table IV on your data: all baselines and towers
    under one protocol, with intervals and tests.

    Towers are trained on the shards, the others made from the documents. A row that
    is in the store is reused, a killed comparison continues with what is missing,
    and a row that fails stops no other.

        clicktower compare --shards store/build/DIGEST --documents documents.tsv --queries queries.tsv \\
            --qrels qrels.txt --into store --report compare.html

    All rows take as long as some fifteen trainings. A quick start:

        clicktower compare ... --rows random bm25 ulm dssm lstm-96 --set epochs=2

    Parameters
    ----------
    shards
        The folder that `build` printed.
    documents
        The documents that are searched: id<TAB>title lines, or JSON lines or Parquet with id and title.
    queries
        Judged queries, id<TAB>text.
    qrels
        Judgments in TREC format: query id, 0, document id, grade.
    into
        The store: a folder or URI that holds the output of all stages.
    rows
        Only these: random, logged, skip-thought, doc2vec, ulm, bm25, plsa, dssm, clsm-1, clsm-3, clsm-5, rnn-288,
        lstm-32, lstm-64, lstm-96-n2, lstm-96, lstm-96-n6, lstm-96-n8, bilstm-96, lstm-full-96, lstm-pool-96,
        lstm-pool-192, lstm-long-96, self-attentive, max-pooled, variational, bag-512, bag-pool-512, hybrid (the best
        tower and BM25), and the names of --model and --run.
    against
        The row that all others are tested against.
    seeds
        Seeds of each tower; values are means over them. Another seed moves NDCG@10 by some 0.004.
    set
        field=value for any field of every tower's recipe, such as epochs=2; may be repeated.
    evaluate
        field=value for any field of the evaluation settings; may be repeated.
    min_judged
        Skip queries with fewer judged documents than this.
    model
        NAME=FOLDER of a model that `train` printed, as a row of that name; may be repeated.
    run
        NAME=FILE of a TREC run, as a row of that name; may be repeated.
    logged
        A TREC run of the ranking that your search engine showed (`judgments` writes one).
    topics
        Topics of PLSA; the paper has 100 to 500. Fewer are faster, and find less in the whole collection.
    skip_thought
        The folder of Skip-Thought's published weights: dictionary.txt, utable.npy, btable.npy, uni_skip.npz and
        bi_skip.npz.
    frequencies
        How often each query was asked, query id<TAB>count: defines head, torso and tail.
    threads
        Threads of a training; by default the cores of this machine.
    report
        The file for a page about the comparison (self-contained HTML).
    json
        Print the comparison as one JSON object; progress goes to stderr.
    """
    from schemas.judgments import Judged
    from training.compare import compare_stage
    from training.compare.rows import all_rows, chosen
    from training.evaluate.evaluate_stage import EvaluateConfig

    every_row = all_rows(
        change=lambda made: with_fields(made, set or []),
        topics=topics,
        skip_thought=skip_thought,
        logged=logged,
        models=_named(model, "--model"),
        runs=_named(run, "--run"),
    )
    config = with_fields(EvaluateConfig(), [f"min_judged={min_judged}", *(evaluate or [])])
    try:
        with console.progress_bar("compare") as progress:
            result = compare_stage.compare(
                chosen(every_row, rows or []),
                shards=shards,
                files=Judged(documents=documents, queries=queries, qrels=qrels),
                store=into,
                config=config,
                seeds=seeds or [],
                against=against,
                frequencies=frequencies,
                where=compare_stage.Where(threads=threads),
                progress=progress,
                row_ended=lambda one, done, total: row_line(
                    one.row.name,
                    "reused" if one.result and one.result.reused else one.state,
                    one.metrics.get("ndcg@10"),
                    one.seconds,
                    done,
                    total,
                    one.why,
                ),
            )
    except compare_stage.UnfinishedComparison as error:
        if report:
            shown = {"metrics": dict(error.comparison), "labels": dict(error.labels)}
            _write(report, {**shown, "counts": {}, "digest": "", "path": into})
        if not json:
            show_comparison(error.comparison)
        raise
    value = result.to_json()
    if report:
        _write(report, value)
    console.emit(value, json, show)


def _write(report: str, result: dict) -> None:
    from flows.report.report_page import write_comparison

    write_comparison(report, result)


def _named(pairs: list[str] | None, option: str) -> dict[str, str]:
    """NAME=PATH options as a mapping."""
    named = {}
    for pair in pairs or []:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise UsageError(
                asked=f"{option} {pair}", found="a name, = or the path is missing", do=f"write {option} NAME=PATH"
            )
        if name in named:
            raise UsageError(asked=f"{option} {pair}", found=f"{name} was given twice", do="give each its own name")
        named[name] = path
    return named


# A comparison as a person reads it in a terminal: each row as it ends, the answer, the table, where the rest is.


ROW_STYLES = {"done": ("✓", "green"), "reused": ("✓", "green"), "failed": ("✗", "bold red"), "empty": ("·", "dim")}
SIDE_STYLES = {"above": "green", "below": "red", "alike": "dim"}
VERDICT_STYLES = {"better": "bold green", "worse": "bold red", "open": "bold yellow", "unknown": "bold"}
MEASURE_WIDTH = 11  # of a column's name at most
CHOSEN = "▸ "  # before the row that all others are tested against
RULES_SHOWN = ("ties", "unjudged")  # the page has all
NUM_QUERIES = 3  # that gained, and as many that lost


def row_line(
    name: str,
    state: str,
    ndcg: float | None,
    seconds: float | None,
    done: int,
    total: int,
    why: str | None = None,
) -> None:
    """Print on stderr that a row has ended. state: done, reused, failed or empty; ndcg: its NDCG@10."""
    sign, style = ROW_STYLES[state]
    came = f"{measure_name(MEASURE)} {ndcg:.4f}" if ndcg is not None else f"{state}{f': {why}' if why else ''}"
    time = "reused" if state == "reused" else duration(seconds) if seconds is not None else ""
    line = Text.assemble(
        (f"{sign} ", style),
        (f"{f'{done}/{total}':<7}", "bold"),
        (f"{time:>12}  ", "dim"),
        f"{_plain(name)}: {_plain(came)}",
    )
    errors.print(line, soft_wrap=True)


def show(result: dict[str, Any]) -> None:
    """Print the answer, the table, rows without figures, caveats, the queries that moved most, and further files."""
    present.stage_result(result)
    output.print()
    show_comparison(result["metrics"])
    if result.get("labels", {}).get("simulated"):
        output.print(Text("All of this comes from a simulated log.", "bold yellow"))
    output.print(f"\n{plain(present.from_here(result['path']))}", soft_wrap=True)


def show_comparison(comparison: Comparison) -> None:
    """Print the comparison alone, also when some rows failed and nothing was kept."""
    output.print(Text(_plain(answer(comparison)), VERDICT_STYLES[verdict(comparison)]))
    output.print()
    output.print(_table(comparison))
    for row, why in without_figures(comparison):
        output.print(Text(_plain(f"{row['title']} {why}"), "red" if row["state"] == "failed" else "dim"))
    for sentence in filter(None, [legend(comparison), _paper_note(comparison)]):
        output.print(Text(_plain(sentence), "dim"))
    _queries(comparison)
    output.print()
    for sentence in cautions(comparison):
        output.print(Text(_plain(sentence), "yellow"))
    output.print(Text(_plain(" ".join(protocol(comparison, RULES_SHOWN))), "dim"))


def _paper_note(comparison: Comparison) -> str:
    """The explanation of the paper's column; empty where there is none."""
    if not any(row.get("paper_to_bm25") for row in comparison["rows"]):
        return ""
    return f"paper: the paper's {measure_name(MEASURE)} − BM25, on its authors' own data."


def _table(comparison: Comparison) -> Table:
    """The main figures in 80 columns; the page has the rest."""
    cutoffs = [name for name in comparison["measures"] if name.startswith("ndcg@")]
    header = [*(measure_name(name) if name == cutoffs[0] else f"@{name[5:]}" for name in cutoffs), "interval"]
    tested = any(against_chosen(row) for row in comparison["rows"])
    bm25_apart = comparison["against"] != BM25 and row_of(comparison, BM25) is not None
    header += [f"− {title_of(comparison, comparison['against'])}"] * tested
    header += ["− BM25"] * bm25_apart
    paper = any(row.get("paper_to_bm25") for row in comparison["rows"])
    header += ["paper"] * paper
    titles, rows = [], []
    for row, cells in ndcg_table(comparison).rows:
        of_measures = cells[: len(cutoffs)]
        figures = [Text(cell.text, "bold green" if cell.best else "") for cell in of_measures]
        interval = of_measures[-1].aside if row["state"] == "done" and of_measures else row["state"]
        figures.append(Text(interval, "red" if row["state"] == "failed" else "dim"))
        if tested:
            difference = difference_cell(row, MEASURE)
            figures.append(Text(f"{difference.text:>6} {difference.mark}", SIDE_STYLES.get(difference.side, "")))
        figures += [Text(here_cell(comparison, row, MEASURE).text)] * bm25_apart
        figures += [Text(there_cell(row, MEASURE).text, "dim")] * paper
        style = "bold" if row is best(comparison) else "" if row["state"] == "done" else "dim"
        sign = CHOSEN if row["name"] == comparison["against"] else ""
        titles.append(Text(f"{sign}{_plain(row['title'])}", style))
        rows.append(figures)
    shown = Table(box=None, header_style="dim", pad_edge=False)
    shown.add_column("", no_wrap=True)
    widths = []
    for at, name in enumerate(header):
        # Differences start alike, and their stars follow: to the left, or the stars would put them out of line.
        justify = "left" if name.startswith("− ") else "right"
        shown.add_column(Text(_plain(name), overflow="ellipsis"), justify=justify, no_wrap=True)  # type: ignore[arg-type]
        widths.append(max(min(len(name), MEASURE_WIDTH), *(row[at].cell_len for row in rows)))
        shown.columns[-1].width = widths[-1]
    for title, figures in zip(titles, rows, strict=True):
        # On a narrow terminal it is the titles that give way: rich would shorten the figures too.
        title.truncate(max(8, output.width - sum(widths) - 2 * len(widths)), overflow="ellipsis")
        shown.add_row(title, *figures)
    return shown


def _queries(comparison: Comparison) -> None:
    """The queries that gained and lost most, one line each."""
    difference = comparison.get("difference")
    if not difference or not difference["queries"]:
        return
    output.print()
    output.print(Text(_plain(difference_remark(comparison)), "bold"))
    for why in ("gain", "loss"):
        for query in [query for query in difference["queries"] if query["why"] == why][:NUM_QUERIES]:
            worth = Text.assemble(figure(query["of"]), (" against ", "dim"), figure(query["to"]), "  ")
            output.print(Text("  ").append(worth).append(_plain(query["query"])), soft_wrap=True)


def _plain(text: str) -> str:
    """Foreign text for a rich Text, which reads no markup: on one line, without control characters."""
    return visible(" ".join(text.split()))
