"""clicktower evaluate-labelled"""

from flows.config.toml_file import with_fields
from flows.show import console


def evaluate_labelled(
    *,
    model: str,
    labelled: str,
    into: str,
    set: list[str] | None = None,
    report: str | None = None,
    json: bool = False,
) -> None:
    """Measure what a model is worth on labelled pairs or texts, beside what words
    alone can do: majority, TF-IDF, BM25 and word mover's distance, naive Bayes.

    A model trained on these labels answers with its classes; any model with the cosine
    of two texts, a variational one with W₂ too. Classes: accuracy (of a similarity at
    thresholds chosen on the training part) and area under ROC. Values: Spearman's rank
    correlation. All of the held-out part, with intervals.

        clicktower evaluate-labelled --model store/train/DIGEST --labelled store/build-labelled/DIGEST --into store \\
            --report labelled.html

    The page shows how the similarities lie in each class, what a classifier took for what,
    whether its probabilities hold, where the hops of a self-attentive model look, and rows
    that it got wrong: with their texts, so it is as private as your data.

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
    report
        A file to write a page about it to (HTML, whole in itself).
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from flows.show import present_labelled
    from training.evaluate.evaluate_labelled_stage import EvaluateLabelledConfig
    from training.evaluate.evaluate_labelled_stage import evaluate_labelled as run

    config = with_fields(EvaluateLabelledConfig(), set or [])
    with console.progress_bar("evaluate-labelled") as progress:
        result = run(model, labelled, store=into, config=config, progress=progress)
    value = result.to_json()
    if report:
        from flows.report.labelled_page import write_labelled_page

        write_labelled_page(report, value)
        value["report"] = report
    console.emit(value, json, present_labelled.show)
