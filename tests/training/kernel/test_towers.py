"""Compiled towers against the reference path in float64: embeddings, losses and every parameter's gradient."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
import torch

from clicktower.training.kernel.kernel_library import library, status
from clicktower.training.model.forward import encode_batch
from clicktower.training.model.kernel_towers import CHUNK_TEXTS, TowerPoint
from clicktower.training.trainer.click_loss import pair_gradient
from clicktower.training.trainer.kernel_path import Addend, KernelThreads, TouchedRows, whole
from clicktower.training.trainer.large_update import Towers
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from tests.rounding import assert_equal_but_for_rounding, rounded
from tests.training.kernel.small_batches import (
    RECURRENT,
    TOWERS,
    both,
    compiled_path,
    encoder_of,
    pool_pairs,
    random_pairs,
    recipe_of,
    room,
    sharing_pairs,
    start,
    whole_pool_pairs,
)
from tests.training.towers.dense import dense


def values_of(addend: Addend, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rows = (ctypes.c_int32 * addend.num_rows).from_address(addend.rows)
    values = (ctypes.c_float * (addend.num_rows * columns)).from_address(addend.values)
    return np.array(rows), np.array(values, np.float32).reshape(-1, columns)


def compiled_gradient(recipe, layout, matrices, batch):
    rows, every = {name: LazyRows.start(matrix) for name, matrix in matrices.items()}, torch.arange(layout.rows)
    schedule = MomentumSchedule(0.9, 0.9, 10)
    towers = Towers(layout=layout, rows=rows, schedule=schedule, path=compiled_path(recipe))
    touched = {name: TouchedRows(state, every, 1, schedule, room) for name, state in rows.items()}
    crew = KernelThreads(1)
    for of in touched.values():
        of.stand_at(np.zeros(layout.rows, np.int32))
    crew.make("look_ahead", map(whole, touched.values()))
    (loss,), addends = crew.gradients([batch], towers, touched)
    return loss, [values_of(addend, layout.columns) for _, addend in addends]


def assert_equals_reference(recipe, pairs):
    layout, matrices = start(recipe)
    compiled, reference = both(pairs, compiled_path(recipe))
    loss, gradients = compiled_gradient(recipe, layout, matrices, compiled)
    if reference.weights is not None:
        reference = replace(reference, weights=reference.weights.double())
    expected, expected_loss = pair_gradient(reference, encoder_of(layout, matrices, torch.float64))
    assert loss == rounded(float(expected_loss), of=float(expected_loss))
    for (rows, values), (_, gradient) in zip(gradients, expected, strict=True):
        touched = layout.touched(gradient.rows)
        assert rows.tolist() == touched.tolist()
        assert_equal_but_for_rounding(values, dense(gradient, layout)[touched])


@pytest.mark.parametrize("tower", TOWERS)
@pytest.mark.parametrize("cells", [16, 32, 48])
def test_the_gradient_of_every_parameter_is_the_references(tower, cells):
    assert_equals_reference(recipe_of(tower, cells), random_pairs(1, 29, 2, weights=True))


@pytest.mark.parametrize("tower", RECURRENT)
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_gradients_reach_back_as_far_as_the_references(tower, steps):
    assert_equals_reference(recipe_of(tower, truncate_steps=steps), random_pairs(2, 13, 2))


@pytest.mark.parametrize("tower", ["lstm", "full bilstm", "rnn", "bag", "dssm"])
def test_documents_of_several_pairs_get_the_sum_of_their_gradients(tower):
    assert_equals_reference(recipe_of(tower), sharing_pairs(3, 40, 6, 25))


@pytest.mark.parametrize("tower", ["lstm", "full bilstm", "rnn", "bag", "dssm"])
@pytest.mark.parametrize("pool_size", [1, 30, 300])
def test_clicked_titles_beside_a_pool_take_turns(tower, pool_size):
    pairs = pool_pairs(6, 210, 4, 150, pool_size)
    assert len(compiled_path(recipe_of(tower)).prepare(pairs).pair_ends) == 3
    assert_equals_reference(recipe_of(tower), pairs)


@pytest.mark.parametrize("tower", ["lstm", "bag", "dssm"])
@pytest.mark.parametrize("pool_size", [1, 2, 33])
@pytest.mark.parametrize("cells", [16, 96])
def test_pairs_that_share_all_negatives_are_as_each_alone(tower, pool_size, cells):
    """Four at a time, and those left over; candidates two at a time, and one left over."""
    assert_equals_reference(recipe_of(tower, cells), whole_pool_pairs(12, 27, pool_size))


@pytest.mark.parametrize("tower", ["lstm", "bag", "dssm"])
def test_many_chunks_of_texts_are_as_one(tower):
    assert_equals_reference(recipe_of(tower), random_pairs(4, 300, 2))
    assert_equals_reference(recipe_of(tower), sharing_pairs(5, 20, 4, 300))


@pytest.mark.parametrize("tower", ["lstm", "lstm with forget gate", "full lstm", "rnn"])
def test_words_that_texts_begin_with_alike_get_the_gradient_of_all_of_them(tower):
    recipe = recipe_of(tower)
    for pairs in (random_pairs(10, 400, 2), sharing_pairs(11, 60, 3, 1_200)):
        documents = compiled_path(recipe).prepare(pairs).documents
        begins = documents.array("begins")
        prefixes = begins[: len(begins) - documents.num_texts]
        of_two_words = (prefixes >= 0) & (prefixes[prefixes] < 0)
        assert CHUNK_TEXTS < of_two_words.sum() < (prefixes >= 0).sum(), "more than a chunk of them, and longer ones"
        assert_equals_reference(recipe, pairs)


def test_a_side_of_tied_towers_is_computed_with_the_same_parameters():
    assert_equals_reference(recipe_of("lstm", tie_towers=True), random_pairs(6, 10, 2))


@pytest.mark.parametrize("tower", TOWERS)
def test_embeddings_are_the_references(tower):
    recipe = recipe_of(tower, 32)
    layout, matrices = start(recipe)
    compiled, reference = both(random_pairs(7, 50, 3), compiled_path(recipe))
    parts = layout.arrays(matrices["document"])
    point = TowerPoint(recipe, parts["W"], parts)
    vectors = np.empty((compiled.documents.num_texts, point.dimensions), np.float32)
    point.encode(compiled.documents, vectors)
    expected = encode_batch(reference.documents, "document", encoder_of(layout, matrices, torch.float64))
    # The compiled path numbers documents pair after pair, the reference as its candidates say.
    assert_equal_but_for_rounding(vectors, expected[reference.candidates.ravel().long()])


@pytest.mark.parametrize("tower", TOWERS)
def test_every_instruction_set_of_this_processor_gives_the_same_bytes(tower):
    recipe = recipe_of(tower, 48)
    layout, matrices = start(recipe)
    batch = compiled_path(recipe).prepare(random_pairs(8, 60, 2))
    found = {}
    try:
        for name in ("avx512", "avx2", "generic"):
            if library().kernel_choose(name.encode()):
                loss, gradients = compiled_gradient(recipe, layout, matrices, batch)
                found[name] = (loss, *(values.tobytes() for _, values in gradients))
    finally:
        library().kernel_choose(status().instructions.encode())
    assert status().instructions in found
    assert len(set(found.values())) == 1, f"{list(found)} differ"


def test_an_instruction_set_that_the_processor_has_not_is_refused():
    assert not library().kernel_choose(b"sse9")
    assert library().kernel_instructions().decode() == status().instructions


def test_a_gradient_that_is_not_finite_stays_so():
    recipe = recipe_of("lstm")
    layout, matrices = start(recipe)
    matrices["query"][3] = torch.nan
    loss, _ = compiled_gradient(recipe, layout, matrices, compiled_path(recipe).prepare(random_pairs(9, 20, 2)))
    assert np.isnan(loss)
