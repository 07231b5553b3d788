import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flows import make_release as making
from flows import publish as publishing
from flows.pointer import swap
from flows.publish import PublishConfig, publish
from flows.search import OpenRelease, search
from flows.verify import verify
from schemas.documents import read_documents
from schemas.errors import StageError, UnknownVersionError, UsageError
from schemas.manifest import Outcome, Request
from schemas.release import read_pointer, read_release
from schemas.stage import open_result, run_stage
from tests.trained_model import trained_stage
from training.combine import combine
from training.ensemble import load_encoder
from training.model import load_model
from training.ranking.embedding import TitleEmbeddings
from training.ranking.ndcg import descending_order
from training.ranking.retrieval import top_k

CONFIG = PublishConfig(num_recall_queries=20)
WORDS = ["steel", "angle", "bracket", "hose", "garden", "grinder", "shelf", "pipe", "copper", "nail", "2x4", "ørn"]


def write_documents(path: Path, num_documents: int = 300, seed: int = 0) -> str:
    """Titles of one to five words; some occur twice."""
    rng = np.random.default_rng(seed)
    titles = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(num_documents)]
    path.write_text("".join(f"d{i}\t{title}\n" for i, title in enumerate(titles)))
    return str(path)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")), labels={"simulated": True})


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> str:
    return write_documents(tmp_path_factory.mktemp("catalogue") / "documents.tsv")


@pytest.fixture(scope="module")
def published(model, documents, tmp_path_factory):
    return publish(model, documents=documents, to=str(tmp_path_factory.mktemp("live")), config=CONFIG)


@pytest.fixture
def live(published, tmp_path) -> str:
    """A copy of the published release that a test may damage."""
    return str(shutil.copytree(published.uri, tmp_path / "live"))


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


def test_publishing_again_is_reused(live, model, documents):
    before = sorted((path, path.stat().st_mtime_ns) for path in Path(live).rglob("*"))
    again = publish(model, documents=documents, to=live, config=replace(CONFIG, keep=1))
    assert again.reused
    assert sorted((path, path.stat().st_mtime_ns) for path in Path(live).rglob("*")) == before


def test_search_without_an_index_ranks_as_exact_search_does(published, documents):
    catalogue = read_documents(documents)
    encoder = load_model(f"{published.folder}/model")
    scores = TitleEmbeddings(encoder, catalogue.titles).scores(["angle bracket"])
    rows, expected = top_k(scores, 20, descending_order(catalogue.ids))
    hits = search(published.uri, "Angle  BRACKET", 20)
    assert [hit.rank for hit in hits] == list(range(1, 21))
    assert [hit.score for hit in hits] == pytest.approx(expected[0].tolist(), abs=1e-5)
    # Two ways to add up a dot product differ by rounding, so only what is further apart has one order.
    apart = np.diff(expected[0], prepend=np.inf, append=-np.inf) < -1e-5
    for rank in np.flatnonzero(apart[:-1] & apart[1:]):
        assert hits[rank].id == catalogue.ids[rows[0, rank]]


@pytest.mark.parametrize("index", ["ivf-flat", "hnsw"])
def test_search_with_an_index_finds_what_it_promises(model, documents, tmp_path, index):
    config = replace(CONFIG, index=index, min_recall=0.9, recall_at=20)
    made = publish(model, documents=documents, to=str(tmp_path / index), config=config)
    assert made.release.index["kind"] == index
    assert made.release.index["recall"] >= 0.9
    catalogue = read_documents(documents)
    scores = TitleEmbeddings(load_model(f"{made.folder}/model"), catalogue.titles).scores(["angle bracket"])
    hits = search(made.uri, "Angle  BRACKET", 20)
    assert len({hit.id for hit in hits}) == 20
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        row = catalogue.ids.index(hit.id)
        assert catalogue.titles[row] == hit.title
        assert hit.score == pytest.approx(scores[0, row], abs=1e-5)


def test_equal_titles_are_ordered_by_descending_id(model, tmp_path):
    path = tmp_path / "documents.tsv"
    path.write_text("a\tangle bracket\nc\tAngle Bracket\nb\tangle bracket\nd\tgarden hose\n")
    made = publish(model, documents=str(path), to=str(tmp_path / "live"), config=CONFIG)
    hits = search(made.uri, "angle bracket", 10)
    assert [hit.id for hit in hits] == ["c", "b", "a", "d"]
    assert hits[0].score == pytest.approx(1.0, abs=1e-6)


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


@pytest.mark.parametrize(("module", "step"), [(making, "write_rows"), (making, "build_index"), (publishing, "swap")])
def test_an_exception_before_the_swap_leaves_the_old_release_live(live, model, tmp_path, monkeypatch, module, step):
    before = read_pointer(live)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(model, documents=write_documents(tmp_path / "new.tsv", seed=1), to=live, config=CONFIG)
    assert read_pointer(live) == before
    assert search(live, "angle bracket", 3)
    assert not list(Path(live, "releases").glob(".building-*"))
    assert verify(live) == []


def test_a_killed_publisher_leaves_the_old_release_live_and_the_next_one_succeeds(live, model, tmp_path):
    before = read_pointer(live)
    new = write_documents(tmp_path / "new.tsv", seed=2)
    script = f"""
import os, signal
from flows import make_release as making
from flows import publish as publishing
making.build_index = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
publishing.publish({model!r}, documents={new!r}, to={live!r}, config=publishing.PublishConfig(num_recall_queries=20))
"""
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -9
    assert list(Path(live, "releases").glob(".building-*"))  # what it left, under no final name
    assert read_pointer(live) == before
    assert verify(live) == []
    made = publish(model, documents=new, to=live, config=CONFIG)
    assert read_pointer(live).release == made.release.digest
    abandoned = next(Path(live, "releases").glob(".building-*"))
    os.utime(abandoned, (0, 0))  # left long ago
    publish(model, documents=write_documents(tmp_path / "newer.tsv", seed=3), to=live, config=CONFIG)
    assert not abandoned.exists()


def test_a_full_disk_is_an_error_and_the_old_release_stays_live(live, model, tmp_path):
    before = read_pointer(live)
    new = write_documents(tmp_path / "new.tsv", num_documents=5_000, seed=4)
    script = f"""
import resource
from flows.publish import PublishConfig, publish
from schemas.errors import StageError
from flows import make_release as making
real = making.write_rows
def on_a_full_disk(*rows):
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    return real(*rows)
making.write_rows = on_a_full_disk
try:
    publish({model!r}, documents={new!r}, to={live!r}, config=PublishConfig(num_recall_queries=20))
except StageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "File too large" in done.stdout
    assert "what is live stays" in done.stdout.lower()
    assert read_pointer(live) == before
    assert verify(live) == []
    assert not list(Path(live, "releases").glob(".building-*"))


def test_a_place_that_cannot_be_written_is_an_error(model, documents, tmp_path):
    (tmp_path / "a file").write_text("in the way")
    with pytest.raises(StageError, match="release was to be published"):
        publish(model, documents=documents, to=str(tmp_path / "a file" / "live"), config=CONFIG)


def test_the_second_of_two_publishers_says_that_the_pointer_moved(live):
    seen_by_both = read_pointer(live)
    winner = swap(live, expected=seen_by_both, release="winner")
    with pytest.raises(StageError, match="Another publisher moved it to winner"):
        swap(live, expected=seen_by_both, release="loser")
    assert read_pointer(live) == winner


def test_of_many_processes_that_swap_at_once_exactly_one_wins(tmp_path):
    script = f"""
import sys
from flows.pointer import swap
from schemas.errors import StageError
print("ready", flush=True)
sys.stdin.readline()
try:
    print(swap({str(tmp_path)!r}, expected=None, release=sys.argv[1]).release)
except StageError as error:
    print(error.found)
"""
    pipes = {"text": True, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    publishers = [subprocess.Popen([sys.executable, "-c", script, f"r{i}"], **pipes) for i in range(6)]
    assert [publisher.stdout.readline() for publisher in publishers] == ["ready\n"] * 6
    for publisher in publishers:
        publisher.stdin.write("go\n")
        publisher.stdin.flush()
    said = [publisher.communicate()[0].strip() for publisher in publishers]
    live = read_pointer(str(tmp_path)).release
    assert sorted(said) == sorted([live] + [f"another publisher moved it to {live} in the meantime"] * 5)


def test_a_pointer_that_moves_while_a_release_is_made_is_not_undone(live, model, tmp_path, monkeypatch):
    real = making.build_index

    def while_another_publishes(*args, **kwargs):
        swap(live, expected=read_pointer(live), release="theirs")
        return real(*args, **kwargs)

    monkeypatch.setattr(making, "build_index", while_another_publishes)
    new = write_documents(tmp_path / "new.tsv", seed=5)
    with pytest.raises(StageError, match="Another publisher moved it"):
        publish(model, documents=new, to=live, config=CONFIG)
    monkeypatch.undo()
    again = publish(model, documents=new, to=live, config=CONFIG)  # its files were kept: nothing is encoded again
    assert again.milliseconds_per_search is None
    assert read_pointer(live).release == again.release.digest


def test_a_damaged_release_is_refused_by_search_and_repaired_by_publish(live, model, documents):
    data = next(Path(live).glob("releases/*/documents.lance/data/*.lance"))
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(StageError, match="bytes and should have"):
        search(live, "angle bracket")
    made = publish(model, documents=documents, to=live, config=CONFIG)
    assert not made.reused
    assert "should have" in made.repaired[0]
    assert search(live, "angle bracket", 3)
    assert verify(live) == []
    Path(made.folder, "release.json").unlink()
    with pytest.raises(StageError, match=r"no release\.json"):
        search(live, "angle bracket")
    assert publish(model, documents=documents, to=live, config=CONFIG).repaired == ["release.json is missing"]
    assert search(live, "angle bracket", 3)


def test_a_repair_that_fails_takes_nothing_away(live, model, documents, monkeypatch):
    data = next(Path(live).glob("releases/*/documents.lance/data/*.lance"))
    data.write_bytes(data.read_bytes() + b"x")

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(making, "build_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(model, documents=documents, to=live, config=CONFIG)
    assert data.exists()


def test_verify_finds_a_flipped_byte_and_a_version_of_the_table_that_nobody_published(live):
    data = next(Path(live).glob("releases/*/documents.lance/data/*.lance"))
    content = bytearray(data.read_bytes())
    content[len(content) // 3] ^= 1
    data.write_bytes(content)
    versions = next(Path(live).glob("releases/*/documents.lance/_versions"))
    shutil.copy(next(versions.glob("*.manifest")), versions / "1.manifest")
    found = verify(live)
    assert len(found) == 2
    assert f"{data.name} has other bytes than were written" in found[0]
    assert "1.manifest is not of this output" in found[1]


def test_an_index_that_misses_too_much_is_searched_harder_and_at_last_not_used(model, documents, tmp_path, monkeypatch):
    real = making.build_index.__globals__["_recall"]

    def misses_below_17_probes(table, setting, *rest):
        return 0.5 if setting.get("num_probes", 17) < 17 else real(table, setting, *rest)

    monkeypatch.setitem(making.build_index.__globals__, "_recall", misses_below_17_probes)
    config = replace(CONFIG, index="ivf-flat", min_recall=1.0)
    harder = publish(model, documents=documents, to=str(tmp_path / "harder"), config=config).release.index
    assert (harder["kind"], harder["num_probes"], harder["num_partitions"]) == ("ivf-flat", 17, 17)
    assert [tried["num_probes"] for tried in harder["tried"]] == [10, 17]

    def never(table, setting, *rest):
        return 1.0 if setting["kind"] == "none" else 0.4

    monkeypatch.setitem(making.build_index.__globals__, "_recall", never)
    exact = publish(model, documents=documents, to=str(tmp_path / "exact"), config=config).release.index
    assert exact["kind"] == "none"
    assert "searches are exact" in exact["note"]
    monkeypatch.setitem(making.build_index.__globals__, "_recall", lambda *a: 0.4)
    with pytest.raises(StageError, match="Even exact search found only"):
        publish(model, documents=documents, to=str(tmp_path / "broken"), config=config)
    assert read_pointer(str(tmp_path / "broken")) is None


def test_old_releases_beyond_keep_are_removed_but_never_the_live_one_or_its_predecessor(live, model, tmp_path):
    digests = [read_pointer(live).release]
    for seed in (6, 7, 8):
        new = write_documents(tmp_path / f"{seed}.tsv", num_documents=40, seed=seed)
        made = publish(model, documents=new, to=live, config=replace(CONFIG, keep=0))
        digests.append(made.release.digest)
    assert made.removed == [digests[1]]
    assert {path.name for path in Path(live, "releases").iterdir()} == set(digests[2:])
    assert verify(live) == []


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
    both = combine([model, trained_stage(str(tmp_path), seed=2)], store=str(tmp_path))
    uri = str(tmp_path / "live")
    assert publish(both.folder, documents=documents, to=uri, config=CONFIG).release.dimensions == 16
    titles = read_documents(documents)
    scores = TitleEmbeddings(load_encoder(both.data), titles.titles).scores(["copper pipe"])[0]
    hits = search(uri, "copper pipe", 5)
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1][:5], rtol=1e-5)
    assert verify(uri) == []


def test_missing_documents_are_wrong_usage(model, tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        publish(model, documents=str(tmp_path / "nowhere.tsv"), to=str(tmp_path / "live"), config=CONFIG)
    assert not list(tmp_path.iterdir())


def test_an_evaluation_of_another_model_is_refused(model, documents, tmp_path):
    other = trained_stage(str(tmp_path / "store"), seed=2)
    with pytest.raises(UsageError, match="It is of another model"):
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


def test_releases_go_to_an_object_store_too(model, documents):
    uri = "memory://bucket/live"  # fsspec's file system in memory: it has no folders, no renaming and no locks
    made = publish(model, documents=documents, to=uri, config=CONFIG)
    assert read_pointer(uri).release == made.release.digest
    assert verify(uri) == []
    assert publish(model, documents=documents, to=uri, config=CONFIG).reused


def test_search_says_what_is_wrong(live, published, tmp_path):
    for text in ("", " \t "):
        with pytest.raises(UsageError, match="no word"):
            search(live, text)
    with pytest.raises(UsageError, match="at least 1"):
        search(live, "hose", 0)
    with pytest.raises(StageError, match="Nothing was published there yet"):
        search(str(tmp_path / "nowhere"), "hose")


@pytest.mark.parametrize("where", ["pointer.json", "release.json", "text contract"])
def test_an_unknown_major_version_is_refused(live, model, documents, where):
    path = Path(live, "pointer.json") if where == "pointer.json" else next(Path(live).glob("releases/*/release.json"))
    value = json.loads(path.read_text())
    if where == "text contract":
        value["text_contract"]["trigrams"] = "2.0"
    else:
        value["schema_version"] = "2.0"
    path.write_text(json.dumps(value))
    with pytest.raises(UnknownVersionError, match=r"version 2\.0"):
        search(live, "hose")
    if where == "pointer.json":
        with pytest.raises(UnknownVersionError):
            publish(model, documents=documents, to=live, config=CONFIG)


def test_a_damaged_pointer_is_an_error_for_search_publish_and_verify(live, model, documents):
    Path(live, "pointer.json").write_text('{"schema_version": "1.0", "rel')
    with pytest.raises(StageError, match=r"pointer\.json is damaged"):
        search(live, "hose")
    with pytest.raises(StageError, match=r"pointer\.json is damaged"):
        publish(model, documents=documents, to=live, config=CONFIG)
    assert verify(live) == ["its pointer.json is damaged"]


def test_a_release_of_a_later_minor_version_is_read(live):
    path = next(Path(live).glob("releases/*/release.json"))
    value = json.loads(path.read_text()) | {"schema_version": "1.7", "said_later": True}
    path.write_text(json.dumps(value))
    assert search(live, "hose", 1)
