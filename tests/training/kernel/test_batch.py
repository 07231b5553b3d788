"""The compiled index against the same index written down plainly, and against training.towers.text_batch."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.kernel_towers import ARRAYS, CHUNK_TEXTS, BatchIndex, kernel_batch
from clicktower.training.towers.text_batch import text_batch
from clicktower.training.towers.text_table import TextTable
from tests.training.texts import random_texts, table_of

pytestmark = pytest.mark.skipif(not status().available, reason=f"no compiled kernel: {status().reason}")
Part = tuple[TextTable, np.ndarray]


def lists_of(batch: BatchIndex) -> dict[str, list[int]]:
    return {name: batch.array(name).tolist() for name in ARRAYS}


def plain_lists(
    parts: list[Part], place: list[int] | None = None, group: int = 0, share: bool = False, ungrouped: int = 0
) -> dict[str, list[int]]:
    """All arrays of a batch by their definitions."""
    texts = [
        tuple((id(table), word) for word in table.words.values[table.words.offsets[at] : table.words.offsets[at + 1]])
        for table, index in parts
        for at in index
    ]
    table_of_id = {id(table): table for table, _ in parts}
    called = list(range(len(texts))) if place is None else place
    how_many = Counter(text[:length] for text in texts for length in range(1, len(text)))
    prefixes = sorted((words for words, count in how_many.items() if count > 1 and share), key=len)
    number = {words: place for place, words in enumerate(prefixes)} | {(): -1}
    prefix = [max((text[:length] for length in range(len(text)) if text[:length] in number), key=len) for text in texts]
    own = [text[len(words) :] for text, words in zip(texts, prefix, strict=True)]

    def group_of(text: int) -> int:
        return (called[text] - ungrouped) // group if group and called[text] >= ungrouped else -1

    order = sorted(range(len(texts)), key=lambda text: (group_of(text), -len(own[text]), not prefix[text]))
    made: dict[str, list[int]] = {name: [] for name in ARRAYS}
    packed, reversed_packed = [], []
    made["begins"] = [number[words[:-1]] for words in prefixes] + [number[prefix[text]] for text in order]
    levels = [
        [words[-1:] for words in prefixes if len(words) == length] for length in range(1, 1 + max(map(len, texts)))
    ]
    chunks = [level[first : first + CHUNK_TEXTS] for level in levels for first in range(0, len(level), CHUNK_TEXTS)]
    for number in range(-1, max(map(group_of, order)) + 1):
        of_group = [own[text] for text in order if group_of(text) == number]
        size = CHUNK_TEXTS if number < 0 else group
        chunks += [of_group[first : first + size] for first in range(0, len(of_group), size)]
    for chunk in chunks:
        made["chunk_sequences"].append(sum(map(len, chunks[: len(made["chunk_steps"])])))
        made["chunk_steps"].append(len(made["step_rows"]))
        for left in range(len(chunk[0]), 0, -1):
            made["step_rows"].append(len(packed))
            packed += [text[-left] for text in chunk if len(text) >= left]
            reversed_packed += [text[left - 1] for text in chunk if len(text) >= left]
        made["step_rows"].append(len(packed))
    made["chunk_sequences"].append(len(prefixes) + len(order))
    made["chunk_steps"].append(len(made["step_rows"]))
    made["order"] = [called[text] for text in order]

    words = list(dict.fromkeys(packed))
    trigrams = []
    for table, word in words:
        lists = table_of_id[table].trigrams
        trigrams.append(lists.values[lists.offsets[word] : lists.offsets[word + 1]].tolist())
    rows = sorted({trigram for word in trigrams for trigram in word})
    made["rows"] = rows
    made["word_trigrams"] = [trigram for word in trigrams for trigram in word]
    made["word_rows"] = [rows.index(trigram) for trigram in made["word_trigrams"]]
    made["word_offsets"] = np.cumsum([0, *map(len, trigrams)]).tolist()
    made["packed_words"] = [words.index(word) for word in packed]
    made["packed_words_reversed"] = [words.index(word) for word in reversed_packed]
    of_rows = [[number for number, word in enumerate(trigrams) for found in word if found == row] for row in rows]
    made["row_words"] = [word for row in of_rows for word in row]
    made["row_word_offsets"] = np.cumsum([0, *map(len, of_rows)]).tolist()
    return made


@st.composite
def some_parts(draw) -> list[Part]:
    """Texts of one or two tables, or of one table twice; some texts more than once, at times more than one chunk."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables = [
        random_texts(rng, int(rng.integers(1, 40)), longest=draw(st.integers(1, 12)), num_trigrams=200)[0]
        for _ in range(2)
    ]
    most = draw(st.sampled_from([3, 40, 300]))
    chosen = draw(st.lists(st.sampled_from(tables), min_size=1, max_size=3))
    return [(table, rng.integers(0, len(table), rng.integers(1, most + 1))) for table in chosen]


@settings(max_examples=60, deadline=None)
@given(
    parts=some_parts(),
    renumber=st.booleans(),
    group=st.sampled_from([0, 1, 7, 128]),
    ungrouped=st.sampled_from([0, 1, 5, 200, 1000]),
    share=st.booleans(),
)
def test_every_array_is_what_its_definition_says(parts, renumber, group, ungrouped, share):
    num_texts = sum(len(index) for _, index in parts)
    place = np.random.default_rng(num_texts).permutation(num_texts) if renumber else None
    found = kernel_batch(
        parts, place=place, ungrouped=ungrouped, group=group, both_directions=not share, share_prefixes=share
    )
    assert found.num_texts == num_texts
    expected = plain_lists(parts, None if place is None else place.tolist(), group, share, ungrouped)
    assert lists_of(found) == expected | {"packed_words_reversed": [] if share else expected["packed_words_reversed"]}


@settings(max_examples=20, deadline=None)
@given(parts=some_parts())
def test_what_was_not_asked_for_is_empty_and_changes_nothing_else(parts):
    whole = lists_of(kernel_batch(parts, both_directions=True))
    for options in ({"for_gradient": False}, {"both_directions": True, "for_gradient": False}, {}):
        some = lists_of(kernel_batch(parts, **options))
        assert {name: numbers for name, numbers in some.items() if numbers} == {
            name: whole[name] for name, numbers in some.items() if numbers
        }
        assert (
            bool(some["rows"])
            == bool(some["row_words"])
            == bool(some["row_words"])
            == (options.get("for_gradient", True))
        )
        assert bool(some["packed_words_reversed"]) == ("both_directions" in options)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_texts=st.integers(1, CHUNK_TEXTS))
def test_one_chunk_is_the_reference_batch_with_words_in_another_order(seed, num_texts):
    rng = np.random.default_rng(seed)
    tables = [random_texts(rng, 30, longest=9, num_trigrams=300)[0] for _ in range(2)]
    split = int(rng.integers(0, num_texts + 1))
    parts = [(tables[0], rng.integers(0, 30, split)), (tables[1], rng.integers(0, 30, num_texts - split))]
    found, reference = lists_of(kernel_batch(parts)), text_batch(parts)
    assert found["order"] == reference.order.tolist()
    assert found["step_rows"] == list(reference.step_offsets)
    assert found["rows"] == reference.rows.tolist()
    # number[w]: what the reference calls the word that is w here
    number = dict(zip(found["packed_words"], reference.packed_words.tolist(), strict=True))
    assert sorted(number.values()) == list(range(len(reference.word_offsets)))
    starts = [*reference.word_offsets.tolist(), len(reference.word_trigrams)]
    for word, theirs in number.items():
        mine = found["word_rows"][found["word_offsets"][word] : found["word_offsets"][word + 1]]
        assert mine == reference.word_trigrams[starts[theirs] : starts[theirs + 1]].tolist()


def test_a_batch_worked_by_hand():
    # Words: 0 has the trigrams 7 and 2, 1 has 2 twice, 2 has 9. Texts: a = 0 1, b = 2, c = 1 0 1.
    table = table_of([[0, 1], [2], [1, 0, 1]], [[7, 2], [2, 2], [9]])
    found = lists_of(kernel_batch([(table, np.array([0, 1, 2]))], both_directions=True))
    assert found["order"] == [2, 0, 1]  # c, a, b
    assert found["begins"] == [-1, -1, -1]
    assert found["chunk_sequences"] == [0, 3]
    # Three steps, aligned to the last words:  c: 1 0 1;  a: 0 1 from the second;  b: 2 at the third.
    assert found["chunk_steps"] == [0, 4]
    assert found["step_rows"] == [0, 1, 3, 6]
    # In packed order 1 | 0 0 | 1 1 2: word 1 is called 0 here, word 0 is 1, word 2 is 2.
    assert found["packed_words"] == [0, 1, 1, 0, 0, 2]
    assert found["packed_words_reversed"] == [0, 1, 0, 0, 1, 2]  # c: 1 0 1, a: 1 0, b: 2 -> 1 | 0 1 | 1 0 2
    assert found["word_offsets"] == [0, 2, 4, 5]
    assert found["word_trigrams"] == [2, 2, 7, 2, 9]
    assert found["rows"] == [2, 7, 9]
    assert found["word_rows"] == [0, 0, 1, 0, 2]
    assert (found["row_word_offsets"], found["row_words"]) == ([0, 3, 4, 5], [0, 0, 1, 1, 2])


def test_shared_prefixes_worked_by_hand():
    # Texts: a = 0 1 2, b = 0 1 0, c = 0 2, d = 1. Prefix 0 is "0", with which a, b and c go on; prefix 1 is "0 1" of a
    # and b. Nobody goes on from "0 2" or "1". Each text is left with a word of its own, those with a prefix first.
    table = table_of([[0, 1, 2], [0, 1, 0], [0, 2], [1]], [[7], [2], [9]])
    parts = [(table, np.array([3, 0, 1, 2]))]
    found = lists_of(kernel_batch(parts, share_prefixes=True))
    assert found["order"] == [1, 2, 3, 0]  # a, b, c, d
    assert found["begins"] == [-1, 0, 1, 1, 0, -1]
    assert found["chunk_sequences"] == [0, 1, 2, 6]
    assert found["chunk_steps"] == [0, 2, 4, 6]
    assert found["step_rows"] == [0, 1, 1, 2, 2, 6]
    # Words 0 | 1 | 2 0 2 1, in that order called 0, 1, 2.
    assert found["packed_words"] == [0, 1, 2, 0, 2, 1]
    both_ways = {"both_directions": True}
    assert lists_of(kernel_batch(parts, **both_ways, share_prefixes=True)) == lists_of(kernel_batch(parts, **both_ways))


def test_a_text_without_words_is_refused():
    table = table_of([[0], [], [1, 1]], [[5], [6]])
    with pytest.raises(ValueError, match="every text of a batch needs at least one word"):
        kernel_batch([(table, np.array([0, 1, 2]))])
    with pytest.raises(ValueError, match="every text of a batch needs at least one word"):
        kernel_batch([(table, np.array([], np.int64))])


def test_what_is_not_in_a_table_is_refused_and_leaves_no_trace():
    table = table_of([[0], [1, 1]], [[5], [6]])
    before = lists_of(kernel_batch([(table, np.array([0, 1]))]))
    broken = table_of([[0], [1, 2]], [[5], [6]])  # there is no word 2
    for parts in ([(table, np.array([0, 2]))], [(table, np.array([-1]))], [(broken, np.array([0, 1]))]):
        with pytest.raises(IndexError, match="not in its table"):
            kernel_batch(parts)
    alike = table_of([[2, 0], [2, 1]], [[5], [6]])
    with pytest.raises(IndexError, match="not in its table"):
        kernel_batch([(alike, np.array([0, 1]))], share_prefixes=True)
    with pytest.raises(IndexError, match="not in its table"):
        kernel_batch([(table_of([[0]], [[2**31]]), np.array([0]))])
    with pytest.raises(IndexError, match="not in its table"):
        kernel_batch([(table, np.array([0, 1]))], place=np.array([0, 2]), group=1)
    assert lists_of(kernel_batch([(table, np.array([0, 1]))])) == before


def test_places_of_another_number_are_refused():
    table = table_of([[0], [1]], [[5], [6]])
    with pytest.raises(ValueError, match="2 texts were given 3 places"):
        kernel_batch([(table, np.array([0, 1]))], place=np.arange(3))


def test_an_array_outlives_its_batch():
    rng = np.random.default_rng(1)
    table, _ = random_texts(rng, 200, longest=9, num_trigrams=200)
    expected = plain_lists([(table, np.arange(200))])["row_words"]
    kept = kernel_batch([(table, np.arange(200))]).array("row_words")
    for _ in range(20):
        kernel_batch([(table, rng.integers(0, 200, 200))])
    assert kept.tolist() == expected


def test_threads_do_not_disturb_one_another():
    rng = np.random.default_rng(2)
    parts = [(random_texts(rng, 60, longest=9, num_trigrams=200)[0], rng.integers(0, 60, 150)) for _ in range(40)]
    with ThreadPoolExecutor(4) as threads:
        for part, found in zip(parts, threads.map(lambda part: lists_of(kernel_batch([part])), parts), strict=True):
            expected = plain_lists([part])
            assert all(found[name] == expected[name] for name, numbers in found.items() if numbers)
