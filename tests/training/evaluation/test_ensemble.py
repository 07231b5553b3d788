import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clicktower.flows.cli import run
from clicktower.flows.releases.kept_releases import verify
from clicktower.flows.releases.publish import PublishConfig, publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.releases.word_shares import explain_pair
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import Judged, read_qrels, read_queries
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.release import release_folder
from clicktower.schemas.stage import open_result, run_stage
from clicktower.training.evaluation.combine_stage import combine
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from clicktower.training.model.embedding import TitleEmbeddings
from clicktower.training.model.ensemble import Ensemble
from clicktower.training.model.import_stage import import_encoder
from clicktower.training.model.model import Model, load_encoder, load_model, write_model
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.model.recipe import recipe
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.hybrid import query_half
from clicktower.training.ranking.ndcg import ndcg
from clicktower.training.ranking.title_ranking import TitleRanking, WordMatches
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding, rounded
from tests.tiny_transformer import write_transformer
from tests.trained_model import trained_stage, untrained
from tests.training.small_shards import write_shop
from tests.training.trainings import train

TEXTS = ["angle bracket", "2 in. x 4 ft. plank", "東京の金槌", "a"]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def other_tower(store: str, *, rows: int = 51_000) -> str:
    """A small bag of another size, as `train` would leave it."""
    recipe = recipe_with(name="small bag", tower="bag", cells=6, initial_range=5.0)

    def produce(folder: str) -> Outcome:
        layout = layout_of(recipe, rows)
        towers = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
        write_model(folder, Model.of(layout, towers))
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
    members = [untrained(varied(recipe("lstm-96"), cells=8, word_share=share)) for share in (0.0, 0.5, 0.4)]
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
    towers = {name: initial_parameters(layout, name) for name in recipe.objective.towers}

    def produce(folder: str) -> Outcome:
        write_model(folder, Model.of(layout, towers))
        return Outcome()

    short = run_stage(store, Request(stage="train", stage_version=1, config={"short": 1}, inputs={}), produce)
    model = load_encoder(combine([short.folder, trained_stage(store, seed=2)], store=store).data)
    first, other = model.encode(["angle bracket", "angle iron"], "query")
    equal = [np.allclose(a, b) for a, b in zip(np.split(first, 2), np.split(other, 2), strict=True)]
    assert sorted(equal) == [False, True], "only the member that reads one word takes them for the same"


# Shares, words, and imported members.

TITLES = ["steel angle bracket", "deck screw", "angle iron", "pine board 2 in.", "bracket of oak"]


@pytest.fixture(scope="module")
def transformer(store, tmp_path_factory) -> str:
    return import_encoder(str(write_transformer(tmp_path_factory.mktemp("models") / "tiny")), store=store).folder


@pytest.fixture(scope="module")
def with_words(store) -> str:
    return trained_stage(
        store,
        recipe=varied(recipe("lstm-96"), name="with words", cells=16, word_share=0.375, lexical_share=0.2, seed=4),
    )


@pytest.mark.slow
@pytest.mark.parametrize("second", ["transformer", "with_words", "other"])
def test_its_score_is_the_mean_of_its_members_scores_by_their_shares(store, request, with_words, second):
    other = trained_stage(store, seed=5) if second == "other" else request.getfixturevalue(second)
    if other == with_words:
        other = trained_stage(
            store, recipe=varied(recipe("lstm-96"), name="others", cells=16, word_share=0.1, lexical_share=0.3, seed=6)
        )
    made = combine([with_words, other], store=store, shares=[2.0, 3.0])
    assert made.manifest.outcome.metrics["shares"] == [0.4, 0.6]
    scores, terms = [], TitleBM25(TITLES).relative_scores(["angle bracket"])
    for folder in (with_words, other):
        encoder = load_encoder(open_result(folder).data)
        texts, words = TitleEmbeddings(encoder, TITLES), WordMatches(encoder, TITLES)
        share, lexical = encoder.word_share, encoder.lexical_share
        of_vectors = (1 - share) * texts.scores(["angle bracket"]) + share * words.scores(["angle bracket"])
        scores.append((1 - lexical) * of_vectors + lexical * terms)
    expected = 0.4 * scores[0] + 0.6 * scores[1]
    if second == "with_words":  # the best match is that of both together
        encoders = [load_encoder(open_result(folder).data) for folder in (with_words, other)]
        alone = [WordMatches(encoder, TITLES).scores(["angle bracket"]) for encoder in encoders]
        both = WordMatches(load_encoder(made.data), TITLES).scores(["angle bracket"])
        weights = [0.4 * 0.8 * 0.375, 0.6 * 0.7 * 0.1]
        assert (both <= np.average(alone, axis=0, weights=weights) + 1e-6).all(), "no pair is the best for both"
        expected += sum(weights) * both - weights[0] * alone[0] - weights[1] * alone[1]
    system = TitleRanking(load_encoder(made.data), TITLES, "english")
    assert_equal_but_for_rounding(system.scores(["angle bracket"]), expected)


@pytest.mark.slow
def test_a_search_of_compiled_and_imported_members_loads_no_torch(store, transformer, with_words):
    made = combine([with_words, transformer], store=store)
    code = (
        "import sys; from clicktower.training.model.model import load_encoder; "
        f"load_encoder({made.data!r}).encode(['angle'], 'query'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def judged(tmp_path) -> Judged:
    """Two halves of queries whose best title is the one that shares their words."""
    words = ["steel", "deck", "pine", "oak", "angle", "iron", "screw", "board", "hinge", "latch"]
    titles = {f"D{at}": f"{word} part {at}" for at, word in enumerate(words)}
    queries = {f"q{at}": f"{word}s" for at, word in enumerate(words)}
    (tmp_path / "documents.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in titles.items()))
    (tmp_path / "queries.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in queries.items()))
    rng = np.random.default_rng(3)
    (tmp_path / "qrels.txt").write_text(
        "".join(f"q{at} 0 D{d} {rng.integers(0, 4)}\n" for at in range(10) for d in rng.permutation(10)[:6])
        + "q0 0 unknown 3\n"
    )
    return Judged(**{name: str(tmp_path / f"{name}.{end}") for name, end in
                     (("documents", "tsv"), ("queries", "tsv"), ("qrels", "txt"))})  # fmt: skip


@pytest.mark.slow
def test_judgments_choose_the_shares_of_two_models(store, judged, with_words, transformer):
    made = combine([with_words, transformer], store=store, judged=judged)
    metrics = made.manifest.outcome.metrics
    documents, queries, qrels = (
        read_documents(judged.documents), read_queries(judged.queries), read_qrels(judged.qrels)
    )  # fmt: skip

    def ndcg_at_10(shares: list[float], folder: str = "") -> dict[str, float]:
        """By whole systems and the reference NDCG."""
        both = combine([with_words, transformer], store=store, shares=shares).data if shares else folder
        encoder = load_encoder(both)
        scores = TitleRanking(encoder, documents.titles, "english").scores(list(queries.values()))
        run = {
            q: dict(zip(documents.ids, map(float, row), strict=True)) for q, row in zip(queries, scores, strict=True)
        }
        judged_run = {q: {d: run[q][d] for d in grades if d in run[q]} for q, grades in qrels.items()}
        return dict(zip(qrels, ndcg(qrels, judged_run, (10,))[10], strict=True))

    grid = [round(step / 20, 2) for step in range(1, 20)]
    values = {share: ndcg_at_10([1 - share, share]) for share in grid}

    def best(of: list[str]) -> float:
        return max(grid, key=lambda share: (round(np.mean([values[share][q] for q in of]), 12), -share))

    assert metrics["shares"] == rounded([1 - best(list(qrels)), best(list(qrels))])
    halves = [[q for q in qrels if query_half(queries[q], 0) == half] for half in (0, 1)]
    assert all(halves)
    assert metrics["shares_of_halves"] == rounded([best(halves[1]), best(halves[0])])
    cross_fitted = [values[best(halves[1 - half])][q] for half in (0, 1) for q in halves[half]]
    alone = {
        name: np.mean(list(ndcg_at_10([], open_result(folder).data).values()))
        for name, folder in (("first", with_words), ("second", transformer))
    }
    assert metrics["ndcg@10"] == rounded({**alone, "cross_fitted": np.mean(cross_fitted)})
    assert (made.manifest.outcome.counts["models"], metrics["chosen_on"]) == (2, len(qrels))
    assert load_encoder(made.data).shares == rounded(tuple(metrics["shares"]))
    assert combine([with_words, transformer], store=store, judged=judged).reused


def test_shares_that_are_none_are_refused(members, store, judged):
    with pytest.raises(UsageError, match="The shares 1, 0 are not one number above 0 for each of the 2 models"):
        combine(members[:2], store=store, shares=[1, 0])
    with pytest.raises(UsageError, match="The shares 1 are not one number"):
        combine(members[:2], store=store, shares=[1])
    with pytest.raises(UsageError, match="Judgments choose the shares of two models, and there are 3"):
        combine(members, store=store, judged=judged)
    with pytest.raises(UsageError, match="and the shares are given"):
        combine(members[:2], store=store, shares=[1, 1], judged=judged)


def test_by_the_command_with_some_of_the_judged_files(members, tmp_path, capsys):
    assert run(["combine", "--models", *members[:2], "--into", str(tmp_path), "--qrels", "x", "--json"]) == 2
    assert "only some of them are given" in json.loads(capsys.readouterr().out)["error"]["problem"]


@pytest.mark.slow
def test_a_release_of_a_model_and_a_transformer(store, transformer, with_words, judged, tmp_path):
    made = combine([with_words, transformer], store=store, shares=[1, 2])
    evaluated = evaluate(
        made.folder, documents=judged.documents, queries=judged.queries, qrels=judged.qrels, store=store,
        config=EvaluateConfig(),
    )  # fmt: skip
    uri = str(tmp_path / "live")
    release = publish(
        made.folder, documents=judged.documents, to=uri, config=PublishConfig(), evaluation=evaluated.folder
    ).release
    assert "reads tokens of its own" in release.query_tower["reason"]
    encoder, titles = load_encoder(made.data), read_documents(judged.documents)
    scores = TitleRanking(encoder, titles.titles, "english").scores(["angle screws"])[0]
    hits = OpenRelease(uri).search("angle screws", 10)
    assert [hit.score for hit in hits] == rounded(np.sort(scores)[::-1].tolist())
    assert verify(uri) == []
    card = Path(release_folder(uri, release.digest), "README.md").read_text()
    assert "`tiny` | imported, mean of the tokens, of which it reads 24" in card
    alone = publish(transformer, documents=judged.documents, to=str(tmp_path / "alone"), config=PublishConfig())
    assert alone.release.dimensions == 16
    assert len(OpenRelease(str(tmp_path / "alone")).search("angle screw", 10)) == 10
    golden = Path(alone.folder, "golden.jsonl").read_text().splitlines()
    assert json.loads(golden[0])["trigram_ids"] == []
    assert explain_pair(encoder, "angle screws", "angle iron")["query"]["words"][0]["match"]["word"] == "angle"


@pytest.mark.slow
def test_a_transformer_teaches_a_tower(store, transformer, tmp_path):
    shards = write_shop(str(tmp_path), 60, 12)
    recipe = recipe_with(name="taught", cells=8, epochs=1, minibatch=32, micro_batch=16)
    model = train(shards, store=store, recipe=recipe, teacher=transformer, threads=1)
    assert model.manifest.request.inputs["teacher"] == open_result(transformer).manifest.digest
