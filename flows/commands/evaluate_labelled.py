"""clicktower evaluate-labelled"""

from flows import console, present_labelled
from flows.set_fields import with_fields


def evaluate_labelled(
    *,
    model: str,
    labelled: str,
    into: str,
    set: list[str] | None = None,
    json: bool = False,
) -> None:
    """Measure what a model is worth on labelled pairs or texts, beside what words
    alone can do: majority, TF-IDF, BM25 and word mover's distance, naive Bayes.

    A model trained on these labels answers with its classes; any model with the cosine
    of two texts, a variational one with W₂ too. Classes: accuracy (of a similarity at
    thresholds chosen on the training part) and area under ROC. Values: Spearman's rank
    correlation. All of the held-out part, with intervals.

        clicktower evaluate-labelled --model store/train/DIGEST --labelled store/build-labelled/DIGEST --into store

    Parameters
    ----------
    model
        The folder that `train` printed, or a release: of its URI, what is live.
    labelled
        The folder that `build-labelled` printed.
    into
        The store: a folder or URI that holds the output of all stages.
    set
        field=value for any field of the settings, such as sides=document; may be repeated.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from training.labelled.evaluate import EvaluateLabelledConfig
    from training.labelled.evaluate import evaluate_labelled as run

    config = with_fields(EvaluateLabelledConfig(), set or [])
    with console.progress_bar("evaluate-labelled") as progress:
        result = run(model, labelled, store=into, config=config, progress=progress)
    console.emit(result.to_json(), json, present_labelled.show)
