"""The answer of /v1/explain, beside the service: its values are plain, agree with each other and with the search."""

import json

import pytest

from flows.serve.explain_query import explain
from schemas.errors import UsageError
from tests.rounding import rounded
from tests.training.analysis.small_models import small_model
from training.ranking.bm25 import TitleBM25
from training.ranking.embedding import search_vectors

TITLES = ["steel Angle bracket", "garden hose", "angle grinder"]


def test_both_texts_with_every_words_part_of_both_scores():
    model, bm25 = small_model("lstm"), TitleBM25(TITLES)
    found = explain(model, bm25, "ANGLE  angle brakets", TITLES[0])
    assert json.loads(json.dumps(found)) == found
    served = (
        search_vectors(model, ["ANGLE  angle brakets"], "query")[0] @ search_vectors(model, [TITLES[0]], "document")[0]
    )
    assert found["cosine"] == rounded(float(served))
    score = float(bm25.scores(["ANGLE  angle brakets"])[0, 0])
    assert found["bm25"] == rounded(score, of=score)

    query, title = found["query"], found["title"]
    assert query["text"] == "ANGLE  angle brakets"
    assert [query["text"][word["start"] : word["end"]] for word in query["words"]] == ["ANGLE", "angle", "brakets"]
    assert [word["word"] for word in query["words"]] == ["angle", "angle", "brakets"]
    parts = [word["bm25"] for word in query["words"]]
    assert parts[0] == parts[1] > 0
    assert parts[2] == 0
    assert sum(parts) == found["bm25"]
    assert [word["in_other"] for word in query["words"]] == [True, True, False]
    assert [word["in_other"] for word in title["words"]] == [False, True, False]
    assert (query["num_words"], query["cut"], title["num_words"], title["cut"]) == (3, False, 3, False)
    shared = {one["letters"] for one in query["words"][2]["trigrams"] if one["shared"]}
    assert shared == {"#br", "bra", "ket"}  # of "brakets" and "bracket"
    first, *others = query["words"]
    assert (first["moved"], first["keyword"]) == (0.0, False)  # read first: nothing to move from
    assert all(0 <= word["moved"] <= 1 and isinstance(word["keyword"], bool) for word in others)


def test_without_gates_or_an_index_of_words_there_is_none():
    found = explain(small_model("bag"), None, "angle", TITLES[0])
    assert found["bm25"] is None
    assert [word["bm25"] for word in found["query"]["words"]] == [None]
    assert {(word["moved"], word["keyword"]) for word in found["title"]["words"]} == {(None, None)}


def test_a_text_without_a_word_is_refused():
    with pytest.raises(UsageError, match="no word"):
        explain(small_model("bag"), None, " ", TITLES[0])
