"""Queries -> the form in which they are compared, one for all spellings of a question.

    LED-Bulb,    led_bulb    bulb led    lеd bulb (a Cyrillic е)    ->    bulb led

A log contains such spellings by accident: another order, a slash, a keyboard, a page that text was copied from. A
reader, or a model with a bag of words, cannot tell them apart: a judged query keeps all of them out of training, and
all of them are on one side of the split.
"""

import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas.text_contract import UNSPACED_RANGES, normalise, normalise_column, words_of_column


def comparison_forms(queries: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The form of each normalised query: its bare words in ascending order, with spaces between them.

    Bare words consist of letters, digits and the marks on them, and all else separates them. They are the contract's
    words: a run of an unspaced script is its pairs of characters, so two texts of characters have one form if their
    bags are equal and not because one is an anagram of the other. Look-alike letters are as `_latin_form` says. A query
    without a bare word keeps its text. The form of a form is itself. `queries`: string, without nulls, normalised,
    those of earlier days perhaps by an earlier version of the text contract.
    """
    if isinstance(queries, pa.ChunkedArray):
        queries = queries.combine_chunks()
    texts = _changed(queries, r"[^ -~]", normalise_column)
    bare = _changed(texts, r"[^a-z0-9 ]", _bare)
    offsets, words = words_of_column(bare)
    seen = _changed(words.dictionary, r"[^ -~]", _latin_forms).dictionary_encode()
    # The words of each text are sorted as numbers: text, then the word's place among all words.
    order = pc.sort_indices(seen.dictionary).to_numpy()
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    text_of_word = np.repeat(np.arange(len(bare)), np.diff(offsets)) * len(order)
    keys = text_of_word + place[seen.indices.to_numpy()[words.indices.to_numpy()]]
    keys.sort()
    in_order = seen.dictionary.take(pa.array(order[keys - text_of_word]))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), in_order), " ")
    return pc.if_else(pc.equal(joined, ""), texts, joined)


def _changed(texts: pa.Array, pattern: str, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The texts, those that match the pattern changed: on an ordinary log few do."""
    matches = pc.match_substring_regex(texts, pattern)
    if not pc.any(matches).as_py():
        return texts
    return pc.replace_with_mask(texts, matches, change(texts.filter(matches)))


def _bare(texts: pa.Array) -> pa.Array:
    return pc.utf8_trim(pc.replace_substring_regex(texts, r"[^\p{L}\p{N}\p{M}]+", " "), " ")


def _latin_forms(words: pa.Array) -> pa.Array:
    return pa.array(map(_latin_form, words.to_pylist()), pa.string())


def _latin_form(word: str) -> str:
    """A normalised word with the letters of other alphabets that look like a-z as those letters.

    A word that then is Latin as a whole is what a reader takes for a Latin one. In any other, such as a Russian word
    with one letter from another keyboard, only the letters of _SAME_EVERYWHERE change, so that its own letters stay
    distinct. ASCII never changes: 1 is not l, and rn is not m.
    """
    seen = word.translate(_look_alikes())
    seen = seen if all(map(_is_latin, seen)) else word.translate(_SAME_EVERYWHERE)
    return unicodedata.normalize("NFC", seen)  # with its accents as one letter has them


# Letters of Cyrillic, Greek and phonetics that differ from Latin ones in name alone. A Greek υ is taken for the capital
# that it comes from.
_SAME_EVERYWHERE = str.maketrans("авеікмнорстухһјѕԁԛԝαεικνορτυχγıɑɡ", "abeikmhopctyxhjsdqwaeikvoptuxyiag")
# UTS #39 lists few of them, since they look like capitals and not like the letters that they are.
_SMALL_CAPITALS = str.maketrans("ɢɪɴʀʏʙʜʟᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢꜰꜱꞯ", "ginrybhlacdejkmoptuvwzfsq")


def _is_latin(character: str) -> bool:
    is_letter = not character.isascii() and unicodedata.category(character)[0] == "L"
    return not is_letter or unicodedata.name(character, "").startswith("LATIN ")


@lru_cache(maxsize=1)
def _look_alikes() -> Mapping[int, int]:
    """The letter a-z that each letter of another alphabet looks like, in its small form or as a capital.

    After confusables.txt of UTS #39, which the library confusable-homoglyphs holds as lists of look-alikes.
    """
    from confusable_homoglyphs.confusables import confusables_data

    def twin(letter: str) -> str:
        shapes = (entry["c"] for entry in confusables_data.get(letter, ()))
        return next((shape for shape in shapes if len(shape) == 1 and shape.isascii() and shape.isalpha()), "")

    unspaced = {point for first, last in UNSPACED_RANGES for point in range(first, last + 1)}
    result = {}
    for letter in confusables_data:
        small = normalise(letter)
        if len(small) != 1 or small.isascii() or not small.isalpha() or ord(small) in unspaced:
            continue
        if same := twin(small) or twin(small.upper()):
            is_stroke = same == "l" and not _is_latin(small)  # of capitals: to UTS #39 I and l are one
            result[ord(small)] = ord("i" if is_stroke else same.lower())
    return result | _SMALL_CAPITALS | _SAME_EVERYWHERE
