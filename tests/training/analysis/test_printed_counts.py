"""The rule after counting on the counts that the paper prints (Palangi et al., arXiv:1502.06922v3), and where what the
paper says of its figures disagrees with its own tables."""

import pytest

from clicktower.training.analysis.explanation import explain_model, topics_json
from clicktower.training.analysis.keywords import by_counts
from clicktower.training.analysis.printed_pairs import MOST_WORDS, PRINTED_PAIRS
from clicktower.training.evaluation.rows import all_rows
from tests.training.analysis.small_models import small_model

# Cells of the 10 most active that declare a word, left to right and right to left; None where "-" is printed.
HOTELS = "hotels in shanghai", [None, 0, 7], [6, 0, None]  # Table I
ACCOMMODATION = (  # Table II
    "shanghai hotels accommodation hotel in shanghai discount and reservation",
    [None, 4, 3, 8, 1, 8, 5, 3, 4],
    [4, 6, 5, 4, 5, 1, 7, 5, None],
)
BATH_TUB = "how to fix bath tub wont turn off", [None, 0, 4, 7, 6, 3, 5, 0], [4, 1, 6, 7, 6, 7, 7, None]  # Table IX
PAINT = (  # Table X; the paper treats "should you use yahoo answers" as one word
    "how do you paint a bathtub and what paint should...",
    [None, 1, 1, 7, 0, 9, 2, 3, 8, 4],
    [5, 9, 5, 4, 8, 4, 5, 5, 9, None],
)
# Neurons of the RNN, left to right (Tables V to VIII).
OF_RNN = {
    HOTELS[0]: [None, 2, 9],
    ACCOMMODATION[0]: [None, 10, 7, 9, 6, 8, 3, 2, 6],
    BATH_TUB[0]: [None, 1, 10, 4, 6, 2, 7, 1],
    PAINT[0]: [None, 1, 4, 4, 3, 7, 2, 5, 4, 7],
}
# Scores of the LSTM and the RNN, and the human label, below Tables V to VIII.
SCORES = [(0.9161, 0.8165, "Good"), (0.5944, 0.7016, "Bad")]
# Words, from 0, that the texts on Fig. 5 and Fig. 10 call attenuated by the input gate.
ATTENUATED = {ACCOMMODATION[0]: (2, 6, 8), PAINT[0]: (2, 3, 6, 8)}


def test_the_pairs_that_explain_shows_have_the_printed_counts_and_scores():
    texts = [text for pair in PRINTED_PAIRS for text in (pair.query, pair.title)]
    for text, (name, to_right, to_left) in zip(texts, (HOTELS, ACCOMMODATION, BATH_TUB, PAINT), strict=True):
        assert text.text.startswith(name.removesuffix("should..."))
        assert [list(counts) for counts in text.counts.values()] == [to_right, to_left, OF_RNN[name]]
        assert min(len(text.text.split()), MOST_WORDS) == len(to_right)
    assert [(pair.scores["LSTM"], pair.scores["RNN"], pair.label) for pair in PRINTED_PAIRS] == SCORES


@pytest.mark.parametrize(
    ("printed", "both_ways", "left_to_right", "right_to_left"),
    [
        (HOTELS, ["hotels", "shanghai"], ["shanghai"], ["hotels"]),
        (
            ACCOMMODATION,
            ["discount"],
            ["hotel", "shanghai", "discount"],
            ["hotels", "accommodation", "in", "discount", "and"],
        ),
        (BATH_TUB, ["bath", "tub", "turn"], ["bath", "tub", "turn"], ["fix", "bath", "tub", "wont", "turn"]),
        (PAINT, ["how", "paint"], ["paint", "bathtub", "paint"], ["how", "do", "you", "a", "and", "what", "paint"]),
    ],
    ids=["Table I", "Table II", "Table IX", "Table X"],
)
def test_words_that_the_printed_rule_selects(printed, both_ways, left_to_right, right_to_left):
    """More than 40% of 10 cells, so 5, in both directions, or in the one that has a count."""
    text, right, left = printed
    words = text.split()
    for counts, expected in (([right, left], both_ways), ([right], left_to_right), ([left], right_to_left)):
        assert [words[at] for at in by_counts(counts, [10] * len(counts))] == expected


@pytest.mark.parametrize(
    ("printed", "more", "fewer"),
    [
        (HOTELS, [], []),
        (ACCOMMODATION, ["hotels", "accommodation", "in", "reservation"], ["discount"]),
        (BATH_TUB, ["fix"], ["bath"]),
        (PAINT, ["what", "should..."], ["paint", "paint"]),
    ],
    ids=["Table V", "Table VI", "Table VII", "Table VIII"],
)
def test_words_that_only_one_of_the_two_models_selects(printed, more, fewer):
    """The text names "in" of Table VI as an unimportant word that only the RNN has; but it names "a" and "you" of
    Table VIII too, whose 3 and 4 neurons the rule does not select."""
    text, of_lstm, _ = printed
    lstm, rnn = (set(by_counts([counts], [10])) for counts in (of_lstm, OF_RNN[text]))
    words = text.split()
    assert [words[at] for at in sorted(rnn - lstm)] == more
    assert [words[at] for at in sorted(lstm - rnn)] == fewer


def test_an_attenuated_word_is_the_only_keyword_of_its_document():
    """Fig. 5 shows the input gate closing at "accommodation", "discount" and "reservation", which "are not important"
    by the text. Table II has "discount" as the one word that more than 4 cells declare both ways. Both can be true: a
    gate that is less open than at other words still lets in what moves half of the cells."""
    text, right, left = ACCOMMODATION
    assert by_counts([right, left], [10, 10]) == (6,)
    assert 6 in ATTENUATED[text]


def test_attenuated_words_have_no_fewer_cells_in_the_second_document():
    """Fig. 10 has the gate closing at both "paint", which Table X selects: 7 and 8 cells. In Fig. 5 attenuated words
    have 4 cells in the mean and others 4.8, in Fig. 10 4.5 against 3.4: the figures alone do not support the claim."""
    text, right, left = PAINT
    assert set(by_counts([right], [10])) & set(ATTENUATED[text]) == {3, 8}
    assert 8 in by_counts([right, left], [10, 10])

    def means(printed) -> tuple[float, float]:
        text, counts, _ = printed
        inside = [count for at, count in enumerate(counts) if at in ATTENUATED[text]]
        outside = [count for at, count in enumerate(counts) if count is not None and at not in ATTENUATED[text]]
        return sum(inside) / len(inside), sum(outside) / len(outside)

    assert means(ACCOMMODATION) == (4.0, 4.8)  # 3 + 5 + 4 of 3 words; 4 + 8 + 1 + 8 + 3 of 5
    assert means(PAINT) == (4.5, 3.4)  # 1 + 7 + 2 + 8 of 4 words; 1 + 0 + 9 + 3 + 4 of 5


def test_the_distance_to_the_best_baseline_is_that_to_another_clsm():
    """The text has the LSTM 1.3% ahead of the best baseline at NDCG@1. That is CLSM with windows of 1 word; the best
    row of CLSM in Table IV has windows of 3 words, and 1.0% is left."""
    at_1 = {row.name: row.paper[0] for row in all_rows() if row.paper}
    clsm = {name: at_1["lstm-96"] - at_1[name] for name in at_1 if name.startswith("clsm")}
    assert clsm == pytest.approx({"clsm-1": 1.3, "clsm-3": 1.0, "clsm-5": 1.1})
    assert min(clsm, key=clsm.__getitem__) == "clsm-3"


# Table III: the words that the 5 most active of 32 cells take, by query; its columns are lost in the text.
TABLE_III = {
    "al yo yo sauce": ["yo", "sauce", "sauce"],
    "atkins diet lasagna": ["diet", "diet", "diet"],
    "blender recipes": ["recipes"],
    "cake bakery edinburgh": ["bakery", "bakery", "bakery"],
    "canning corn beef hash": ["beef hash", "corn beef"],
    "torre de pizza": ["pizza", "pizza"],
    "famous desserts": ["desserts"],
    "fried chicken": ["chicken", "chicken", "chicken"],
    "smoked turkey recipes": ["turkey", "recipes"],
    "italian sausage hoagies": ["sausage", "hoagies", "sausage", "sausage"],
    "do you get allergy": ["allergy"],
    "much pain will after total knee replacement": ["pain", "pain knee", "knee", "replacement"],
    "how to make whiter teeth": ["make teeth", "to", "whiter"],
    "illini community hospital": ["community hospital", "hospital", "community", "hospital", "hospital"],
    "implant infection": ["infection", "infection", "infection"],
    "introductory psychology": ["psychology", "psychology", "psychology"],
    "narcotics during pregnancy side effects": ["pregnancy", "pregnancy effects during", "during"],
    "fight sinus infections": ["infections", "sinus infections", "infections"],
    "health insurance high blood pressure": ["insurance", "blood", "high blood", "high pressure", "insurance high"],
    "all antidepressant medications": ["antidepressant medications", "antidepressant", "medications"],
}


def test_the_grid_of_queries_and_cells_has_the_shape_of_table_iii():
    """At most 5 cells take words of a query, each words of that query, never the first, which has no count."""
    made = explain_model("small", small_model(cells=32), [], list(TABLE_III), grid=len(TABLE_III)).topics
    ours = {row["query"]: [" ".join(of["words"]) for of in row["cells"]] for row in topics_json(made)["grid"]}
    assert list(ours) == list(TABLE_III)
    assert sum(map(len, ours.values())) > len(ours)
    for grid in (TABLE_III, ours):
        for query, cells in grid.items():
            assert len(cells) <= 5
            assert set(" ".join(cells).split()) <= set(query.split()[1:])
