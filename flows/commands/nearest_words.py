"""clicktower nearest-words"""

from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from flows.commands.options import Json, Shards
from flows.report.blocks import Table
from flows.show import console

Positive = Annotated[int, Parameter(validator=Number(gte=1))]


def nearest_words(
    *words: str,
    shards: Shards,
    model: str | None = None,
    side: Literal["query", "document"] = "query",
    k: Positive = 10,
    epochs: Positive = 30,
    seed: int = 0,
    json: Json = False,
) -> None:
    """List the nearest words of each word, with scores: by Doc2Vec (Appendix F of the paper),
    or by a trained tower.

    Without --model, Doc2Vec is trained on all texts of the shards as the paper describes it
    (PV-DM, windows of 5, 100 dimensions), and the score is the cosine of word vectors: words
    are near that occur in like places. With --model a word's vector is the tower's embedding
    of that word alone: words are near that lead to the same clicks, or have letters in common.

        clicktower nearest-words pizza infection --shards store/build/DIGEST
        clicktower nearest-words bracket brakcet --shards store/build/DIGEST --model store/train/DIGEST

    Args:
        words: Single words. Doc2Vec knows those of the shards; a tower reads any.
        model: The folder that `train` or `combine` printed, or a release.
        side: The tower that reads the words.
        k: How many words to list.
        epochs: Of Doc2Vec: how often it reads all texts.
        seed: Of Doc2Vec.
    """
    from schemas.stage import open_result
    from training.analysis import nearest_words as by_vectors
    from training.models.model import load_encoder
    from training.models.model_source import model_source

    source = model_source(model) if model else None
    encoder = load_encoder(source.folder) if source else None
    with console.progress_bar("nearest-words") as progress:
        found, num_words = by_vectors.nearest_words(
            words, shards, encoder, side=side, k=k, epochs=epochs, seed=seed, progress=progress
        )
    labels = (source or open_result(shards).manifest.outcome).labels
    result = {
        "stage": "nearest-words",
        "vectors": model or "doc2vec",
        "similarity": encoder.similarity if encoder else "cosine",
        "vocabulary": num_words,
        "words": found,
        "labels": {"simulated": True} if labels.get("simulated") else {},
    }
    console.emit(result, json, _show)


def _show(result: dict[str, Any]) -> None:
    score = "cosine" if result["similarity"] == "cosine" else "minus the distance"
    for one in result["words"]:
        rows = [(near["word"], f"{near['score']:.4f}") for near in one["nearest"]]
        console.show([Table(caption=one["word"], header=("word", score), rows=rows)])
    if result["labels"]:
        console.output.print("[bold yellow]The words of a simulated log.[/]")
