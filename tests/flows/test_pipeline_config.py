import pytest

from flows.pipeline_config import check_inputs, dated, read_pipeline
from schemas.errors import UsageError

LEAST = """
[log]
files = ["logs/*.gz"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "/data/qrels.txt"
"""


def write(folder, text: str) -> str:
    (folder / "pipeline.toml").write_text(text, encoding="utf-8")
    return str(folder / "pipeline.toml")


def test_paths_are_relative_to_the_file_and_uris_stay(tmp_path):
    config = read_pipeline(write(tmp_path, 'store = "s3://bucket/store"\n' + LEAST))
    assert config.log.files == (str(tmp_path / "logs/*.gz"),)
    assert config.judgments.qrels == "/data/qrels.txt"
    assert config.store == "s3://bucket/store"
    assert config.publish.to == str(tmp_path / "release")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not toml [", "not TOML"),
        (LEAST.replace("[documents]", "[dokuments]"), "dokuments"),
        (LEAST.replace('file = "documents.tsv"', ""), r"documents\.file is missing"),
        (LEAST + "[train]\nworkers = 'many'\n", r"train\.workers"),
        (LEAST + "[build]\nk = 5\n[extra]\n", "extra"),
    ],
)
def test_a_wrong_file_is_refused_and_the_place_named(tmp_path, text, words):
    with pytest.raises(UsageError, match=words):
        read_pipeline(write(tmp_path, text))


def test_a_missing_file_is_refused():
    with pytest.raises(UsageError, match=r"(?i)no such file"):
        read_pipeline("nowhere.toml")


def test_all_missing_inputs_are_named_before_anything_runs(tmp_path):
    with pytest.raises(UsageError) as told:
        check_inputs(read_pipeline(write(tmp_path, LEAST)), "2026-09-01")
    for name in ("logs/*.gz", "documents.tsv", "queries.tsv", "qrels.txt"):
        assert name in str(told.value)


def test_the_data_date_is_filled_in():
    assert dated(("logs/{date}/*.gz", "more.gz"), "2026-09-01") == ("logs/2026-09-01/*.gz", "more.gz")
