"""clicktower train"""

from typing import Literal

from flows import console, present
from flows.set_fields import with_fields
from schemas.errors import UsageError


def train(
    *,
    shards: str,
    into: str,
    recipe: str = "lstm-96",
    epochs: int | None = None,
    reduction: Literal["exact", "fast"] | None = None,
    workers: int = 1,
    threads: int | None = None,
    documents: str | None = None,
    queries: str | None = None,
    qrels: str | None = None,
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Train the twin towers on shards; a killed run goes on from its last checkpoint.

    One worker trains in this process, more train through Ray. With the exact
    reduction the weights are the same, bit for bit, for any number of workers
    with the same threads each.

        clicktower train --shards store/build/DIGEST --into store
        clicktower train --shards store/build/DIGEST --into store --workers 2 --set step=0.001 --epochs 20

    Parameters
    ----------
    shards
        The folder that `build` printed.
    into
        The store: a folder or URI that holds the output of all stages.
    recipe
        The tower and its settings: lstm-96 (the paper's, default) or rnn-288.
    epochs
        Passes over the pairs, instead of the recipe's.
    reduction
        How workers' gradients are added: exact (the same bytes for any number of workers) or fast.
    workers
        Data-parallel workers; 1 runs in process, more run through Ray Train.
    threads
        Threads of each worker; by default the cores of this machine divided by the workers.
    documents
        With queries and qrels: watch NDCG on judgments after every epoch. It is shown, and chooses nothing.
    queries
        Judged queries, id<TAB>text.
    qrels
        Judgments in TREC's form.
    set
        field=value for any field of the recipe; may be repeated.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from training.launch import Judged
    from training.launch import train as run
    from training.recipes import recipe as named

    given = [documents, queries, qrels]
    if any(given) and not all(given):
        raise UsageError(
            asked="NDCG was to be watched during training",
            found="only some of the three files were given",
            do="give --documents, --queries and --qrels together, or none",
        )
    fields = [f"epochs={epochs}"] if epochs is not None else []
    fields += [f"reduction={reduction}"] if reduction else []
    judged = Judged(documents=documents, queries=queries, qrels=qrels) if documents and queries and qrels else None
    with console.progress_bar("train") as progress:
        result = run(
            shards,
            store=into,
            recipe=with_fields(named(recipe), [*fields, *(set or [])]),
            workers=workers,
            threads=threads,
            judged=judged,
            progress=progress,
        )
    console.emit(result.to_json(), json, present.stage_with_details)
