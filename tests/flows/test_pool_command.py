"""`clicktower pool`: runs to a sheet, a filled sheet to qrels that the other commands read; nothing is overwritten."""

import csv
import json
from pathlib import Path

import pytest

from flows.cli import run
from schemas.judgments import read_qrels, read_queries

QUERIES = "q1\tangle bracket\nq2\t3/4\n"
DOCUMENTS = "d1\tsteel bracket\nd2\t=cmd|x\n007\tgarden hose\n"


@pytest.fixture
def given(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("queries.tsv").write_text(QUERIES)
    Path("documents.tsv").write_text(DOCUMENTS)
    Path("a.run").write_text("q1 Q0 d1 1 2.0 a\nq1 Q0 d2 2 1.0 a\nq2 Q0 007 1 1.0 a\n")
    Path("b.run").write_text("q1 Q0 d1 1 0.5 b\n")
    return tmp_path


def made(*more: str) -> int:
    arguments = ["--queries", "queries.tsv", "--documents", "documents.tsv", "--sheet", "sheet.csv"]
    return run(["pool", "a.run", "b.run", *arguments, *more])


def fill(source: str, target: str, grade_of: dict[str, str]) -> None:
    """What an assessor does, saved with semicolons as spreadsheets of some countries do."""
    rows = list(csv.reader(Path(source).read_text(encoding="utf-8-sig").splitlines()))
    for row in rows[1:]:
        row[4] = grade_of.get(row[2].removeprefix("'"), "")
    with Path(target).open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)


def test_from_runs_to_qrels(given, capsys):
    assert made("--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["stage"], result["path"], result["reused"]) == ("pool", "sheet.csv", False)
    assert result["counts"]["pairs"] == 3
    assert result["counts"]["found_by_several"] == 1
    fill("sheet.csv", "anna.csv", {"d1": "3", "d2": "0", "007": "2"})
    fill("sheet.csv", "ben.csv", {"d1": "Excellent", "d2": "1", "007": "2"})
    assert run(["pool", "--read", "anna.csv", "ben.csv", "--qrels", "qrels.txt", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metrics"]["agreement"][0]["num_same"] == 2
    assert read_qrels("qrels.txt") == {"q1": {"d1": 3, "d2": 0}, "q2": {"007": 2}}
    assert run(["pool", "--read", "anna.csv", "ben.csv", "--qrels", "qrels.txt"]) == 0
    output = capsys.readouterr()
    assert "3 judgments of 2 queries by people" in output.err
    assert "67%" in output.out
    assert "the lower of the two" in " ".join(output.out.split())


def test_a_filled_sheet_and_other_qrels_are_never_overwritten(given, capsys):
    assert made() == 0
    assert made("--json") == 0  # the same bytes: nothing to write
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["reused"] is True
    fill("sheet.csv", "sheet.csv", {"d1": "1", "d2": "1", "007": "1"})
    work = Path("sheet.csv").read_bytes()
    assert made() == 2
    assert "hours" in capsys.readouterr().err
    assert Path("sheet.csv").read_bytes() == work
    Path("qrels.txt").write_text("q1 0 d1 0\n")
    assert run(["pool", "--read", "sheet.csv", "--qrels", "qrels.txt"]) == 2
    assert Path("qrels.txt").read_text() == "q1 0 d1 0\n"


def test_a_partly_filled_sheet_says_how_far_it_is(given, capsys):
    assert made() == 0
    fill("sheet.csv", "part.csv", {"d1": "1"})
    assert run(["pool", "--read", "part.csv", "--qrels", "qrels.txt"]) == 1
    assert "1 are: rows" in capsys.readouterr().err
    assert not Path("qrels.txt").exists()
    assert run(["pool", "--read", "part.csv", "--qrels", "qrels.txt", "--allow-partial"]) == 0
    assert "not judged: 2 of 3" in capsys.readouterr().out


def test_what_people_judged_is_left_out_and_what_clicks_say_is_not_taken_for_it(given, capsys):
    Path("qrels.txt").write_text("q1 0 d1 3\n")
    assert made("--judged", "qrels.txt", "--json") == 0
    assert json.loads(capsys.readouterr().out)["counts"]["judged_before"] == 1
    Path("clicks.txt").write_text("click-derived-1 0 d1 3\n")
    assert made("--judged", "clicks.txt") == 1
    assert "No person has judged" in capsys.readouterr().err


def test_queries_of_click_derived_judgments_get_ids_and_a_file_of_their_own(given, capsys):
    for name in ("a.run", "b.run", "queries.tsv"):
        lines = Path(name).read_text().splitlines(keepends=True)
        Path(name).write_text("".join(f"click-derived-{line}" for line in lines))
    assert made() == 0
    fill("sheet.csv", "anna.csv", {"d1": "3", "d2": "0", "007": "2"})
    assert run(["pool", "--read", "anna.csv", "--qrels", "qrels.txt", "--write-queries", "judged.tsv"]) == 0
    assert read_queries("judged.tsv") == {"q1": "angle bracket", "q2": "3/4"}
    assert list(read_qrels("qrels.txt")) == ["q1", "q2"]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a.run"],
        ["a.run", "--queries", "queries.tsv", "--documents", "documents.tsv", "--sheet", "sheet.xlsx"],
        ["a.run", "--queries", "queries.tsv", "--documents", "documents.tsv", "--sheet", "s.csv", "--depth", "0"],
        ["a.run", "--read", "sheet.csv", "--qrels", "qrels.txt"],
        ["--read", "sheet.csv"],
        ["--read", "sheet.csv", "--qrels", "qrels.txt"],
        ["--read", "sheet.csv", "sheet.csv", "--qrels", "qrels.txt"],
    ],
)
def test_wrong_usage_is_told(given, arguments, capsys):
    assert run(["pool", *arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["do"]
    assert {path.name for path in given.iterdir()} == {"queries.tsv", "documents.tsv", "a.run", "b.run"}
