"""Real questions as a step learns them: the texts of CLICKTOWER_DATA/question_pairs/train.tsv, in memory.

A line is a label (1: the two mean the same), a question and another one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.real_pairs import table_of
from clicktower.schemas.text_contract import normalise_column
from clicktower.training.towers.text_table import Ragged, TextTable


class QuestionPair(NamedTuple):
    label: str
    first: str
    second: str


def read_question_pairs(data: Path) -> list[QuestionPair]:
    """The training pairs whose questions both have a word, in the file's order."""
    lines = (data / "question_pairs" / "train.tsv").read_text(encoding="utf-8").split("\n")
    pairs = (QuestionPair(*line.split("\t")[:3]) for line in lines if line)
    return [pair for pair in pairs if pair.first.strip() and pair.second.strip()]


def read_questions(data: Path) -> list[str]:
    """Their distinct questions, in order of first appearance."""
    return list(dict.fromkeys(text for pair in read_question_pairs(data) for text in (pair.first, pair.second)))


def occurring_rows(texts: Sequence[str]) -> tuple[TextTable, int]:
    """(the texts, their trigrams numbered among those that occur, how many these are)."""
    table = table_of(normalise_column(pa.array(texts, pa.string())))
    rows, trigrams = np.unique(table.trigrams.values, return_inverse=True)
    return TextTable(table.words, Ragged(table.trigrams.offsets, trigrams)), len(rows)
