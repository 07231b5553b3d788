"""The texts of training, for another kind of encoder to read (model.teacher)."""

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.shard import TEXTS, open_table
from clicktower.schemas.stage import open_result
from clicktower.training.trainer.shard_data import local_folder


def write_texts(shards: str, to: str) -> int:
    """Write each text of a build's training shards and pool once, normalised, as the column `text` of a Parquet file.

    Returns their number. Existing files are not overwritten. Raises UsageError and StageError.
    """
    distinct = distinct_texts_of(shards)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": distinct}), buffer)
    if not storage.write_new(to, buffer.getvalue()):
        raise UsageError(f"The file {to} is there already, and would be lost.", "Give another --to, or remove it.")
    return len(distinct)


def distinct_texts_of(shards: str, *, held_out: bool = False) -> pa.Array:
    """Each text of a build's training shards and pool once, normalised; with `held_out` those held out too.

    Raises UsageError and StageError.
    """
    built = open_result(shards, "build")
    folder = local_folder(built.data)
    names = {file.path.split("/")[-2] for file in built.manifest.files if file.path.endswith("/texts.arrow")}
    taught = sorted(name for name in names if held_out or not name.startswith("dev"))
    texts = pa.chunked_array(
        [chunk for name in taught for chunk in open_table(f"{folder}/{name}/texts.arrow", TEXTS)["text"].chunks],
        pa.string(),
    )
    return pc.unique(texts)
