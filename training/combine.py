"""Combine: trained models -> one model that holds them side by side (training.ensemble).

    combine(["store/train/DIGEST", "store/train/DIGEST"], store="store")

Writes training.model's two files to STORE/combine/DIGEST; evaluate, compare, publish and search read it as any model.
"""

from collections.abc import Sequence

from schemas.errors import UsageError
from schemas.manifest import Outcome, Request
from schemas.stage import StageResult, open_result, run_stage

STAGE_VERSION = 1


def combine(models: Sequence[str], *, store: str) -> StageResult:
    """The model of all these models (folders that `train` made), whatever their order.

    Raises UsageError for fewer than two, one given twice, models of different text contracts, or one that compares
    by distance, and StageError for one that is damaged or is itself combined.
    """
    trained = sorted((open_result(model) for model in models), key=lambda result: result.manifest.digest)
    digests = [result.manifest.digest for result in trained]
    asked = f"{len(models)} models were to be combined"
    if len(set(digests)) < max(2, len(digests)):
        found = "there must be at least two" if len(digests) < 2 else "one of them is there twice"
        raise UsageError(asked=asked, found=found, do="give different models, of other seeds or other recipes")
    request = Request(stage="combine", stage_version=STAGE_VERSION, config={}, inputs={"models": digests})

    def produce(folder: str) -> Outcome:
        from training.ensemble import write_ensemble
        from training.model import load_model

        members = [load_model(result.data) for result in trained]
        if len({str(sorted(member.text_contract.items())) for member in members}) > 1:
            raise UsageError(
                asked=asked,
                found="they were trained on different text contracts or table sizes",
                follows="a text would not mean the same to all of them",
                do="train them on shards of one build",
            )
        if any(member.similarity != "cosine" for member in members):
            raise UsageError(
                asked=asked,
                found="one of them compares by distance",
                follows="a mean of cosines and distances means nothing",
                do="combine models that compare by cosine",
            )
        write_ensemble(folder, members)
        labels = {name: value for result in trained for name, value in result.manifest.outcome.labels.items()}
        return Outcome(
            counts={"models": len(members), "parameters": sum(member.num_parameters for member in members)},
            metrics={
                "members": [member.recipe.name for member in members],
                "dimensions": sum(member.dimensions for member in members),
                "train_seconds": sum(result.manifest.duration_seconds for result in trained),
            },
            labels=labels,
        )

    return run_stage(store, request, produce)
