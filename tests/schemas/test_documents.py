import bz2
import csv
import gzip
import io
import json
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.documents import MAX_TEXT_BYTES, read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_contract import MARKS_OF_NOTHING, id_of, normalise

ROWS = [("d1", "Angle bracket, 3 in."), ("d2", 'The "quoted" hammer'), ("d3", "漢字")]
TSV = "".join(f"{i}\t{t}\n" for i, t in ROWS)


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: bytes | str) -> str:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(tmp_path / name)

    return write_file


def json_lines(*rows: dict) -> str:
    return "".join(json.dumps(row, ensure_ascii=len(row) % 2 == 0) + "\n" for row in rows)


def rows_of(path: str) -> list[tuple[str, str]]:
    documents = read_documents(path)
    return list(zip(documents.ids, documents.titles, strict=True))


def skipped(path: str) -> dict[str, tuple[int, list[str]]]:
    return {rows.reason: (rows.count, [place.split(":")[1] for place in rows.places]) for rows in
            read_documents(path).unfit}  # fmt: skip


def in_csv(rows: list[tuple[str, str]], **settings) -> str:
    text = io.StringIO()
    csv.writer(text, **settings).writerows([("id", "title"), *rows])
    return text.getvalue()


_LETTERS = st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"))
_IDS = st.text(_LETTERS, min_size=1, max_size=8).filter(lambda text: id_of(text) not in MARKS_OF_NOTHING)
_TITLES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\t\n\r"), max_size=20)
_CATALOGUES = st.lists(st.tuples(_IDS, _TITLES), min_size=1, max_size=12, unique_by=lambda row: id_of(row[0])).map(
    lambda rows: [*rows, ("the last", "Deck screw")]
)


@pytest.mark.slow
@settings(max_examples=25)
@given(rows=_CATALOGUES, breaks=st.sampled_from(["\n", "\r\n"]))
def test_every_form_gives_the_same_documents(tmp_path_factory, rows, breaks):
    folder = tmp_path_factory.mktemp("forms")
    expected = [(id_of(i), title) for i, title in rows if normalise(title)]
    texts = {
        "d.tsv": "".join(f"{i}\t{title}{breaks}" for i, title in rows),
        "D.CSV": in_csv(rows, lineterminator=breaks),
        "q.csv": in_csv(rows, quoting=csv.QUOTE_ALL),
        "d.jsonl": breaks.join(json.dumps({"id": i, "title": t}, ensure_ascii=False) for i, t in rows),
        "d.NDJSON": "".join(json.dumps({"x": {"id": 0}, "title": t, "id": i}) + f" {breaks}\n" for i, t in rows),
    }
    for name, text in texts.items():
        content = text.encode()
        (folder / name).write_bytes(content)
        (folder / f"marked-{name}").write_bytes(b"\xef\xbb\xbf" + content)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content[:9]) + gzip.compress(content[9:]))
        (folder / f"{name}.ZST").write_bytes(pa.compress(content, "zstd", asbytes=True))
    ids, titles = (pa.array([row[at] for row in rows], pa.string()) for at in (0, 1))
    pq.write_table(pa.table({"id": ids, "title": titles}), folder / "d.parquet", row_group_size=3)
    pq.write_table(pa.table({"title": titles.dictionary_encode(), "id": ids.cast(pa.binary())}), folder / "e.parquet")
    for path in sorted(folder.iterdir()):
        documents = read_documents(str(path))
        assert list(zip(documents.ids, documents.titles, strict=True)) == expected, path.name
        assert (documents.num_untitled, documents.unfit) == (len(rows) - len(expected), ()), path.name


def test_a_first_line_of_names_is_no_document(write):
    for head in ("id\ttitle\n", "\ufeffID\tTitle\r\n"):
        assert rows_of(write("d.tsv", head + TSV)) == ROWS
    assert rows_of(write("d.tsv", TSV + "id\ttitle\n")) == [*ROWS, ("id", "title")]


def test_a_beir_corpus_has_titles_or_texts(write):
    rows = [("d1", "Angle bracket", "Steel."), ("d2", "", "A hammer"), ("3", " ", " ")]
    lines = "".join(json.dumps({"_id": i, "title": t, "text": x, "metadata": {}}) + "\n" for i, t, x in rows)
    documents = read_documents(write("corpus.jsonl", lines))
    assert (documents.ids, documents.titles) == (["d1", "d2"], ["Angle bracket", "A hammer"])
    assert documents.num_untitled == 1
    assert rows_of(write("e.jsonl", json_lines({"_id": "9", "id": "7", "title": "", "text": "no title of it"},
                                                {"_id": "d4", "text": "Saw"}))) == [("d4", "Saw")]  # fmt: skip
    assert rows_of(write("e.csv", "_id,title,text\nd5,,Nail\n")) == rows_of(write("e.parquet", _bytes(
        pa.table({"_id": ["d5"], "title": [""], "text": ["Nail"]})))) == [("d5", "Nail")]  # fmt: skip


def _bytes(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file)
    return file.getvalue()


def test_documents_without_a_word_are_counted(write):
    documents = read_documents(write("d.tsv", TSV + "d4\t\nd5\t   \n"))
    assert (len(documents), documents.num_untitled) == (3, 2)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('"2026-09-01"', "2026-09-01"),
        ('"2026-09-01T00:00:00Z"', "2026-09-01T00:00:00Z"),
        ("18446744073709551617", "18446744073709551617"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("1.10", "1.10"),
        ("7", "7"),
        ("7.0", "7"),
        ('" 7 "', "7"),
        ("1.2E7", "12000000"),
        ('"007"', "007"),
        ('"\\u00e9 \\ud83d\\ude00"', "é 😀"),
        ('"AB 12"', "AB 12"),
    ],
)
@pytest.mark.parametrize("other", ['"2026-09-01"', "3", "2.5", '"x"', "null"])
def test_ids_and_titles_in_json_are_text_whatever_other_rows_hold(write, written, read, other):
    lines = [f'{{"id": {written}, "title": {written}}}', f'{{"id": {other}, "title": {other}}}', '{"id":"n","title":0}']
    if read == id_of(other.strip('"')):
        del lines[1]
    first_last = {tuple(rows_of(write("d.jsonl", "\n".join(order)))[::step][0])
                  for order, step in ((lines, 1), (lines[::-1], -1))}  # fmt: skip
    [(id_, title)] = first_last
    as_text = json.loads(written) if written.startswith('"') else written
    assert (id_, title) == (read, as_text)


def test_two_documents_that_become_one_id_are_repeated(write):
    for lines in (['{"id": 10, "title": "a"}', '{"id": "10.0", "title": "b"}'], ['{"id": 1e+2,"title":"a"}',
                  '{"id": " 100", "title": "b"}']):  # fmt: skip
        with pytest.raises(StageError, match=r"1 ids occur more than once in .* \(10"):
            read_documents(write("d.jsonl", "\n".join(lines)))


GOOD = [{"id": f"P{n}", "title": f"title {n}"} for n in range(20)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": null, "title": "a"}', "without_id"),
        ('{"title": "a"}', "without_id"),
        ('{"id": "  ", "title": "a"}', "without_id"),
        ('{"id": "nan", "title": "a"}', "without_id"),
        ('{"id": NaN, "title": "a"}', "without_id"),
        ('{"id": ["a"], "title": "a"}', "unfit_id"),
        ('{"id": true, "title": "a"}', "unfit_id"),
        ('{"_id": {"$oid": "a"}, "title": "a"}', "unfit_id"),
        ('{"id": "a\\nb Q0 c 1 9 x", "title": "a"}', "unfit_id"),
        ('{"id": "a\\u0000", "title": "a"}', "unfit_id"),
        ('{"id": "a\\u2028b", "title": "a"}', "unfit_id"),
        ('{"id": "a", "title": ["a"]}', "unfit_title"),
        ('{"id": "a", "title": {"en": "a"}}', "unfit_title"),
        ('{"id": "a", "title": false}', "unfit_title"),
        ('{"id": "a", "title": "\\ud83d"}', "unreadable"),
        ('{"id": "\\udc00", "title": "a"}', "unreadable"),
        ('{"id": "a", "title": "a"', "unreadable"),
        ('"a"', "unreadable"),
        (b'{"id": "a", "title": "\xe9"}', "unreadable"),
        ('{"id": "a", "title": ' + "[" * 100_000 + "}", "unreadable"),
        ('{"id": "a", "title": "' + "long " * (MAX_TEXT_BYTES // 5) + 'end"}', "too_long"),
    ],
)
def test_a_row_of_json_that_is_no_document_is_counted_and_named(write, line, reason):
    content = json_lines(*GOOD[:3]).encode() + b"\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n"
    path = write("d.jsonl", content + json_lines(*GOOD[3:]).encode())
    documents = read_documents(path)
    assert documents.ids == [row["id"] for row in GOOD]
    [rows] = documents.unfit
    assert (rows.reason, rows.count, rows.places) == (reason, 1, ("d.jsonl:5",))
    assert rows.sentence.startswith("The documents have 1 row ")
    with pytest.raises(StageError, match=r"1 of the 1 rows of .* are no documents: 1 row .*\(one.jsonl:1\)"):
        read_documents(write("one.jsonl", line))


def test_values_of_a_column_that_nobody_reads_may_be_anything(write):
    values = ["12.50 EUR", 12.5, ["a", {"b": 1}], None, float("nan"), 10**30, "2026-09-01", True]
    lines = json_lines(*(row | {"price": value} for row, value in zip(GOOD, values, strict=False)))
    lines += '{"id": "s", "title": "a", "price": "\\ud800"}\n'
    assert [i for i, _ in rows_of(write("d.jsonl", lines))] == [*(f"P{n}" for n in range(len(values))), "s"]


@pytest.mark.parametrize("compressed", [False, True])
def test_lines_of_text_that_are_no_documents_are_counted_and_named(write, compressed):
    content = (
        b"\n  \t \nP1\tSteel bracket\r\nP2\tSteel\tbracket\nP3\tCaf\xe9\n\tno id\nP4\nnan\ta\n"
        b'P5\t"6 in. saw\x00\r\r\nP6\t' + b"x" * (MAX_TEXT_BYTES + 1) + b"\nP\xff\ta\nP 7\tWood glue\nP8\tNail\n"
        b"P9\tScrew\nQ1\tLamp\nQ2\tCable\nQ3\tTape"
    )
    path = write("d.tsv.gz" if compressed else "d.txt", gzip.compress(content) if compressed else content)
    assert [i for i, _ in rows_of(path)] == ["P1", "P5", "P 7", "P8", "P9", "Q1", "Q2", "Q3"]
    assert dict(rows_of(path))["P5"] == '"6 in. saw\x00'
    assert skipped(path) == {
        "other_columns": (2, ["4", "7"]),
        "unreadable": (2, ["5", "11"]),
        "without_id": (2, ["6", "8"]),
        "too_long": (1, ["10"]),
    }


def test_a_record_of_csv_that_is_none_is_counted_and_does_not_swallow_others(write):
    lines = [
        b'price,"id",title\r',
        b'3,P1,"Bracket, ""steel""\r',
        b'in two lines"\r',
        b"",
        b"4,P2,Steel,Bracket",
        b",,",
        b'5,P3,"open quote',
        b"6,P4,6 in. saw",
        b'7,P5,"Lamp"',
        b"8,P6,Caf\xe9",
        b"9,,no id",
        b"\xff,P7,Glue",
        b'10,P8,"open to the end',
        b"11,P9,Nail",
    ]
    path = write("d.csv", b"\n".join(lines))
    assert rows_of(path) == [
        ("P1", 'Bracket, "steel"\r\nin two lines'),
        ("P4", "6 in. saw"),
        ("P5", "Lamp"),
        ("P7", "Glue"),
        ("P9", "Nail"),
    ]
    assert skipped(path) == {
        "unreadable": (3, ["7", "10", "13"]),
        "other_columns": (1, ["5"]),
        "without_id": (1, ["11"]),
    }


def test_columns_of_parquet_have_the_form_that_other_readers_give_them(write):
    def ids_of(column: pa.Array) -> tuple[list[str], dict]:
        named = pa.table({"id": column, "title": [f"t{n}" for n in range(len(column))]})
        path = write("d.parquet", _bytes(named))
        return read_documents(path).ids, skipped(path)

    assert ids_of(pa.array([10.0, 7.0, 1e15])) == (["10", "7", "1000000000000000"], {})
    assert ids_of(pa.array([1.0, None, float("nan"), 2.5, 3.0, 1e17, 4.0, 5.0])) == (
        ["1", "3", "4", "5"], {"without_id": (2, ["2", "3"]), "unfit_id": (2, ["4", "6"])})  # fmt: skip
    assert ids_of(pa.array([Decimal("10.00"), Decimal("12.50"), Decimal("11.00")])) == (
        ["10", "11"], {"unfit_id": (1, ["2"])})  # fmt: skip
    assert ids_of(pa.array([2**63, 5], pa.uint64())) == (["9223372036854775808", "5"], {})
    assert ids_of(pa.array(["a ", "b", "a\nb", None, "c"]).dictionary_encode()) == (
        ["a", "b", "c"], {"unfit_id": (1, ["3"]), "without_id": (1, ["4"])})  # fmt: skip
    assert ids_of(pa.array([b"a", b"\xff", b"c"])) == (["a", "c"], {"unreadable": (1, ["2"])})
    with pytest.raises(StageError, match=r"2 of the 2 rows .* neither text nor a whole number"):
        ids_of(pa.array([True, False]))
    lists = pa.table({"id": ["a", "b"], "title": [["x"], ["y"]]})
    with pytest.raises(StageError, match=r"2 rows with a title that is not text .*1, d.parquet:2"):
        read_documents(write("d.parquet", _bytes(lists)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], pa.int64()),
        ([1, 2.5, 3], pa.float64()),
        ([2**53 + 2, 0.5], pa.float64()),
        ([2.5, 1], pa.float64()),
        (["2026-09-01", "2026-09-02T10:00:00Z"], pa.string()),
        (["1", "x", None], pa.string()),
        ([True, None, False], pa.bool_()),
    ],
)
def test_a_kept_column_has_one_type_in_any_order_of_rows(write, values, kind):
    rows = [GOOD[n] | ({} if value is None else {"kept": value}) for n, value in enumerate(values)]
    for order in (rows, rows[::-1], random.Random(3).sample(rows, len(rows))):
        table = read_documents(write("d.jsonl", json_lines(*order)), ["kept"]).table
        assert table.schema.field("kept").type == kind
        assert dict(zip(table["id"].to_pylist(), table["kept"].to_pylist(), strict=True)) == {
            f"P{n}": value for n, value in enumerate(values)
        }


def test_a_number_is_read_as_one_beside_a_row_that_is_decoded_in_full(write):
    lines = '{"id": 1.5, "title": "a", "price": 2}\n{"id": 3, "title": "b", "price": 4}\n'
    table = read_documents(write("d.jsonl", lines), ["price"]).table
    assert table["price"].type == pa.int64()
    assert table.to_pylist() == [{"id": "1.5", "title": "a", "price": 2}, {"id": "3", "title": "b", "price": 4}]


@pytest.mark.parametrize("values", [[1, "a"], ["a", 1.5], [True, 0], [[1]], [{"a": 1}], [1, 2**63], [0.5, 2**70]])
def test_a_kept_column_of_several_types_is_refused_by_the_first_line_that_differs(write, values):
    rows = [row | {"kept": value} for row, value in zip(GOOD, values, strict=False)]
    with pytest.raises(StageError, match=rf"'kept' holds values of several types.*first at d.jsonl:{len(values)}\)"):
        read_documents(write("d.jsonl", json_lines(*rows)), ["kept"])


def test_kept_columns_of_csv_are_numbers_if_all_their_cells_are(write):
    lines = "id,title,whole,price,code,stock,mixed\nP1,a,3,2.5,007,true,1\nP2,b,,3,7,false,n/a\nP3,c,4,1e2,9,,2\n"
    names = ["whole", "price", "code", "stock", "mixed"]
    table = read_documents(write("d.csv", lines), names).table
    assert [table.schema.field(name).type for name in names] == [
        pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.string()]  # fmt: skip
    assert table.select(names).to_pylist() == [
        {"whole": 3, "price": 2.5, "code": "007", "stock": True, "mixed": "1"},
        {"whole": None, "price": 3.0, "code": "7", "stock": False, "mixed": "n/a"},
        {"whole": 4, "price": 100.0, "code": "9", "stock": None, "mixed": "2"},
    ]


def test_kept_columns_of_parquet_may_be_categories_and_decimals(write):
    table = pa.table({
        "id": ["a", "b"], "title": ["x", "y"], "brand": pa.array(["p", None]).dictionary_encode(),
        "price": pa.array([Decimal("1.25"), Decimal("2.00")]),
    })  # fmt: skip
    kept = read_documents(write("d.parquet", _bytes(table)), ["brand", "price"]).table
    assert kept.select(["brand", "price"]).to_pydict() == {"brand": ["p", None], "price": [1.25, 2.0]}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("d.tsv", TSV + "d1\tagain\n", r"1 ids occur more than once in .* \(d1\)"),
        ("d.tsv", "d1\t\nd2\t\n", "None of the 2 documents of .* has a title"),
        ("d.tsv", "", "is empty"),
        ("d.tsv", "\n \n", "is empty"),
        ("d.tsv", "\ufeff", "is empty"),
        ("d.csv", "id,title\n", "is empty"),
        ("d.parquet", _bytes(pa.table({"id": ["a"], "title": ["a"]})[:0]), "is empty"),
        ("d.tsv", "d1 without a tab\n", "1 row with more or fewer columns than id and title"),
        ("d.tsv", "d1\ta\tb\nd2\tc\td\n", r"2 rows with more or fewer columns .*\(d.tsv:1, d.tsv:2\)"),
        ("d.tsv", b"d1\t\xff\xfe\n", "1 row of other bytes than UTF-8"),
        ("d.tsv", TSV.encode("utf-16"), "is UTF-16"),
        ("d.jsonl", '{"id": "d1"}\n', "None of the 1 documents .* has a title"),
        ("d.jsonl", '{"_id": "d1", "title": ""}\n', "None of the 1 documents .* has a title"),
        ("d.json", '\n[{"id": "d1", "title": "a"}]', "is one JSON array"),
        ("d.csv", "P1,Angle bracket\n", "does not name a column 'title'"),
        ("d.csv", "name,title\n1,2\n", "does not name a column 'id'"),
        ("d.parquet", _bytes(pa.table({"title": ["a"]})), "does not name a column 'id'"),
        ("d.csv", "id,title,price,title\n1,a,2,b\n", "has 2 columns of the name 'title'"),
        ("d.csv", "id,id,title\n1,2,b\n", "has 2 columns of the name 'id'"),
        (
            "d.parquet",
            _bytes(pa.table([["1"], ["a"], ["b"]], ["id", "title", "title"])),
            "2 columns of the name 'title'",
        ),
        ("d.csv", "id,title\r1,a\r", "ends its lines in carriage returns alone"),
        ("d.tsv", "1\ta\r2\tb\r", "ends its lines in carriage returns alone"),
        ("d.parquet", "no parquet", "does not have the format"),
        ("d.tsv.gz", gzip.compress(TSV.encode())[:-9], "not a whole compressed"),
        ("d.tsv.zst", pa.compress(TSV.encode() * 99, "zstd", asbytes=True)[:-9], "not a whole compressed"),
        ("d.tsv.gz", TSV, "named like a gzip file"),
        ("d.tsv", bz2.compress(TSV.encode()), "is a file of the kind bzip2"),
        ("d.tsv", _bytes(pa.table({"id": ["1"], "title": ["a"]})), "Give it a name that ends in .parquet"),
        ("d.tsv.gz", gzip.compress(gzip.compress(TSV.encode())), "is packed twice"),
        ("d.tsv.gz", gzip.compress(b"d.tsv".ljust(257, b"\0") + b"ustar"), "is a file of the kind tar"),
    ],
)
def test_bad_documents_get_an_error_that_says_why(write, name, content, words):
    with pytest.raises(StageError, match=words):
        read_documents(write(name, content))


def test_a_folder_in_place_of_documents_is_called_one(tmp_path):
    (tmp_path / "d.tsv").mkdir()
    with pytest.raises(UsageError, match="is a folder or a pipe"):
        read_documents(str(tmp_path / "d.tsv"))


def test_a_missing_file_or_unknown_form_is_wrong_usage(write):
    with pytest.raises(UsageError, match=r"(?i)no such file"):
        read_documents("nowhere.tsv")
    with pytest.raises(UsageError, match=r"(?i)ending of d?.*xml is unknown"):
        read_documents(write("d.xml", "<d/>"))
    with pytest.raises(UsageError, match=r"ending of .*d.parquet.gz is unknown"):
        read_documents(write("d.parquet.gz", "x"))
