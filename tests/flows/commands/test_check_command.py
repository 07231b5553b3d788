"""`clicktower check` as a user and a program see it. It writes nothing, and shows nothing private."""

import json
import sys

import pytest

from clicktower.flows.cli import run
from tests.beam_jobs.checking.test_check_log import small_log, write
from tests.end_to_end.planted_log import DOCUMENTS, EVERYWHERE_FORBIDDEN, OF_FEW, PUBLIC, planted_log


def test_a_good_log_exits_with_0_and_says_what_to_do_next(tmp_path, capsys):
    log = write(tmp_path / "log.ndjson", small_log())
    assert run(["check", log]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "✓ can be ingested: UBI, JSON lines" in output
    assert "all 200 lines were read, so the figures are exact" in output
    assert f"clicktower ingest {log} --into store" in output
    assert "Nothing looks wrong." in output


def test_json_is_one_object(tmp_path, capsys):
    assert run(["check", write(tmp_path / "log.ndjson", small_log()), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["stage"], result["can_be_ingested"], result["findings"]) == ("check", True, [])
    assert result["files"]["count"] == 1


def test_a_log_that_would_fail_exits_with_1_and_says_why_first(tmp_path, capsys):
    log = write(tmp_path / "log.ndjson", [line.replace(b'"query_id"', b'"qid"') for line in small_log()])
    assert run(["check", log]) == 1
    output = capsys.readouterr().out
    assert "✗ ingest would fail" in " ".join(output.split())
    assert output.index("`query_id` is expected") < output.index("Fields of the first")
    assert '\n  query_id = "qid"\n' in output
    assert "Next:" not in output


def test_the_proposed_mapping_is_taken(tmp_path, capsys):
    """What is proposed goes into a file, and the same log passes."""
    rows = [b"Session ID,Search Term,SKU,Event Type", *[b"c%d,red lamp,,SEARCH" % n for n in range(30)]]
    log = write(tmp_path / "log.csv", [*rows, *[b"c%d,red lamp,D1,CLICK" % n for n in range(30)]])
    assert run(["check", log, "--json"]) == 1
    proposed = json.loads(capsys.readouterr().out)
    (tmp_path / "mapping.toml").write_text(proposed["proposed_mapping"])
    again = ["check", log, "--format", proposed["proposed_format"], "--mapping", str(tmp_path / "mapping.toml")]
    assert run([*again, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["lines"]["search"], result["lines"]["click"]) == (30, 30)
    assert "fleeting_clients" in {finding["code"] for finding in result["findings"]}


@pytest.mark.parametrize(
    "more", [["--k", "99"], ["--sample-lines", "0"], ["--format", "csv"], ["--mapping", "nowhere"]]
)
def test_wrong_usage_exits_with_2(tmp_path, more, capsys):
    assert run(["check", write(tmp_path / "log.ndjson", small_log()), *more]) == 2
    assert run(["check", str(tmp_path / "nowhere")]) == 2


@pytest.mark.slow
def test_nothing_private_is_shown_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    log = planted_log()
    (place / "documents.tsv").write_bytes(DOCUMENTS)
    write(place / "log.ndjson", log.lines)
    write(place / "renamed.ndjson", [line.replace(b'"query_id"', b'"qid"') for line in log.lines])
    records = [json.loads(line) for line in log.lines if line not in log.broken and b"user_query" in line]
    write(place / "plain.csv", [f"{r['client_id']},{r['user_query']},x".encode() for r in records if "client_id" in r])
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    for arguments in (
        ["log.ndjson", "--documents", "documents.tsv"],
        ["log.ndjson", "--format", "orcas"],
        ["renamed.ndjson"],
        ["plain.csv"],
        ["."],
    ):
        for more in ([], ["--json"]):
            assert run(["check", *arguments, *more]) in (0, 1)
            output = capsys.readouterr()
            everything = output.out + output.err
            assert everything
            assert [secret for secret in [*EVERYWHERE_FORBIDDEN, *OF_FEW, *PUBLIC] if secret in everything] == []
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == before


def test_check_starts_without_beam():
    loaded = _loaded_by("import clicktower.beam_jobs.checking.check_log, flows.commands.check")
    assert "apache_beam" not in loaded


def _loaded_by(code: str) -> set[str]:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_skipped_files_are_shown(tmp_path, capsys):
    for name in ("log.ndjson", "_SUCCESS", ".log.ndjson.crc"):
        (tmp_path / name).write_text('{"query_id": "a", "user_query": "lamp"}\n')
    assert run(["check", str(tmp_path)]) == 0
    assert "2 hidden files beside them skipped" in capsys.readouterr().out
