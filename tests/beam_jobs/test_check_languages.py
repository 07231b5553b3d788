"""Languages of a log: the sums by hand, py3langid on queries whose language is known, and what is not told."""

import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.checking.check_log import check_log
from beam_jobs.checking.languages import MIN_QUERIES, find_languages, language_shares, most_likely_shares
from schemas.text_contract import normalise
from tests.beam_jobs.test_check_log import write
from tests.beam_jobs.ubi_lines import event, search

ENGLISH = [" ".join(pair) for pair in product(
    ["cheap", "black", "wooden", "outdoor", "small", "waterproof", "used", "kitchen", "children's", "heavy duty"],
    ["table", "shoes", "lamp", "garden hose", "shelf", "door handle", "paint brush", "ceiling fan", "drill bits",
     "extension cord", "rain jacket", "ryobi", "2x4", "water heater"],
)]  # fmt: skip
GERMAN = [" ".join(pair) for pair in product(
    ["günstige", "schwarze", "kleine", "gebrauchte", "wasserdichte", "weiße", "neue", "elektrische", "große", "rote"],
    ["schuhe", "lampe", "gartenmöbel", "tür", "regenjacke", "bohrmaschine", "küche", "heizung", "schrauben",
     "stühle", "bosch", "tapete", "leiter", "wandfarbe"],
)]  # fmt: skip
CHINESE = [first + second for first, second in product(
    ["黑色", "便宜", "二手", "小型", "防水", "北京", "儿童", "进口", "最新", "电动"],
    ["台灯", "手机", "桌子", "冰箱", "自行车", "鞋子", "书包", "电影", "电脑", "怎么选", "多少钱", "手表"],
)]  # fmt: skip


def log_of(queries):
    lines = []
    for number, query in enumerate(queries):
        lines += [search(f"q{number}", query, f"c{number}"), event(f"q{number}", "click", "D1", 1, f"c{number}")]
    return lines


def told(tmp_path, queries):
    return check_log([write(tmp_path / "log", log_of(queries))]).facts["languages"]


def test_the_shares_are_those_of_the_most_likely_mixture():
    # 6 rows say (0.8, 0.2) and 4 say (0.2, 0.8). The log-likelihood 6 log(0.2 + 0.6 s) + 4 log(0.8 - 0.6 s) is largest
    # where 6 (0.8 - 0.6 s) = 4 (0.2 + 0.6 s), that is s = 4.0 / 6.0. Votes would say 0.6.
    rows = np.array([[0.8, 0.2]] * 6 + [[0.2, 0.8]] * 4)
    assert most_likely_shares(rows) == pytest.approx([2 / 3, 1 / 3], abs=1e-3)
    # Of 9 to 1 the slope 9 (0.8 - 0.6 s) - (0.2 + 0.6 s) is still 1 at s = 1: the one row is the first language too.
    rows = np.array([[0.8, 0.2]] * 9 + [[0.2, 0.8]])
    assert most_likely_shares(rows) == pytest.approx([1, 0], abs=1e-3)


@given(st.lists(st.tuples(*[st.floats(0.01, 1)] * 3), min_size=1, max_size=30))
def test_no_other_mixture_is_more_likely(answers):
    rows = np.array(answers)
    rows /= rows.sum(axis=1, keepdims=True)
    found = most_likely_shares(rows)
    assert found.sum() == pytest.approx(1)

    def likelihood(mixture):
        return np.log(rows @ mixture).sum()

    others = np.random.default_rng(0).dirichlet([0.5] * 3, size=50)
    assert all(likelihood(found) >= likelihood(other) - 0.02 for other in others)


def test_what_the_library_does_not_say_by_itself_is_not_told():
    """All rows lean to another language each; the second best of all explains them, and no row has it best."""
    leaning = np.full((100, 21), 0.01)
    leaning[np.arange(100), 1 + np.arange(100) % 20] = 0.46
    leaning[:, 0] = 0.35
    leaning /= leaning.sum(axis=1, keepdims=True)
    codes = ["en", *(f"x{number}" for number in range(20))]
    assert most_likely_shares(leaning)[0] > 0.9
    assert language_shares(codes, leaning) == {}


def test_varieties_count_as_their_language_and_what_is_none_as_unsure():
    sure = np.eye(4)[[0] * 50 + [1] * 30 + [2] * 17 + [3] * 3] * 0.97 + 0.0075
    found = language_shares(["zh", "yue", "zxx", "fr"], sure)
    assert found == {"zh": pytest.approx(0.8, abs=0.01)}  # fr is under a twentieth


@pytest.mark.parametrize(("queries", "code"), [(ENGLISH, "en"), (GERMAN, "de"), (CHINESE, "zh")])
def test_a_log_of_one_language_is_told_as_one(tmp_path, queries, code):
    pytest.importorskip("py3langid")
    found = told(tmp_path, queries)
    assert list(found["shares"]) == [code]
    assert found["shares"][code] >= 0.98
    assert (found["queries"], found["why_not"]) == (len(queries), None)


@pytest.mark.parametrize("part", [0.2, 0.5])
def test_two_languages_are_told_with_their_shares(tmp_path, part):
    pytest.importorskip("py3langid")
    second = GERMAN[:: round(0.5 / part)][: round(part * len(ENGLISH) / (1 - part))]
    found = told(tmp_path, [*ENGLISH, *second])
    assert sorted(found["shares"]) == ["de", "en"]
    true = len(second) / (len(ENGLISH) + len(second))
    assert found["shares"]["de"] == pytest.approx(true, abs=0.1)


def test_part_numbers_are_no_language(tmp_path):
    pytest.importorskip("py3langid")
    numbers = [f"{maker}{number * 37 % 9973}-{number % 7}x" for number in range(60) for maker in ("wrt", "dcd", "mx")]
    found = told(tmp_path, numbers)
    assert (found["shares"], found["why_not"]) == ({}, None)


def test_of_too_few_queries_nothing_is_told(tmp_path):
    few = [*ENGLISH[: MIN_QUERIES - 1], "12 34", "５"]  # and two without a letter
    found = told(tmp_path, few)
    assert (found["shares"], found["queries"]) == ({}, 0)
    assert found["why_not"] == "99 different queries with letters are too few, it takes 100"


def test_without_the_library_the_rest_is_told_and_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    checked = check_log([write(tmp_path / "log", log_of(ENGLISH))])
    assert checked.can_be_ingested
    assert checked.facts["languages"]["why_not"] == "py3langid is not installed (pip install 'clicktower[check]')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "language"),
    [
        ("homedepot/queries.dev.tsv", "en"),
        ("nfcorpus/queries.dev.tsv", "en"),
        ("dbpedia_entity/queries.train.tsv", "en"),
        ("sogou_qt/queries.train.tsv", "zh"),
    ],
)
def test_real_queries_are_of_their_language_alone(real_data, file, language):
    pytest.importorskip("py3langid")
    lines = (real_data / file).read_text(encoding="utf-8").splitlines()
    found = find_languages(list({normalise(line.split("\t")[1]) for line in lines}))
    assert list(found["shares"]) == [language]
    assert found["shares"][language] > 0.99
