"""clicktower compare"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from clicktower.flows.commands.options import AdultList, ComputeOptions, Documents, Into, Json, Qrels, Queries, Shards
from clicktower.flows.config.toml_file import with_fields, with_options
from clicktower.flows.report.blocks import duration, write_page
from clicktower.flows.report.comparison_page import MEASURE, comparison_blocks, comparison_page
from clicktower.flows.report.markdown import markdown_page
from clicktower.flows.show import console, present
from clicktower.flows.show.console import output, plain
from clicktower.schemas.errors import UsageError
from clicktower.training.model.recipe import DEFAULT, ONE_WORKER, recipe
from clicktower.training.ranking.ndcg import measure_name

if TYPE_CHECKING:
    from clicktower.training.evaluation.compare_table import EndedRow


def compare(
    *,
    shards: Shards,
    documents: Documents,
    queries: Queries,
    qrels: Qrels,
    adult_list: AdultList = None,
    into: Into,
    rows: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    against: str = "bm25",
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True)] = None,
    set: list[str] | None = None,
    evaluate: list[str] | None = None,
    min_judged: int | None = None,
    model: list[str] | None = None,
    run: list[str] | None = None,
    logged: str | None = None,
    topics: int = 500,
    word_prior: float = 0.01,
    frequencies: str | None = None,
    compute: ComputeOptions = ONE_WORKER,
    report: str | None = None,
    json: Json = False,
) -> None:
    """Compare every row of the paper's Table IV on your data: all baselines and towers
    under one protocol, with intervals and tests.

    Towers are trained on the shards, the others made from the documents. A row that
    is in the store is reused, a killed comparison continues with what is missing,
    and a row that fails stops no other.

        clicktower compare --shards store/build/DIGEST --documents documents.tsv --queries queries.tsv \\
            --qrels qrels.txt --into store --report compare.html

    All rows are some thirty trainings. A quick start:

        clicktower compare ... --rows random bm25 ulm dssm lstm-96 --set epochs=2

    Args:
        rows: Only these: random, logged, skip-thought; doc2vec, ulm, bm25, plsa, and each as printed (bm25-printed);
            the paper's towers, tuned: dssm, clsm-1, clsm-3, clsm-5, rnn-288, lstm-32, lstm-64, lstm-96-n2, lstm-96,
            lstm-96-n6, lstm-96-n8, bilstm-96; each of them as printed, by its name with paper- before it
            (paper-lstm-96); lstm-full-96, lstm-pool-96, lstm-pool-192, lstm-pool-192-words, lstm-long-96,
            self-attentive, max-pooled, variational, bag-512, bag-pool-512, bag-pool-512-words, hybrid (the best tower
            with the share of BM25 that judged queries choose), and the names of --model and --run.
        against: The row that all others are tested against.
        seeds: Seeds of each tower; values are means over them. Another seed moves NDCG@10 by some 0.004.
        set: field=value for any field of every tower's recipe, such as epochs=2 (`clicktower settings train`); may be
            repeated.
        evaluate: field=value for any field of the evaluation (`clicktower settings evaluate`); may be repeated.
        min_judged: Skip queries with fewer judged documents than this; by default 1.
        model: NAME=FOLDER of a model that `train` printed, as a row of that name; may be repeated.
        run: NAME=FILE of a TREC run, as a row of that name; may be repeated. skip-thought=FILE fills the paper's row.
        logged: A TREC run of the ranking that your search engine showed (`judgments` writes one).
        topics: Topics of PLSA; the paper has 100 to 500. Fewer are faster, and find less in the whole collection.
        word_prior: The Dirichlet prior of each topic's words in plsa-printed, as a count added to each word; 0: none.
        frequencies: How often each query was asked, `query id<TAB>count`: defines head, torso and tail.
        report: The file for a page about the comparison (self-contained HTML).
    """
    from clicktower.flows.config.settings import Surroundings
    from clicktower.schemas.judgments import Judged
    from clicktower.training.evaluation import compare_stage
    from clicktower.training.evaluation.evaluate_stage import EvaluateConfig
    from clicktower.training.evaluation.rows import all_rows, select_rows

    for seed in seeds or ():
        with_options(recipe(DEFAULT), {"seed": seed}, [name for name in set or () if name.startswith("seed=")])
    every_row = all_rows(
        change=lambda chosen_recipe: with_fields(chosen_recipe, set or []),
        topics=topics,
        word_prior=word_prior,
        logged=logged,
        models=_named(model, "--model"),
        runs=_named(run, "--run"),
    )
    config = with_options(EvaluateConfig(), {"min_judged": min_judged}, evaluate)
    try:
        with console.progress_bar("compare") as progress:
            result = compare_stage.compare(
                select_rows(every_row, rows or []),
                shards=shards,
                files=Judged(documents=documents, queries=queries, qrels=qrels, adult_list=adult_list),
                store=into,
                config=config,
                seeds=seeds or [],
                against=against,
                frequencies=frequencies,
                compute=compute,
                in_cluster=bool(Surroundings().ray_address),
                progress=progress,
                render=as_markdown,
                row_ended=row_line,
            )
    except compare_stage.UnfinishedComparison as error:
        if report:
            shown = {"metrics": dict(error.comparison), "labels": dict(error.labels)}
            write_page(report, comparison_page({**shown, "counts": {}, "path": into}))
        if not json:
            console.show(comparison_blocks(error.comparison))  # nothing was kept
        raise
    value = result.to_json()
    if report:
        write_page(report, comparison_page(value))
    console.emit(value, json, show)


def _named(pairs: list[str] | None, option: str) -> dict[str, str]:
    """NAME=PATH options as a mapping."""
    named = {}
    for pair in pairs or []:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise UsageError(
                f"In {option} {pair} the name, the = or the path is missing.", f"Write {option} NAME=PATH."
            )
        if name in named:
            raise UsageError(f"The name {name} stands twice ({option} {pair}).", "Give each its own name.")
        named[name] = path
    return named


def row_line(ended: "EndedRow", number: int, total: int) -> None:
    """Print on stderr that a row has ended, with its NDCG@10 or why it has none."""
    state = "reused" if ended.result and ended.result.reused else ended.state
    ndcg = ended.metrics.get("ndcg@10")
    came = (
        f"{measure_name(MEASURE)} {ndcg:.4f}" if ndcg is not None else f"{state}{f': {ended.why}' if ended.why else ''}"
    )
    time = {"reused": "reused", "empty": ""}.get(state, duration(ended.seconds))
    console.ended(state, f"{number}/{total}", f"{time:>12}", f"{ended.row.name}: {came}")


def show(result: dict[str, Any]) -> None:
    """Print the answer, the table, rows without figures, caveats, the queries that moved most, and further files."""
    present.stage_result(result)
    output.print()
    console.show(comparison_blocks(result["metrics"]))
    if result.get("labels", {}).get("simulated"):
        output.print(Text("All of this comes from a simulated log.", "bold yellow"))
    output.print(f"\n{plain(present.relative_path(result['path']))}", soft_wrap=True)


def as_markdown(comparison: Mapping[str, Any]) -> str:
    """The page of a comparison in Markdown."""
    page = comparison_page({"metrics": comparison, "labels": comparison.get("labels", {}), "counts": {}})
    return markdown_page(page)
