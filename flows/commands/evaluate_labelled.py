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

    Parameters
    ----------
    model
        The folder that `train` printed, or the URI of a release, whose live model is used.
    labelled
        The folder that `build-labelled` printed.
    into
        The store: a folder or URI that holds the output of all stages.
    set
        field=value for any field of the settings, such as sides=document; may be repeated.
    report
        The file for a page about the result (self-contained HTML).
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
