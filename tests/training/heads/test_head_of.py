import math

import pytest

from schemas.errors import UsageError
from training.network.head import HeadSettings, head_of


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "tree", "hidden": 5}, "one of mlp, pruned"),
        ({"features": "cosine", "hidden": 5}, "one of plain, w2, siamese, gated"),
        ({}, "hidden is 0. It must be at least 1"),
        ({"hidden": 5, "row_units": 2}, "0 .a head of kind mlp has none"),
        ({"kind": "pruned", "row_units": 2}, "column_units is 0. It must be at least 1"),
        ({"kind": "pruned", "row_units": 2, "column_units": 2, "hidden": 5}, "0 .a head of kind pruned has none"),
        ({"hidden": 5, "factors": 3}, "0 .features plain have no factors"),
        ({"hidden": 5, "features": "gated", "factors": -1}, "at least 0"),
        ({"hidden": 5, "dropout": 1.0}, "below 1"),
        ({"hidden": 5, "dropout": math.nan}, "below 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        HeadSettings(**settings)


@pytest.mark.parametrize(
    ("features", "dimensions", "classes", "unit", "message"),
    [
        ("plain", 6, 2, "pairs", "Those are of one embedding"),
        ("siamese", 6, 2, "texts", "Those are of two embeddings"),
        ("w2", 7, 2, "pairs", "not two halves"),
        ("siamese", 6, 1, "pairs", "They have 1 class\\. "),
        ("plain", 6, 0, "texts", "They have 0 classes"),
    ],
)
def test_a_head_that_cannot_be_is_refused(features, dimensions, classes, unit, message):
    settings = HeadSettings(features=features, hidden=5)
    with pytest.raises(UsageError, match=message):
        head_of(settings, dimensions=dimensions, rows=1, classes=classes, unit=unit)


def test_factors_are_as_many_as_a_row_is_wide_unless_said():
    settings = HeadSettings(features="gated", hidden=5)
    head = head_of(settings, dimensions=24, rows=4, classes=3, unit="pairs")
    assert dict(head.parts)["head.W_fh"] == (4, 6, 6)
    assert (head.features, head.hidden) == ((4, 6), 5)
