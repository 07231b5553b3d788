import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flows.cli import run
from schemas.errors import StageError, UsageError
from schemas.manifest import Outcome, Request
from schemas.stage import open_result, run_stage
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding, rounded
from tests.trained_model import trained_stage, untrained
from training.model.model import Ensemble, combine, load_encoder, load_model, write_model
from training.model.named_recipes import LSTM_96
from training.model.parameters import initial_parameters, layout_of

TEXTS = ["angle bracket", "2 in. x 4 ft. plank", "東京の金槌", "a"]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def other_tower(store: str, *, rows: int = 51_000) -> str:
    """A small bag of another size, as `train` would leave it."""
    recipe = recipe_with(name="small bag", tower="bag", cells=6, initial_range=5.0)

    def produce(folder: str) -> Outcome:
        layout = layout_of(recipe, rows)
        write_model(folder, recipe, layout, {n: initial_parameters(recipe, layout, n) for n in recipe.objective.towers})
        return Outcome(labels={"simulated": True})

    return run_stage(store, Request(stage="train", stage_version=1, config={"bag": rows}, inputs={}), produce).folder


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def members(store) -> list[str]:
    return [trained_stage(store), trained_stage(store, seed=2), other_tower(store)]


@pytest.fixture(scope="module")
def combined(members, store):
    return combine(members, store=store)


def test_its_words_have_the_mean_of_its_members_shares():
    members = [untrained(varied(LSTM_96, cells=8, word_share=share)) for share in (0.0, 0.5, 0.4)]
    assert Ensemble(members=tuple(members)).word_share == rounded(0.3)


def test_its_cosine_is_the_mean_of_its_members_cosines(members, combined):
    together = load_encoder(combined.data)
    alone = [load_model(open_result(member).data) for member in members]
    expected = np.mean([unit(m.encode(TEXTS, "query")) @ unit(m.encode(TEXTS, "document")).T for m in alone], axis=0)
    query, document = together.encode(TEXTS, "query"), together.encode(TEXTS, "document")
    assert query.dtype == np.float32
    assert query.shape == (len(TEXTS), 8 + 8 + 6)
    assert np.linalg.norm(query, axis=1) == rounded(np.ones(len(TEXTS)))
    assert query @ document.T == rounded(expected)


def test_long_vectors_of_one_member_do_not_drown_the_others(members, combined):
    # The bag's vectors are several times as long as the LSTM's, whose entries are below 1.
    lengths = [np.linalg.norm(load_model(open_result(m).data).encode(TEXTS, "query"), axis=1).mean() for m in members]
    assert max(lengths) > 5 * min(lengths)
    vectors = load_encoder(combined.data).encode(TEXTS, "query")
    sizes = [member.dimensions for member in load_encoder(combined.data).members]
    for part in np.split(vectors, np.cumsum(sizes)[:-1], axis=1):
        assert np.linalg.norm(part, axis=1) == rounded(np.full(len(TEXTS), 3**-0.5))


def test_one_text_and_many_have_the_same_vectors(combined):
    model = load_encoder(combined.data)
    assert_equal_but_for_rounding(model.encode(TEXTS, "query")[1], model.encode(TEXTS[1:2], "query")[0])


def test_a_text_without_a_word_is_an_error_unless_zero_is_asked_for(combined):
    model = load_encoder(combined.data)
    with pytest.raises(UsageError, match="have no word"):
        model.encode(["", "a"], "query")
    assert not model.encode(["", "a"], "query", empty="zero")[0].any()


def test_the_order_of_the_members_does_not_matter_and_the_result_is_reused(members, store, combined):
    again = combine(members[::-1], store=store)
    assert again.reused
    assert again.folder == combined.folder


def test_it_says_what_it_is_of(combined):
    assert combined.manifest.outcome.counts["models"] == 3
    metrics = combined.manifest.outcome.metrics
    assert sorted(metrics["members"]) == ["lstm-96", "lstm-96", "small bag"]
    assert metrics["dimensions"] == 22
    assert combined.manifest.outcome.labels == {"simulated": True}, "one member's data is simulated"
    description = json.loads(Path(combined.data, "model.json").read_text())
    assert description["parameters"] == load_encoder(combined.data).num_parameters
    assert description["dimensions"] == load_encoder(combined.data).dimensions


def test_a_single_model_is_read_as_itself(members):
    assert not isinstance(load_encoder(open_result(members[0]).data), Ensemble)


def test_what_needs_one_model_says_that_there_are_several(combined):
    with pytest.raises(StageError, match="an ensemble of 3 models"):
        load_model(combined.data)


def test_too_few_or_the_same_twice_is_refused(members, store):
    with pytest.raises(UsageError, match="at least two"):
        combine(members[:1], store=store)
    with pytest.raises(UsageError, match=r"One of the models is given twice."):
        combine([members[0], members[1], members[0]], store=store)


def test_models_of_other_table_sizes_are_refused(members, store, tmp_path):
    with pytest.raises(UsageError, match="table sizes"):
        combine([members[0], other_tower(str(tmp_path), rows=52_000)], store=str(tmp_path))


def test_a_member_that_is_itself_combined_is_refused(members, combined, store):
    with pytest.raises(StageError, match="ensemble"):
        combine([combined.folder, members[0]], store=store)


@pytest.mark.parametrize(
    ("damage", "message"), [("member missing", "shapes"), ("no members", "shapes"), ("other members", "damaged")]
)
def test_a_damaged_one_is_refused(combined, tmp_path, damage, message):
    description = json.loads(Path(combined.data, "model.json").read_text())
    members = {"member missing": description["members"][:2], "no members": [], "other members": [1, 2, 3]}
    description["members"] = members[damage]
    (tmp_path / "model.json").write_text(json.dumps(description))
    (tmp_path / "model.safetensors").write_bytes(Path(combined.data, "model.safetensors").read_bytes())
    with pytest.raises(StageError, match=message):
        load_encoder(str(tmp_path))


def test_by_the_command(members, tmp_path, capsys):
    assert run(["combine", "--models", *members[:2], "--into", str(tmp_path), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["counts"]["models"] == 2
    assert load_encoder(value["data"]).dimensions == 16


def test_members_keep_their_own_text_limits(store, tmp_path):
    recipe = replace(load_model(open_result(trained_stage(store)).data).recipe, max_words=1, overflow="truncate")
    layout = layout_of(recipe, 51_000)
    towers = {name: initial_parameters(recipe, layout, name) for name in recipe.objective.towers}

    def produce(folder: str) -> Outcome:
        write_model(folder, recipe, layout, towers)
        return Outcome()

    short = run_stage(store, Request(stage="train", stage_version=1, config={"short": 1}, inputs={}), produce)
    model = load_encoder(combine([short.folder, trained_stage(store, seed=2)], store=store).data)
    first, other = model.encode(["angle bracket", "angle iron"], "query")
    equal = [np.allclose(a, b) for a, b in zip(np.split(first, 2), np.split(other, 2), strict=True)]
    assert sorted(equal) == [False, True], "only the member that reads one word takes them for the same"
