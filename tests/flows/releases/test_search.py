import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clicktower.flows.cli import run
from clicktower.flows.commands.stages import evaluate as evaluate_command
from clicktower.flows.releases import ivf_index, release_documents
from clicktower.flows.releases import make_release as making
from clicktower.flows.releases import search as searching
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease, search
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.release import read_pointer
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.embedding import TitleEmbeddings
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.measure import top_k
from clicktower.training.ranking.ndcg import descending_order
from clicktower.training.ranking.nearest import Nearest
from clicktower.training.ranking.title_ranking import TitleRanking
from tests.flows.releases.catalogue import CONFIG
from tests.imported import ENGINES, TOLD, imported
from tests.recipes import varied
from tests.rounding import rounded
from tests.trained_model import trained_stage


def test_search_without_an_index_ranks_as_exact_search_does(published, documents):
    catalogue = read_documents(documents)
    encoder = load_model(f"{published.folder}/model")
    scores = TitleEmbeddings(encoder, catalogue.titles).scores(["angle bracket"])
    rows, expected = top_k(scores, 20, descending_order(catalogue.ids))
    hits = search(published.uri, "Angle  BRACKET", 20)
    assert [hit.rank for hit in hits] == list(range(1, 21))
    assert [hit.score for hit in hits] == rounded(expected[0].tolist())
    # Two ways to add up a dot product differ by rounding, so only what is further apart has one order.
    apart = np.diff(expected[0], prepend=np.inf, append=-np.inf) < -1e-5
    for rank in np.flatnonzero(apart[:-1] & apart[1:]):
        assert hits[rank].id == catalogue.ids[rows[0, rank]]


@pytest.mark.slow
def test_search_with_an_index_finds_what_it_promises(model, documents, tmp_path):
    config = replace(CONFIG, index="ivf", min_recall=0.9, recall_at=20)
    made = publish(model, documents=documents, to=str(tmp_path / "ivf"), config=config)
    assert made.release.index["kind"] == "ivf"
    assert [step["recall_at"] for step in made.release.index["steps"]] == [20, 200]
    assert all(step["recall"] >= 0.9 for step in made.release.index["steps"])
    again = publish(model, documents=documents, to=str(tmp_path / "again"), config=config)
    assert Path(again.folder, "ivf.safetensors").read_bytes() == Path(made.folder, "ivf.safetensors").read_bytes()
    catalogue = read_documents(documents)
    scores = TitleEmbeddings(load_model(f"{made.folder}/model"), catalogue.titles).scores(["angle bracket"])
    hits = search(made.uri, "Angle  BRACKET", 20)
    assert len({hit.id for hit in hits}) == 20
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        row = catalogue.ids.index(hit.id)
        assert catalogue.titles[row] == hit.title
        assert hit.score == rounded(float(scores[0, row]))


def test_equal_titles_are_ordered_by_descending_id(model, tmp_path):
    path = tmp_path / "documents.tsv"
    path.write_text("a\tangle bracket\nc\tAngle Bracket\nb\tangle bracket\nd\tgarden hose\n")
    made = publish(model, documents=str(path), to=str(tmp_path / "live"), config=CONFIG)
    hits = search(made.uri, "angle bracket", 10)
    assert [hit.id for hit in hits] == ["c", "b", "a", "d"]
    assert hits[0].score == rounded(1.0)


def test_an_index_that_misses_too_much_is_searched_harder_and_at_last_not_used(model, documents, tmp_path, monkeypatch):
    real, attempts = release_documents.recall, iter([0.6])

    def measured_by(recall) -> None:
        for module in (making, ivf_index):
            monkeypatch.setattr(module, "recall", recall)

    def misses_once(*found):
        return next(attempts, None) or real(*found)

    measured_by(misses_once)
    config = replace(CONFIG, index="ivf", min_recall=0.7)
    harder = publish(model, documents=documents, to=str(tmp_path / "harder"), config=config).release.index
    assert [tried["num_probes"] for tried in harder["tried"]][:2] == [8, 12]  # of 4, 8 and 12
    assert (harder["kind"], harder["num_probes"], harder["recall_at"]) == ("ivf", 12, 10)
    measured_by(lambda cosines, limits, k: 0.4 if k == 100 else 1.0)
    exact = publish(model, documents=documents, to=str(tmp_path / "exact"), config=replace(config, seed=1))
    assert exact.release.index["kind"] == "none"
    assert "searches are exact" in exact.release.index["note"]
    assert not Path(exact.folder, "ivf.safetensors").exists()
    measured_by(lambda *a: 0.4)
    with pytest.raises(StageError, match=r"Even exact search has a recall@10 of only 0.400,"):
        publish(model, documents=documents, to=str(tmp_path / "broken"), config=config)
    assert read_pointer(str(tmp_path / "broken")) is None


def test_a_hybrid_ranks_by_the_cosine_and_by_the_share_of_the_terms(published, documents):
    catalogue = read_documents(documents)
    opened = OpenRelease(published.uri)
    query = "steel angle hoses"
    cosines = TitleEmbeddings(opened.encoder, catalogue.titles).scores([query])[0]
    index = TitleBM25(catalogue.titles)
    bm25, terms = index.scores([query])[0], index.relative_scores([query])[0]
    parts = {i: part for i, *part in zip(catalogue.ids, cosines.tolist(), terms.tolist(), bm25.tolist(), strict=True)}
    hits = opened.search(query, 300, "hybrid", lexical_share=0.3)
    best = sorted((0.7 * c + 0.3 * t for c, t, _ in parts.values()), reverse=True)
    assert [hit.score for hit in hits] == rounded(best, of=1)
    for hit in [*hits, *opened.search(query, 7, details=True), *opened.search(query, 7, "bm25", details=True)]:
        assert (hit.cosine, hit.terms, hit.bm25) == rounded(tuple(parts[hit.id]), of=1 + parts[hit.id][2])
    lexical = opened.search(query, 300, "bm25")
    assert [hit.score for hit in lexical] == sorted(bm25[bm25 > 0].tolist(), reverse=True)
    assert [hit.cosine for hit in lexical] == [None] * len(lexical)
    assert opened.search("neverseen", 5, "bm25") == []
    for k in (1, 2, 5):  # a shorter ranking is the beginning of a longer one, whatever is equal at its edge
        for mode in ("vector", "bm25", "hybrid"):
            shorter = [(hit.id, hit.score) for hit in opened.search(query, k, mode)]
            assert shorter == [(hit.id, hit.score) for hit in opened.search(query, 50, mode)][:k]


def test_words_and_terms_with_a_share_of_a_score_rank_as_evaluation_does(documents, tmp_path, monkeypatch):
    monkeypatch.setattr(searching, "CANDIDATES", 40)  # of 300 documents
    trained = trained_stage(str(tmp_path), recipe=varied(recipe("lstm-96"), cells=8, word_share=0.4, lexical_share=0.2))
    opened = OpenRelease(publish(trained, documents=documents, to=str(tmp_path / "live"), config=CONFIG).uri)
    catalogue = read_documents(documents)
    assert (opened.encoder.word_share, opened.encoder.lexical_share) == (0.4, 0.2)
    for query in ("steel angles", "garden hose 2x4"):
        cosines = TitleEmbeddings(opened.encoder, catalogue.titles).scores([query])[0]
        scores = TitleRanking(opened.encoder, catalogue.titles, "english").scores([query])[0]
        bm25 = TitleBM25(catalogue.titles).scores([query])[0]
        is_candidate = cosines >= np.sort(cosines)[-40]
        is_candidate[[row for row in np.lexsort((np.arange(300), -bm25))[:40] if bm25[row]]] = True
        best = np.sort(scores[is_candidate])[::-1][:20]
        hits = opened.search(query, 20)
        assert [hit.score for hit in hits] == rounded(best.tolist())
        of = dict(zip(catalogue.ids, zip(scores.tolist(), cosines.tolist(), strict=True), strict=True))
        assert [(hit.score, hit.cosine) for hit in hits] == [rounded(of[hit.id]) for hit in hits]
        for hit in hits:
            parts = 0.8 * (0.6 * hit.cosine + 0.4 * hit.words) + 0.2 * hit.terms
            assert hit.score == rounded(parts, of=1)
        nearest = opened.search(query, 20, "vector")
        assert [hit.score for hit in nearest] == rounded(sorted(cosines.tolist(), reverse=True)[:20])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["vector", "hybrid"])
def test_an_index_that_was_measured_with_the_words_finds_what_they_rank(documents, tmp_path, monkeypatch, mode):
    for module in (release_documents, making, searching):
        monkeypatch.setattr(module, "CANDIDATES", 50)  # of 300 documents
    monkeypatch.setattr(searching, "PAGED", 50)
    trained = trained_stage(str(tmp_path), recipe=varied(recipe("lstm-96"), cells=8, word_share=0.4))
    config = replace(CONFIG, index="ivf", min_recall=0.9, recall_at=5)
    published = publish(trained, documents=documents, to=str(tmp_path / "live"), config=config)
    index = published.release.index
    assert (index["candidates"], [step["recall_at"] for step in index["steps"]]) == (50, [5, 50])
    opened, visited = OpenRelease(published.uri), []
    best = Nearest.best

    def watched(self, query, k, num_probes=None, among=None):
        visited.append((k, num_probes))
        return best(self, query, k, num_probes, among)

    monkeypatch.setattr(Nearest, "best", watched)
    assert len(opened.search("angle bracket", 4, mode)) == 4
    # The index was measured on hybrids: by vectors alone every document is compared.
    assert visited == [(50, index["steps"][1]["num_probes"]) if mode == "hybrid" else (4, None)]
    assert index["num_probes"] < index["num_partitions"]
    # An index of an earlier version was measured without BM25's candidates, and at fewer documents than are ranked.
    del opened.release.index["candidates"]
    opened.documents_search.steps = index["steps"][:1]
    visited.clear()
    opened.search("angle bracket", 4)
    assert visited == [(50, None)]


@pytest.mark.slow
def test_the_recall_of_an_index_is_that_of_searches_for_two_words_of_titles(documents, tmp_path, monkeypatch):
    for module in (release_documents, making, searching):
        monkeypatch.setattr(module, "CANDIDATES", 5)
    monkeypatch.setattr(searching, "PAGED", 5)
    monkeypatch.setattr(ivf_index, "_NUM_PROBES", (1,))  # so few that it misses some
    trained = trained_stage(str(tmp_path), recipe=varied(recipe("lstm-96"), cells=8, word_share=0.4))
    config = replace(CONFIG, index="ivf", min_recall=0.5, recall_at=5)
    published = publish(trained, documents=documents, to=str(tmp_path / "live"), config=config)
    titles = making._draw_titles(read_documents(documents), config, config.num_recall_queries)
    queries = [making._two_words(title, config.seed) for title in titles]
    assert [len(query.split()) for query in queries] == [min(2, len(title.split())) for title in titles]
    opened = OpenRelease(published.uri)

    def scores() -> list[list[float]]:
        return [[hit.score for hit in opened.search(query, 5)] for query in queries]

    by_index = scores()
    opened.documents_search.steps = ()
    shares = [
        np.mean([place < len(hits) and hits[place] >= exact[-1] for place in range(5)])
        for hits, exact in zip(by_index, scores(), strict=True)
    ]
    assert np.mean(shares) == pytest.approx(published.release.index["recall"])
    assert np.mean(shares) < 1


def test_a_release_and_its_evaluation_have_the_terms_of_their_language(model, tmp_path, capsys):
    texts = {
        "documents": "d1\tgroßes Haus\nd2\tdas Kind\n",
        "queries": "q1\tHäuser\n",
        "qrels": "q1 0 d1 1\nq1 0 d2 0\n",
    }
    files = {name: str(tmp_path / f"{name}.tsv") for name in texts}
    for name, text in texts.items():
        Path(files[name]).write_text(text, encoding="utf-8")
    found, measured, digests, evaluations = {}, {}, set(), {}
    for language in ("german", "english"):
        config = replace(CONFIG, language=language)
        to = publish(model, documents=files["documents"], to=str(tmp_path / language), config=config)
        found[language] = [hit.id for hit in search(to.uri, "Häuser", mode="bm25")]
        settings = EvaluateConfig(language=language, num_resamples=50)
        evaluated = evaluate(model, **files, store=str(tmp_path / "store"), config=settings)
        evaluations[language] = evaluated.folder
        measured[language] = evaluated.manifest.outcome.metrics["systems"]["bm25"]["collection_ndcg@10"]["mean"]
        digests.add(to.release.digest)
    assert found == {"german": ["d1"], "english": []}
    # Without a term in common the titles tie, and the later id comes first: d1 is at rank 2.
    assert measured == {"german": 1, "english": pytest.approx(1 / np.log2(3))}
    assert len(digests) == 2
    capsys.readouterr()
    again = str(tmp_path / "again")
    evaluate_command(model=str(tmp_path / "german"), **files, into=again, set=["num_resamples=50"], json=True)
    of_release = json.loads(capsys.readouterr().out)["metrics"]["systems"]["bm25"]["collection_ndcg@10"]["mean"]
    assert of_release == 1
    options = {"documents": files["documents"], "to": str(tmp_path / "german"), "config": config}
    with pytest.raises(UsageError, match="is by terms of the language german, and the release by english"):
        publish(model, evaluation=evaluations["german"], **options)
    assert publish(model, evaluation=evaluations["english"], **options).release.evaluation


def test_search_says_what_is_wrong(live, published, tmp_path):
    for text in ("", " \t ", "\u200b", "\u00ad\ufeff \u200d"):
        with pytest.raises(UsageError, match="no word"):
            search(live, text)
    with pytest.raises(UsageError, match=r"There is no mode 'exact' of search."):
        search(live, "hose", mode="exact")
    for share in (-1.0, float("nan"), 1.0):
        with pytest.raises(UsageError, match="0 or more"):
            search(live, "hose", mode="hybrid", lexical_share=share)
    for mode, by in (("vector", "vectors"), ("bm25", "terms")):
        with pytest.raises(UsageError, match=f"The mode {mode} ranks by {by} alone"):
            search(live, "hose", mode=mode, lexical_share=0.2)
    with pytest.raises(UsageError, match="the terms are given a share"):
        search(live, "hose", lexical_share=0.2, rerank=10)
    with pytest.raises(UsageError, match=r"A search needs k = 1 or more, not 0\."):
        search(live, "hose", 0)
    with pytest.raises(StageError, match="Nothing is published at"):
        search(str(tmp_path / "nowhere"), "hose")


@pytest.mark.slow
@pytest.mark.skipif(not status().available, reason=f"the compiled kernel is not available: {status().reason}")
def test_a_search_of_a_compiled_tower_imports_no_engine(documents, tmp_path):
    """A cold search is what its imports cost."""
    settings = varied(recipe("lstm-96"), cells=16, word_share=0.4, lexical_share=0.2)
    config = replace(CONFIG, index="ivf", min_recall=0.5)
    uri = str(tmp_path / "live")
    publish(trained_stage(str(tmp_path / "store"), recipe=settings), documents=documents, to=uri, config=config)
    command = [sys.executable, "-m", "clicktower.flows.cli", "search", "--release", uri, "angle bracket"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=TOLD)
    assert "bracket" in done.stdout
    assert "pyarrow" in imported(done.stderr)
    assert imported(done.stderr) & ENGINES == set()


def test_a_filtered_search_imports_no_pandas(published):
    command = [sys.executable, "-m", "clicktower.flows.cli", "search", "--release", published.uri, "angle bracket"]
    searched = subprocess.run(
        [*command, "--where", '{"id": ["d1", "d2"]}'], capture_output=True, text=True, check=True, env=TOLD
    )
    assert "pyarrow" in imported(searched.stderr), "what was imported is told"
    assert "dateutil" not in imported(searched.stderr)  # which pandas imports; an import that is refused is told, too


def test_a_query_that_begins_with_a_dash_is_typed_behind_two(published, capsys):
    assert run(["search", "--release", published.uri, "--json", "--", "-20 bracket"]) == 0
    assert json.loads(capsys.readouterr().out)["query"] == "-20 bracket"
    assert run(["search", "--release", published.uri, "-20 bracket"]) == 2
    assert "behind a bare `--`" in capsys.readouterr().err
