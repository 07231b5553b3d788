"""clicktower train, evaluate: from shards to a model and its figures."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import (
    AdultList,
    ComputeOptions,
    Documents,
    Into,
    Json,
    Model,
    Qrels,
    Queries,
    Set,
    Shards,
)
from clicktower.flows.config.toml_file import recipe_named, with_options
from clicktower.flows.show import console, present
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.training.model.recipe import DEFAULT, NO_SOURCES, ONE_WORKER, Sources

if TYPE_CHECKING:
    from clicktower.schemas.judgments import Judged


def train(
    *,
    shards: Shards,
    into: Into,
    recipe: str = DEFAULT,
    sources: Annotated[Sources, Parameter(name="*")] = NO_SOURCES,
    epochs: int | None = None,
    reduction: Literal["exact", "fast"] | None = None,
    compute: ComputeOptions = ONE_WORKER,
    documents: str | None = None,
    queries: Queries | None = None,
    qrels: Qrels | None = None,
    adult_list: AdultList = None,
    loss_after_epoch: bool | None = None,
    set: list[str] | None = None,
    report: str | None = None,
    json: Json = False,
) -> None:
    """Train towers on shards; a killed run continues from its last checkpoint.

    The shards of `build` train twin towers on clicks; those of `build-labelled`
    train a classifier of texts or pairs, where the recipe's objective is classify.

    One worker trains in this process, several as processes of this machine; in a Ray
    cluster or job (RAY_ADDRESS) Ray Train starts them. With the exact reduction the weights are the
    same, bit for bit, for any number of workers and threads.

        clicktower train --shards store/build/DIGEST --into store
        clicktower train --shards store/build/DIGEST --into store --workers 2 --set optimiser.step=0.001 --epochs 20

    Args:
        recipe: The tower and its settings. The default is lstm-pool-192-words, whose gates `clicktower explain` shows;
            bag-pool-512-words trains faster and has none. As the paper prints them: paper-lstm-96, paper-lstm-64,
            paper-lstm-32, paper-lstm-96-n2, paper-lstm-96-n6, paper-lstm-96-n8, paper-bilstm-96, paper-rnn-288,
            paper-dssm, paper-clsm-1, paper-clsm-3, paper-clsm-5. Tuned: lstm-96, lstm-64, lstm-32, lstm-full-96,
            bilstm-96, rnn-288, dssm, clsm-1, clsm-3, clsm-5. Not in the paper: lstm-pool-192, lstm-pool-96,
            lstm-long-96, bag-pool-512, bag-512, self-attentive, max-pooled, variational (benchmarks/README.md compares
            them). From labels (docs/model.md): siamese-lstm, siamese-max, siamese-gru, siamese-cnn, siamese-swem,
            gated-attention, var-siamese, attentive-texts; with the sizes that Lin et al. and Deudon print
            (docs/model.md): lin-yelp, lin-age, lin-max, lin-cnn, lin-snli, lin-yelp-pruned, lin-age-pruned,
            lin-snli-pruned, deudon-vae, deudon-vae-repeat, deudon. Or a TOML file: the best.toml of a sweep, or your
            own, with `objective` classify (labels) or generate (reconstruction, paraphrase) among its settings.
        epochs: Epochs, instead of the recipe's.
        reduction: How workers' gradients are summed: exact (the same bytes for any number of workers) or fast.
        documents: With queries and qrels: report NDCG on judgments after every epoch. It is shown, and chooses nothing.
        loss_after_epoch: Measure the training pairs' loss once more when each epoch has ended, as the paper's Fig. 7
            has it: one more pass. The curve of training is the mean of an epoch's pairs as they train.
        set: field=value for any field of the recipe (`clicktower settings train`); may be repeated.
        report: The file for a page about the training, with its curves (self-contained HTML).
    """
    from clicktower.flows.config.settings import Surroundings
    from clicktower.training.trainer import launch

    named, its_vectors = recipe_named(recipe)
    with console.progress_bar("train", share=True) as progress:
        result = launch.train(
            shards,
            store=into,
            recipe=with_options(
                named, {"epochs": epochs, "reduction": reduction, "objective.loss_after_epoch": loss_after_epoch}, set
            ),
            compute=compute,
            sources=replace(sources, word_vectors=sources.word_vectors or its_vectors),
            in_cluster=bool(Surroundings().ray_address),
            judged=judged_files(documents, queries, qrels, adult_list),
            progress=progress,
        )
    value = result.to_json()
    if report:
        from clicktower.flows.report.training_page import write_training_page

        write_training_page(report, value)
    console.emit(value, json, present.stage_with_details)


def judged_files(
    documents: str | None, queries: str | None, qrels: str | None, adult_list: str | None
) -> "Judged | None":
    """The judged files of options that go together; None without them. Raises UsageError for only some of them."""
    if documents and queries and qrels:
        from clicktower.schemas.judgments import Judged

        return Judged(documents=documents, queries=queries, qrels=qrels, adult_list=adult_list)
    if documents or queries or qrels:
        raise UsageError(
            "NDCG is measured by three files, and only some of them are given.",
            "Give --documents, --queries and --qrels together, or none.",
        )
    return None


def evaluate(
    *,
    model: Model,
    documents: Documents,
    queries: Queries,
    qrels: Qrels,
    adult_list: AdultList = None,
    into: Into,
    min_judged: int | None = None,
    frequencies: str | None = None,
    set: Set = None,
    json: Json = False,
) -> None:
    """Evaluate a model by NDCG@1/3/10, compared with BM25 and a random order.

    TREC run files of all of them are written, too, so that others can check the figures.

        clicktower evaluate --model store/train/DIGEST --documents documents.tsv --queries queries.tsv \\
            --qrels qrels.txt --into store

    Args:
        min_judged: Skip queries with fewer judged documents than this, by default 1; the output says how many.
        frequencies: How often each query was asked, `id<TAB>count`: adds the slices head, torso and tail.
    """
    from clicktower.training.evaluation import evaluate_stage
    from clicktower.training.evaluation.evaluate_stage import EvaluateConfig
    from clicktower.training.model.model_folder import language_of

    config = with_options(EvaluateConfig(), {"min_judged": min_judged}, set)
    # A release has the terms of its language, unless --set says otherwise.
    if not any(field.partition("=")[0].strip() == "language" for field in set or []):
        config = replace(config, language=language_of(model))
    with console.progress_bar("evaluate") as progress:
        result = evaluate_stage.evaluate(
            model, documents=documents, queries=queries, qrels=qrels, adult_list=adult_list, store=into, config=config,
            frequencies=frequencies, progress=progress,
        )  # fmt: skip
    run_file = storage.join(result.data, result.manifest.outcome.metrics["run_files"]["model"])
    console.emit({**result.to_json(), "run_file": run_file}, json, present.stage_with_details)
