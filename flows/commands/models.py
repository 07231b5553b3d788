"""clicktower texts, import-encoder, combine, encode: what other encoders learn from, and what models are made into."""

from contextlib import nullcontext
from typing import Annotated, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import AdultList, Into, Json, Qrels, Queries, Shards
from clicktower.flows.commands.stages import judged_files
from clicktower.flows.show import console, present
from clicktower.schemas.section import DEFAULT_LANGUAGE, Language
from clicktower.schemas.stage import silent


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
    from clicktower.training.analysis.nearest_words import write_texts

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
            models, store=into, shares=shares or (), judged=judged_files(documents, queries, qrels, adult_list),
            language=language, progress=progress,
        )  # fmt: skip
    console.emit(result.to_json(), json, present.stage_with_details)


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

    from clicktower.flows.releases.encode_lines import encode_lines, open_encoder

    encoder = open_encoder(model, release)
    # A bar would stand between vectors on one terminal.
    with nullcontext(silent) if sys.stdout.isatty() else console.progress_bar("encode") as progress:
        for content in encode_lines(encoder, sys.stdin.buffer, side, raw=raw, objects=json, progress=progress):
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
