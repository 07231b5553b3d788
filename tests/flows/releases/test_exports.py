"""Each export read back by a reader that is not ours."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest
import pytrec_eval

import clicktower as clicktower_api
from clicktower.flows.cli import run as clicktower
from clicktower.flows.releases import export_release, opensearch_index
from clicktower.flows.releases.export_release import export
from clicktower.flows.releases.kept_releases import rollback, verify
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.release_documents import open_documents
from clicktower.flows.releases.search import OpenRelease, search
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import seal, to_bytes
from clicktower.training.model.model_folder import model_source
from tests.flows.releases.catalogue import CONFIG
from tests.rounding import rounded


def documents_of(published) -> dict[str, tuple[str, list[float]]]:
    """id -> (title, vector), as the release has them."""
    documents, vectors = open_documents(published.folder)
    titled = zip(documents["title"].to_pylist(), vectors.tolist(), strict=True)
    return dict(zip(documents["id"].to_pylist(), titled, strict=True))


def test_parquet_is_read_by_duckdb_and_polars(published, tmp_path):
    into = str(tmp_path / "titles.parquet")
    made = export(published.uri, form="parquet", into=into)
    assert made["counts"] == {"documents": 300}
    expected = documents_of(published)
    query = f"SELECT id, title, vector, list_dot_product(vector, vector) AS norm FROM '{into}'"
    rows = duckdb.sql(query).fetchall()
    assert {row[0]: (row[1], list(row[2])) for row in rows} == expected
    assert [row[3] for row in rows] == rounded([1.0] * 300)
    frame = polars.read_parquet(into)
    assert dict(zip(frame["id"], zip(frame["title"], frame["vector"].to_list(), strict=True), strict=True)) == expected
    ((about,),) = duckdb.sql(f"SELECT value FROM parquet_kv_metadata('{into}') WHERE key = 'clicktower'").fetchall()
    assert json.loads(about)["release"] == published.release.digest


def test_lancedb_opens_a_table_with_the_same_bits(published, tmp_path, monkeypatch):
    lancedb, into = pytest.importorskip("lancedb"), str(tmp_path / "titles")
    assert export(published.uri, form="lancedb", into=into)["counts"] == {"documents": 300}
    rows = lancedb.connect(into).open_table("documents").to_arrow().to_pylist()
    assert {row["id"]: (row["title"], row["vector"]) for row in rows} == documents_of(published)
    monkeypatch.setattr(export_release, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the package lancedb. Run `pip install 'clicktower\[lancedb\]'`"):
        export(published.uri, form="lancedb", into=str(tmp_path / "other"))


def test_opensearch_gets_an_index_and_bulk_bodies_of_bounded_size(published, tmp_path, monkeypatch):
    monkeypatch.setattr(opensearch_index, "BULK_BYTES", 10_000)
    into = tmp_path / "index"
    made = export(published.uri, form="opensearch", into=str(into))
    bodies = sorted(into.glob("documents-*.ndjson"))
    assert made["counts"] == {"documents": 300, "files": len(bodies)}
    assert len(bodies) > 3
    assert all(body.stat().st_size <= 10_000 for body in bodies)
    found = {}
    for body in bodies:  # each is a request of its own: whole pairs of lines, the last of them ended
        assert body.read_bytes().endswith(b"\n")
        fields = "{'index': 'STRUCT(_id VARCHAR)', 'title': 'VARCHAR', 'vector': 'FLOAT[]'}"
        rows = duckdb.sql(f"FROM read_json('{body}', format='newline_delimited', columns={fields})").fetchall()
        for (action, *nothing), (no_action, title, vector) in zip(rows[::2], rows[1::2], strict=True):
            assert (nothing, no_action) == ([None, None], None)
            found[action["_id"]] = title, vector
    assert found == documents_of(published)

    index = json.loads((into / "index.json").read_text())
    assert index["settings"]["index"]["knn"] is True
    vector = index["mappings"]["properties"]["vector"]
    assert vector["type"] == "knn_vector"
    assert vector["dimension"] == published.release.dimensions == 8
    assert vector["method"]["name"] == "hnsw"
    assert (vector["method"]["engine"], vector["method"]["space_type"]) == ("lucene", "cosinesimil")
    assert set(vector["method"]["parameters"]) == {"ef_construction", "m"}
    assert index["mappings"]["properties"]["title"]["analyzer"] in index["settings"]["analysis"]["analyzer"]


def test_a_trec_run_is_read_by_trec_eval_and_ranks_as_search_does(published, tmp_path):
    queries, into = tmp_path / "queries.tsv", tmp_path / "titles.run"
    queries.write_text("q1\tcopper pipe\nq2\tangle bracket\nq3\t \n")
    made = export(published.uri, form="trec", into=str(into), queries=str(queries), k=7)
    assert made["counts"] == {"queries": 3, "queries_without_words": 1}
    with into.open() as file:
        run = pytrec_eval.parse_run(file)
    assert {query: len(scores) for query, scores in run.items()} == {"q1": 7, "q2": 7}
    hits = search(published.uri, "copper pipe", 7)
    assert run["q1"] == {hit.id: pytest.approx(hit.score) for hit in hits}
    qrels = {"q1": {hits[0].id: 1}, "q2": {"d0": 0}}
    assert pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run)["q1"]["recip_rank"] == 1.0
    assert into.read_text().splitlines()[0].split()[-1] == f"clicktower-{published.release.digest}"


def test_a_hub_gets_a_model_that_sentence_transformers_opens(published, tmp_path):
    from huggingface_hub import ModelCard
    from sentence_transformers import SentenceTransformer

    into = tmp_path / "model"
    assert export(published.uri, form="hub", into=str(into))["counts"] == {"files": 5}
    model, texts = (
        SentenceTransformer(str(into), trust_remote_code=True, device="cpu"),
        ["copper pipe", "Angle bracket"],
    )
    release = clicktower_api.load(published.uri)
    np.testing.assert_allclose(model.encode_query(texts), release.encode_queries(texts), atol=1e-6)
    np.testing.assert_allclose(model.encode_document(texts), release.encode_titles(texts), atol=1e-6)
    assert model.similarity_fn_name == release.similarity
    card = ModelCard((into / "README.md").read_text())
    assert (card.data.library_name, card.data.license) == ("sentence-transformers", None)
    assert "documents.arrow" not in card.text


def test_an_id_with_white_space_has_no_place_in_a_trec_run(model, tmp_path):
    documents, queries = tmp_path / "documents.tsv", tmp_path / "queries.tsv"
    documents.write_text("two words\tcopper pipe\n")
    queries.write_text("q1\tcopper pipe\n")
    publish(model, documents=str(documents), to=str(tmp_path / "live"), config=CONFIG)
    with pytest.raises(StageError, match="white space"):
        export(str(tmp_path / "live"), form="trec", into=str(tmp_path / "run"), queries=str(queries))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents.tsv", "live", "queries.tsv"]


@pytest.mark.parametrize("form", ["parquet", "opensearch"])
def test_what_is_read_is_written_before_more_is_read(published, tmp_path, monkeypatch, form):
    """So that memory holds a few batches, whatever the number of documents."""
    on_disk = []

    class Large(OpenRelease):
        """Forty times the documents."""

        def __init__(self, uri):
            super().__init__(uri)
            self.documents, self.vectors_ND = (
                pa.concat_batches([self.documents] * 40),
                np.tile(self.vectors_ND, (40, 1)),
            )
            self.release = replace(self.release, num_documents=len(self.documents))

    def progress(what, done, total):
        if what == "write documents":
            on_disk.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))

    monkeypatch.setattr(export_release, "OpenRelease", Large)
    monkeypatch.setattr(export_release, "_BATCH_ROWS", 300)
    monkeypatch.setattr(opensearch_index, "BULK_BYTES", 100_000)
    export(published.uri, form=form, into=str(tmp_path / "out"), progress=progress)
    assert len(on_disk) == 40
    all_bytes = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert on_disk[20] > 0.4 * all_bytes
    assert on_disk[-1] > 0.9 * all_bytes


def test_what_cannot_be_exported_is_said_and_nothing_is_written(published, tmp_path, capsys):
    there, queries = tmp_path / "there", str(tmp_path / "queries.tsv")
    there.write_text("mine")
    into = str(tmp_path / "out")
    for arguments, said in (
        ({"form": "csv", "into": into}, "The form 'csv' of an export is unknown."),
        ({"form": "parquet", "into": str(there)}, "Give another name, or remove it first."),
        ({"form": "opensearch", "into": str(tmp_path)}, "Give another name, or remove it first."),
        ({"form": "trec", "into": into}, "A TREC run needs queries"),
        ({"form": "parquet", "into": into, "queries": queries}, "parquet takes no queries"),
        ({"form": "trec", "into": into, "queries": queries, "k": 0}, "at least 1 document per query, not 0"),
        ({"form": "trec", "into": into, "queries": queries}, "no such file|no queries file|cannot be read"),
    ):
        with pytest.raises(UsageError, match=f"(?i){said}"):
            export(published.uri, **arguments)
    with pytest.raises(StageError, match="Nothing is published at"):
        export(str(tmp_path / "nowhere"), form="parquet", into=into)
    with pytest.raises(StageError, match="Nothing was exported"):
        export(published.uri, form="parquet", into=f"{there}/below a file")
    assert there.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert clicktower(["export", "--release", published.uri, "--form", "csv", "--into", into]) == 2
    assert "is unknown" in capsys.readouterr().err


def linked(released: Path, name: str, secret: Path) -> None:
    """The recorded file as a stranger's release has it: a link to a file of the reader's, of the recorded size."""
    secret.write_bytes((released / name).read_bytes())
    (released / name).unlink()
    (released / name).symlink_to(secret)


def in_linked_folder(released: Path, name: str, secret: Path) -> None:
    folder = (released / name).parent
    shutil.copytree(folder, secret)
    shutil.rmtree(folder)
    folder.symlink_to(secret)


def other_bytes(released: Path, name: str, _: Path) -> None:
    content = bytearray((released / name).read_bytes())
    content[-1] ^= 1
    (released / name).write_bytes(content)


def unrecorded(released: Path, name: str, secret: Path) -> None:
    """A record that leaves the file out, so that its size and hash are compared with nothing."""
    record = released / "release.json"
    value = json.loads(record.read_bytes())
    value["files"] = [file for file in value["files"] if file["path"] != name]
    record.write_bytes(to_bytes(seal(value)))
    linked(released, name, secret)


@pytest.mark.parametrize("form", ["hub", "parquet", "opensearch"])
@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (linked, "README.md", "README.md is a link"),
        (linked, "model/model.json", "model/model.json is a link"),
        (in_linked_folder, "model/model.json", "in a linked folder"),
        (other_bytes, "README.md", "README.md has other bytes than were written"),
        (unrecorded, "README.md", "README.md is not of this output"),
    ],
)
def test_nothing_of_a_strangers_release_leads_to_a_file_of_its_reader(live, tmp_path, form, change, name, words):
    pointer = json.loads(Path(live, "pointer.json").read_bytes())
    released = Path(live, "releases", pointer["release"])
    change(released, name, tmp_path / "secret")
    with pytest.raises(StageError, match=words) as refused:
        export(live, form=form, into=str(tmp_path / "out"))
    assert refused.value.fix
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("out*"))
    assert [sentence for sentence in verify(live) if words in sentence]


def test_links_in_a_release_are_damage_to_every_reader(live, tmp_path):
    pointer = json.loads(Path(live, "pointer.json").read_bytes())
    linked(Path(live, "releases", pointer["release"]), "model/model.json", tmp_path / "secret")
    for read in (OpenRelease, model_source, lambda uri: search(uri, "red hammer")):
        with pytest.raises(StageError, match=r"model/model\.json is a link"):
            read(live)
    with pytest.raises(StageError, match=r"model/model\.json is a link"):
        rollback(live, release=pointer["release"])


def test_a_store_below_a_link_is_no_link_itself(published, tmp_path):
    (tmp_path / "shortcut").symlink_to(published.uri)
    assert verify(str(tmp_path / "shortcut")) == []
    assert export(str(tmp_path / "shortcut"), form="hub", into=str(tmp_path / "hub"))["counts"] == {"files": 5}


def test_an_export_that_is_interrupted_leaves_nothing(published, tmp_path, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(opensearch_index, "index_definition", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(published.uri, form="opensearch", into=str(tmp_path / "index"))
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_what_it_wrote(published, tmp_path, capsys):
    into = str(tmp_path / "titles.parquet")
    assert clicktower(["export", "--release", published.uri, "--form", "parquet", "--into", into, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["stage"], result["path"], result["digest"]) == ("export", into, published.release.digest)
    assert Path(into).exists()
