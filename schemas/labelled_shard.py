"""Labelled shards: texts or pairs of texts, each with a label. Below the data folder of a `build-labelled`:

    train-00000/words.arrow, train-00000/texts.arrow     as in click shards, so that the same code encodes both
    train-00000/labelled.arrow   `labelled_schema`       the rows, as indices into texts
    dev-00000/...                the same for the held-out rows
    labelled.json                what the rows are, their classes, text contract, table rows, shards
    rejects.json                 the first unreadable lines, as file, offset and reason

No text of a dev row is a text of a train row.
"""

from typing import Literal

import pyarrow as pa

from clicktower.schemas.search_log import not_null
from clicktower.schemas.shard import VERSION_KEY

LABELLED_VERSION = "1.0"


LABELLED_CATALOGUE = "labelled.json"


Unit = Literal["pairs", "texts"]


LabelKind = Literal["class", "value"]


def labelled_schema(unit: Unit, label: LabelKind) -> pa.Schema:
    """The columns of labelled.arrow: `first` and `second`, or `text`, as int32 indices into texts; `label`.

    A class is an int32 index into the catalogue's `classes`, a value a float64.
    """
    texts = dict.fromkeys(("first", "second") if unit == "pairs" else ("text",), pa.int32())
    kind = pa.int32() if label == "class" else pa.float64()
    return not_null({VERSION_KEY: LABELLED_VERSION.encode()}, **texts, label=kind)
