"""Labelled shards: texts or pairs of texts, each with a label, and the words and texts as in click shards.

Below the data folder of a `build-labelled`:

    train-00000/words.arrow      shard.WORDS   each distinct word once, as its letter-trigram ids
    train-00000/texts.arrow      shard.TEXTS   each distinct text once, as indices into words
    train-00000/labelled.arrow   `labelled_schema`     the rows, as indices into texts
    dev-00000/...                the same for the held-out rows
    labelled.json                what the rows are, their classes, text contract, table rows, shards
    rejects.json                 the first unreadable lines, as file, offset and reason

No text of a dev row is a text of a train row. Words, texts and trigrams have the same bytes as in click shards, so the
same code encodes both.
"""

from typing import Literal

import pyarrow as pa

from schemas.shard import VERSION_KEY

SCHEMA_VERSION = "1.0"
CATALOGUE, REJECTS = "labelled.json", "rejects.json"

Unit = Literal["pairs", "texts"]
LabelKind = Literal["class", "value"]


def labelled_schema(unit: Unit, label: LabelKind) -> pa.Schema:
    """The columns of labelled.arrow: `first` and `second`, or `text`, as int32 indices into texts; `label`.

    A class is an int32 index into the catalogue's `classes`, a value a float64.
    """
    texts = ("first", "second") if unit == "pairs" else ("text",)
    kind = pa.int32() if label == "class" else pa.float64()
    return pa.schema(
        [*(pa.field(name, pa.int32(), nullable=False) for name in texts), pa.field("label", kind, nullable=False)],
        metadata={VERSION_KEY: SCHEMA_VERSION.encode()},
    )
