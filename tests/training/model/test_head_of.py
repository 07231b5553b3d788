import pytest

from clicktower.schemas.errors import UsageError
from clicktower.training.model.head import head_of
from clicktower.training.model.label_settings import MLP, Classify, FeatureSettings, GatedFeatures


@pytest.mark.parametrize(
    ("features", "dimensions", "classes", "unit", "message"),
    [
        ("plain", 6, 2, "pairs", "The features plain are those of one embedding, and"),
        ("siamese", 6, 2, "texts", "The features siamese are those of two embeddings, and"),
        ("w2", 7, 2, "pairs", "The features w2 need an embedding of two halves,"),
        ("siamese", 6, 1, "pairs", "have 1 class,"),
        ("plain", 6, 0, "texts", "Use data whose labels have at least two classes."),
    ],
)
def test_a_head_that_cannot_be_is_refused(features, dimensions, classes, unit, message):
    settings = Classify(features=FeatureSettings.kinds[features](), head=MLP(units=5))
    with pytest.raises(UsageError, match=message):
        head_of(settings, dimensions=dimensions, rows=1, classes=classes, unit=unit)


def test_factors_are_as_many_as_a_row_is_wide_unless_said():
    settings = Classify(features=GatedFeatures(), head=MLP(units=5))
    head = head_of(settings, dimensions=24, rows=4, classes=3, unit="pairs")
    assert dict(head.parts)["head.W_fh"] == (4, 6, 6)
    assert (head.features, head.hidden) == ((4, 6), 5)
