"""clicktower combine"""

from typing import Annotated

from cyclopts import Parameter

from flows.show import console, present


def combine(*, models: Annotated[list[str], Parameter(consume_multiple=True)], into: str, json: bool = False) -> None:
    """Make an ensemble of trained models: its score is the mean of their cosines.

    Models of different seeds and, even more, of different towers make different
    errors, so their mean can rank better than each; docs/quality.md says where it
    did. The result is a model like any other for evaluate, compare, publish and
    search; its vectors have as many dimensions as all of its members' together.

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
