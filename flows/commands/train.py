"""clicktower train"""

from typing import Literal

from flows.config.toml_file import with_fields
from flows.show import console, present
from schemas.errors import UsageError


def train(
    *,
    shards: str,
    into: str,
    recipe: str = "lstm-96",
    start: str | None = None,
    epochs: int | None = None,
    reduction: Literal["exact", "fast"] | None = None,
    workers: int = 1,
    min_workers: int | None = None,
    threads: int | None = None,
    path: Literal["auto", "compiled", "torch"] = "auto",
    device: Literal["auto", "cpu", "cuda", "cuda-eager"] = "auto",
    documents: str | None = None,
    queries: str | None = None,
    qrels: str | None = None,
    word_vectors: str | None = None,
    teacher: str | None = None,
    set: list[str] | None = None,
    report: str | None = None,
    json: bool = False,
) -> None:
    """Train towers on shards; a killed run continues from its last checkpoint.

    The shards of `build` train twin towers on clicks; those of `build-labelled`
    train a classifier of texts or pairs, where the recipe's objective is classify.

    One worker trains in this process, more train through Ray. With the exact
    reduction the weights are the same, bit for bit, for any number of workers
    and threads.

        clicktower train --shards store/build/DIGEST --into store
        clicktower train --shards store/build/DIGEST --into store --workers 2 --set step=0.001 --epochs 20

    Parameters
    ----------
    shards
        The folder that `build` printed.
    into
        The store: a folder or URI that holds the output of all stages.
    recipe
        The tower and its settings: lstm-96 (the paper's, default), lstm-64, lstm-32, lstm-full-96, bilstm-96, rnn-288,
        dssm, clsm-1, clsm-3, clsm-5, or, not in the paper, lstm-pool-192, lstm-pool-96, lstm-long-96, bag-pool-512,
        bag-512, self-attentive, max-pooled and variational (docs/quality.md compares them). Or a TOML file: the
        best.toml of a sweep, or your own, with `objective` classify (labels) or generate (reconstruction, paraphrase)
        among its settings (docs/objectives.md).
    start
        The folder of another training whose towers this one starts from, instead of from random numbers.
    epochs
        Epochs, instead of the recipe's.
    reduction
        How workers' gradients are summed: exact (the same bytes for any number of workers) or fast.
    workers
        Data-parallel workers; 1 runs in process, more run through Ray Train.
    min_workers
        Continue with as few workers when nodes are lost, and with more again when they come back; without it the run
        waits ten minutes for a replacement.
    threads
        Threads of each worker; by default the cores of this machine divided by the workers.
    path
        On a CPU: compiled (recurrent towers in float32; `clicktower doctor` says whether it is available) or torch, the
        reference. auto: compiled where it supports the recipe. The two round differently.
    device
        cpu; cuda (the recurrence in fused kernels), cuda-eager (step by step); auto: a GPU where there is one. They
        round differently, so each gives a different model.
    documents
        With queries and qrels: report NDCG on judgments after every epoch. It is shown, and chooses nothing.
    queries
        Judged queries, id<TAB>text.
    qrels
        Judgments in TREC format.
    word_vectors
        A file of word vectors (GloVe text, word2vec text or binary): words in it start from their vectors, all others
        are read by their letter trigrams. They are trained further unless you --set word_vectors=frozen.
    teacher
        The model to distil, with half of the loss or what you --set teacher_share=: the folder that `train` or
        `combine` printed, or a Parquet file of another encoder's vectors (see `texts`).
    set
        field=value for any field of the recipe; may be repeated.
    report
        The file for a page about the training, with its curves (self-contained HTML).
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from flows.config.recipe_file import recipe_named
    from training.run.launch import Judged
    from training.run.launch import train as run

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
    named, its_vectors = recipe_named(recipe)
    with console.progress_bar("train", share=True) as progress:
        result = run(
            shards,
            store=into,
            recipe=with_fields(named, [*fields, *(set or [])]),
            workers=workers,
            min_workers=min_workers,
            threads=threads,
            path=path,
            device=device,
            judged=judged,
            start=start,
            progress=progress,
            word_vectors=word_vectors or its_vectors,
            teacher=teacher,
        )
    value = result.to_json()
    if report:
        from flows.report import write_report
        from flows.run_summary import training_page

        write_report(report, training_page(value))
    console.emit(value, json, present.stage_with_details)
