"""clicktower evaluate"""

from flows.config.toml_file import with_fields
from flows.show import console, present
from schemas import storage


def evaluate(
    *,
    model: str,
    documents: str,
    queries: str,
    qrels: str,
    into: str,
    min_judged: int = 1,
    frequencies: str | None = None,
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Evaluate a model by NDCG@1/3/10, compared with BM25 and a random order.

    TREC run files of all of them are written, too, so that others can check the figures.

        clicktower evaluate --model store/train/DIGEST --documents documents.tsv --queries queries.tsv \\
            --qrels qrels.txt --into store

    Parameters
    ----------
    model
        The folder that `train` printed, or the URI of a release, whose live model is used.
    documents
        The documents that are searched: id<TAB>title lines, or JSON lines or Parquet with id and title.
    queries
        Judged queries, id<TAB>text.
    qrels
        Judgments in TREC format: query id, 0, document id, grade.
    into
        The store: a folder or URI that holds the output of all stages.
    min_judged
        Skip queries with fewer judged documents than this; the output says how many.
    frequencies
        How often each query was asked, id<TAB>count: head, torso and tail are then slices of the queries.
    set
        field=value for any field of the evaluation settings; may be repeated.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from training.evaluate.evaluate_stage import EvaluateConfig
    from training.evaluate.evaluate_stage import evaluate as run

    config = with_fields(EvaluateConfig(), [f"min_judged={min_judged}", *(set or [])])
    with console.progress_bar("evaluate") as progress:
        result = run(
            model, documents=documents, queries=queries, qrels=qrels, store=into, config=config,
            frequencies=frequencies, progress=progress,
        )  # fmt: skip
    run_file = storage.join(result.data, result.manifest.outcome.metrics["run_files"]["model"])
    console.emit({**result.to_json(), "run_file": run_file}, json, present.stage_with_details)
