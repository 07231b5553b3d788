"""Shards that somebody else may have written: what would lead compiled code astray is refused when they are opened."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError
from clicktower.schemas.shard import EXCLUSIONS, PAIRS, POOL, TEXTS, WORDS, open_table
from clicktower.schemas.stage import open_result
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.kernel_towers import kernel_batch
from clicktower.training.trainer.shard_data import load_shards
from tests.recipes import recipe_with
from tests.training.small_shards import shop, write_build

RECIPE = recipe_with(name="small", cells=8, epochs=1, minibatch=32, micro_batch=8)
FILES = {"words": WORDS, "texts": TEXTS, "pairs": PAIRS, "exclusions": EXCLUSIONS}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    pairs, titles = shop(40)
    return open_result(write_build(str(tmp_path_factory.mktemp("build")), {"train-00000": pairs}, titles[::4])).data


def rewrite(path: Path, table: pa.Table) -> None:
    with pa.ipc.new_file(f"{path}.new", table.schema) as writer:
        writer.write_table(table)
    os.replace(f"{path}.new", path)


@pytest.mark.parametrize(
    ("file", "column", "value"),
    [
        ("pairs", "query", 10**6), ("pairs", "query", -1), ("pairs", "clicked", 2**31 - 1),
        ("pairs", "exclusion", 10**6),
        ("pairs", "negatives", [0, 1, 2, 10**6]), ("texts", "words", [10**6]), ("texts", "words", [-1]),
        ("exclusions", "rows", [10**6]), ("words", "trigrams", [2**32 - 1]), ("pool", "text", 10**6),
    ],
)  # fmt: skip
def test_an_index_that_leads_nowhere_is_refused(shards, tmp_path, file, column, value):
    folder = Path(shutil.copytree(shards, tmp_path / "data"))
    path = folder / ("pool/pool.arrow" if file == "pool" else f"train-00000/{file}.arrow")
    schema = POOL if file == "pool" else FILES[file]
    table = open_table(str(path), schema)
    values = [value, *table[column].to_pylist()[1:]]
    at, field = schema.get_field_index(column), schema.field(column)
    rewrite(path, table.set_column(at, field, pa.array(values, field.type)))
    with pytest.raises(StageError):
        load_shards(str(folder), RECIPE)


def test_columns_with_longer_offsets_are_refused(shards, tmp_path):
    folder = Path(shutil.copytree(shards, tmp_path / "data"))
    path = folder / "train-00000/texts.arrow"
    table = open_table(str(path), TEXTS)
    at = TEXTS.get_field_index("text")
    wide = pa.field("text", pa.large_string(), nullable=False)
    rewrite(path, table.set_column(at, wide, table["text"].cast(pa.large_string())))
    with pytest.raises(StageError, match="large_string"):
        load_shards(str(folder), RECIPE)


def test_a_type_that_arrow_does_not_know_is_refused(shards, tmp_path):
    """Integers of no bits: found by changing bytes for minutes (`make sanitise`)."""
    folder = Path(shutil.copytree(shards, tmp_path / "data"))
    path = folder / "train-00000/exclusions.arrow"
    content = bytearray(path.read_bytes())
    for at in range(len(content)):
        with (
            suppress(pa.ArrowException, OSError),
            pa.BufferReader(changed := content[:at] + b"\0" + content[at + 1 :]) as f,
        ):
            pa.ipc.open_file(f)
            continue
        path.write_bytes(changed)
        with pytest.raises(StageError):
            load_shards(str(folder), RECIPE)


@given(data=st.data())
def test_bytes_changed_anywhere_are_refused_or_harmless(shards, tmp_path_factory, data):
    """What opens after all can be read to its end by compiled code."""
    folder = Path(shutil.copytree(shards, tmp_path_factory.mktemp("changed") / "data"))
    path = folder / "train-00000" / f"{data.draw(st.sampled_from(sorted(FILES)))}.arrow"
    content = np.frombuffer(path.read_bytes(), np.uint8).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content.tobytes())
    try:
        shard = load_shards(str(folder), RECIPE).train[0]
    except StageError:
        pass
    else:
        if status().available:
            with suppress(ValueError, IndexError):  # a text without words, say
                kernel_batch([(shard.texts, np.arange(len(shard.texts)))])
    finally:
        shutil.rmtree(folder)
