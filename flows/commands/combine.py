"""clicktower combine"""

from typing import Annotated

from cyclopts import Parameter

from flows.show import console, present


def combine(*, models: Annotated[list[str], Parameter(consume_multiple=True)], into: str, json: bool = False) -> None:
    """Put trained models side by side as one: its score is the mean of their cosines.

    Models of other seeds and, more so, of other towers err at different texts, so
    their mean can rank better than each; docs/quality.md says where it did and where
    it did not. The result is a model like any other for evaluate, compare, publish
    and search; its vectors have as many dimensions as all of theirs together.

        clicktower combine --models store/train/DIGEST store/train/DIGEST --into store

    Parameters
    ----------
    models
        Folders that `train` printed, two or more, trained on shards of one table size.
    into
        The store: a folder or URI that holds the output of all stages.
    json
        Print the result as one JSON object.
    """
    from training.models.ensemble import combine as run

    console.emit(run(models, store=into).to_json(), json, present.stage_with_details)
