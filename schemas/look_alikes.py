"""Letters of other alphabets that look like a-z, for the forms in which queries are compared (text_contract)."""

import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from clicktower.schemas.text_contract import UNSPACED_RANGES, normalise


def latin_form(word: str) -> str:
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
