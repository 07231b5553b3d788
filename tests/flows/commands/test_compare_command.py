"""`clicktower compare` as a user and a program see it."""

import json
from pathlib import Path

import pytest

from clicktower.flows.cli import run
from tests.trained_model import trained_stage
from tests.training.evaluation.judged_shop import judged_shop

SMALL = ["--set", "tower.cells=16", "--set", "epochs=1", "--set", "minibatch=32", "--set", "micro_batch=32"]
QUICK = ["--evaluate", "num_resamples=200", "--threads", "1"]


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("shop")
    shards, files = judged_shop(folder)
    given = [word for name, path in files.named_files.items() for word in (f"--{name}", path)]
    return ["compare", "--shards", shards, *given, "--into", str(folder / "compared"), *QUICK]


def test_a_comparison_is_one_object_and_a_page(words, tmp_path, capsys):
    model = trained_stage(str(tmp_path))
    asked = [*words, "--rows", "random", "bm25", "mine", "--model", f"mine={model}", *SMALL]
    assert run([*asked, "--report", str(tmp_path / "compare.html"), "--json"]) == 0
    out, progress = capsys.readouterr()
    result = json.loads(out)
    assert (result["stage"], result["reused"], result["counts"]["rows"]) == ("compare", False, 3)
    assert [row["name"] for row in result["metrics"]["rows"]] == ["random", "bm25", "mine"]
    assert [line.split(":")[0].split()[-1] for line in progress.splitlines()] == ["random", "bm25", "mine"]
    assert "BM25" in (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert run(asked) == 0
    out, progress = capsys.readouterr()
    assert "reused" in progress
    assert "BM25" in out


def test_a_row_that_fails_is_told_with_the_table_of_the_others_and_code_1(words, tmp_path, capsys):
    (tmp_path / "mine.run").write_text("nobody Q0 d0 1 0.5 mine\n")
    asked = [*words, "--rows", "random", "bm25", "mine", "--run", f"mine={tmp_path}/mine.run"]
    assert run([*asked, "--report", str(tmp_path / "compare.html")]) == 1
    out, output = capsys.readouterr()
    assert "BM25" in out
    assert "1 of 3 rows failed: mine: The run of 1 queries has results for none" in " ".join(output.split())
    assert "mine" in Path(tmp_path, "compare.html").read_text(encoding="utf-8")
    assert run([*asked, "--json"]) == 1
    assert "1 of 3 rows failed" in json.loads(capsys.readouterr().out)["error"]["problem"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--rows", "lstm"], "no row named lstm"),
        (["--rows", "random"], "no row bm25"),
        (["--run", "mine"], "the name, the = or the path is missing"),
        (["--model", "a=x", "--model", "a=y"], "name a stands twice"),
        (["--run", "bm25=x"], "a row named bm25 already"),
        (["--set", "epoch=3"], "did you mean epochs"),
        (["--qrels", "nowhere.txt"], "there is no file nowhere.txt"),
    ],
)
def test_a_comparison_that_makes_no_sense_exits_with_2(words, more, said, capsys):
    asked = words if more[0] != "--qrels" else [word for word in words if not word.endswith("qrels.txt")]
    asked = [word for word in asked if more[0] != "--qrels" or word != "--qrels"]
    assert run([*asked, *more]) == 2
    assert said.lower() in " ".join(capsys.readouterr().err.split()).lower()
