"""Mappings: what can be said in TOML, on the command line and in a pipeline file, and what is refused and why."""

import json
import pickle
import re
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from clicktower.beam_jobs.sources.source import FORMS
from clicktower.flows.config.toml_file import read_toml, with_fields
from clicktower.schemas.errors import UsageError

DOCS = Path(__file__).parents[3] / "docs" / "data.md"
GOOD = '[columns]\nquery = "q"\ndocument_id = 3\n'
MAPPING = Mapping(columns=Columns(query="q", document_id=3))


def _read(tmp_path, text):
    (tmp_path / "mapping.toml").write_text(text)
    return read_toml(str(tmp_path / "mapping.toml"), Mapping, subject="mapping", see="docs/data.md")


def test_a_mapping_file_says_what_is_not_as_usual(tmp_path):
    text = 'time_format = "epoch_s"\nquote = ""\n' + GOOD + '[events]\nclick = ["tap"]\n'
    found = _read(tmp_path, text)
    assert found == Mapping(columns=MAPPING.columns, time_format="epoch_s", quote="", events=Events(click=("tap",)))
    assert found.events.impression == ("impression",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[columns]\nquerry = "q"\n', r"did you mean columns.query."),
        ('delimitor = ","\n', r"did you mean delimiter."),
        ("[columns]\nquery = 1.5\n", r"the field columns.query.str is wrong .it must be a"),
        ("[columns]\nquery = 0\n", "counted from 1"),
        ('[events]\nclick = "tap"\n', "the field events.click is wrong .it must be a"),
        ('[events]\nclick = ["tap"]\nimpression = ["tap"]\n', "'tap' stands for more than one"),
        ('columns = "q"\n', "the field columns is wrong .it must be a"),
        ('time_format = "rfc"\n', r"field time_format is wrong .it must be 'iso', 'epoch_s'"),
        ('delimiter = "||"\n', "not one ASCII character"),
        ('delimiter = ","\nquote = ","\n', "the same"),
        ('header = "perhaps"\n', "the field header is wrong .it must be a"),
        ("[columns\n", "not TOML"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_named(tmp_path, text, found):
    with pytest.raises(UsageError, match=found):
        _read(tmp_path, text)


def test_a_missing_mapping_file_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="There is no mapping file"):
        read_toml(str(tmp_path / "none.toml"), Mapping, subject="mapping", see="docs/data.md")


def test_a_form_has_the_mapping_that_it_needs_and_no_other():
    for log_format in ("delimited", "jsonl", "parquet"):
        IngestConfig(format=log_format, mapping=MAPPING)
        with pytest.raises(UsageError, match=r"A log in the format `.*` needs a mapping"):
            IngestConfig(format=log_format)
        with pytest.raises(UsageError, match="no document_id"):
            IngestConfig(format=log_format, mapping=Mapping(columns=Columns(query="q")))
    for log_format in ("ubi", "orcas"):
        with pytest.raises(UsageError, match=r"columns of the format .* are known"):
            IngestConfig(format=log_format, mapping=MAPPING)
    IngestConfig(format="ubi", mapping=Mapping(events=Events(click=("tap",))))
    with pytest.raises(UsageError, match=r"columns of the format .* are known"):
        IngestConfig(format="ubi", mapping=Mapping(events=Events(search=("on_search",))))
    with pytest.raises(UsageError, match=r"columns of the format .* are known"):
        IngestConfig(format="orcas", mapping=Mapping(events=Events(click=("tap",))))
    with pytest.raises(UsageError, match="line_id"):
        IngestConfig(format="jsonl", mapping=Mapping(columns=Columns(query="q", document_id="d", line_id="i")))
    with pytest.raises(UsageError, match="delimiter"):
        IngestConfig(format="jsonl", mapping=Mapping(columns=MAPPING.columns, delimiter=","))


def test_a_mapping_can_be_set_as_a_field():
    table = json.dumps(asdict(MAPPING))
    config = with_fields(IngestConfig(), ["format=delimited", f"mapping={table}"])
    assert config.mapping == MAPPING
    with pytest.raises(UsageError):
        with_fields(IngestConfig(), ["format=delimited", 'mapping={"columns": {"querry": "q"}}'])


@pytest.mark.parametrize("log_format", FORMS)
def test_sources_travel_to_workers(log_format):
    mapping = None if log_format in ("ubi", "orcas") else MAPPING
    source = open_source(IngestConfig(format=log_format, mapping=mapping))
    assert repr(pickle.loads(pickle.dumps(source))) == repr(source)


def test_the_mappings_in_the_docs_are_good(tmp_path):
    tables = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.S)
    mappings = [table for table in tables if "[columns]" in table or "[events]" in table]
    assert len(mappings) >= 4
    for table in mappings:
        assert _read(tmp_path, table) != Mapping()
        assert tomllib.loads(table)
