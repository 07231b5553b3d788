"""A teacher's share of the click loss: its numbers, its gradient, who may be one, the same bytes from any workers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from clicktower.flows.cli import run
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.stage import open_result
from clicktower.training.evaluation.combine_stage import combine
from clicktower.training.model.kernel_towers import moves_rows
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import Sources
from clicktower.training.trainer import clicks
from clicktower.training.trainer.click_loss import DENSE, Taught, teacher_losses
from clicktower.training.trainer.click_teacher import probabilities
from clicktower.training.trainer.job import REFERENCE, ROWS, arithmetic_of
from clicktower.training.trainer.shard_data import MicroBatch
from tests.recipes import recipe_with, varied
from tests.rounding import gamma
from tests.training.finite_differences import require_gradient
from tests.training.small_shards import write_shop
from tests.training.trainer.gloo_workers import Death, run_workers
from tests.training.trainer.test_click_loss import loss_and_gradients
from tests.training.trainer.test_exactness import alone, job, sha256
from tests.training.trainings import train

torch.set_num_threads(1)
RECIPE = recipe_with(name="small", cells=16, epochs=2, minibatch=48, micro_batch=8, step=0.01)
TAUGHT = varied(RECIPE, teacher_share=0.5, teacher_gamma=8.0)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 300, 30, first=170)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def members(shop_shards, store) -> list[str]:
    lstm = replace(RECIPE, micro_batch=48, epochs=4)
    bag = varied(RECIPE, micro_batch=48, name="bag", tower="bag", tie_towers=True, start="idf")
    return [train(shop_shards, store=store, recipe=one, threads=1).folder for one in (lstm, bag)]


@pytest.fixture(scope="module")
def teacher(members, store) -> str:
    return combine(members, store=store).folder


def test_a_share_of_the_loss_is_the_hand_worked_divergence():
    # As in test_click_loss: q = (1, 0), R = 0.70711, 0, -1, γ = 2, softmax(γR) = 0.783687, 0.190528, 0.025785 and
    # l = 0.243745. With p = ½, ½, 0: KL = ½ ln(0.5 / 0.783687) + ½ ln(0.5 / 0.190528) = ½ (-0.449401 + 0.964810)
    # = 0.257704, and with a = ½ the loss is ½ (0.243745 + 0.257704) = 0.250725.
    # By R: 2 (0.783687 - ½ - ¼, 0.190528 - ¼, 0.025785); R by q's second part is 0.707107, 1, 0, so by that it is
    # 2 (0.033687 x 0.707107 - 0.059472) = -0.071304.
    query, documents = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[1.0, 1], [0, 2], [-3, 0]]).double()
    taught = Taught(torch.tensor([[0.5, 0.5, 0.0]]), 0.5)
    losses, by_query, _ = loss_and_gradients(query, documents, torch.tensor([[0, 1, 2]]), 2.0, None, taught)
    assert losses.item() == pytest.approx(0.250725, abs=1e-6)
    assert by_query[0].tolist() == pytest.approx([0, -0.071304], abs=1e-6)


def random_case(num_documents: int):
    """Queries, documents, candidates of which some are absent, weights, and a teacher."""
    generator = torch.Generator().manual_seed(5)
    query = torch.randn(5, 7, dtype=torch.float64, generator=generator)
    document = torch.randn(num_documents, 7, dtype=torch.float64, generator=generator)
    candidates = torch.randint(0, 6, (5, 4), generator=generator, dtype=torch.int32)
    candidates[1, 2] = candidates[3, 1] = candidates[3, 3] = -1
    wanted = torch.rand(5, 4, dtype=torch.float64, generator=generator).masked_fill(candidates < 0, 0)
    wanted[2, 1] = 0  # a candidate that the teacher gives nothing
    weight = torch.tensor([1.0, 0.25, 3.0, 2.0, 0.0], dtype=torch.float64)
    return query, document, candidates, weight, wanted / wanted.sum(dim=1, keepdim=True)


def plain_loss(query_Bd, document_Nd, candidates_BC, gamma, weight_B, share, wanted_BC) -> float:
    """One pair after the other, by the definition of the divergence."""
    total = 0.0
    for query, candidates, weight, wanted in zip(query_Bd, candidates_BC.tolist(), weight_B, wanted_BC, strict=True):
        there = [c for c in candidates if c >= 0]
        scores = torch.stack([torch.nn.functional.cosine_similarity(query, document_Nd[c], dim=0) for c in there])
        found = torch.softmax(gamma * scores, dim=0)
        p = wanted[torch.tensor(candidates) >= 0]
        divergence = sum(float(p_c * torch.log(p_c / f)) for p_c, f in zip(p, found, strict=True) if p_c > 0)
        total += float(weight) * (-(1 - share) * float(torch.log(found[0])) + share * divergence)
    return total


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("num_documents", [8, 80])
def test_gradient_equals_finite_differences(num_documents, share):
    query, document, candidates, weight, wanted = random_case(num_documents)
    assert (candidates.numel() >= DENSE * 5 * num_documents) == (num_documents == 8)  # both ways to compute it
    given = (candidates, 6.0, weight)
    losses, by_query, by_document = loss_and_gradients(query, document, *given, Taught(wanted, share))
    assert losses.sum().item() == pytest.approx(plain_loss(query, document, *given, share, wanted), rel=1e-12)
    some = int(candidates.max()) + 1
    assert not by_document[some:].any()  # nobody's candidates
    for vectors, gradient in ((query, by_query), (document[:some], by_document)):
        require_gradient(lambda: plain_loss(query, document, *given, share, wanted), vectors=vectors, gradient=gradient)


def test_one_that_says_the_same_asks_for_nothing():
    similarity = torch.tensor([[0.5, 0.25, -torch.inf, -1.0]]).double()
    same = torch.softmax(3 * similarity, dim=1)
    # A difference of numbers of about 1.
    assert teacher_losses(similarity, 3.0, same).item() == pytest.approx(0, abs=gamma(64, "float64"))


def test_its_probabilities_are_the_hand_worked_softmax():
    # γ_t = 2: e^(2 (0.5 - 1)) = 0.367879 of 1.367879; a candidate that is none has 0.
    found = probabilities(np.array([[1.0, 0.5, -np.inf]], np.float32), 2.0)
    np.testing.assert_allclose(found, [[0.731059, 0.268941, 0]], rtol=1e-5)
    assert found.dtype == np.float32


@pytest.mark.parametrize(
    "changes",
    [{}, {"negatives": "fixed"}, {"negatives": "pool", "pool_size": 20}, {"negatives": "pool", "pool_softmax": True}],
    ids=["redrawn", "fixed", "n of the pool", "all of the pool"],
)
def test_every_candidate_has_what_the_mean_of_the_members_cosines_says(shop_shards, teacher, members, changes):
    task = clicks.load(open_result(shop_shards).data, varied(TAUGHT, **changes), (), open_result(teacher).data)
    models = [load_model(open_result(member).data) for member in members]
    strings = {
        id(table): of
        for table, of in zip(
            (task.data.pool_texts, *(shard.texts for shard in task.data.train)),
            (task.data.pool_strings.to_pylist(), *(shard.strings.to_pylist() for shard in task.data.train)),
            strict=True,
        )
    }
    for shard in (0, 1):
        pairs = task.examples(MicroBatch(shard, np.arange(3, 11), 0), 1)
        queries = [strings[id(pairs.queries[0])][row] for row in pairs.queries[1]]
        titles = [strings[id(table)][row] for table, rows in pairs.documents for row in rows]
        for query, candidates, found in zip(queries, pairs.candidates, pairs.taught, strict=True):
            there = [c for c in candidates if c >= 0]
            cosines = np.mean([cosine(model, query, [titles[c] for c in there]) for model in models], axis=0)
            wanted = np.exp(8 * cosines) / np.exp(8 * cosines).sum()
            np.testing.assert_allclose(found[candidates >= 0], wanted, rtol=1e-4)
            assert not found[candidates < 0].any()


def cosine(model, query: str, titles: list[str]) -> np.ndarray:
    return normed(model, titles, "document") @ normed(model, [query], "query")[0]


def normed(model, texts: list[str], side: str) -> np.ndarray:
    vectors = model.encode(texts, side)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.slow
def test_what_is_taught_comes_nearer_to_the_teacher(shop_shards, store, teacher):
    task = clicks.load(open_result(shop_shards).data, TAUGHT, (), open_result(teacher).data)
    pairs = task.examples(MicroBatch(0, np.arange(100), 0), 0)
    shard, pool = task.data.train[0].strings.to_pylist(), task.data.pool_strings.to_pylist()
    (_, clicked), (_, negatives) = pairs.documents
    titles = [shard[row] for row in clicked] + [pool[row] for row in negatives]
    queries = [shard[row] for row in pairs.queries[1]]

    def distance(share: float) -> float:
        """Mean divergence from the teacher after training with such a share."""
        recipe = varied(TAUGHT, teacher_share=share) if share else RECIPE
        recipe = varied(recipe, epochs=6, micro_batch=48)
        taught_by = teacher if share else None
        model = load_model(train(shop_shards, store=store, recipe=recipe, threads=1, teacher=taught_by).data)
        of_all = normed(model, queries, "query") @ normed(model, titles, "document").T
        scores = torch.from_numpy(np.take_along_axis(of_all, pairs.candidates, axis=1))
        return teacher_losses(scores, recipe.clicks.gamma, torch.from_numpy(pairs.taught)).mean()

    without, half, all_of_it = distance(0.0), distance(0.5), distance(1.0)
    assert all_of_it < half < without


@pytest.mark.slow
def test_it_is_part_of_the_request(shop_shards, store, teacher, members):
    def trained(by: str | None, **changes):
        return train(shop_shards, store=store, recipe=varied(RECIPE, micro_batch=48, **changes), threads=1, teacher=by)

    by_both, by_one = trained(teacher), trained(members[0])
    assert by_both.manifest.request.inputs["teacher"] == open_result(teacher).manifest.digest
    assert by_both.manifest.request.config["recipe"]["objective"]["teacher"]["share"] == 0.5  # where nothing is said
    assert (
        len({by_both.manifest.digest, by_one.manifest.digest, trained(teacher, teacher_share=0.4).manifest.digest}) == 3
    )
    weights = [storage.read_bytes(f"{one.data}/model.safetensors") for one in (by_both, by_one)]
    assert weights[0] != weights[1]
    assert trained(teacher).reused
    assert "teacher" not in trained(None).manifest.request.inputs


@pytest.mark.slow
def test_any_number_of_workers_and_a_kill_give_the_same_bytes(shop_shards, teacher, tmp_path):
    def asked(name: str, seconds: float = 60.0):
        made = job(shop_shards, tmp_path / name, recipe=TAUGHT, seconds=seconds)
        return replace(made, sources=Sources(teacher=open_result(teacher).data))

    expected = alone(asked("alone"), tmp_path / "alone")
    run_workers(asked("three"), 3, tmp_path / "three")
    assert sha256(tmp_path / "three") == expected
    assert alone(replace(asked("threads"), threads=3), tmp_path / "threads") == expected
    folder = tmp_path / "killed"
    assert run_workers(asked("killed", 0.0), 3, folder, Death(rank=1, sums=20, after=True)) is None
    metrics = run_workers(asked("killed"), 2, folder)
    assert sha256(folder) == expected
    assert metrics["resumed_at"] > 0


def test_gradients_with_a_teacher_are_torchs():
    assert arithmetic_of("auto", TAUGHT, "cpu") == (ROWS if moves_rows(TAUGHT) else REFERENCE)
    with pytest.raises(UsageError, match="a teacher"):
        arithmetic_of("compiled", TAUGHT, "cpu")


def test_a_share_without_a_teacher_and_a_teacher_that_is_none_are_refused(shop_shards, store, teacher):
    for field, value in (("teacher_share", 0.5), ("teacher_gamma", 8.0)):
        with pytest.raises(UsageError, match=r"a teacher's, and no teacher is given"):
            train(shop_shards, store=store, recipe=varied(RECIPE, **{field: value}))
    with pytest.raises(UsageError, match=r"is the output of build."):
        train(shop_shards, store=store, recipe=RECIPE, teacher=shop_shards)
    generate = varied(
        RECIPE, objective="generate", tower="variational", latent=4, decoder_cells=4,
        decoder_columns=3, vocabulary=20, optimiser="adam",
    )  # fmt: skip
    with pytest.raises(UsageError, match="objective of small is generate"):
        train(shop_shards, store=store, recipe=generate, teacher=teacher)
    by_distance = train(shop_shards, store=store, recipe=varied(generate, epochs=1, kappa_rate=0.01), threads=1)
    with pytest.raises(UsageError, match="compares by distance"):
        train(shop_shards, store=store, recipe=RECIPE, threads=1, teacher=by_distance.folder)
    with pytest.raises(UsageError, match="less than or equal to 1"):
        varied(RECIPE, teacher_share=1.5)


def test_a_user_names_it_on_the_command_line(shop_shards, store, teacher, capsys):
    sets = [word for one in ("tower.cells=16", "epochs=1", "minibatch=48", "micro_batch=8") for word in ("--set", one)]
    assert run(["train", "--shards", shop_shards, "--into", store, "--threads", "1", *sets, "--teacher", teacher]) == 0
    assert run(["train", "--shards", shop_shards, "--into", store, *sets, "--set", "objective.teacher.share=0.3"]) == 2
    assert "Give `train --teacher FOLDER`" in capsys.readouterr().err
