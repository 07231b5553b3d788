"""The two pairs that the paper reads word by word, with what it prints of them (Tables I, II and V to X).

Counts are of the 10 most active cells, None where "-" is printed. Left to right those of the bidirectional LSTM are
those of the LSTM too. The paper reads ten words of a text: what follows the ninth is one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

MOST_WORDS, TOP_CELLS = 10, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedText:
    """A text, and for each of its words how many cells of a network declare it, by the name of the network."""

    text: str
    counts: Mapping[str, tuple[int | None, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedPair:
    """A query and a title, what a person said of them, and the networks' scores, from 0 to 1."""

    query: PrintedText
    title: PrintedText
    label: str
    scores: Mapping[str, float]


def _text(
    text: str, to_right: tuple[int | None, ...], to_left: tuple[int | None, ...], rnn: tuple[int | None, ...]
) -> PrintedText:
    return PrintedText(text=text, counts={LSTM_TO_RIGHT: to_right, LSTM_TO_LEFT: to_left, RNN: rnn})


LSTM_TO_RIGHT, LSTM_TO_LEFT, RNN = "LSTM →", "LSTM ←", "RNN →"
PRINTED_PAIRS = (
    PrintedPair(
        query=_text("hotels in shanghai", (None, 0, 7), (6, 0, None), (None, 2, 9)),
        title=_text(
            "shanghai hotels accommodation hotel in shanghai discount and reservation",
            (None, 4, 3, 8, 1, 8, 5, 3, 4), (4, 6, 5, 4, 5, 1, 7, 5, None), (None, 10, 7, 9, 6, 8, 3, 2, 6),
        ),
        label="Good",
        scores={"LSTM": 0.9161, "RNN": 0.8165},
    ),
    PrintedPair(
        query=_text(
            "how to fix bath tub wont turn off",
            (None, 0, 4, 7, 6, 3, 5, 0), (4, 1, 6, 7, 6, 7, 7, None), (None, 1, 10, 4, 6, 2, 7, 1),
        ),
        title=_text(
            "how do you paint a bathtub and what paint should you use yahoo answers",
            (None, 1, 1, 7, 0, 9, 2, 3, 8, 4), (5, 9, 5, 4, 8, 4, 5, 5, 9, None), (None, 1, 4, 4, 3, 7, 2, 5, 4, 7),
        ),
        label="Bad",
        scores={"LSTM": 0.5944, "RNN": 0.7016},
    ),
)  # fmt: skip
