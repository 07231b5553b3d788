"""The page of a training alone (`clicktower train --report`)."""

from collections.abc import Mapping
from typing import Any

from clicktower.flows.report.blocks import SIMULATED, Page, Section, record, write_page
from clicktower.flows.report.training_blocks import training_blocks
from clicktower.schemas.section import flat
from clicktower.schemas.stage import open_result
from clicktower.training.model.recipe import Recipe


def write_training_page(path: str, result: Mapping[str, Any]) -> None:
    """Write the page of a training, replacing an older one completely. Raises OSError if it cannot be written."""
    manifest = open_result(result["path"]).manifest
    settings = manifest.request.config["recipe"]
    recipe, counts = Recipe(**settings), result["counts"]
    created = manifest.created[:16].replace("T", " ")
    page = Page(
        kind="report of a training",
        title=f"Training of {recipe.name}",
        lead=f"{counts['pairs']:,} {recipe.objective.learns}, {counts['updates']:,} updates, finished {created} UTC.",
        banners=[SIMULATED] * bool(result["labels"].get("simulated")),
        blocks=[
            Section(title="Training", blocks=training_blocks(result)),
            record(flat(settings) | {"model": result["data"], "digest": result["digest"]}, manifest.software),
        ],
    )
    write_page(path, page)
