"""Labelled rows -> the files of a shard (schemas.labelled), and the digest of its logical rows."""

import numpy as np
import pyarrow as pa

from beam_jobs.arrow_files import write_table
from beam_jobs.compiled.row_digest import row_digest
from beam_jobs.shard_writer import FolderMade, index_words, joined_fields
from schemas.labelled import LabelKind, labelled_schema


def write_labelled_shard(
    rows: pa.Table, folder: str, name: str, *, label: LabelKind, classes: tuple[str, ...], table_rows: int
) -> FolderMade:
    """Write the words, texts and labelled rows of one shard below `folder`, in the order of the rows' keys.

    rows: beam_jobs.labelled.distinct.KEYED, all of one split, each label one of `classes` or a number. What is written
    depends on these rows alone, not on their order.
    """
    is_pairs = rows["second"].null_count == 0
    sentences = ["first", "second"] if is_pairs else ["first"]
    order = np.lexsort([*(rows[each].to_numpy() for each in reversed(sentences)), rows["key"].to_numpy()])
    rows = rows.take(order).combine_chunks()
    every_text = pa.concat_arrays([chunk for each in sentences for chunk in rows[each].chunks])
    encoded = every_text.dictionary_encode()
    words, texts = index_words(encoded.dictionary, table_rows)
    names = rows["label"].to_pylist()
    if label == "class":
        number = {each: at for at, each in enumerate(classes)}
        labels = pa.array([number[each] for each in names], pa.int32())
    else:
        labels = pa.array(list(map(float, names)), pa.float64())
    schema = labelled_schema("pairs" if is_pairs else "texts", label)
    places = np.split(encoded.indices.to_numpy(), len(sentences))
    table = pa.table([*(pa.array(each, pa.int32()) for each in places), labels], schema=schema)
    for name_of_table, content in (("words", words), ("texts", texts), ("labelled", table)):
        write_table(content, folder, name_of_table)
    split = name.partition("-")[0]
    logical = joined_fields(split, *(rows[each] for each in (*sentences, "label")))
    return FolderMade(
        folder=folder,
        name=name,
        counts={"rows": len(table), "texts": len(texts), "words": len(words)},
        logical_digest=row_digest(logical),
    )
