from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.text_contract import words
from clicktower.training.model.decoder import END, FIRST_WORD, UNKNOWN, vocabulary_of, word_ids

some_texts = st.lists(st.text("ab ヘ語z", max_size=12), max_size=6)


def test_the_most_frequent_words_are_kept_and_ties_go_by_the_word():
    # can 3, how 3; do, "do,", i, learn and swim once each, of which two have room.
    vocabulary = vocabulary_of(["How do I swim", "how can", "how do, can learn", "can"], 4)
    assert vocabulary == {"can": 2, "how": 3, "do": 4, "do,": 5}


@settings(max_examples=50, deadline=None)
@given(some_texts, st.integers(0, 8))
def test_ids_are_the_words_and_an_end(texts, max_words):
    vocabulary = vocabulary_of(texts, max_words)
    ids = word_ids(texts, vocabulary)
    assert len(ids) == len(texts)
    for number, text in enumerate(texts):
        *found, end = ids.values[ids.offsets[number] : ids.offsets[number + 1]].tolist()
        assert end == END
        assert len(found) == len(words(text))
        known = {FIRST_WORD + at: word for at, word in enumerate(vocabulary)}
        for i, word in zip(found, words(text), strict=True):
            assert known.get(i, UNKNOWN) == (word if word in vocabulary else UNKNOWN)


@settings(max_examples=50, deadline=None)
@given(some_texts, st.integers(0, 8), st.randoms(use_true_random=False))
def test_no_word_left_out_is_more_frequent_than_one_kept_and_the_order_of_texts_is_no_matter(texts, max_words, random):
    counts = Counter(word for text in texts for word in words(text))
    kept = list(vocabulary_of(texts, max_words))
    ranks = [(-counts[word], word) for word in kept]
    assert ranks == sorted(ranks)
    assert len(kept) == min(max_words, len(counts))
    assert all((-counts[word], word) > ranks[-1] for word in counts.keys() - set(kept) if ranks)
    shuffled = list(texts)
    random.shuffle(shuffled)
    assert list(vocabulary_of(shuffled, max_words)) == kept
