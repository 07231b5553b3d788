import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from clicktower.training.model.model import Model, write_model
from clicktower.training.model.model_folder import read_arrays, safetensors_pieces
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.trainer.checkpoint import Position, newest_checkpoint, read_checkpoint, write_checkpoint
from clicktower.training.trainer.optimisers import LazyRows
from tests.recipes import recipe_with

TYPES = st.sampled_from([np.float32, np.float64, np.int32, np.int64])
SHAPES = array_shapes(min_dims=0, min_side=0, max_side=4)


@given(st.dictionaries(st.text(min_size=1), TYPES.flatmap(lambda dtype: arrays(dtype, SHAPES)), max_size=5))
def test_a_file_has_the_bytes_that_safetensors_gives_it_and_is_read_back(tensors):
    content = b"".join(safetensors_pieces(tensors))
    assert content == safetensors.numpy.save(tensors)
    found = read_arrays(bytearray(content))
    assert set(found) == set(tensors)
    for name, expected in tensors.items():
        assert found[name].dtype == expected.dtype
        assert found[name].flags.writeable
        assert found[name].tobytes() == expected.tobytes()
        assert found[name].shape == expected.shape


def test_an_array_that_lies_in_columns_is_written_in_rows():
    columns = {"a": np.arange(6.0).reshape(2, 3).T}
    assert np.array_equal(read_arrays(bytearray(b"".join(safetensors_pieces(columns))))["a"], columns["a"])


def test_other_types_are_refused():
    with pytest.raises(KeyError, match="float16"):
        safetensors_pieces({"a": np.zeros(2, np.float16)})


def test_no_copy_of_a_run_is_made_to_start_it_to_keep_it_or_to_write_its_model(tmp_path):
    """Of a table of many rows a copy more or less decides whether training fits the machine."""
    recipe = recipe_with(name="wide", tower="clsm", window=3, hidden=64, same_start=False)
    layout = layout_of(recipe, 20_000)
    size = layout.rows * layout.columns * np.dtype(np.float32).itemsize

    def peak(work) -> float:
        """What Python and NumPy hold at most during some work, beyond what they held before it, in matrices."""
        tracemalloc.start()
        try:
            work()
            return tracemalloc.get_traced_memory()[1] / size
        finally:
            tracemalloc.stop()

    matrices = {}
    assert peak(lambda: matrices.update({t: initial_parameters(layout, t) for t in recipe.objective.towers})) < 0.5
    rows = {tower: LazyRows.start(matrix) for tower, matrix in matrices.items()}
    assert peak(lambda: write_checkpoint(str(tmp_path / "kept"), "run", Position(update=1), rows)) < 0.5
    assert peak(lambda: newest_checkpoint(str(tmp_path / "kept"), "run")) < 4.5  # two towers, parameters and velocity
    assert peak(lambda: read_checkpoint(str(tmp_path / "kept"), "run", 1)) < 4.5
    assert peak(lambda: write_model(str(tmp_path / "model"), Model.of(layout, matrices))) < 0.5
