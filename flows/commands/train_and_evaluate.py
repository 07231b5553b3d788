"""clicktower train, texts, import-encoder, combine, evaluate, evaluate-labelled, encode: from shards to models, figures
and vectors.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import AdultList, Documents, Into, Json, Model, Qrels, Queries, Set, Shards
from clicktower.flows.config.toml_file import recipe_named, with_fields, with_options
from clicktower.flows.show import console, present
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.languages import DEFAULT_LANGUAGE, Language
from clicktower.schemas.stage import silent
from clicktower.training.model.named_recipes import DEFAULT

if TYPE_CHECKING:
    from clicktower.schemas.judgments import Judged


def train(
    *,
    shards: Shards,
    into: Into,
    recipe: str = DEFAULT,
    start: str | None = None,
    epochs: int | None = None,
    reduction: Literal["exact", "fast"] | None = None,
    workers: int | Literal["auto"] = 1,
    min_workers: int | None = None,
    threads: int | None = None,
    path: Literal["auto", "compiled", "torch"] = "auto",
    device: Literal["auto", "cpu", "cuda", "cuda-eager"] = "auto",
    documents: str | None = None,
    queries: Queries | None = None,
    qrels: Qrels | None = None,
    adult_list: AdultList = None,
    word_vectors: str | None = None,
    teacher: str | None = None,
    loss_after_epoch: bool = False,
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
        start: The folder of another training whose towers this one starts from, instead of from random numbers.
        epochs: Epochs, instead of the recipe's.
        reduction: How workers' gradients are summed: exact (the same bytes for any number of workers) or fast.
        workers: Data-parallel workers; auto: one for each GPU of the Ray cluster, or without one of this machine, and
            one where there is no GPU.
        min_workers: In a Ray cluster, continue with as few workers when nodes are lost, and with more again when they
            come back; without it the run waits ten minutes for a replacement.
        threads: Threads of each worker; by default the cores of this machine, or of the Ray cluster, divided by the
            workers.
        path: On a CPU: compiled (which towers, and whether it is available, `clicktower doctor` says) or torch, the
            reference. auto: compiled where it supports the recipe. The two round differently.
        device: cpu; cuda (the recurrence in fused kernels), cuda-eager (step by step); auto: a GPU that passes its
            check (`clicktower doctor`), on this machine or, with RAY_ADDRESS set, on a node of the Ray cluster. They
            round differently, so each gives a different model.
        documents: With queries and qrels: report NDCG on judgments after every epoch. It is shown, and chooses nothing.
        word_vectors: A file of word vectors (GloVe text, word2vec text or binary): words in it start from their
            vectors, all others are read by their letter trigrams. They are trained further unless you --set
            word_vectors=frozen.
        teacher: The model to distil, with half of the loss or what you --set objective.teacher.share=: the folder that
            `train` or `combine` printed, or a Parquet file of another encoder's vectors (see `texts`).
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
                named,
                {"epochs": epochs, "reduction": reduction, "objective.loss_after_epoch": loss_after_epoch or None},
                set,
            ),
            workers=workers,
            min_workers=min_workers,
            threads=threads,
            in_cluster=bool(Surroundings().ray_address),
            path=path,
            device=device,
            judged=_judged(documents, queries, qrels, adult_list),
            start=start,
            progress=progress,
            word_vectors=word_vectors or its_vectors,
            teacher=teacher,
        )
    value = result.to_json()
    if report:
        from clicktower.flows.report.training_page import write_training_page

        write_training_page(report, value)
    console.emit(value, json, present.stage_with_details)


def texts(*, shards: Shards, to: str, json: Json = False) -> None:
    """Write the texts that training meets, for your own teacher to encode.

    Give each text a vector with any encoder, a transformer or a service, as a
    second column `vector`, and train towers to rank like it:

        clicktower texts --shards store/build/DIGEST --to texts.parquet
        clicktower train --shards store/build/DIGEST --teacher vectors.parquet --into store

    docs/model.md ("A teacher") shows the code in between. The texts are those of
    the shards, behind the privacy gate: released queries and your titles.

    Args:
        to: The Parquet file to write, with a column `text`: each text once. A file that exists is not overwritten.
    """
    from clicktower.training.trainer.shard_data import write_texts

    number = write_texts(shards, to)
    console.emit(
        {"texts": number, "path": to},
        json,
        lambda _: console.output.print(f"[green]✓[/] {number:,} texts in {console.plain(to)}"),
    )


def import_encoder(folder: str, /, *, into: Into, file: str | None = None, json: Json = False) -> None:
    """Bring a transformer, to stand in the place of a model or beside one.

    Reads the folder of a sentence-transformers model with its ONNX graph, or any ONNX graph
    with its tokenizer.json. The result is a model like any other for evaluate, compare,
    publish, search and serve, and `train --teacher` learns from it. Needs no torch:

        clicktower import-encoder all-MiniLM-L6-v2 --into store
        clicktower combine --models store/train/DIGEST store/import-encoder/DIGEST --into store \\
            --documents documents.tsv --queries queries.tsv --qrels qrels.txt

    Args:
        folder: The model's folder on this machine: tokenizer.json, onnx/model.onnx or model.onnx, and modules.json with
            its files if there is one.
        file: Another graph in that folder, such as onnx/model_qint8_avx512.onnx.
    """
    from clicktower.training.model import import_stage

    console.emit(import_stage.import_encoder(folder, store=into, file=file).to_json(), json, present.stage_with_details)


def combine(
    *,
    models: Annotated[list[str], Parameter(consume_multiple=True)],
    into: Into,
    shares: Annotated[list[float] | None, Parameter(consume_multiple=True)] = None,
    documents: str | None = None,
    queries: Queries | None = None,
    qrels: Qrels | None = None,
    adult_list: AdultList = None,
    language: Language = DEFAULT_LANGUAGE,
    json: Json = False,
) -> None:
    """Make an ensemble of models: its score is the mean of theirs, or a weighted one.

    Models of different seeds and, even more, of different towers make different
    errors, so their mean can rank better than each; a transformer beside a click model helps
    most (benchmarks/README.md). The result is a model like any other for evaluate, compare,
    publish and search; its vectors have as many dimensions as all of its members' together.

        clicktower combine --models store/train/DIGEST store/train/DIGEST --into store

    Args:
        models: Folders that `train` or `import-encoder` printed, two or more; trained ones on shards of one table size.
        shares: The share of each model in the score, in their order: 0.4 0.6. Equal without it.
        documents: With queries and qrels: choose the shares of two models by NDCG@10 of these judgments. What they
            are worth is measured on each half of the queries with the shares that the other half chooses.
        language: Of the documents' terms, for a lexical share; none: words as they are.
    """
    from clicktower.training.evaluation import combine_stage

    with console.progress_bar("combine") as progress:
        result = combine_stage.combine(
            models, store=into, shares=shares or (), judged=_judged(documents, queries, qrels, adult_list),
            language=language, progress=progress,
        )  # fmt: skip
    console.emit(result.to_json(), json, present.stage_with_details)


def _judged(documents: str | None, queries: str | None, qrels: str | None, adult_list: str | None) -> "Judged | None":
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


def encode(
    *,
    side: Literal["query", "document"],
    model: str | None = None,
    release: str | None = None,
    raw: bool = False,
    json: bool = False,
) -> None:
    """Turn lines of text into vectors, one at a time.

    Each line of standard input is a text, and each line of output its vector as
    a JSON array: of length 1, so that a dot product of two is their cosine, or
    not normalised if the model compares by distance. A line without a word has
    no vector and gives null. With --raw the vectors are consecutive little-endian
    float32 values instead, and such a line gives zeros.

        clicktower encode --release release --side query < queries.txt > vectors.jsonl

    Args:
        side: The tower: query or document.
        model: The folder that `train` or `combine` printed.
        release: Instead of a model: the folder or URI that `publish` wrote to.
        raw: Write float32 bytes instead of JSON lines.
        json: Write {"vector": ...} objects instead of arrays.
    """
    import sys

    from clicktower.flows.releases.encode_texts import encode_lines, open_encoder

    encoder = open_encoder(model, release)
    # A bar would stand between vectors on one terminal.
    with nullcontext(silent) if sys.stdout.isatty() else console.progress_bar("encode") as progress:
        for content in encode_lines(encoder, sys.stdin.buffer, side, raw=raw, objects=json, progress=progress):
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
