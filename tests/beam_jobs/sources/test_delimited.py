"""Delimited text: rows as the csv module reads them, wherever files are cut; bad lines cost themselves alone."""

import codecs
import csv
import io
from dataclasses import replace
from datetime import UTC, datetime

import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.checking.check_log import check_log
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.beam_jobs.sources.delimited import split_fields
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import changed
from clicktower.schemas.text_contract import MARKS_OF_NOTHING
from tests.beam_jobs.ingest.source_rows import NAMES, as_set, read_all

AOL = Mapping(
    columns=Columns(client_id="AnonID", query="Query", time="QueryTime", position="ItemRank", document_id="ClickURL")
)
AOL_LINES = [
    b"AnonID\tQuery\tQueryTime\tItemRank\tClickURL",
    b"142\tangle bracket\t2006-03-01 07:17:12\t\t",
    b"142\tangle bracket\t2006-03-01 07:17:12\t3\thttp://www.shop.example",
    b'217\t"lottery\t2006-03-01 11:58:51\t1\thttp://lotto.example',  # quotes mean nothing where tabs delimit
    b"217\t\t2006-03-01 11:58:51\t\t",  # a search for nothing
    b"993\tdrill\tyesterday\t\t",  # no time
    b"993\tdrill\t2006-03-01 11:58:51",  # cut off
    b"993\tdr\xff\t2006-03-01 11:58:51\t\t",
    b"993\tdrill\t2006-03-01 11:58:51\tfirst\thttp://x.example",
]


def _config(mapping=AOL, **more):
    return IngestConfig(format="delimited", mapping=mapping, **more)


def _write(path, lines, end=b"\n"):
    path.write_bytes(b"".join(line + end for line in lines))
    return path


def test_a_byte_order_mark_where_files_were_joined_is_no_part_of_an_id(tmp_path):
    searches = [codecs.BOM_UTF8 + b"s1\those\tsearch\t", codecs.BOM_UTF8 + b"s2\tdrill\tsearch\t"]
    clicks = [b"s1\t\tclick\tP1", b"s2\t\tclick\tP2"]
    (tmp_path / "joined.tsv").write_bytes(b"\n".join([searches[0], clicks[0], searches[1], clicks[1]]))
    columns = Columns(query_id=1, query=2, event=3, document_id=4)
    rows, rejects, _ = read_all([tmp_path / "joined.tsv"], _config(Mapping(header=False, columns=columns)))
    assert [row["query_id"] for row in rows] == ["s1", "s1", "s2", "s2"]
    assert not rejects


def test_a_log_whose_lines_end_in_returns_alone_is_refused_with_a_remedy(tmp_path):
    (tmp_path / "log.tsv").write_bytes(b"".join(line + b"\r" for line in AOL_LINES))
    with pytest.raises(StageError, match="ends its lines in carriage returns alone") as error:
        read_all([tmp_path / "log.tsv"], _config())
    assert "tr '\\r'" in error.value.fix


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_log_of_one_search_a_line_with_what_was_clicked(tmp_path, end, start):
    log = tmp_path / "aol.txt"
    log.write_bytes(start + b"".join(line + end for line in AOL_LINES))
    rows, rejects, num_lines = read_all([log], _config())
    assert num_lines == 8  # the header is no line of the log
    first, second = datetime(2006, 3, 1, 7, 17, 12, tzinfo=UTC), datetime(2006, 3, 1, 11, 58, 51, tzinfo=UTC)
    blank = {"user_agent": None, "application": None}
    expected = [
        ("search", "142", "angle bracket", None, -1, first),
        ("click", "142", "angle bracket", "http://www.shop.example", 3, first),
        ("click", "217", '"lottery', "http://lotto.example", 1, second),
        ("search", "217", "", None, -1, second),
        ("click", "993", "drill", "http://x.example", -1, second),
    ]
    names = ("kind", "client_id", "query", "document_id", "position", "time")
    assert [{k: v for k, v in row.items() if k != "query_id"} for row in rows] == [
        dict(zip(names, row, strict=True)) | blank for row in expected
    ]
    assert len({row["query_id"] for row in rows}) == 5  # a line without an id is joined to none
    whole = log.read_bytes()
    places = [whole.index(line) for line in AOL_LINES[5:8]]
    reasons = ["unreadable_time", "unreadable_width", "unreadable_not_utf8"]
    assert rejects == [(str(log), place, reason) for place, reason in zip(places, reasons, strict=True)]


NAMES_OF_AOL = b"AnonID\tQuery\tQueryTime\tItemRank\tClickURL"
TIME = b"2006-03-01 07:17:12"


@pytest.mark.parametrize("mark", [*(mark.encode() for mark in MARKS_OF_NOTHING), b"  ", b" \\N ", b"\xc2\xa0"])
def test_a_mark_of_nothing_is_no_document_no_client_and_no_rank(tmp_path, mark):
    lines = [
        NAMES_OF_AOL,
        b"\t".join([mark, b"drill", mark, mark, mark]),
        b"\t".join([b"7", b"null", TIME, b"1", b"D1"]),
    ]
    rows, rejects, _ = read_all([_write(tmp_path / "log", lines)], _config())
    names = ("kind", "client_id", "query", "document_id", "position")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("search", None, "drill", None, -1),
        ("click", "7", "null", "D1", 1),  # people search for `null`
    ]
    assert (rows[0]["time"], rejects) == (None, [])


def test_the_marks_of_nothing_may_be_others(tmp_path):
    lines = [NAMES_OF_AOL, b"-\tdrill\t-\t-\t-", b"NULL\t-\t" + TIME + b"\t2\tnull"]
    mapping = changed(AOL, {"null": ("-",)})
    rows, rejects, _ = read_all([_write(tmp_path / "log", lines)], _config(mapping))
    names = ("kind", "client_id", "query", "document_id", "position")
    assert [tuple(row[name] for name in names) for row in rows] == [("search", None, "drill", None, -1)]
    assert [reason for _, _, reason in rejects] == ["unreadable_no_query_id"]  # a click without its query


def test_a_query_is_missing_where_hive_says_so(tmp_path):
    lines = [NAMES_OF_AOL, b"7\t\\N\t" + TIME + b"\t\\N\t\\N", b"7\t\\N\t" + TIME + b"\t1\tD1"]
    rows, rejects, _ = read_all([_write(tmp_path / "log", lines)], _config())
    assert [(row["kind"], row["query"]) for row in rows] == [("search", "")]
    assert [reason for _, _, reason in rejects] == ["unreadable_no_query_id"]


def test_ids_are_trimmed_and_floats_are_whole_numbers(tmp_path):
    lines = [NAMES_OF_AOL, b" 10.0\tdrill\t" + TIME + b"\t1.0\t1.2E7 ", b"10\tdrill\t" + TIME + b"\t 1\tP1\xe3\x80\x80"]
    rows, _, _ = read_all([_write(tmp_path / "log", lines)], _config())
    assert [(row["client_id"], row["document_id"], row["position"]) for row in rows] == [
        ("10", "12000000", 1), ("10", "P1", 1),
    ]  # fmt: skip


def test_carriage_returns_before_a_line_end_are_part_of_it(tmp_path):
    lines = [NAMES_OF_AOL, b"7\tdrill\t" + TIME + b"\t\t", b"", b"7\tdrill\t" + TIME + b"\t1\tD1"]
    rows, rejects, num_lines = read_all([_write(tmp_path / "log", lines, b"\r\r\n")], _config())
    assert [(row["kind"], row["document_id"]) for row in rows] == [("search", None), ("click", "D1")]
    assert (rejects, num_lines) == ([], 3)  # one of them is blank


@pytest.mark.slow
def test_orcas_lines_are_clicks_by_nobody_and_agree_with_polars(real_data):
    log = real_data / "homedepot" / "clicks.orcas.tsv"
    rows, rejects, num_lines = read_all([log], IngestConfig(format="orcas"))
    frame = polars.read_csv(log, separator="\t", has_header=False, quote_char=None, infer_schema=False,
                            new_columns=["query_id", "query", "document_id", "url"])  # fmt: skip
    assert num_lines == frame.height == 35_421
    assert rejects == []
    columns = ["query_id", "query", "document_id"]
    assert [tuple(row[name] for name in columns) for row in rows] == frame.select(columns).rows()
    assert {(row["kind"], row["client_id"], row["position"], row["time"]) for row in rows} == {
        ("click", None, -1, None)
    }


def test_a_line_with_another_number_of_fields_is_no_orcas_line(tmp_path):
    log = _write(tmp_path / "o.tsv", [b"1\ta\tD1\tu", b"1\ta\tD1", b"1\ta\tD1\tu\tv", b""])
    rows, rejects, num_lines = read_all([log], IngestConfig(format="orcas"))
    assert (len(rows), num_lines) == (1, 4)  # the last line is blank
    assert [(place, reason) for _, place, reason in rejects] == [(9, "unreadable_width"), (16, "unreadable_width")]


TEXT = st.text(st.sampled_from(["a", "b", " ", ",", '"', "é"]), max_size=6)
NAMED = Mapping(columns=Columns(query="q", document_id="d", client_id="c"), delimiter=",")


def _expected(rows):
    kinds = ["click" if document.strip() else "search" for _, document, _ in rows]
    return as_set(
        dict.fromkeys(NAMES)
        | {"kind": kind, "query": query or (None if kind == "click" else ""), "document_id": document.strip() or None,
           "client_id": client.strip() or None, "position": -1}
        for (query, document, client), kind in zip(rows, kinds, strict=True)
        if query or kind == "search"
    )  # fmt: skip


def _found(rows):
    return as_set(row | {"query_id": None} for row in rows)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=12),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    cut=st.integers(5, 60),
)
def test_quoted_fields_are_read_as_the_csv_module_writes_them_wherever_a_file_is_cut(
    tmp_path_factory, rows, quoting, cut
):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n", quoting=quoting).writerows(
        [("d", "c", "q"), *[(d, c, q) for q, d, c in rows]]
    )
    log = tmp_path_factory.mktemp("log") / "log.csv"
    log.write_bytes(text.getvalue().encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clicktower.beam_jobs.sources.read_lines.RANGE_BYTES", cut)
        found, rejects, num_lines = read_all([log], _config(NAMED))
    assert num_lines == len(rows)
    assert {reason for _, _, reason in rejects} <= {"unreadable_no_query_id"}
    assert _found(found) == _expected(rows)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.tuples(*[st.text(st.sampled_from(["a", ",", '"', "\n"]), max_size=6)] * 3), max_size=12),
    block=st.integers(3, 40),
)
def test_quoted_line_ends_belong_to_their_field_whatever_the_blocks(tmp_path_factory, rows, block):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("d", "c", "q"), *[(d, c, q) for q, d, c in rows]])
    log = tmp_path_factory.mktemp("log") / "log.csv"
    log.write_bytes(text.getvalue().encode())
    mapping = Mapping(columns=NAMED.columns, delimiter=",", quoted_newlines=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clicktower.beam_jobs.sources.read_lines.RANGE_BYTES", 10)
        patch.setattr("clicktower.beam_jobs.sources.delimited.BLOCK_BYTES", block)
        found, _, num_lines = read_all([log], _config(mapping))
    assert num_lines == len(rows)
    assert _found(found) == _expected(rows)


def test_a_quote_left_open_costs_its_line_or_where_lines_may_be_quoted_the_rest(tmp_path):
    log = _write(tmp_path / "a.csv", [b"d,c,q", b"D1,c,x", b'D2,c,"open', b"D3,c,y", b"D4,c,z"])
    rows, rejects, num_lines = read_all([log], _config(NAMED))
    assert ([row["document_id"] for row in rows], num_lines, rejects[0][1]) == (["D1", "D3", "D4"], 4, 13)
    mapping = Mapping(columns=NAMED.columns, delimiter=",", quoted_newlines=True)
    rows, rejects, num_lines = read_all([log], _config(mapping))
    assert ([row["document_id"] for row in rows], num_lines, rejects[0][1]) == (["D1"], 2, 13)


def test_a_quote_that_is_never_closed_is_no_endless_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.beam_jobs.sources.delimited.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("clicktower.beam_jobs.sources.delimited.BLOCK_BYTES", 100)
    log = _write(tmp_path / "a.csv", [b"d,c,q", b'D2,c,"open', *[b"D3,c,y"] * 1000])
    with pytest.raises(StageError, match="no line end"):
        read_all([log], _config(Mapping(columns=NAMED.columns, delimiter=",", quoted_newlines=True)))


def test_events_have_the_kinds_that_the_mapping_says(tmp_path):
    log = _write(
        tmp_path / "a.tsv", [b"s1\tdrill\t\tq", b"s1\t\tD1\tshown", b"s1\t\tD1\ttap", b"s1\t\tD1\tbuy", b"s1\tx\t\t"]
    )
    mapping = Mapping(
        columns=Columns(query_id=1, query=2, document_id=3, event=4),
        header=False,
        events=Events(search=("q",), impression=("shown",), click=("tap", "open")),
    )
    rows, _, _ = read_all([log], _config(mapping))
    assert [row["kind"] for row in rows] == ["search", "impression", "click", "other", "search"]
    assert [row["query"] for row in rows] == ["drill", None, None, None, "x"]
    assert {row["query_id"] for row in rows} == {"s1"}


def test_columns_may_lie_in_another_order_in_every_file(tmp_path):
    one, two = (
        _write(tmp_path / "1.csv", [b"q,d,c", b"x,D1,ann"]),
        _write(tmp_path / "2.csv", [b"c,d,q,e", b"ben,D2,y,z"]),
    )
    rows, _, _ = read_all([one, two], _config(NAMED))
    assert [(row["query"], row["document_id"], row["client_id"]) for row in rows] == [
        ("x", "D1", "ann"),
        ("y", "D2", "ben"),
    ]


def test_a_missing_column_is_named_with_what_there_is_and_the_nearest_name(tmp_path):
    log = _write(tmp_path / "a.csv", [b"querry,d,c", b"secret words,D1,ann"])
    mapping = Mapping(columns=Columns(query="query", document_id="d"), delimiter=",")
    with pytest.raises(UsageError, match=r"'querry', 'd' and 1 that is not shown.*.did you mean 'querry'") as caught:
        read_all([log], _config(mapping))
    assert str(log) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_two_files_of_different_forms_are_both_named(tmp_path):
    one, two = _write(tmp_path / "1.csv", [b"q,d,c"]), _write(tmp_path / "2.csv", [b"q,d,client"])
    with pytest.raises(UsageError, match=r"that has only 'q', 'd', 'client'."):
        read_all([one, two], _config(NAMED))


def test_a_first_line_that_is_no_header_is_not_quoted(tmp_path):
    log = _write(tmp_path / "a.csv", [b"very secret query,D1,7", b"x,D1,8"])
    with pytest.raises(UsageError, match="only the columns 3 that are not shown") as caught:
        read_all([log], _config(NAMED))
    assert "secret" not in str(caught.value)


def test_a_column_that_occurs_twice_must_be_given_by_number(tmp_path):
    log = _write(tmp_path / "a.csv", [b"q,d,c,q", b"x,D1,ann,y"])
    with pytest.raises(UsageError, match="2 columns of that name"):
        read_all([log], _config(NAMED))
    by_number = Mapping(columns=Columns(query=4, document_id="d"), delimiter=",")
    assert read_all([log], _config(by_number))[0][0]["query"] == "y"


def test_names_need_a_header(tmp_path):
    log = _write(tmp_path / "a.csv", [b"x,D1,ann"])
    with pytest.raises(UsageError, match="without a header"):
        read_all([log], _config(Mapping(columns=NAMED.columns, delimiter=",", header=False)))


def test_nul_and_huge_fields_are_text_and_a_header_alone_is_no_line(tmp_path):
    log = _write(tmp_path / "a.csv", [b"q,d,c", b"a\x00b,D1,", b'"' + b"y" * 10_000_000 + b'",D2,'])
    rows, rejects, _ = read_all([log], _config(NAMED))
    assert [len(row["query"]) for row in rows] == [3, 10_000_000]
    assert rejects == []
    assert read_all([_write(tmp_path / "b.csv", [b"q,d,c"])], _config(NAMED)) == ([], [], 0)


# Escapes: MySQL (SELECT ... INTO OUTFILE) with and without quotes, Hive, PostgreSQL (COPY).

ESCAPED = Mapping(columns=Columns(client_id=1, query=2, document_id=3), header=False, escape="\\")


@pytest.mark.parametrize(("line", "mapping", "fields"), [
    (r"c1	red\	lamp	D1", ESCAPED, ["c1", "red\tlamp", "D1"]),
    (r"c1	a\\	D1", ESCAPED, ["c1", "a\\", "D1"]),
    (r"c1	red\tlamp\n\0	\N", ESCAPED, ["c1", "red\tlamp\n\0", r"\N"]),
    (r"c1	\Norway	D1", ESCAPED, ["c1", "Norway", "D1"]),
    (r"c1,red\, lamp,D1", replace(ESCAPED, delimiter=","), ["c1", "red, lamp", "D1"]),
    (r'"c1","6\" ""long"", \\",D1', replace(ESCAPED, delimiter=","), ["c1", '6" "long", \\', "D1"]),
    (r'c1,6\" ""long,D1', replace(ESCAPED, delimiter=","), ["c1", '6" ""long', "D1"]),
    (r"c1,red^, la^np,D1", replace(ESCAPED, delimiter=",", escape="^"), ["c1", "red, lanp", "D1"]),
    ("c1\tlamp\\", ESCAPED, None),  # MySQL's escape of a line end: the record goes on in the next line
    (r'c1,"6\" long,D1', replace(ESCAPED, delimiter=","), None),
    (r'c1,"a\b"c,D1', replace(ESCAPED, delimiter=","), None),
])  # fmt: skip
def test_an_escaped_character_stands_for_itself(line, mapping, fields):
    assert split_fields(line, mapping) == fields


@given(rows=st.lists(st.lists(st.text("ab\\,\"'\t ", max_size=6), min_size=2, max_size=4), min_size=1, max_size=5))
def test_escapes_without_quotes_are_read_as_the_csv_module_writes_them(rows):
    room = io.StringIO()
    csv.writer(room, quoting=csv.QUOTE_NONE, escapechar="\\", quotechar=None, lineterminator="\n").writerows(rows)
    mapping = replace(ESCAPED, delimiter=",", quote="")
    lines = room.getvalue().split("\n")[:-1]
    assert [split_fields(line, mapping) for line in lines] == rows


def test_an_escape_that_could_not_be_told_apart_is_refused():
    for more in ({"escape": "\t"}, {"escape": '"', "delimiter": ","}):
        with pytest.raises(UsageError, match="escape of the mapping is also"):
            replace(AOL, **more)
    with pytest.raises(UsageError, match="both escape and quoted_newlines"):
        replace(AOL, escape="\\", quoted_newlines=True)
    with pytest.raises(UsageError, match="escape 'ab' of the mapping is not one"):
        replace(AOL, escape="ab")
    with pytest.raises(UsageError, match="escape, which is for delimited text"):
        IngestConfig(format="jsonl", mapping=replace(ESCAPED, columns=Columns(query="q", document_id="d"), header=True))


@pytest.mark.parametrize("quote", [None, '"'])
def test_a_lone_carriage_return_within_a_field_is_of_no_matter_to_check(tmp_path, quote):
    lines = [AOL_LINES[0], b"142\tangle\rbracket\t2006-03-01 07:17:12\t3\tD1", b'142\t"angle\r"\t2006-03-01\t\t']
    checked = check_log(
        [str(_write(tmp_path / "log", lines))], log_format="delimited", mapping=replace(AOL, quote=quote)
    )
    assert checked.can_be_ingested
    assert checked.facts["ledger"]["total"] == 2
