import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.model.decoder import END, UNKNOWN, targets_of
from clicktower.training.towers.text_table import Ragged, list_offsets

VOCABULARY = 6
texts_of_words = st.lists(st.lists(st.integers(1, VOCABULARY - 1), max_size=5), min_size=1, max_size=6)


def ragged(texts: list[list[int]]) -> Ragged:
    return Ragged(list_offsets(np.array([len(text) for text in texts])), np.array([i for text in texts for i in text]))


@settings(max_examples=50, deadline=None)
@given(texts_of_words)
def test_every_position_reads_the_word_before_and_says_the_next_up_to_the_end(texts):
    targets = targets_of(ragged([[*text, END] for text in texts]), VOCABULARY)
    positions = [
        (number, before, said)
        for number, text in enumerate(texts)
        for before, said in zip([VOCABULARY, *text], [*text, END], strict=True)
    ]
    read = targets.read[targets.read_at]
    assert list(zip(targets.text.tolist(), read.tolist(), targets.word.tolist(), strict=True)) == positions
    assert targets.read.tolist() == sorted({before for _, before, _ in positions})


@settings(max_examples=50, deadline=None)
@given(texts_of_words)
def test_the_lstm_reads_each_texts_positions_one_after_the_other(texts):
    targets = targets_of(ragged([[*text, END] for text in texts]), VOCABULARY)
    batch = targets.batch
    read: list[list[int]] = [[] for _ in texts]
    for step in range(batch.num_steps):
        packed = batch.packed_words[batch.step_offsets[step] : batch.step_offsets[step + 1]]
        for text, position in zip(batch.order.tolist(), packed.tolist(), strict=False):
            read[text].append(position)
    assert [position for of_text in read for position in of_text] == list(range(len(targets.word)))
    assert [len(of_text) for of_text in read] == [len(text) + 1 for text in texts]


def test_a_word_that_is_not_kept_is_read_as_unknown_and_still_to_be_said():
    ids = ragged([[2, 3, 4, END], [5, END]])
    targets = targets_of(ids, VOCABULARY, np.array([False, True, False, True, True, False]))
    assert targets.read[targets.read_at].tolist() == [VOCABULARY, 2, UNKNOWN, 4, VOCABULARY, UNKNOWN]
    assert targets.word.tolist() == ids.values.tolist()
