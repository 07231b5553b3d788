"""Only new or changed titles are encoded, a killed publisher's finished parts are taken, and no vector changes.

On the compiled path to the last bit: torch rounds a text by what stands beside it, so the model here is one that the
kernel serves.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clicktower.flows.releases import encode_texts as encoding
from clicktower.flows.releases import ivf_index, make_release
from clicktower.flows.releases.ivf_index import partition
from clicktower.flows.releases.kept_releases import verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.release_documents import open_documents, read_ivf
from clicktower.schemas.stage import open_result
from clicktower.schemas.text_contract import normalise
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe as named_recipe
from tests.flows.releases.catalogue import CONFIG
from tests.recipes import varied
from tests.trained_model import trained_stage

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    recipe = varied(named_recipe("lstm-96"), cells=32)
    folder = trained_stage(str(tmp_path_factory.mktemp("store")), recipe=recipe)
    assert load_model(open_result(folder).data).compiled
    return folder


@pytest.fixture(scope="module")
def published(model, documents, tmp_path_factory):
    return publish(model, documents=documents, to=str(tmp_path_factory.mktemp("live")), config=CONFIG)


def vectors_of(folder: str) -> dict[str, bytes]:
    documents, vectors = open_documents(folder)
    return {i: vector.tobytes() for i, vector in zip(documents["id"].to_pylist(), vectors, strict=True)}


def distinct_titles(documents: str) -> int:
    return len({normalise(line.split("\t")[1]) for line in Path(documents).read_text().splitlines()})


@pytest.fixture
def encoded(monkeypatch) -> list[str]:
    """The titles that are encoded from here on."""
    reported: list[str] = []
    real = encoding.search_vectors

    def telling(model, texts, side, **rest):
        reported.extend(texts if side == "document" else ())
        return real(model, texts, side, **rest)

    for module in (encoding, make_release):
        monkeypatch.setattr(module, "search_vectors", telling)
    return reported


def test_of_a_changed_catalogue_only_the_new_titles_are_encoded(live, model, documents, tmp_path, encoded, monkeypatch):
    monkeypatch.setattr(encoding, "_BLOCK_TITLES", 70)  # several
    changed = tmp_path / "changed.tsv"
    lines = Path(documents).read_text().splitlines(keepends=True)
    changed.write_text("".join([*lines[5:], "new\tUnheard of spigot\n", "newer\tunheard  OF spigot\n"]))
    reported: list[tuple] = []
    made = publish(model, documents=str(changed), to=live, config=CONFIG, progress=lambda *now: reported.append(now))
    assert encoded == ["unheard of spigot"]
    titles = distinct_titles(str(changed))
    assert ("encode titles", titles - 1, titles) in reported
    assert made.release.encoded == {"titles": titles, "encoded": 1, "resumed": 0, "reused": titles - 1}
    assert made.to_json()["metrics"]["encoded"]["reused"] == titles - 1
    fresh = publish(model, documents=str(changed), to=str(tmp_path / "fresh"), config=CONFIG)
    assert fresh.release.encoded["encoded"] == titles
    assert vectors_of(made.folder) == vectors_of(fresh.folder)
    assert verify(live) == []


def test_partitions_are_continued_while_few_titles_are_new(model, documents, tmp_path, monkeypatch):
    made_anew = []

    def counted(*rest, **named):
        made_anew.append(1)
        return partition(*rest, **named)

    monkeypatch.setattr(ivf_index, "partition", counted)
    uri, config = str(tmp_path / "live"), replace(CONFIG, index="ivf", min_recall=0.5)
    first = publish(model, documents=documents, to=uri, config=config)
    lines = Path(documents).read_text().splitlines(keepends=True)
    titles = distinct_titles(documents)
    new = [f"n{row}\tspigot {row} hose\n" for row in range(titles // 3)]

    def publish_with(first_new: int, end: int):
        path = tmp_path / f"{end}.tsv"
        path.write_text("".join([*new[first_new:end], *lines[7:]]))
        return publish(model, documents=str(path), to=uri, config=config)

    second = publish_with(0, 9)
    third = publish_with(3, 15)
    assert [made.release.index["new_texts"] for made in (first, second, third)] == [0, 9, 15]
    assert len(made_anew) == 1
    centres, partition_of = zip(*map(centres_and_partition_of, (first.folder, third.folder)), strict=True)
    assert centres[0].tobytes() == centres[1].tobytes()
    kept = partition_of[0].keys() & partition_of[1].keys()
    assert len(kept) == len(lines) - 7
    assert all(partition_of[0][name] == partition_of[1][name] for name in kept)
    _, vectors = open_documents(third.folder)
    nearest = (vectors[:12] @ centres[0].T).argmax(axis=1)
    assert [partition_of[1][f"n{row}"] for row in range(3, 15)] == nearest.tolist()
    assert third.release.index["recall"] >= 0.5
    fourth = publish_with(0, len(new))
    assert (fourth.release.index["new_texts"], len(made_anew)) == (0, 2)
    publish(model, documents=documents, to=uri, config=replace(config, seed=1))
    assert len(made_anew) == 3, "another seed asks for other centres"
    assert verify(uri) == []


def centres_and_partition_of(folder: str) -> tuple[np.ndarray, dict[str, int]]:
    documents, _ = open_documents(folder)
    partitions = read_ivf(folder)
    return partitions.centres_PD, dict(zip(documents["id"].to_pylist(), partitions.of_N.tolist(), strict=True))


def test_another_model_encodes_every_title(live, documents, tmp_path, encoded):
    publish(trained_stage(str(tmp_path / "store"), seed=2), documents=documents, to=live, config=CONFIG)
    assert len(encoded) == distinct_titles(documents)


def test_a_kept_release_of_the_model_serves_where_the_live_one_is_of_another(live, model, documents, tmp_path, encoded):
    publish(trained_stage(str(tmp_path / "store"), seed=2), documents=documents, to=live, config=CONFIG)
    encoded.clear()
    made = publish(model, documents=documents, to=live, config=replace(CONFIG, num_recall_queries=10))
    assert encoded == []
    assert made.release.encoded["reused"] == distinct_titles(documents)


def test_vectors_of_a_damaged_release_are_not_used_again(live, model, documents, encoded):
    data = next(Path(live).glob("releases/*/documents.arrow"))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    publish(model, documents=documents, to=live, config=replace(CONFIG, num_recall_queries=10))
    assert len(encoded) == distinct_titles(documents)


def test_parts_that_a_killed_publisher_finished_are_taken_by_the_next(
    model, documents, published, tmp_path, monkeypatch
):
    monkeypatch.setattr(make_release, "PART_TITLES", 50)
    to, real, parts = str(tmp_path / "live"), encoding.search_vectors, []

    def until_the_third(model, texts, side, **rest):
        parts.append(len(texts))
        if len(parts) == 3:
            raise KeyboardInterrupt
        return real(model, texts, side, **rest)

    monkeypatch.setattr(encoding, "search_vectors", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        publish(model, documents=documents, to=to, config=CONFIG)
    left = sorted(Path(to, "encoding").iterdir())
    assert [path.suffix for path in left] == [".part", ".part"]
    left[0].write_bytes(left[0].read_bytes()[:-1] + b"\0")  # one of them is damaged since
    monkeypatch.setattr(encoding, "search_vectors", real)
    made = publish(model, documents=documents, to=to, config=CONFIG)
    titles = distinct_titles(documents)
    assert made.release.encoded == {"titles": titles, "encoded": titles - 50, "resumed": 50, "reused": 0}
    assert list(Path(to, "encoding").iterdir()) == []
    assert vectors_of(made.folder) == vectors_of(published.folder)


def test_progress_tells_how_many_titles_are_encoded(model, documents, tmp_path, monkeypatch):
    monkeypatch.setattr(make_release, "PART_TITLES", 50)
    reported: list[tuple] = []
    publish(model, documents=documents, to=str(tmp_path), config=CONFIG, progress=lambda *now: reported.append(now))
    counts = [done for what, done, total in reported if what == "encode titles"]
    titles = distinct_titles(documents)
    assert counts == [*range(0, titles, 50), titles]


@pytest.mark.rehearsal
@pytest.mark.engine
def test_workers_of_a_cluster_give_the_same_bytes(model, documents, published, tmp_path, monkeypatch, encoded):
    monkeypatch.setattr(make_release, "PART_TITLES", 100)
    monkeypatch.chdir(tmp_path)
    to = "live"  # which a worker, in a folder of its own, would take for another place
    made = publish(model, documents=documents, to=to, config=CONFIG, workers=2)
    assert encoded == []  # not in this process
    assert made.release.encoded["encoded"] == distinct_titles(documents)
    assert list(Path(to, "encoding").iterdir()) == []
    assert vectors_of(made.folder) == vectors_of(published.folder)
