"""ORCAS (https://microsoft.github.io/msmarco/ORCAS): query id, query, document id, url between tabs; each line a click.

Its lines name nobody and no rank.
"""

from collections.abc import Sequence

from beam_jobs.sources.delimited import DelimitedSource
from beam_jobs.sources.mapping import Columns, Mapping
from beam_jobs.sources.source import LogForm, Recognition

COLUMNS = ("query id", "query", "document id", "url")


def open_orcas(_mapping: Mapping) -> DelimitedSource:
    """The source: delimited text whose columns are known."""
    mapping = Mapping(columns=Columns(query_id=1, query=2, document_id=3), header=False)
    return DelimitedSource(mapping=mapping, num_columns=len(COLUMNS))


def _records(lines: Sequence[bytes]) -> list[list[str]]:
    return [line.decode(errors="replace").removeprefix("\ufeff").split("\t") for line in lines]


def _is_like(records: Sequence[Sequence[str]]) -> bool:
    """Whether most lines have the columns, the last nearly always an address."""
    rows = [record for record in records if len(record) == len(COLUMNS)]
    return len(rows) >= 0.5 * len(records) and sum("://" in row[3] for row in rows) > 0.8 * len(rows)


FORM = LogForm(
    name="orcas",
    open=open_orcas,
    mapping="none",
    recognition=Recognition(
        what="ORCAS: four columns between tabs, the last an address",
        columns=COLUMNS,
        records=_records,
        is_like=_is_like,
    ),
)
