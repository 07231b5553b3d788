"""What training cost by the epoch, as the model folder keeps it (curves.json): for Fig. 7, RNN against LSTM."""

import json
from typing import Any

from schemas import storage
from schemas.errors import StageError


def training_cost(folder: str) -> list[dict[str, Any]]:
    """{"epoch", "train_loss", "dev_loss"} of each epoch; empty where the folder has no curves (a release has none).

    Raises StageError for damaged curves.
    """
    path = storage.join(folder, "curves.json")
    if not storage.exists(path):
        return []
    try:
        return [
            {"epoch": point["epoch"], "train_loss": point["train_loss"], "dev_loss": point.get("dev_loss")}
            for point in json.loads(storage.read_bytes(path))
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StageError(
            asked=f"the curves in {path} were to be read",
            found=f"the file is damaged ({type(error).__name__})",
            do="train again, or copy the folder again",
        ) from None
