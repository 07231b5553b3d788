"""One file for development and production: the environment's variables in its texts, and fields set beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.config.replacements import _with_variables
from clicktower.schemas.errors import UsageError

FILE = """
store = "${BASE}/store"
[log]
files = ["${BASE}/logs/{date}/*.gz", "more/*.gz"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "qrels.txt"
[train]
workers = "${WORKERS}"
[build]
k = 5
"""


def write(folder, text: str) -> str:
    (folder / "pipeline.toml").write_text(text, encoding="utf-8")
    return str(folder / "pipeline.toml")


def test_variables_are_filled_in_wherever_a_text_is_and_numbers_are_read_as_such(tmp_path, monkeypatch):
    monkeypatch.setenv("BASE", "s3://bucket/$${x}")
    monkeypatch.setenv("WORKERS", "3")
    config = read_pipeline(write(tmp_path, FILE))
    assert config.store == "s3://bucket/$${x}/store", "a value is not read again"
    assert config.log.files == ("s3://bucket/$${x}/logs/{date}/*.gz", str(tmp_path / "more/*.gz"))
    assert config.train.workers == 3
    monkeypatch.setenv("BASE", "here")
    assert read_pipeline(write(tmp_path, FILE)).store == str(tmp_path / "here/store"), "relative to the file, as any"


@pytest.mark.parametrize(
    ("text", "problem", "fix"),
    [
        ("${NO_SUCH_PLACE}/x", "variable NO_SUCH_PLACE is not set", r"Set it \(NO_SUCH_PLACE="),
        ("${}", r"\$\{\} names no environment variable", r"Write \$\{NAME\}"),
        ("${BASE", r"\$\{BASE names no environment variable", r"or \$\$\{ for"),
        ("${a-b}", r"\$\{a-b\} names no environment variable", r"Write \$\{NAME\}"),
        ("${AWS_SECRET_ACCESS_KEY}", "looks like a secret", "read their credentials from the environment"),
        ("${db_password}", "looks like a secret", "Leave it out"),
        ("${API_KEY}", "looks like a secret", "Leave it out"),
    ],
)
def test_what_is_no_variable_is_refused_in_two_parts(tmp_path, monkeypatch, text, problem, fix):
    for name in ("AWS_SECRET_ACCESS_KEY", "db_password", "API_KEY"):
        monkeypatch.setenv(name, "hush-7")
    monkeypatch.delenv("NO_SUCH_PLACE", raising=False)
    with pytest.raises(UsageError, match=problem) as caught:
        read_pipeline(write(tmp_path, f'title = "{text}"\n{FILE}'))
    assert caught.match(fix)
    assert "hush-7" not in str(caught.value)


@given(st.text(alphabet="${}A_ x"))
def test_an_escaped_text_is_the_text(text):
    assert _with_variables([{"a": text.replace("${", "$${")}], "file") == [{"a": text}]


def test_a_field_set_beside_the_file_is_checked_as_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("BASE", "base")
    monkeypatch.setenv("WORKERS", "3")
    path = write(tmp_path, FILE)
    config = read_pipeline(
        path, ["store=other", "train.workers=2", "train.set.epochs=7", "build.k=9", 'log.files=["a.gz"]']
    )
    assert (config.store, config.log.files) == (str(tmp_path / "other"), (str(tmp_path / "a.gz"),))
    assert (config.train.workers, config.train.set["epochs"], config.build.k) == (2, "7", 9)
    assert config.judgments == read_pipeline(path).judgments, "the rest stays"
    for assignment, words in {
        "train.workers=many": r"train\.workers",
        "build.k=many": r"build\.k is wrong",
        "trian.workers=2": "trian",
        "store.to=x": "store is a field, not a section",
        "store": "There is no = in --set store",
        'log.files=["a': "is not JSON",
    }.items():
        with pytest.raises(UsageError, match=words):
            read_pipeline(path, [assignment])
    with pytest.raises(UsageError, match="different values"):
        read_pipeline(path, ["build.k=3", "build.k=4"])
