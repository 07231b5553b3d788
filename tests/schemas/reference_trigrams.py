"""The text contract written a second time, one character at a time, from the docstrings alone."""

import itertools
import unicodedata

import regex

MASK = (1 << 64) - 1
ALPHABET = {letter: code for code, letter in enumerate("abcdefghijklmnopqrstuvwxyz0123456789", start=1)}
UNSEEN = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cc}\p{Cf}]")
UNSPACED_NAMES = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def reference_words(text: str) -> list[str]:
    text = "".join(char for char in text if char.isspace() or not UNSEEN.match(char)).replace("\u2800", " ")
    text = unicodedata.normalize("NFKC", text).lower()
    while "i\u0307" in text:
        text = text.replace("i\u0307", "i")
    text = unicodedata.normalize("NFKC", text)
    words: list[str] = []
    for spaced in text.split():
        run, other = "", ""
        for char in spaced + "\n":
            unspaced = char != "\n" and unicodedata.name(char, "").startswith(UNSPACED_NAMES)
            if unspaced:
                if other:
                    words.append(other)
                    other = ""
                run += char
                continue
            if run:
                words += [run] if len(run) == 1 else [a + b for a, b in itertools.pairwise(run)]
                run = ""
            other += char
        if other.rstrip("\n"):
            words.append(other.rstrip("\n"))
    return words


def reference_ids(word: str, table_rows: int = 65_536) -> list[int]:
    points = [0x110000, *map(ord, word), 0x110000]
    ids = []
    for a, b, c in zip(points, points[1:], points[2:], strict=False):
        codes = [0 if p == 0x110000 else ALPHABET.get(chr(p), -1) for p in (a, b, c)]
        if min(codes) >= 0 and table_rows > 50_653:
            ids.append(codes[0] * 1369 + codes[1] * 37 + codes[2])
            continue
        h = 0xCBF29CE484222325
        for p in (a, b, c):
            h = ((h ^ p) * 0x100000001B3) & MASK
        h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & MASK
        h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
        first = 50_653 if table_rows > 50_653 else 0
        ids.append(first + (h ^ (h >> 33)) % (table_rows - first))
    return ids
