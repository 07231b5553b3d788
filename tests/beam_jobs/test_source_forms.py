"""A form of log is one file and one entry in FORMS: here is a new one."""

import pytest

from beam_jobs.checking.check_log import check_log
from beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from beam_jobs.sources.delimited import DelimitedSource
from beam_jobs.sources.forms import FORMS
from beam_jobs.sources.mapping import Columns, Mapping
from beam_jobs.sources.source import LogForm, Recognition
from schemas.errors import UsageError

COLUMNS = ("mark", "who", "query", "document")
KIOSK = LogForm(
    name="kiosk",
    open=lambda _: DelimitedSource(
        mapping=Mapping(columns=Columns(client_id=2, query=3, document_id=4), delimiter="~", header=False),
        num_columns=len(COLUMNS),
    ),
    mapping="none",
    recognition=Recognition(
        what="what kiosks write",
        columns=COLUMNS,
        records=lambda lines: [line.decode().split("~") for line in lines],
        is_like=lambda records: all(record[0] == "K1" for record in records),
    ),
)


@pytest.fixture
def kiosk(monkeypatch, tmp_path):
    monkeypatch.setitem(FORMS, "kiosk", KIOSK)
    log = tmp_path / "kiosk.log"
    log.write_text("".join(f"K1~visitor {n}~red lamp~D{n % 3}\n" for n in range(30)) + "K1~cut off\n")
    return str(log)


def test_a_new_form_is_ingested_by_its_name(kiosk, tmp_path):
    result = ingest_log([kiosk], store=str(tmp_path / "store"), config=IngestConfig(format="kiosk"))
    counts = result.manifest.outcome.counts
    assert (counts["lines"], counts["clicks"], counts["people"], counts["rejects"]) == (31, 30, 30, 1)


def test_a_new_form_is_recognised_by_check(kiosk):
    checked = check_log([kiosk])
    assert (checked.facts["format"], checked.facts["looks_like"]) == ("kiosk", "what kiosks write")
    assert checked.facts["lines"]["click"] == 30
    assert checked.can_be_ingested


def test_a_new_form_says_what_it_takes_of_a_mapping(kiosk):
    with pytest.raises(UsageError, match="Its columns are known"):
        IngestConfig(format="kiosk", mapping=Mapping(columns=Columns(query=1, document_id=2)))
    with pytest.raises(UsageError, match="kiosk"):
        IngestConfig(format="kiosks")
