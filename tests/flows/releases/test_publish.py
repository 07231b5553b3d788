import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import clicktower
from clicktower.flows.releases.kept_releases import list_releases, rollback, verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.search import OpenRelease, search
from clicktower.flows.show.present import notes
from clicktower.schemas import storage
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.release import QUERY_TOWER, read_pointer, read_release
from clicktower.schemas.stage import open_result, run_stage
from clicktower.training.evaluation.combine_stage import combine
from clicktower.training.model.embedding import TitleEmbeddings
from clicktower.training.model.model import load_encoder, load_model
from clicktower.training.model.recipe import recipe
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.recipes import varied
from tests.rounding import rounded
from tests.trained_model import trained_stage


def test_a_release_says_what_it_holds_and_verifies(published, model):
    folder, release = read_release(published.uri)
    assert folder == published.folder
    assert release.num_documents == 300
    assert release.dimensions == 8
    assert release.labels == {"simulated": True}
    assert release.text_contract == load_model(f"{folder}/model").text_contract
    assert release.index["kind"] == "none"
    assert release.index["recall"] == 1.0
    assert verify(published.uri) == []
    assert verify(folder) == []
    assert published.to_json()["metrics"]["release"] == published.uri
    json.dumps(published.to_json())


def test_rows_that_are_no_documents_are_skipped_and_named(model, documents, tmp_path):
    rows = [line.split("\t") for line in Path(documents).read_text().splitlines()[:40]]
    lines = [json.dumps({"id": document_id, "title": title}) for document_id, title in rows]
    lines[3:3] = ['{"id": null, "title": "a"}', '{"id": "x\\n1 Q0 y 1 9 z", "title": "a"}']
    (tmp_path / "documents.jsonl").write_text("\n".join(lines))
    made = publish(model, documents=str(tmp_path / "documents.jsonl"), to=str(tmp_path / "live"), config=CONFIG)
    assert made.release.num_documents == 40
    assert notes(made.to_json()) == [
        "The documents have 1 row without an id, skipped: documents.jsonl:4",
        "The documents have 1 row with an id that is neither text nor a whole number, or holds a control character,"
        " skipped: documents.jsonl:5",
    ]


def test_publishing_again_is_reused(live, model, documents):
    before = sorted((path, path.stat().st_mtime_ns) for path in Path(live).rglob("*"))
    again = publish(model, documents=documents, to=live, config=replace(CONFIG, keep=1))
    assert again.reused
    assert sorted((path, path.stat().st_mtime_ns) for path in Path(live).rglob("*")) == before


def test_a_changed_document_makes_a_new_release_and_the_old_one_stays_readable(live, model, documents, tmp_path):
    reader = OpenRelease(live)
    old_pointer = read_pointer(live)
    changed = tmp_path / "changed.tsv"
    changed.write_text(Path(documents).read_text() + "new\tunheard of spigot\n")
    made = publish(model, documents=str(changed), to=live, config=CONFIG)
    assert not made.reused
    assert made.pointer.previous == old_pointer.release
    assert read_pointer(live).release == made.release.digest != old_pointer.release
    assert search(live, "unheard of spigot", 1)[0].id == "new"
    assert all(hit.id != "new" for hit in reader.search("unheard of spigot", 300))  # a reader never mixes releases
    assert verify(live) == []
    back = publish(model, documents=documents, to=live, config=CONFIG)  # the old release's files are taken again
    assert back.release.digest == old_pointer.release
    assert back.pointer.previous == made.release.digest


def test_old_releases_beyond_keep_are_removed_but_never_the_live_one_or_its_predecessor(live, model, tmp_path):
    digests = [read_pointer(live).release]
    for seed in (6, 7, 8):
        new = write_documents(tmp_path / f"{seed}.tsv", num_documents=40, seed=seed)
        made = publish(model, documents=new, to=live, config=replace(CONFIG, keep=0))
        digests.append(made.release.digest)
    assert made.removed == [digests[1]]
    assert {path.name for path in Path(live, "releases").iterdir()} == set(digests[2:])
    assert verify(live) == []


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_a_reader_stays_in_its_release_even_if_that_is_removed_before_its_first_search(
    model, documents, tmp_path, kind
):
    uri = str(tmp_path / "live") if kind == "local" else "memory://bucket/readers"
    trained = trained_stage(str(tmp_path), recipe=varied(recipe("lstm-96"), cells=8, word_share=0.4, lexical_share=0.2))
    published = publish(trained, documents=documents, to=uri, config=replace(CONFIG, index="ivf", min_recall=0.5))
    kept, reader, release = OpenRelease(uri), OpenRelease(uri), clicktower.load(uri)
    queries = ("angle bracket", "garden hose")
    expected = [
        [kept.search(text, 5, mode, details=True) for text in queries for mode in ("hybrid", "vector", "bm25")],
        clicktower.load(uri).explain("angle bracket", kept.titles[3].as_py()),
        kept.title_vector(kept.titles[3].as_py()).tolist(),
    ]
    for seed in (30, 31):
        new = write_documents(tmp_path / f"{seed}.tsv", num_documents=40, seed=seed)
        publish(trained, documents=new, to=uri, config=replace(CONFIG, keep=0))
    assert not storage.exists(published.folder)
    assert [
        [reader.search(text, 5, mode, details=True) for text in queries for mode in ("hybrid", "vector", "bm25")],
        release.explain("angle bracket", reader.titles[3].as_py()),
        reader.title_vector(reader.titles[3].as_py()).tolist(),
    ] == expected


def test_the_table_of_an_evaluation_travels_with_the_release(model, documents, tmp_path):
    table = {"n": 20, "systems": {"model": {"ndcg@10": {"mean": 0.5}}}}
    request = Request(
        stage="evaluate", stage_version=1, config={}, inputs={"model": open_result(model).manifest.digest}
    )
    outcome = Outcome(metrics=table | {"example_queries": ["angle bracket"]})
    evaluation = run_stage(str(tmp_path / "store"), request, lambda folder: outcome).folder
    to = str(tmp_path / "live")
    made = publish(model, documents=documents, to=to, config=CONFIG, evaluation=evaluation)
    assert made.release.evaluation == table
    assert made.release.digest != publish(model, documents=documents, to=to, config=CONFIG).release.digest


def test_models_side_by_side_are_published_and_searched_as_one(model, documents, tmp_path):
    # Two hops over two directions of two cells: 8 dimensions beside the other's 8.
    attentive = varied(recipe("self-attentive"), cells=2, hops=2, tie_towers=True)
    both = combine([model, trained_stage(str(tmp_path), recipe=attentive)], store=str(tmp_path))
    uri = str(tmp_path / "live")
    release = publish(both.folder, documents=documents, to=uri, config=CONFIG).release
    assert (release.dimensions, release.query_tower["file"]) == (16, QUERY_TOWER)
    titles = read_documents(documents)
    scores = TitleEmbeddings(load_encoder(both.data), titles.titles).scores(["copper pipe"])[0]
    hits = search(uri, "copper pipe", 5)
    assert [hit.score for hit in hits] == rounded(np.sort(scores)[::-1][:5].tolist())
    assert verify(uri) == []


def test_missing_documents_are_wrong_usage(model, tmp_path):
    with pytest.raises(UsageError, match="There is no documents file"):
        publish(model, documents=str(tmp_path / "nowhere.tsv"), to=str(tmp_path / "live"), config=CONFIG)
    assert not list(tmp_path.iterdir())


def test_an_evaluation_of_another_model_is_refused(model, documents, tmp_path):
    other = trained_stage(str(tmp_path / "store"), seed=2)
    with pytest.raises(UsageError, match="is of another model:"):
        publish(model, documents=documents, to=str(tmp_path / "live"), config=CONFIG, evaluation=other)


def test_a_model_with_a_flipped_byte_is_not_published(documents, tmp_path):
    stage = trained_stage(str(tmp_path / "store"))
    weights = next(Path(stage).glob("*/model.safetensors"))
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(StageError, match="other bytes than were written"):
        publish(stage, documents=documents, to=str(tmp_path / "live"), config=CONFIG)
    assert read_pointer(str(tmp_path / "live")) is None


def test_releases_go_to_an_object_store_too(model, documents, tmp_path):
    uri = "memory://bucket/live"  # fsspec's file system in memory: it has no folders, no renaming and no locks
    made = publish(model, documents=documents, to=uri, config=CONFIG)
    assert read_pointer(uri).release == made.release.digest
    assert verify(uri) == []
    assert publish(model, documents=documents, to=uri, config=CONFIG).reused
    new = write_documents(tmp_path / "new.tsv", num_documents=40, seed=50)
    second = publish(trained_stage(str(tmp_path / "store"), seed=2), documents=new, to=uri, config=CONFIG)
    assert [one["state"] for one in list_releases(uri)] == ["live", "previous"]
    back = rollback(uri)
    assert (back.pointer.release, back.pointer.number) == (made.release.digest, 3)
    assert back.pointer.previous == second.release.digest
    assert verify(uri) == []
    storage.write_atomic(f"{uri}/swaps/0000000001.json", b"{}")
    assert verify(uri) == ["its swaps/0000000001.json is damaged"]
