"""The rankings of TitleBM25 beside those of Apache Lucene 9.12, of every query of real data and of made titles.

Both get texts as the lexical contract cuts them. Ten best: Lucene orders equal scores by place, a search of ours by
descending id, so the scores of the ranks are compared, and the score of each title. Lucene keeps a title's length in
one byte, exact up to 40 words, and counts no title without a word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from clicktower.schemas.documents import read_documents
from clicktower.schemas.judgments import read_queries
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.section import Language
from clicktower.schemas.text_contract import normalise
from clicktower.training.ranking.bm25 import K1, B, TitleBM25

pytestmark = pytest.mark.slow

BEST = 10
LONGEST = 40  # words


def folded(text: str) -> str:
    return normalise(text).replace("’", "'").replace("⁄", "/")


@dataclass(frozen=True)
class Compared:
    """Titles of 1 to 40 words and queries, as Lucene and ours rank them."""

    titles: Sequence[str]
    queries: Sequence[str]
    bm25: TitleBM25
    theirs: Sequence[Mapping[int, float]]  # of each query: the best titles by Lucene, best first, with their scores

    def differing(self) -> list[str]:
        """The queries whose ten best have other scores."""
        return [query for query, best in zip(self.queries, self.theirs, strict=True) if not self._equal(query, best)]

    def _equal(self, query: str, theirs: Mapping[int, float]) -> bool:
        scores = np.array(list(theirs.values()), np.float32)
        _, ours = self.bm25.best(query, BEST)
        ours = np.sort(ours)[::-1][:BEST]
        rows = np.fromiter(theirs, np.int64, len(theirs))
        return len(ours) == len(scores) and all(
            np.allclose(found, scores, rtol=1e-5, atol=0) for found in (ours, self.bm25.scores_of(query, rows))
        )


def compare(
    lucene, analyser: str, language: Language, titles: Sequence[str], queries: Sequence[str], k1=K1, b=B
) -> Compared:
    titles, queries = ([folded(text) for text in texts] for texts in (titles, queries))
    lengths = np.diff(Analyser(language).terms_of_column(pa.array(titles, pa.string()))[0])
    titles = [title for title, length in zip(titles, lengths, strict=True) if 0 < length <= LONGEST]
    best = lucene.search(analyser, k1, b, titles, queries, BEST)
    of_query = np.searchsorted(best.queries, np.arange(len(queries) + 1))
    theirs = [
        dict(zip(best.titles[start:end].tolist(), best.scores[start:end].tolist(), strict=True))
        for start, end in pairwise(of_query)
    ]
    return Compared(titles, queries, TitleBM25(titles, language, k1=k1, b=b), theirs)


def read_data(folder: Path) -> tuple[Sequence[str], list[str]]:
    """(titles, the distinct queries of dev and train)."""
    queries = [read_queries(str(folder / f"queries.{part}.tsv")).values() for part in ("dev", "train")]
    titles = read_documents(str(folder / "documents.tsv")).titles
    return titles, list(dict.fromkeys(query for part in queries for query in part))


def test_made_titles(lucene):
    draw = np.random.default_rng(0)
    words = [f"w{number}" for number in range(200)]
    rare_first = 1 / np.arange(1, 201) ** 1.2
    titles, queries = (
        [
            " ".join(draw.choice(words, size=length, p=rare_first / rare_first.sum()))
            for length in draw.integers(1, longest, count)
        ]
        for longest, count in ((LONGEST + 1, 3_000), (8, 500))
    )
    assert sum(len(set(query.split())) < len(query.split()) for query in queries) > 100  # with a word twice
    compared = compare(lucene, "standard", "none", titles, queries, k1=1.6, b=0.75)
    assert len(compared.titles) == len(titles)
    assert compared.differing() == []


def test_product_titles(lucene, real_data):
    compared = compare(lucene, "english-snowball", "english", *read_data(real_data / "homedepot"))
    assert len(compared.titles) > 54_600
    assert len(compared.queries) > 10_000
    terms = Analyser("english").terms
    texts = pa.array([*compared.titles, *compared.queries], pa.string())
    words = Analyser("none").terms_of_column(texts)[1].dictionary.to_pylist()
    # Lucene's older Snowball gives some words the stem of others (universal: univers), which changes how rare it is.
    changed = {
        stem
        for word, (token,) in zip(words, lucene.tokens(("english-snowball", word) for word in words), strict=True)
        if token != (term := terms(word)[0])
        for stem in (token, term)
    }
    unchanged = [query for query in compared.differing() if not changed & set(terms(query))]
    assert unchanged == []
    assert 0 < sum(bool(changed & set(terms(query))) for query in compared.queries) < 0.02 * len(compared.queries)


def test_chinese_titles(lucene, real_data):
    titles, queries = read_data(real_data / "sogou_qt")
    # Lucene makes tokens of stars and arrows, which changes a title's length.
    plain = [title for title in titles if not set(title) & set("★↘®©") and "_ド" not in title]
    compared = compare(lucene, "cjk", "none", plain, queries)
    assert len(compared.titles) > 0.94 * len(titles)
    assert compared.differing() == []
