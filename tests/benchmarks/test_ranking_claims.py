"""benchmarks/ranking_claims.py, and what pages say of its record: verdicts, and stars."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ranking_claims import CUTOFFS, KINDS, LSTM, RESULTS, ROUNDING, SETS, claims, uncorrected
from clicktower.training.ranking.ndcg import holm
from tests.documented import ROOT

RECORD = json.loads((RESULTS / "ranking-claims.json").read_text(encoding="utf-8"))
QUALITY = {name: json.loads((RESULTS / f"quality-{name}.json").read_text(encoding="utf-8")) for name in SETS}
LSTM_MINUS, MINUS_BM25 = KINDS
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("docs/results.md", "benchmarks/README.md")}
ROW_OF = {
    "BM25 by white space": "bm25-printed", "ULM by white space": "ulm-printed", "Doc2Vec": "doc2vec-printed",
    "PLSA": "plsa-printed", "DSSM": "paper-dssm", "CLSM of 1 word": "paper-clsm-1", "CLSM of 3 words": "paper-clsm-3",
    "CLSM of 5 words": "paper-clsm-5", "the RNN": "paper-rnn-288", "n = 2": "paper-lstm-96-n2",
}  # fmt: skip
COMPARISON_OF = {name: (LSTM_MINUS, row) for name, row in ROW_OF.items()} | {"BM25 stemmed": (MINUS_BM25, LSTM)}


@given(st.lists(st.sampled_from([1e-4, 2e-4, 0.004, 0.03, 0.2, 0.9]), min_size=1, max_size=12))
def test_p_before_its_correction_is_never_taken_for_less_than_it_was(p):
    bounds = uncorrected(np.round(holm(p), 4))
    assert (bounds >= np.array(p) - 1e-12).all()
    assert (np.array(holm(bounds)) >= np.array(holm(p)) - 1e-12).all()


def test_p_before_its_correction_comes_back_where_the_correction_tells_it():
    # Of four: 0.001 x 4, 0.01 x 3, 0.02 x 2 and 0.3 x 1, in another order.
    found = uncorrected([0.03, 0.004, 0.3, 0.04])
    assert found == pytest.approx([0.01, 0.001, 0.3, 0.02], abs=ROUNDING)
    assert uncorrected([1.0, 0.002]).tolist() == [1.0, pytest.approx(0.001, abs=ROUNDING)]


def test_the_record_is_that_of_todays_records():
    assert claims(QUALITY) == {part: RECORD[part] for part in ("comparisons", "p", "minus_ulm")}
    for cutoff in CUTOFFS:
        counted = [p[cutoff] for kinds in RECORD["p"].values() for rows in kinds.values() for p in rows.values()]
        assert len(counted) == RECORD["comparisons"][cutoff]
        assert min(counted) > 0


def rows_of(page: str, after: str) -> list[list[str]]:
    """The cells of the first table below a line."""
    table = PAGES[page].split(after, 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def is_beyond_chance(of: str, kind: str, row: str, cutoff: str = "ndcg@10") -> bool:
    p = RECORD["p"][of][kind].get(row)
    return bool(p) and p[cutoff] < 0.05


def is_above(of: str, kind: str, row: str, cutoff: str = "ndcg@10") -> bool:
    return is_beyond_chance(of, kind, row, cutoff) and QUALITY[of][kind][row]["mean"][cutoff] > 0


def test_each_verdict_of_a_claim_is_the_records():
    found = rows_of("docs/results.md", "### The paper's claims about ranking")
    assert {cells[0] for cells in found if cells[-1] != "not tested"} == COMPARISON_OF.keys()
    for name, *_, verdict in found:
        if verdict != "not tested":
            at = [cutoff[5:] for cutoff in CUTOFFS if is_above("homedepot", *COMPARISON_OF[name], cutoff)]
            expected = "reproduced" if len(at) == 3 else f"at {' and '.join(at)}" if at else "cannot be said"
            assert verdict == expected, name


def test_a_star_of_the_three_other_sets_is_the_records():
    found = {cells[0]: cells[1:] for cells in rows_of("docs/results.md", "#### On the three other sets")}
    assert found.keys() == COMPARISON_OF.keys() | {"ULM stemmed"}
    for name, comparison in COMPARISON_OF.items():
        for cell, of in zip(found[name], SETS[1:], strict=True):
            assert ("\\*" in cell) == is_beyond_chance(of, *comparison), (name, of)


@pytest.mark.parametrize(("heading", "sets"), [("## Table IV\n", SETS[:1]), ("### Table IV elsewhere\n", SETS[1:])])
def test_a_star_of_table_iv_is_the_records(heading, sets):
    for name, *cells in rows_of("benchmarks/README.md", heading):
        row = name.strip("`")
        for at, (cell, of) in enumerate(zip(cells[-2 * len(sets) :], [s for s in sets for _ in "pt"], strict=True)):
            is_tower = bool(re.match("dssm|clsm|rnn|lstm|bilstm", row))
            made = row if at % 2 else f"paper-{row}" if is_tower else f"{row}-printed"
            assert ("\\*" in cell) == is_above(of, MINUS_BM25, made), (row, of)
