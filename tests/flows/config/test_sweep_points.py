"""sweep.toml -> points: what is tried, what is refused and how that is told."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.flows.config.sweep_config import SampleSection, SweepConfig, expand_points, measure_of, read_sweep
from clicktower.schemas.errors import UsageError
from clicktower.training.model.recipe import DEFAULT, names, recipe

ROOT = Path(__file__).parents[3]


def config(**changes) -> SweepConfig:
    return SweepConfig(**{"shards": "shards", "into": "store", **changes})


def told(**changes) -> list[dict]:
    return [dict(point.fields) for point in expand_points(config(**changes))]


def written(tmp_path: Path, text: str) -> SweepConfig:
    path = tmp_path / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return read_sweep(str(path))


def test_the_grid_is_every_combination():
    points = expand_points(config(fields={"optimiser.step": [0.001, 0.002], "objective.gamma": [5, 10, 20]}))
    assert [(p.recipes[0].optimiser.step, p.recipes[0].clicks.gamma) for p in points] == [
        (0.001, 5.0), (0.001, 10.0), (0.001, 20.0), (0.002, 5.0), (0.002, 10.0), (0.002, 20.0),
    ]  # fmt: skip
    assert points[4].fields == {"optimiser.step": 0.002, "objective.gamma": 10}
    assert points[4].options == ("--recipe", DEFAULT, "--set", "optimiser.step=0.002", "--set", "objective.gamma=10")


def test_a_point_is_the_recipe_that_train_makes_of_the_same_fields():
    """So that a trial trained by hand has the digest of the sweep's."""
    from clicktower.flows.config.toml_file import with_fields

    [point] = expand_points(
        config(epochs=3, recipe="lstm-96", set={"tower.cells": 64}, trial=({"optimiser.step": 0.001},))
    )
    assert point.recipes == (with_fields(recipe("lstm-96"), ["epochs=3", "tower.cells=64", "optimiser.step=0.001"]),)


def test_recipes_can_be_varied_and_trials_told_one_by_one():
    points = expand_points(
        config(fields={"recipe": ["lstm-96", "rnn-288"]}, trial=({"recipe": "rnn-288", "tower.cells": 96},))
    )
    assert [p.recipes[0].tower.kind for p in points] == ["lstm", "rnn", "rnn"]
    assert points[1].recipes == (recipe("rnn-288"),)
    assert points[2].recipes[0].tower.cells == 96


def test_each_point_gets_every_seed():
    points = expand_points(config(seeds=(3, 1), fields={"optimiser.step": [0.001, 0.002]}))
    assert [[r.seed for r in p.recipes] for p in points] == [[3, 1], [3, 1]]
    assert [dict(p.fields) for p in points] == [{"optimiser.step": 0.001}, {"optimiser.step": 0.002}]


def test_seeds_alone_are_a_sweep_of_one_point():
    [point] = expand_points(config(seeds=(1, 2, 3)))
    assert point.fields == {}
    assert len(point.recipes) == 3


def test_the_same_point_told_twice_is_one():
    assert told(
        fields={"optimiser.step": [0.001, 1e-3]}, trial=({"optimiser.step": 0.001}, {"optimiser.step": 0.5})
    ) == [{"optimiser.step": 0.001}, {"optimiser.step": 0.5}]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30), st.integers(0, 2**31), st.integers(0, 8))
def test_a_sample_is_of_the_grid_without_repeats_and_a_larger_one_holds_it(size, seed, more):
    fields = {"tower.cells": list(range(1, 7)), "epochs": list(range(1, 8))}
    chosen = told(fields=fields, sample=SampleSection(points=size, seed=seed))
    larger = told(fields=fields, sample=SampleSection(points=size + more, seed=seed))
    assert len({(p["tower.cells"], p["epochs"]) for p in chosen}) == len(chosen) == min(size, 42)
    assert all(p["tower.cells"] in fields["tower.cells"] and p["epochs"] in fields["epochs"] for p in chosen)
    assert all(point in larger for point in chosen)


def test_a_sample_of_a_huge_grid_is_drawn_without_making_the_grid():
    values = [step / 1e6 for step in range(1, 3001)]
    grid = dict.fromkeys(
        ("optimiser.step", "objective.gamma", "initial_range", "optimiser.clip_norm"), values
    )  # 8.1e13 points
    assert len(told(fields=grid, sample=SampleSection(points=5))) == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "Nothing is varied"),
        ({"seeds": (1,)}, "Nothing is varied"),
        ({"fields": {"optimiser.step": ["fast"]}}, "optimiser.step is fast: it must be a valid number"),
        ({"fields": {"optimiser.step": 0.001}}, "write a list, optimiser.step = [0.001, ...]"),
        ({"fields": {"optimiser.step": []}}, "The sweep's list of values for optimiser.step is empty,"),
        ({"fields": {"minibatch": [256, 100]}}, "The sweep cannot try minibatch=100:"),
        ({"fields": {"optimiser.step": [-1]}}, "optimiser.step is -1: it must be greater than 0"),
        ({"fields": {"recipe": ["lstm-7"]}}, "There is no recipe"),
        ({"fields": {"seed": [1, 2]}, "seeds": (1, 2)}, "sets seeds, and seed as a field too."),
        ({"set": {"seed": 3}, "seeds": (1, 2)}, "sets seeds, and seed as a field too."),
    ],
)
def test_what_cannot_be_tried_is_told_before_anything_is_trained(changes, words):
    with pytest.raises(UsageError, match=f"(?i){re.escape(words)}"):
        expand_points(config(**changes))


def test_too_many_trials_are_refused_with_the_way_to_have_them():
    fields = {"optimiser.step": [0.001 * n for n in range(1, 21)], "tower.cells": list(range(8, 18))}
    with pytest.raises(UsageError, match=r"600 trials .*200 points, 3 seeds.*points = 33 .*max_trials = 600"):
        expand_points(config(fields=fields, seeds=(1, 2, 3)))
    assert len(expand_points(config(fields=fields, seeds=(1, 2, 3), max_trials=600))) == 200


@pytest.mark.parametrize(
    ("changes", "measure"),
    [
        ({"fields": {"optimiser.step": [0.1, 0.2]}}, "dev_loss"),
        ({"fields": {"objective.gamma": [5, 10]}}, "dev_ndcg@10"),  # a loss under another γ is another quantity
        ({"fields": {"recipe": ["lstm-96", "rnn-288"]}}, "dev_loss"),  # they have one γ and n
        ({"fields": {"optimiser.step": [0.1, 0.2]}, "measure": "dev_ndcg@1"}, "dev_ndcg@1"),
    ],
)
def test_what_chooses_is_what_can_compare_the_points(changes, measure):
    asked = config(**changes)
    assert measure_of(asked, expand_points(asked)) == measure


def test_losses_of_different_gamma_are_not_compared():
    asked = config(measure="dev_loss", trial=({"objective.gamma": 5}, {"objective.num_negatives": 2}))
    with pytest.raises(UsageError, match=r"(?i)set measure"):
        measure_of(asked, expand_points(asked))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("into = 's'", "the field shards is missing"),
        ("shards = 'a'\ninto = 's'\nfieldz = {}", "the field fieldz is unknown"),
        ("shards = 'a'\ninto = 's'\nworkers = 'two'", "the field workers is wrong"),
        ("shards = 'a'\ninto = 's'\nworkers = 2\nmin_workers = 3", "sweep.toml: At least 3 workers are to continue"),
        ("shards = 'a'\ninto = 's'\n[set]\nrecipe = 'dssm'", "the field set is wrong .there is no field recipe"),
        ("shards = 'a'\ninto = 's'\n[fields]\nstepp = [1]", "there is no field stepp .did you mean optimiser.step"),
        ("shards = 'a'\ninto = 's'\n[[trial]]\ncels = 3", "there is no field cels .did you mean tower.cells"),
        ("shards = 'a'\ninto = 's'\n[judged]\nqueries = 'q'", "the field judged.documents is missing"),
        ("shards = 'a'\ninto = 's'\nmeasure = 'accuracy'", "use one of dev_loss"),
        ("shards = ", "not TOML"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path, text, words):
    with pytest.raises(UsageError, match=f"(?i){words}"):
        written(tmp_path, text)
    with pytest.raises(UsageError, match="There is no sweep file"):
        read_sweep(str(tmp_path / "nowhere.toml"))


def test_relative_paths_are_relative_to_the_file(tmp_path):
    judged = "[judged]\ndocuments = 'd.tsv'\nqueries = '/q.tsv'\nqrels = 's3://b/r.txt'"
    made = written(tmp_path, f"shards = 'store/build/x'\ninto = 's3://bucket/store'\n{judged}")
    assert (made.shards, made.into) == (f"{tmp_path}/store/build/x", "s3://bucket/store")
    assert made.judged is not None
    assert (made.judged.documents, made.judged.queries, made.judged.qrels) == (
        f"{tmp_path}/d.tsv",
        "/q.tsv",
        "s3://b/r.txt",
    )
    assert measure_of(made, expand_points(config(seeds=(1, 2)))) == "dev_ndcg@10"


@pytest.mark.parametrize(
    ("name", "measure"), [("sweep-attention.toml", "dev_loss"), ("sweep-labelled.toml", "dev_accuracy")]
)
def test_the_sweeps_of_attention_are_grids_of_hops_and_penalties(name, measure):
    config = read_sweep(str(ROOT / "benchmarks" / name))
    points = expand_points(config)
    assert measure_of(config, points) == measure
    assert {(p.recipes[0].tower.hops, p.recipes[0].tower.penalty) for p in points} == {
        (hops, penalty) for hops in (1, 2, 3, 5, 8, 10, 15, 20, 25, 30) for penalty in (0.0, 0.3, 1.0)
    }


@pytest.mark.parametrize("name", ["lin-age", "lin-snli"])
def test_the_sweep_of_hops_varies_them_alone_at_the_printed_sizes(name, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    columns = recipe(name).word_vectors.columns
    (tmp_path / "vectors.txt").write_text(f"word{' 0.5' * columns}\n", encoding="utf-8")
    text = (ROOT / "benchmarks" / "sweep-hops.toml").read_text(encoding="utf-8")
    (tmp_path / "benchmarks" / "sweep.toml").write_text(text.replace('"lin-age"', f'"{name}"'), encoding="utf-8")
    config = read_sweep(str(tmp_path / "benchmarks" / "sweep.toml"))
    points = expand_points(config)
    assert measure_of(config, points) == "dev_accuracy"
    assert len(points) == 10
    for point in points:
        [made] = point.recipes
        hops = made.tower.hops
        assert 1 <= hops <= 30
        assert made == replace(recipe(name), tower=replace(recipe(name).tower, hops=hops))
    assert {1, 30} <= {point.recipes[0].tower.hops for point in points}


def test_the_sweep_of_what_the_paper_does_not_print_gives_every_printed_row_the_same_trials():
    points = expand_points(read_sweep(str(ROOT / "benchmarks" / "sweep-printed.toml")))
    printed = [recipe(name) for name in names() if recipe(name).as_printed]
    tried = {made.name: [] for made in printed}
    for point in points:
        [made] = point.recipes
        assert made.as_printed
        tried[made.name].append((made.optimiser.step, made.clicks.gamma, made.initial_range, made.epochs))
    assert len({tuple(values) for values in tried.values()}) == 1
    for made in printed:
        assert (made.optimiser.step, made.clicks.gamma, made.initial_range, 4) in tried[made.name]


def test_larger_th_g_are_tried_on_rows_as_printed_with_shorter_steps():
    made = [point.recipes[0] for point in expand_points(read_sweep(str(ROOT / "benchmarks" / "sweep-clip.toml")))]
    assert all(one.as_printed for one in made)
    for name in {one.name for one in made}:
        own = recipe(name).optimiser
        tried = {(one.optimiser.clip_norm, one.optimiser.step) for one in made if one.name == name}
        assert (own.clip_norm, own.step) in tried
        assert any(most >= 500 and step * most <= own.step * own.clip_norm for most, step in tried)


def test_the_printed_schedule_is_tried_on_a_tuned_lstm_whose_recurrence_moves_by_a_hundredth():
    points = expand_points(read_sweep(str(ROOT / "benchmarks" / "sweep-schedule.toml")))
    first, *others = [point.recipes[0] for point in points]
    assert first == recipe("lstm-96")
    assert len(points) == 7
    assert all(one.tower.recurrent_step == pytest.approx(one.optimiser.step / 100) for one in others)
    assert sum(one.optimiser.momentum_middle == 0.995 and not one.clicks.tie_towers for one in others) == 3


def test_points_of_different_objectives_are_not_compared_nor_by_what_their_objective_lacks():
    labelled = {"recipe": "siamese-lstm", "seeds": (1, 2)}
    assert measure_of(config(**labelled), expand_points(config(**labelled))) == "dev_accuracy"
    for asked in ({"measure": "dev_accuracy", "seeds": (1, 2)}, {**labelled, "measure": "dev_ndcg@10"},
                  {"fields": {"recipe": ["lstm-96", "siamese-lstm"]}}):  # fmt: skip
        with pytest.raises(UsageError, match="Compare points of one objective, by dev_loss"):
            measure_of(config(**asked), expand_points(config(**asked)))


def test_the_commented_sweep_and_every_commented_setting_in_it_are_valid(tmp_path):
    text = (ROOT / "sweep.toml").read_text(encoding="utf-8")
    assert len(expand_points(read_sweep(str(ROOT / "sweep.toml")))) > 1
    opened = re.sub(r"^# (\[+\w+\]+|[\w.]+ = )", r"\1", text, flags=re.M)
    assert opened != text
    (tmp_path / "vectors.txt").write_text("word 0.5 0.25\n", encoding="utf-8")
    made = written(tmp_path, opened)
    assert made.judged
    assert made.sample
    assert made.trial
    assert expand_points(made)
