"""A form of log is one file and one entry in FORMS: here is a new one."""

import re

import pytest

from clicktower.beam_jobs.checking.check_log import check_log
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.sources.delimited import DelimitedSource
from clicktower.beam_jobs.sources.mapping import Columns, Mapping
from clicktower.beam_jobs.sources.source import FORMS, LogForm
from clicktower.schemas.errors import StageError, UsageError

COLUMNS = ("mark", "who", "query", "document")
KIOSK = LogForm(name="kiosk", code=f"{__name__}:kiosk_source", mapping="none")


def kiosk_source(mapping):
    return DelimitedSource(
        mapping=Mapping(columns=Columns(client_id=2, query=3, document_id=4), delimiter="~", header=False),
        num_columns=len(COLUMNS),
    )


@pytest.fixture
def kiosk(monkeypatch, tmp_path):
    monkeypatch.setitem(FORMS, "kiosk", KIOSK)
    log = tmp_path / "kiosk.log"
    log.write_text("".join(f"K1~visitor {n}~red lamp~D{n % 3}\n" for n in range(30)) + "K1~cut off\n")
    return str(log)


@pytest.mark.slow
def test_a_new_form_is_ingested_by_its_name(kiosk, tmp_path):
    result = ingest_log([kiosk], store=str(tmp_path / "store"), config=IngestConfig(format="kiosk"))
    counts = result.manifest.outcome.counts
    assert (counts["lines"], counts["clicks"], counts["people"], counts["rejects"]) == (31, 30, 30, 1)


def test_a_new_form_is_checked_by_its_name(kiosk):
    checked = check_log([kiosk], log_format="kiosk")
    assert checked.facts["format"] == "kiosk"
    assert checked.facts["looks_like"] == "a log in the format kiosk"
    assert checked.facts["lines"]["click"] == 30
    assert checked.can_be_ingested


def test_a_new_form_says_what_it_takes_of_a_mapping(kiosk):
    with pytest.raises(UsageError, match="columns of the format `kiosk` are known"):
        IngestConfig(format="kiosk", mapping=Mapping(columns=Columns(query=1, document_id=2)))
    with pytest.raises(UsageError, match="kiosk"):
        IngestConfig(format="kiosks")


@pytest.mark.slow
def test_a_file_without_a_readable_line_is_named_however_many_lines_the_others_have(tmp_path):
    line = '{"query_id": "a", "user_query": "lamp", "client_id": "c"}\n'
    logs = tmp_path / "logs"
    logs.mkdir()
    for hour in range(30):
        (logs / f"{hour:02d}.ndjson").write_text(line * 2)
    (logs / "07.ndjson").write_text("user_query;lamp\n")
    (logs / "08.ndjson").write_text(line + "cut of")
    problem = r"Not one line of .*07\.ndjson can be read: 1 not a JSON object"
    with pytest.raises(StageError, match=problem):
        ingest_log([str(logs)], store=str(tmp_path / "store"), config=IngestConfig())
    finding, *_ = check_log([str(logs)]).findings
    assert (finding.level, finding.code) == ("fails", "damaged")
    assert re.match(problem, finding.problem)
    (logs / "07.ndjson").unlink()
    assert ingest_log([str(logs)], store=str(tmp_path / "store"), config=IngestConfig()).manifest
