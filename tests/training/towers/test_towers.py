import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.model.forward import encode_batch
from clicktower.training.model.parameters import Encoder, initial_parameters, layout_of, tower_of
from clicktower.training.model.recipe import Recipe, recipe, tower_name
from clicktower.training.towers.text_batch import text_batch
from clicktower.training.towers.tower import highest, word_inputs
from clicktower.training.towers.tower_settings import SIGMA_MIN, TowerSettings
from clicktower.training.trainer.click_loss import pair_batch, pair_gradient
from clicktower.training.trainer.shard_data import apart
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding
from tests.training import reference
from tests.training.finite_differences import STEP, by_autograd
from tests.training.texts import random_texts, table_of
from tests.training.towers.dense import dense

torch.set_num_threads(1)
TRIGRAMS, GAMMA = 9, 4.0
LSTMS = {
    "lstm": {},
    "lstm with forget gate": {"forget_gate": True},
    "lstm with peepholes": {"peepholes": True},
    "full lstm": {"forget_gate": True, "peepholes": True},
    "bilstm": {"tower": "bilstm"},
    "full bilstm": {"tower": "bilstm", "forget_gate": True, "peepholes": True},
}
RNNS = {"rnn": {"tower": "rnn"}, "rnn without b": {"tower": "rnn", "bias": False}}
RECURRENT = {**LSTMS, **RNNS, "gru": {"tower": "gru"}, "printed lstm": {"tower": "printed_lstm"}}
TOWERS = {
    **RECURRENT,
    "dssm": {"tower": "dssm", "hidden": 5},
    "clsm 1": {"tower": "clsm", "hidden": 5, "window": 1},
    "clsm 3": {"tower": "clsm", "hidden": 5, "window": 3},
    "clsm 5": {"tower": "clsm", "hidden": 4, "window": 5},
    "bag": {"tower": "bag"},
    "cnn 3": {"tower": "cnn", "window": 3},
    "swem aver": {"tower": "swem", "aggregate": "aver"},
    "swem max": {"tower": "swem", "aggregate": "max"},
    "swem concat": {"tower": "swem", "aggregate": "concat"},
    "self_attentive": {"tower": "self_attentive", "attention_units": 3, "hops": 2, "penalty": 2.0},
    "self_attentive averaged, full": {
        "tower": "self_attentive", "attention_units": 2, "hops": 3, "penalty": 2.0, "average_hops": True,
        "forget_gate": True, "peepholes": True,
    },
    "max_pooled, full": {"tower": "max_pooled", "forget_gate": True, "peepholes": True},
    "variational": {"tower": "variational", "latent": 2},
}  # fmt: skip
COUNTS_BACK = [*RECURRENT, "variational"]  # those with a last step to count back from
every_tower = pytest.mark.parametrize("tower", TOWERS)


def test_every_tower_of_the_package_is_among_these():
    ours = {name for name, kind in TowerSettings.all_kinds().items() if kind.code.startswith("clicktower.")}
    assert {changes.get("tower", "lstm") for changes in TOWERS.values()} == ours


def small(tower: str, **changes) -> Recipe:
    base = recipe_with(name="small", cells=3, dtype="float64", gamma=GAMMA, initial_range=0.7)
    return varied(base, **{**TOWERS[tower], **changes})


def parameters(recipe: Recipe) -> dict[str, torch.Tensor]:
    layout = layout_of(recipe, TRIGRAMS)
    return {name: initial_parameters(layout, name) for name in recipe.objective.towers}


def encode(recipe: Recipe, matrices, table, index, side: str = "query") -> np.ndarray:
    batch = text_batch([(table, np.asarray(index))])
    return encode_batch(batch, side, encoder(recipe, matrices)).numpy()


def encoder(recipe: Recipe, matrices) -> Encoder:
    return Encoder.of(layout_of(recipe, TRIGRAMS), matrices)


def by_reference(recipe: Recipe, matrix: torch.Tensor, texts) -> np.ndarray:
    kind = reference.kind_of(recipe)
    params = reference.from_matrix(matrix.numpy(), recipe.tower.cells, kind)
    return np.array([reference.embed(params, text, kind) for text in texts])


@every_tower
def test_embeddings_equal_the_printed_equations_step_by_step(tower):
    recipe = small(tower)
    matrices = parameters(recipe)
    table, texts = random_texts(np.random.default_rng(5), 40, longest=9, num_trigrams=TRIGRAMS)
    for side in ("query", "document"):
        expected = by_reference(recipe, matrices[side], texts)
        assert expected.shape == (40, recipe.tower.dimensions)
        assert_equal_but_for_rounding(encode(recipe, matrices, table, range(40), side), expected)


@every_tower
def test_texts_of_one_word_are_embedded_alone_and_among_each_other(tower):
    recipe = small(tower)
    matrices = parameters(recipe)
    words = [[1, 2], [3, 3, 3], [0]]
    expected = by_reference(recipe, matrices["query"], [[word] for word in words])
    table = table_of([[0], [1], [2]], words)
    assert_equal_but_for_rounding(encode(recipe, matrices, table, range(3)), expected)
    assert_equal_but_for_rounding(encode(recipe, matrices, table, [1]), expected[1:2])


def at_one_unit(recipe: Recipe, table: list[list[float]], parts: dict[str, list]) -> np.ndarray:
    """The embedding of the text of words [0], [1] by a tower of one unit with these parameters."""
    layout = layout_of(recipe, len(table))
    matrix = layout.join(torch.tensor(table, dtype=torch.float64), {k: torch.tensor(v) for k, v in parts.items()})
    batch = text_batch([(table_of([[0, 1]], [[0], [1]]), np.array([0]))])
    return encode_batch(batch, "query", Encoder.of(layout, {"query": matrix})).numpy()[0]


def test_forget_gate_and_peepholes_worked_by_hand():
    # Columns: output, forget, input, candidate; no recurrent weights, so y(1) plays no part in step 2.
    # Step 1, trigram 0: y_g = tanh(1) = 0.761594, i = sigmoid(0) = 0.5, c = 0.380797
    # Step 2, trigram 1: y_g = tanh(-1) = -0.761594
    #   i = sigmoid(1 - 2 x 0.380797) = sigmoid(0.238406) = 0.559321   (peephole -2 on the old c)
    #   f = sigmoid(-1 + 3 x 0.380797) = sigmoid(0.142391) = 0.535538  (peephole 3 on the old c)
    #   c = 0.535538 x 0.380797 - 0.559321 x 0.761594 = 0.203931 - 0.425976 = -0.222044
    #   o = sigmoid(0.5 + 4 x -0.222044) = sigmoid(-0.388177) = 0.404157  (peephole 4 on the new c)
    #   y = 0.404157 x tanh(-0.222044) = 0.404157 x -0.218466 = -0.088295
    table = [[0.0, 0.0, 0.0, 1.0], [0.5, -1.0, 1.0, -1.0]]
    parts = {"W_rec": [[0.0] * 4], "b": [0.0] * 4, "W_peep": [[4.0], [3.0], [-2.0]]}
    found = at_one_unit(small("full lstm", cells=1), table, {k: np.array(v) for k, v in parts.items()})
    assert found == pytest.approx([-0.088295], abs=2e-6)


def test_the_peepholes_of_eq_2_as_printed_look_at_every_cell_and_with_a_diagonal_are_those_of_the_lstm():
    printed, usual = small("printed lstm"), small("full lstm")
    table, _ = random_texts(np.random.default_rng(5), 20, longest=9, num_trigrams=TRIGRAMS)
    table_RG, parts = layout_of(printed, TRIGRAMS).split(parameters(printed)["query"])
    whole_ddd = parts["W_peep"].unflatten(1, (3, 3))  # from cell, gate, to cell
    seen = torch.zeros_like(whole_ddd)
    for gate in range(3):
        seen[:, gate] = torch.diag(torch.diag(whole_ddd[:, gate]))
    diagonals = {**parts, "W_peep": torch.diagonal(whole_ddd, dim1=0, dim2=2)}
    matrix = layout_of(usual, TRIGRAMS).join(table_RG, diagonals)
    expected = encode(usual, {"query": matrix}, table, range(20))
    of_diagonals = layout_of(printed, TRIGRAMS).join(table_RG, {**parts, "W_peep": seen.flatten(1)})
    assert_equal_but_for_rounding(encode(printed, {"query": of_diagonals}, table, range(20)), expected)
    off_diagonal = encode(printed, parameters(printed), table, range(20)) - expected
    assert np.abs(off_diagonal).max() > 0.01, "the cells beside it are looked at too"


def test_windows_beyond_the_ends_of_a_text_worked_by_hand():
    # One hidden unit, three columns: the word left of the middle, the middle, the word right of it; b = -0.25.
    # Word 0 has (5, 0.5, 7), word 1 has (0.125, -1, 9). At word 0 nothing is to the left, so 0.5 + 9 - 0.25 = 9.25; at
    # word 1 nothing is to the right, 5 - 1 - 0.25 = 3.75. tanh(9.25) = 1 - 2e-8, and y = tanh(0.5 x 1 + 0.1).
    table = [[5.0, 0.5, 7.0], [0.125, -1.0, 9.0]]
    parts = {"b": [-0.25], "W_s": [[0.5]], "b_s": [0.1]}
    one = small("clsm 3", cells=1)
    found = at_one_unit(varied(one, hidden=1), table, {k: np.array(v) for k, v in parts.items()})
    assert found == pytest.approx([math.tanh(0.6)], rel=1e-7)


def test_the_attention_of_a_text_adds_up_to_one_over_its_own_words_alone():
    recipe = small("self_attentive", hops=3)
    tower_, layout = tower_of(recipe), layout_of(recipe, TRIGRAMS)
    table, texts = random_texts(np.random.default_rng(5), 20, longest=9, num_trigrams=TRIGRAMS)
    batch = text_batch([(table, np.arange(20))])
    matrix = parameters(recipe)["query"]
    table_RG, parts = layout.split(matrix[layout.touched(batch.rows)])
    state_PD = tower_.every_state(word_inputs(table_RG, batch), parts, batch)
    weights = [weight_Tr for weight_nTr, _ in tower_.attention(state_PD, parts, batch) for weight_Tr in weight_nTr]
    params = reference.from_matrix(matrix.numpy(), recipe.tower.cells, reference.kind_of(recipe))
    for text, weight_Tr in zip(batch.order.tolist(), weights, strict=True):
        found = weight_Tr.numpy().T
        np.testing.assert_allclose(found, reference.attention(params, texts[text])[0], rtol=1e-12)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    assert batch.step_offsets[-1] == sum(map(len, texts)), "every packed row is a word of some text"


def test_hops_that_do_not_tell_words_apart_worked_by_hand():
    # W_s2 = 0: every score is 0, so both hops weight the n words of a text alike, by 1/n, and every entry of A A' is
    # n (1/n)² = 1/n. Two words: ||A A' - I||² = 4 x (1/2)² = 1. One word: (1 - 1)² + 1² + 1² + (1 - 1)² = 2.
    # Both rows of M are the mean of the states.
    recipe = small("self_attentive")
    tower_, layout = tower_of(recipe), layout_of(recipe, TRIGRAMS)
    matrix = parameters(recipe)["query"]
    params = reference.from_matrix(matrix.numpy(), recipe.tower.cells, reference.kind_of(recipe))
    batch = text_batch([(table_of([[0, 1], [0]], [[0], [1]]), np.array([0, 1]))])
    table_RG, parts = layout.split(matrix[layout.touched(batch.rows)])
    parts["W_s2"].zero_()
    vectors_Nd, own = tower_.forward(word_inputs(table_RG, batch), parts, batch)
    assert own.item() == pytest.approx(recipe.tower.penalty * (1 + 2), rel=1e-12)
    mean = reference.attention(params, [[0], [1]])[1].mean(axis=0)
    assert_equal_but_for_rounding(vectors_Nd[0], np.concatenate([mean, mean]))


def test_one_hop_is_the_vector_form_and_averaging_it_changes_nothing():
    table, texts = random_texts(np.random.default_rng(7), 10, longest=6, num_trigrams=TRIGRAMS)
    one = small("self_attentive", hops=1)
    matrices = parameters(one)
    vectors = encode(one, matrices, table, range(10))
    params = reference.from_matrix(matrices["query"].numpy(), one.tower.cells, reference.kind_of(one))
    for vector, text in zip(vectors, texts, strict=True):
        (weights,), states = reference.attention(params, text)
        assert_equal_but_for_rounding(vector, weights @ states)
    np.testing.assert_array_equal(encode(varied(one, average_hops=True), matrices, table, range(10)), vectors)


def test_of_words_that_share_a_maximum_the_earliest_one_of_each_text_has_it():
    # Texts end together: the longer is [3, 5, 5], the shorter [2, 2] in the first unit, all equal in the second.
    # Rows: step 0 has the longer text alone, steps 1 and 2 the longer, then the shorter.
    batch = text_batch([(table_of([[0, 0], [0, 0, 0]], [[0]]), np.array([0, 1]))])
    value_PH = torch.tensor([[3.0, 7.0], [5.0, 7.0], [2.0, 7.0], [5.0, 7.0], [2.0, 7.0]])
    counts = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    assert highest(value_PH, batch).tolist() == [[5.0, 7.0], [2.0, 7.0]]
    _, found = by_autograd(lambda values: highest(values, batch) * counts, value_PH)
    assert found.tolist() == [[0.0, 20.0], [10.0, 0.0], [30.0, 40.0], [0.0, 0.0], [0.0, 0.0]]


def test_the_distribution_of_a_text_worked_by_hand():
    # One cell a direction, two words of one trigram; no recurrent weights, every gate's argument 0 but the candidate's:
    # i = o = 0.5, y_g = tanh(1) = 0.761594, c = 0.5 x 0.761594 x 2 = 0.761594 after two words, from either side
    #   s = o tanh(c) = 0.5 x tanh(0.761594) = 0.5 x 0.642015 = 0.321007, twice
    # mu = 3 x 0.321007 - 1 x 0.321007 + 0.5 = 1.142015
    # sigma = log(1 + exp(2 x 0.321007 + 0 x 0.321007 - 1)) + 0.001 = log(1 + exp(-0.357985)) + 0.001
    #       = log(1.699084) + 0.001 = 0.530089 + 0.001 = 0.531089
    table = [[0.0, 0.0, 1.0, 0.0, 0.0, 1.0]] * 2
    parts = {"W_rec": [[0.0] * 6], "b": [0.0] * 6, "W_mu": [[3.0], [-1.0]], "b_mu": [0.5], "W_sigma": [[2.0], [0.0]],
             "b_sigma": [-1.0]}  # fmt: skip
    one = small("variational", cells=1, latent=1)
    found = at_one_unit(one, table, {k: np.array(v) for k, v in parts.items()})
    assert found == pytest.approx([1.142015, 0.531089], abs=2e-6)


def test_the_distance_of_two_embeddings_is_the_wasserstein_distance_of_their_distributions():
    recipe = small("variational", latent=4)
    table, _ = random_texts(np.random.default_rng(9), 2, longest=6, num_trigrams=TRIGRAMS)
    (mean_1, deviation_1), (mean_2, deviation_2) = encode(recipe, parameters(recipe), table, [0, 1]).reshape(2, 2, 4)

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return vectors @ np.diag(np.sqrt(values)) @ vectors.T

    # Of any two normal distributions (Dowson and Landau, 1982): |m1 - m2|² + tr(C1 + C2 - 2 (C2^½ C1 C2^½)^½).
    first, second = np.diag(deviation_1**2), np.diag(deviation_2**2)
    half = root(second)
    squared = np.sum((mean_1 - mean_2) ** 2) + np.trace(first + second - 2 * root(half @ first @ half))
    vectors = np.stack([np.concatenate([mean_1, deviation_1]), np.concatenate([mean_2, deviation_2])])
    assert np.linalg.norm(vectors[0] - vectors[1]) == pytest.approx(math.sqrt(squared), rel=1e-12)


def test_a_deviation_that_underflows_is_the_smallest_one_and_has_no_gradient():
    recipe = small("variational", dtype="float32")
    tower_, layout = tower_of(recipe), layout_of(recipe, TRIGRAMS)
    batch = text_batch([(table_of([[0], [1]], [[0], [1]]), np.array([0, 1]))])
    table_RG, parts = layout.split(parameters(recipe)["query"][layout.touched(batch.rows)])
    parts["b_sigma"][:] = torch.tensor([-1e4, 200.0])
    parts = {name: part.detach().requires_grad_() for name, part in parts.items()}
    vectors_Nd, _ = tower_.forward(word_inputs(table_RG, batch), parts, batch)
    assert vectors_Nd[:, 2].tolist() == [np.float32(SIGMA_MIN)] * 2
    assert torch.isfinite(vectors_Nd).all()
    assert (vectors_Nd[:, 3] > 190).all()
    (by_bias,) = torch.autograd.grad(vectors_Nd.sum(), [parts["b_sigma"]])
    assert by_bias.tolist() == [0.0, 2.0]


@every_tower
def test_batch_mates_and_their_order_never_change_an_embedding(tower):
    recipe = small(tower, dtype="float32")
    matrices = parameters(recipe)
    rng = np.random.default_rng(6)
    table, _ = random_texts(rng, 30, longest=9, num_trigrams=TRIGRAMS)
    alone = np.concatenate([encode(recipe, matrices, table, [i]) for i in range(30)])
    for _ in range(5):
        index = rng.permutation(30)[: rng.integers(2, 31)]
        assert_equal_but_for_rounding(encode(recipe, matrices, table, index), alone[index])


word = st.lists(st.integers(0, TRIGRAMS - 1), min_size=1, max_size=4)
some_texts = st.lists(st.lists(word, min_size=1, max_size=7), min_size=1, max_size=6)


@pytest.mark.slow
@every_tower
@settings(max_examples=25, deadline=None)
@given(texts=some_texts, data=st.data())
def test_longer_texts_beside_it_and_their_order_never_change_an_embedding(tower, texts, data):
    recipe = small(tower)
    matrices = parameters(recipe)
    index = data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=8))
    flat = [word for text in texts for word in text]
    ends = np.cumsum([len(text) for text in texts]).tolist()
    table = table_of([list(range(end - len(text), end)) for text, end in zip(texts, ends, strict=True)], flat)
    expected = by_reference(recipe, matrices["query"], [texts[i] for i in index])
    assert_equal_but_for_rounding(encode(recipe, matrices, table, index), expected)


def test_a_text_without_words_is_refused():
    table = table_of([[0], []], [[1]])
    with pytest.raises(ValueError, match="at least one word"):
        text_batch([(table, np.array([0, 1]))])


@pytest.mark.slow
@every_tower
def test_gradient_of_every_parameter_equals_finite_differences(tower):
    check_gradient(small(tower, cells=2))


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("tower", COUNTS_BACK)
def test_gradient_stops_t_steps_before_the_end_that_each_direction_reads_last(tower, steps):
    check_gradient(small(tower, cells=2, truncate_steps=steps))


@pytest.mark.parametrize("tower", ["lstm", "full bilstm", "dssm", "clsm 3"])
def test_gradient_of_a_shared_tower_is_the_sum_of_both_sides(tower):
    check_gradient(small(tower, cells=2, tie_towers=True))


def check_gradient(recipe: Recipe) -> None:
    """All entries of all parameters, touched or not, against central differences of the reference's loss.

    With truncation the steps further back than T hold still while a parameter is moved, which is what is meant.
    """
    n, num_pairs, kind, steps = 1, 2, reference.kind_of(recipe), getattr(recipe.tower, "truncate_steps", 0)
    table, texts = random_texts(np.random.default_rng(8), num_pairs * (n + 2), longest=5, num_trigrams=TRIGRAMS)
    lengths = sorted(len(text) for text in texts)
    assert lengths[0] == 1 < lengths[-1] > steps + 1
    queries = np.arange(num_pairs)
    titles = np.arange(num_pairs, len(texts)).reshape(num_pairs, n + 1)
    matrices = parameters(recipe)
    batch = pair_batch(apart((table, queries), (table, titles[:, 0]), (table, titles[:, 1:])))
    gradients, summed = pair_gradient(batch, encoder(recipe, matrices))

    layout = layout_of(recipe, TRIGRAMS)
    found = {name: np.zeros(matrix.shape) for name, matrix in matrices.items()}
    for name, gradient in gradients:
        found[name] += dense(gradient, layout).numpy()

    base = {name: matrix.numpy().copy() for name, matrix in matrices.items()}
    early = {name: reference.from_matrix(matrix, recipe.tower.cells, kind) for name, matrix in base.items()}
    sides = {"query": queries.tolist(), "document": titles.ravel().tolist()}

    def embed(side: str, matrix: np.ndarray) -> dict[int, tuple[np.ndarray, float]]:
        held = {"early": early[tower_name(recipe, side)], "last_steps": steps} if steps else {}
        params = reference.from_matrix(matrix, recipe.tower.cells, kind)
        return {
            text: (
                reference.embed(params, texts[text], kind, **held),
                reference.own_loss(params, texts[text], kind, getattr(recipe.tower, "penalty", 0.0)),
            )
            for text in sides[side]
        }

    def loss_of(read: dict[int, tuple[np.ndarray, float]]) -> float:
        own = sum(own for _, own in read.values())
        return own + sum(
            reference.loss(read[q][0], [read[d][0] for d in titles[p]], recipe.clicks.gamma)
            for p, q in enumerate(queries.tolist())
        )

    unmoved = {}
    for side in sides:
        unmoved |= embed(side, base[tower_name(recipe, side)])
    assert summed.item() == pytest.approx(loss_of(unmoved), rel=1e-12)
    for name, matrix in base.items():
        expected = np.zeros(matrix.shape)
        for at in np.ndindex(matrix.shape):
            for sign in (1, -1):
                moved, read = matrix.copy(), dict(unmoved)
                moved[at] += sign * STEP
                for side in sides:
                    read |= embed(side, moved) if tower_name(recipe, side) == name else {}
                expected[at] += sign * loss_of(read) / (2 * STEP)
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=2e-8)


@pytest.mark.slow
@every_tower
def test_gradient_of_every_words_input_equals_finite_differences(tower):
    recipe = small(tower)
    layout, tower_ = layout_of(recipe, TRIGRAMS), tower_of(recipe)
    table, _ = random_texts(np.random.default_rng(4), 7, longest=6, num_trigrams=TRIGRAMS)
    batch = text_batch([(table, np.arange(7))])
    table_RG, parts = layout.split(parameters(recipe)["query"][layout.touched(batch.rows)])
    word_UG = word_inputs(table_RG, batch)
    by_vectors_Nd = torch.from_numpy(np.random.default_rng(5).normal(size=(7, recipe.tower.dimensions)))

    def loss(at_UG: torch.Tensor) -> torch.Tensor:
        vectors_Nd, own = tower_.forward(at_UG, parts, batch)
        return (vectors_Nd * by_vectors_Nd).sum() + own

    _, found = by_autograd(loss, word_UG)

    expected = torch.zeros_like(word_UG)
    for at in np.ndindex(tuple(word_UG.shape)):
        for sign in (1, -1):
            moved = word_UG.clone()
            moved[at] += sign * STEP
            expected[at] += sign * loss(moved) / (2 * STEP)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("overflow", "expected"), [("truncate", [[1, 2], [3]]), ("merge", [[1, 2], [3, 4, 5, 6]])])
def test_words_beyond_the_limit_are_dropped_or_become_one_bag_of_trigrams(overflow, expected):
    table = table_of([[0, 1, 2, 3], [1, 0]], [[1, 2], [3], [4, 5], [6]]).limited(2, overflow)
    long = [table.trigrams.take(table.words.take(np.array([0])).values[w : w + 1]).values.tolist() for w in range(2)]
    assert long == expected
    assert table.words.take(np.array([1])).values.tolist() == [1, 0]


@every_tower
@pytest.mark.parametrize("overflow", ["merge", "truncate"])
def test_the_limit_changes_only_longer_texts(tower, overflow):
    recipe = small(tower)
    table, texts = random_texts(np.random.default_rng(3), 20, longest=8, num_trigrams=TRIGRAMS)
    matrices = parameters(recipe)
    fifth = {"merge": lambda rest: [i for word in rest for i in word], "truncate": lambda rest: rest[0]}[overflow]
    limited = [[*text[:4], fifth(text[4:])] if len(text) > 5 else text for text in texts]
    assert limited != texts
    expected = by_reference(recipe, matrices["query"], limited)
    assert_equal_but_for_rounding(encode(recipe, matrices, table.limited(5, overflow), range(20)), expected)


# gates x cells x 50,000 trigrams: 3 x 96 x 50,000 = 14,400,000; windows of three words: 3 x 288 x 50,000; and so on.
TABLE_IV = {
    "lstm-96": 14.4, "lstm-64": 9.6, "lstm-32": 4.8, "rnn-288": 14.4,
    "dssm": 14.4, "clsm-1": 14.4, "clsm-3": 43.2, "clsm-5": 72.0,
}  # fmt: skip
# Two directions of 48 cells each, of four gates and of three: 2 x 4 x 48 x 50,000 and 2 x 3 x 48 x 50,000.
BOTH_WAYS = {"self-attentive": 19.2, "max-pooled": 14.4, "variational": 19.2}
# Two directions of three gates, and four gates: 2 x 3 x 96 x 50,000 and 4 x 96 x 50,000. Table IV does not have these.
OURS = {"bilstm-96": 28.8, "lstm-full-96": 19.2, "lstm-long-96": 19.2, "lstm-pool-96": 14.4, "lstm-pool-192": 28.8}


@pytest.mark.parametrize(("name", "millions"), (TABLE_IV | OURS | BOTH_WAYS).items())
def test_parameters_of_w_are_as_many_as_table_iv_says(name, millions):
    layout = layout_of(recipe(name), 50_000)
    assert layout.table_rows * layout.columns == round(millions * 1e6)


@pytest.mark.parametrize(
    ("sizes", "first", "second", "dimensions"),
    [
        # W_s1: 2 x 48 states by 32 units; W_s2: 32 by 4 hops; M: 4 x 96.
        ({}, 3_072, 128, 384),
        # The paper's sizes: W_s1 600 x 350, W_s2 350 x 30, M 30 x 600; averaged, one row of M.
        ({"cells": 300, "attention_units": 350, "hops": 30, "penalty": 1.0}, 210_000, 10_500, 18_000),
        ({"cells": 300, "attention_units": 350, "hops": 30, "average_hops": True}, 210_000, 10_500, 600),
    ],
)
def test_parameters_of_attention_are_as_many_as_a_hand_count(sizes, first, second, dimensions):
    made = varied(recipe("self-attentive"), **sizes)
    shapes = layout_of(made, 50_000).shapes
    assert (math.prod(shapes["W_s1"]), math.prod(shapes["W_s2"])) == (first, second)
    assert math.prod(shapes["W_rec"]) == made.tower.cells * 8 * made.tower.cells  # two directions of four gates
    assert made.tower.dimensions == dimensions


def test_parameters_of_a_distribution_are_as_many_as_a_hand_count():
    # W_mu and W_sigma: 2 x 48 states by 96; the embedding has both, 192. Max-pooled: 2 x 48.
    made = recipe("variational")
    shapes = layout_of(made, 50_000).shapes
    assert [shapes[name] for name in ("W_mu", "b_mu", "W_sigma", "b_sigma")] == [(96, 96), (96,)] * 2
    assert (made.tower.dimensions, recipe("max-pooled").tower.dimensions) == (192, 96)
