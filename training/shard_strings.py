"""The texts that training can meet, for an encoder of another kind to read (training.text_vectors)."""

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import storage
from schemas.errors import UsageError
from schemas.shard import TEXTS, open_table
from schemas.stage import open_result
from training.shard_folder import local_folder


def write_texts(shards: str, to: str) -> int:
    """Write each text of a build's training shards and pool once, normalised, as the column `text` of a Parquet file.

    Their number. Nothing that exists is overwritten. Raises UsageError and StageError.
    """
    built = open_result(shards)
    if (stage := built.manifest.request.stage) != "build":
        raise UsageError(
            asked=f"the texts of the click shards in {shards} were to be listed",
            found=f"it is the output of {stage}",
            do="give the folder that `clicktower build` printed",
        )
    folder = local_folder(built.data)
    names = {file.path.split("/")[-2] for file in built.manifest.files if file.path.endswith("/texts.arrow")}
    taught = sorted(name for name in names if not name.startswith("dev"))
    texts = pa.chunked_array(
        [chunk for name in taught for chunk in open_table(f"{folder}/{name}/texts.arrow", TEXTS)["text"].chunks],
        pa.string(),
    )
    distinct = pc.unique(texts)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": distinct}), buffer)
    if not storage.write_new(to, buffer.getvalue()):
        raise UsageError(
            asked=f"texts were to be written to {to}",
            found="it is there already",
            follows="what somebody may still need would be lost",
            do="give another --to, or remove it",
        )
    return len(distinct)
