"""`clicktower erase`: the id comes from stdin or a file, and shows up nowhere."""

import io
import json
import sys

import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.flows.cli import run
from clicktower.flows.commands.erase import read_client_ids
from clicktower.schemas.errors import StageError, UsageError
from tests.beam_jobs.ingest.dated_logs import day_lines, write_lines

WHO = "client-3"


@pytest.fixture
def store(tmp_path):
    log = write_lines(tmp_path / "log.ndjson", day_lines("2026-09-01", 0, num_searches=60))
    ingest_log([log], store=str(tmp_path / "store"), config=IngestConfig(date="2026-09-01"))
    return str(tmp_path / "store")


def _say(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_an_id_from_stdin_is_erased_and_never_shown(store, monkeypatch, capsys):
    _say(monkeypatch, f"{WHO}\r\n".encode())
    assert run(["erase", "--store", store, "--client-id", "-", "--json"]) == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert (result["stage"], result["path"], result["reused"]) == ("erase", store, False)
    assert result["counts"]["ingests_changed"] == 1
    assert (result["counts"]["ids"], result["counts"]["ids_found"]) == (1, 1)
    assert result["days"] == {"2026-09-01": 2}
    assert WHO not in output.out + output.err
    _say(monkeypatch, WHO.encode())
    assert run(["erase", "--store", store, "--client-id", "-"]) == 0
    output = capsys.readouterr()
    assert "nothing to remove" in output.err
    assert "0 of 1" in output.out
    assert WHO not in output.out + output.err


def test_ids_from_a_file(store, tmp_path, capsys):
    (tmp_path / "ids.txt").write_text(f"{WHO}\n\nclient-4\n{WHO}\n")
    assert run(["erase", "--store", store, "--client-ids-file", str(tmp_path / "ids.txt")]) == 0
    output = capsys.readouterr()
    assert "2026-09-01 is now version 2" in output.out
    assert "Ids found in the days: 2 of 2." in output.out
    assert "private/erased" in output.out
    assert "Raw logs" in output.err
    assert "lines.arrow" in output.err
    assert "client-" not in output.out + output.err


FORMS = {
    "byte order mark": f"\ufeff{WHO}\n",
    "quotes": f'"{WHO}"\n',
    "quotes and CRLF": f'"{WHO}"\r\n"{WHO}"\r\n',
    "spaces": f"  {WHO}\u00a0\n\t\n",
    "invisible": "client\u200b-\ufe0f3\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_an_id_is_the_same_person_in_whatever_form_a_file_has_it(store, tmp_path, capsys, form):
    (tmp_path / "ids.txt").write_bytes(FORMS[form].encode())
    assert run(["erase", "--store", store, "--client-ids-file", str(tmp_path / "ids.txt"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert (counts["ids"], counts["ids_found"], counts["ingests_changed"]) == (1, 1, 1)


QUOTED = """\
header = false
columns = {query_id = 1, client_id = 2, query = 3, event = 4, document_id = 5, time = 6}
events = {search = ['"search"'], click = ['"click"']}
"""


@pytest.mark.parametrize("typed", ["c7", '"c7"'])
def test_an_id_that_the_log_has_in_quotes_is_found_with_them_or_without(tmp_path, typed, capsys):
    """In tab-separated text quotes are no mark, and some programs write them around every field."""
    lines = [
        f'"{client}-{day}"\t"{client}"\t"{query}"\t"search"\t\t2026-09-0{day}T10:00:00Z\n'
        for client, query in (("c7", "hose reel"), ("c8", "drill"))
        for day in (1, 2)
    ]
    (tmp_path / "log.tsv").write_text("".join(lines))
    (tmp_path / "mapping.toml").write_text(QUOTED)
    store = str(tmp_path / "store")
    ingest = ["ingest", str(tmp_path / "log.tsv"), "--format", "delimited", "--mapping", str(tmp_path / "mapping.toml"),
              "--into", store, "--json"]  # fmt: skip
    assert run(ingest) == 0
    (tmp_path / "ids.txt").write_text(typed)
    capsys.readouterr()
    assert run(["erase", "--store", store, "--client-ids-file", str(tmp_path / "ids.txt"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert (counts["ids"], counts["ids_found"], counts["queries_removed"]) == (1, 1, 1)
    assert run(ingest) == 0
    assert json.loads(capsys.readouterr().out)["ledger"]["lines"]["erased"] == 2


def test_of_ids_that_are_not_found_the_number_is_told(store, tmp_path, capsys):
    (tmp_path / "ids.txt").write_text(f"{WHO.upper()}\n{WHO}\nsomebody else\n")
    assert run(["erase", "--store", store, "--client-ids-file", str(tmp_path / "ids.txt")]) == 0
    output = capsys.readouterr()
    assert "Ids found in the days: 1 of 3. 2 are not" in output.out
    assert "somebody" not in output.out + output.err


def test_quotes_within_quotes_are_of_the_id(monkeypatch):
    _say(monkeypatch, b'"a ""b"""\n"\n""\n')
    assert read_client_ids("-", None) == ['a "b"', '"']


def test_an_id_on_the_command_line_is_refused_and_not_repeated(store, capsys):
    assert run(["erase", "--store", store, "--client-id", WHO]) == 2
    output = capsys.readouterr()
    assert "command line" in output.err
    assert WHO not in output.out + output.err


def test_ids_in_a_file_with_a_byte_order_mark_are_those_of_one_without(tmp_path):
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbfclient-3 \r\n\r\nclient-4\r\nclient-3")
    assert read_client_ids(None, str(tmp_path / "ids.txt")) == ["client-3", "client-4"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "no client id"), (b"\n \n", "no client id"), (b"\xff\xfe", "UTF-16"), ("a\n".encode("utf-16"), "UTF-16")],
)
def test_no_id_is_an_error(monkeypatch, content, problem):
    _say(monkeypatch, content)
    with pytest.raises(StageError, match=problem):
        read_client_ids("-", None)


@pytest.mark.parametrize(("client_id", "file"), [(None, None), ("-", "ids.txt"), (None, "/nowhere/ids.txt")])
def test_ids_come_from_one_place(client_id, file):
    with pytest.raises(UsageError):
        read_client_ids(client_id, file)
