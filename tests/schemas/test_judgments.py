import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import are_click_derived, read_qrels, read_queries, read_run, run_lines, trec_field

IDS = st.text("abcXYZ019-_", min_size=1, max_size=6)


def write(folder, text: str) -> str:
    (folder / "file").write_text(text, encoding="utf-8")
    return str(folder / "file")


def test_queries_and_qrels_are_read(tmp_path):
    assert read_queries(write(tmp_path, "q1\tangle bracket\r\nq2\t漢字\n")) == {"q1": "angle bracket", "q2": "漢字"}
    assert read_qrels(write(tmp_path, "q1 0 d1 3\nq1 0 d2 0\nq2\t0\td1\t-1\n")) == {
        "q1": {"d1": 3, "d2": 0},
        "q2": {"d1": -1},
    }


def test_queries_and_qrels_of_beir_are_read(tmp_path):
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"_id": "1", "text": "angle\\tbracket", "metadata": {}}\n{"_id": "q2", "text": "漢字"}\n')
    assert read_queries(str(queries)) == {"1": "angle\tbracket", "q2": "漢字"}
    qrels = write(tmp_path, "query-id\tcorpus-id\tscore\n1\td1\t3\n1\td2\t0\nq2\td1\t1\n")
    assert read_qrels(qrels) == {"1": {"d1": 3, "d2": 0}, "q2": {"d1": 1}}
    for line in ('{"_id": 1, "text": "a"}', '{"_id": "1"}', "[]", '"_id"', "{", "[" * 100_000):
        queries.write_text('{"_id": "1", "text": "a"}\n' + line + "\n")
        with pytest.raises(StageError, match=r"Line 2 of .* is no such object"):
            read_queries(str(queries))
    with pytest.raises(StageError, match=r"Line 3 of .* has 3 fields"):
        read_qrels(write(tmp_path, "q1 0 d1 1\nq1 0 d2 1\nquery-id corpus-id score\n"))


def test_query_sets_and_judgment_lists_of_the_search_relevance_workbench_are_read(tmp_path):
    queries, ratings = tmp_path / "query_set.json", tmp_path / "judgments.json"
    queries.write_text('{"name": "q", "querySetQueries": [{"queryText": "漢字"}, {"queryText": "red dress"}]}')
    ratings.write_text(
        '{"name": "r", "type": "IMPORT_JUDGMENT", "judgmentRatings": [\n {"query": "red dress", "ratings": ['
        '{"docId": "B07", "rating": "3.000"}, {"docId": "B08", "rating": 0}]}]}'
    )
    with pytest.raises(StageError, match="holds no judgment"):
        read_qrels(str(queries))
    texts = {text: query_id for query_id, text in read_queries(str(queries)).items()}
    assert list(texts) == ["漢字", "red dress"]
    assert read_qrels(str(ratings)) == {texts["red dress"]: {"B07": 3, "B08": 0}}
    assert read_queries(str(ratings)) == {texts["red dress"]: "red dress"}
    ratings.write_text(ratings.read_text().replace('"r"', '"click-derived-1"'))
    assert are_click_derived(read_qrels(str(ratings)))
    ratings.write_text(ratings.read_text().replace("3.000", "0.5"))
    with pytest.raises(StageError, match=r"has the rating 0.5"):
        read_qrels(str(ratings))
    strange_query = '{"name": "q", "judgmentRatings": [{"query": 1, "ratings": []}]}'
    strange_rating = ratings.read_text().replace("0.5", "high")
    for text in ("{", "[]", '{"name": "q"}', '{"name": "q", "querySetQueries": ["a"]}', strange_query, strange_rating):
        ratings.write_text(text)
        for read in (read_queries, read_qrels):
            with pytest.raises(StageError, match="neither a query set nor a judgment list"):
                read(str(ratings))


@pytest.mark.slow
@given(
    st.dictionaries(IDS, st.dictionaries(IDS, st.floats(allow_nan=False, allow_infinity=False), min_size=1), min_size=1)
)
def test_a_run_is_read_back_as_it_was_written(tmp_path_factory, run):
    path = write(tmp_path_factory.mktemp("run"), "".join(run_lines(run, "ours")))
    assert read_run(path) == run


def test_white_space_and_line_ends_within_an_id_write_no_second_field_or_line():
    lines = list(run_lines({"q 1": {"AB 12": 2.0, "x\ny Q0 z 1 9 t": 1.0, "a%20b": 0.5}}, "t"))
    assert [line.split(" ")[:3] for line in lines] == [
        ["q%201", "Q0", "AB%2012"], ["q%201", "Q0", "x%0Ay%20Q0%20z%201%209%20t"], ["q%201", "Q0", "a%20b"],
    ]  # fmt: skip
    assert [(line.count("\n"), len(line.split())) for line in lines] == [(1, 6)] * 3


def test_ties_are_written_by_descending_document_id():
    lines = list(run_lines({"q": {"a": 1.0, "c": 1.0, "b": 2.0}}, "t"))
    assert [line.split()[2] for line in lines] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("read", "text", "words"),
    [
        (read_queries, "q1 no tab\n", "line 1 of .* has no tab"),
        (read_queries, "q1\ta\nq1\tb\n", "line 2 of .* repeats the id q1"),
        (read_queries, "\n\n", "is empty"),
        (read_qrels, "q1 0 d1\n", "line 1 of .* has 3 fields"),
        (read_qrels, "q1 0 d1 high\n", "line 1 of .* has no grade as its last field"),
        (read_qrels, "q1 0 d1 --3\n", "line 1 of .* has no grade as its last field"),
        (read_qrels, "q1 0 d1 ²\n", "line 1 of .* has no grade as its last field"),
        (read_qrels, "q1 0 d1 1\nq1 0 d2 1000001\n", "line 2 of .* from -1,000,000 to 1,000,000"),
        (read_qrels, "q1 0 d1 1\nclick-derived-a 0 d2 1\n", "1 of the 2 queries of .* are derived from clicks"),
        (read_run, "q1 Q0 d1 1 x t\n", "line 1"),
        (read_run, "q1 Q0 d1 1 2.0 t\nq1 Q0 d2 2 nan t\n", "line 2 of .* has the score nan"),
        (read_run, "q1 Q0 d1 1 -Infinity t\n", "line 1 of .* has the score -inf"),
        (read_run, "q1 Q0 d1 1 1e999 t\n", "line 1 of .* has the score inf"),
        (
            read_run,
            "q1 Q0 d1 1 2.0 t\nq2 Q0 d1 1 2.0 t\nq1 Q0 d1 2 1.0 t\n",
            "line 3 of .* gives q1 the document d1 again",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path, read, text, words):
    with pytest.raises(StageError, match=f"(?i){words}"):
        read(write(tmp_path, text))


def test_of_several_grades_the_lower_median_counts_whatever_their_order(tmp_path):
    # d1: 0, 2, 3 have the median 2; d2: 1 and 3 the lower median 1; d3: twice the same is one grade.
    lines = ["q1 0 d1 3", "q1 0 d1 0", "q1 0 d2 3", "q1 0 d3 1", "q1 0 d2 1", "q1 0 d1 2", "q1 0 d3 1", "q2 0 d1 0"]
    for order in (lines, lines[::-1]):
        found = read_qrels(write(tmp_path, "\n".join(order)))
        assert found == {"q1": {"d1": 2, "d2": 1, "d3": 1}, "q2": {"d1": 0}}
        assert found.several_grades == 2


@pytest.mark.parametrize("read", [read_queries, read_qrels, read_run])
def test_a_missing_file_is_wrong_usage_and_other_bytes_are_told(tmp_path, read):
    with pytest.raises(UsageError):
        read(str(tmp_path / "nothing"))
    (tmp_path / "bytes").write_bytes(b"q1\t\xff\n")
    with pytest.raises(StageError, match="not UTF-8"):
        read(str(tmp_path / "bytes"))


def test_the_first_judgment_behind_a_byte_order_mark_counts(tmp_path):
    for name, text in {
        "queries.tsv": "q1\tangle bracket\n",
        "queries.NDJSON": '{"_id": "q1", "text": "angle bracket"}\n',
        "queries.jsonl.gz": '{"_id": "q1", "text": "angle bracket"}\r\n',
    }.items():
        content = b"\xef\xbb\xbf" + text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        assert read_queries(str(tmp_path / name)) == {"q1": "angle bracket"}
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfq1 0 d1 2 \r\nq1 0 d2 0\r\n")
    assert read_qrels(str(tmp_path / "file")) == {"q1": {"d1": 2, "d2": 0}}
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfquery-id\tcorpus-id\tscore\r\nq1\td1\t2\r\n")
    assert read_qrels(str(tmp_path / "file")) == {"q1": {"d1": 2}}
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfq1 Q0 d1 1 2.5 t\r\n")
    assert read_run(str(tmp_path / "file")) == {"q1": {"d1": 2.5}}
    entry = {"query": "a", "ratings": [{"docId": "1", "rating": 2}]}
    content = json.dumps({"name": "r", "judgmentRatings": [entry]}).encode()
    (tmp_path / "list.JSON").write_bytes(b"\xef\xbb\xbf" + content)
    assert list(read_qrels(str(tmp_path / "list.JSON")).values()) == [{"1": 2}]


def test_ids_that_a_program_wrote_as_floats_are_the_catalogues(tmp_path):
    assert read_queries(write(tmp_path, "7.0 \tangle\n07\tbracket\n")) == {"7": "angle", "07": "bracket"}
    assert read_qrels(write(tmp_path, "7.0 0 1.2E7 1\n7 0 007 2\n7 0 7 3\n")) == {
        "7": {"12000000": 1, "007": 2, "7": 3}
    }
    assert read_run(write(tmp_path, "7.0 Q0 10.0 1 3 t\n7 Q0 010 2 2 t\n")) == {"7": {"10": 3.0, "010": 2.0}}
    with pytest.raises(StageError, match=r"Line 2 of .* repeats the id 7"):
        read_queries(write(tmp_path, "7\ta\n7.0\tb\n"))
    with pytest.raises(StageError, match=r"Line 2 of .* the document 10 again"):
        read_run(write(tmp_path, "q Q0 10 1 3 t\nq Q0 10.0 2 2 t\n"))


def test_a_pair_that_a_judgment_list_holds_twice_has_the_lower_median(tmp_path):
    first = [{"docId": id, "rating": str(grade)} for id, grade in (("d1", 3), ("d1", 0), ("d2", 1), ("d1", 2))]
    entries = [{"query": "a", "ratings": first}, {"query": "a", "ratings": [{"docId": "d2", "rating": 3}]}]
    (tmp_path / "list.json").write_text(json.dumps({"name": "r", "judgmentRatings": entries}))
    qrels = read_qrels(str(tmp_path / "list.json"))
    assert list(qrels.values()) == [{"d1": 2, "d2": 1}]
    assert qrels.several_grades == 2


def test_numbers_of_a_judgment_list_are_ids_as_they_are_written_and_nothing_is_no_id(tmp_path):
    ratings = tmp_path / "list.json"

    def write_list(*fields: str) -> None:
        of_query = ", ".join(f'{{{field} "rating": 1}}' for field in fields)
        ratings.write_text(f'{{"name": "r", "judgmentRatings": [{{"query": "a", "ratings": [{of_query}]}}]}}')

    write_list(*(f'"docId": {number},' for number in ("18446744073709551617", "1.10", '"007"', "7.0", '" 9 "')))
    (grades,) = read_qrels(str(ratings)).values()
    assert list(grades) == ["18446744073709551617", "1.10", "007", "7", "9"]
    for bad in ("null", "true", '""', '" "', "[]", '"\\ud800"'):
        write_list('"docId": "d",', f'"docId": {bad},', "")
        with pytest.raises(StageError, match=r"2 of the 3 ratings of .* name no document"):
            read_qrels(str(ratings))


def test_no_id_breaks_the_lines_of_a_run(tmp_path):
    ids = ["d1 Q0 d2 1 9.0 t", "a\nq1 Q0 b 1 9 t", "c\td", "e\u2028f", "50%", "größe", "\x1cg"]
    run = {"q1": {document_id: float(at) for at, document_id in enumerate(ids)}}
    written = list(run_lines(run, "t"))
    assert all(line.count("\n") == 1 and len(line.split()) == 6 for line in written)
    assert [line.split()[2] for line in written] == [trec_field(document_id) for document_id in ids[::-1]]
    read = read_run(write(tmp_path, "".join(written)))["q1"]
    assert len(read) == len(ids)
    assert {"50%", "größe", "c%09d", "a%0Aq1%20Q0%20b%201%209%20t"} < read.keys()
