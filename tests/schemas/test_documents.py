import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError

ROWS = [("d1", "Angle bracket, 3 in."), ("d2", 'The "quoted" hammer'), ("d3", "漢字")]
TSV = "".join(f"{i}\t{t}\n" for i, t in ROWS)


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: bytes | str) -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path / name)

    return write_file


def test_every_form_gives_the_same_documents(write, tmp_path):
    pq.write_table(pa.table({"id": [r[0] for r in ROWS], "title": [r[1] for r in ROWS]}), tmp_path / "d.parquet")
    lines = "".join(json.dumps({"id": i, "title": t}, ensure_ascii=False) + "\n" for i, t in ROWS)
    for path in (write("d.tsv", TSV), write("d.tsv.gz", gzip.compress(TSV.encode())), write("d.jsonl", lines),
                 str(tmp_path / "d.parquet")):  # fmt: skip
        documents = read_documents(path)
        assert list(zip(documents.ids, documents.titles, strict=True)) == ROWS


def test_a_beir_corpus_has_titles_or_texts(write):
    rows = [("d1", "Angle bracket", "Steel."), ("d2", "", "A hammer"), ("3", " ", " ")]
    lines = "".join(json.dumps({"_id": i, "title": t, "text": x, "metadata": {}}) + "\n" for i, t, x in rows)
    documents = read_documents(write("corpus.jsonl", lines))
    assert (documents.ids, documents.titles) == (["d1", "d2"], ["Angle bracket", "A hammer"])
    assert documents.num_untitled == 1


def test_documents_without_a_word_are_counted(write):
    documents = read_documents(write("d.tsv", TSV + "d4\t\nd5\t   \n"))
    assert (len(documents), documents.num_untitled) == (3, 2)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.tsv", TSV + "d1\tagain\n", r"1 ids occur more than once in .* \(d1\)"),
        ("d.tsv", "d1\t\nd2\t\n", "None of the 2 documents of .* has a title"),
        ("d.tsv", "", "is empty"),
        ("d.tsv", "d1 without a tab\n", "does not have the format"),
        ("d.tsv", b"d1\t\xff\xfe\n", "does not have the format"),
        ("d.jsonl", '{"id": "d1"}\n', "does not have the format"),
        ("d.jsonl", '{"_id": "d1", "title": ""}\n', "does not have the format"),
        ("d.parquet", "no parquet", "does not have the format"),
        ("d.tsv.gz", gzip.compress(TSV.encode())[:-9], "not a whole gzip"),
    ],
)
def test_bad_documents_get_an_error_that_says_why(write, name, content, words):
    with pytest.raises(StageError, match=words):
        read_documents(write(name, content))


def test_a_missing_file_or_unknown_form_is_wrong_usage(write):
    with pytest.raises(UsageError, match=r"(?i)no such file"):
        read_documents("nowhere.tsv")
    with pytest.raises(UsageError, match=r"(?i)ending of d?.*xml is unknown"):
        read_documents(write("d.xml", "<d/>"))
