"""What carried a score: how much that of a query and a title falls without a word, or without a letter trigram.

    share(word)    = R(Q, D) - R(Q without the word, D)       and alike for the title's words
    share(trigram) = R(Q, D) - R(Q with that word without one occurrence of the trigram, D)

This is occlusion: exact, since the model reads every shortened text, and the same for every tower and for models side
by side. It is no sum: words lean on each other, so the shares of a text add up to more or less than the cosine, and a
word that pulls the texts apart has a negative share. Each occurrence of a word counts by itself.

- R is the cosine; of a model that compares by distance, minus the distance, so a share is how much further apart the
  texts are without the word.
- A text of one word is without it a text without a word, whose similarity to anything is 0: the word's share is the
  cosine. By distance it is at 0, which is as far from the other text as that one's vector is long. A word of one letter
  has one trigram, which carries what the word carries.
- What a model does not read (words beyond `max_words`, the letters of a word with a vector of its own) has the share 0
  exactly, unless leaving out another word brings it in.
- Long texts are cut, and say so: the first MOST_WORDS words are left out in turn, and fewer of a text of thousands of
  words; trigrams as far as STEPS allow, and not those of a word above LONGEST_WORD letters.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from schemas.errors import UsageError
from schemas.words import UNSPACED_RANGES, words
from training.data.ragged import Ragged, starts
from training.data.text_batch import TextTable
from training.models.ensemble import Ensemble
from training.models.model import Model, encode_limited
from training.ranking.embedding import Side

# Where each word of a text stands in the text as it was typed, and each letter of the word.
#
# The text contract changes a text before it cuts it into words: `ﬁ` becomes two letters, e and a combining accent one,
# `İ` two. So the text is taken cluster by cluster: the smallest pieces whose forms, side by side, are the form of the
# whole. A letter then stands where its cluster stands, and letters of one cluster stand at one place.
#
# Places are (start, end) in code points of the text as typed: Python's and Go's rune indices. JavaScript counts UTF-16
# units; `Array.from(text)` counts code points there.


Place = tuple[int, int]

_SPACED = re.compile(r"\S+")
_UNSPACED = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSPACED_RANGES) + "]+")


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word of the text contract and the place of each of its letters in the text as typed."""

    word: str
    letters: tuple[Place, ...]

    @property
    def start(self) -> int:
        return self.letters[0][0]

    @property
    def end(self) -> int:
        return max(end for _, end in self.letters)


def placed_words(text: str) -> Iterator[PlacedWord]:
    """The words of a text, as `words.words` cuts it, with their places. Lazy: a long text costs what is read.

    The pairs of an unspaced script overlap, in the text as among the words.
    """
    for spaced in _SPACED.finditer(text):
        letters = _placed_letters(spaced.group(), spaced.start())
        form = "".join(letter for letter, _ in letters)
        for start, end in _bounds(form):
            yield PlacedWord(form[start:end], tuple(place for _, place in letters[start:end]))


def _placed_letters(typed: str, start: int) -> list[tuple[str, Place]]:
    """Each character of the normalised form of a text without white space, and where it comes from."""
    if typed.isascii():
        return [(letter, (at, at + 1)) for at, letter in enumerate(typed.lower(), start)]
    form = _folded(typed)
    letters = [
        (letter, (start + first, start + end))
        for first, end in _clusters(typed)
        for letter in _folded(typed[first:end])
    ]
    # A capital sigma is lowered by what stands around it, so a form may differ from that of its cluster, not in length.
    if len(letters) == len(form):
        return [(letter, place) for letter, (_, place) in zip(form, letters, strict=True)]
    return [(letter, (start, start + len(typed))) for letter in form]  # never wrong, if not exact


def _clusters(typed: str) -> Iterator[Place]:
    """The pieces of a text whose forms, side by side, are the form of the whole."""
    first = 0
    for at in range(1, len(typed)):
        if unicodedata.combining(unicodedata.normalize("NFKD", typed[at])[0]):
            continue  # a mark belongs to what it follows
        whole, parts = _folded(typed[first : at + 1]), _folded(typed[first:at]) + _folded(typed[at])
        if whole.replace("ς", "σ") == parts.replace("ς", "σ"):
            yield first, at
            first = at
    if typed:
        yield first, len(typed)


def _folded(text: str) -> str:
    """`normalise`, with the white space kept that a character may turn into."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())


def _bounds(form: str) -> Iterator[Place]:
    """Where the words of a normalised text begin and end in it."""
    for spaced in _SPACED.finditer(form):
        here, end = spaced.span()
        for run in _UNSPACED.finditer(form, here, end):
            first, after = run.span()
            if here < first:
                yield here, first
            if after - first == 1:
                yield first, after
            for at in range(first, after - 1):
                yield at, at + 2
            here = after
        if here < end:
            yield here, end


MOST_WORDS = 100
LONGEST_WORD = 64  # letters
STEPS = 300_000  # words that all shortened forms of one text may have in all
BOUNDARY = "#"  # as the paper writes it; the place of a trigram tells it from a # in the text


@dataclass(frozen=True, kw_only=True, slots=True)
class TrigramShare:
    """The trigram around one letter of a word. Its place is that of its letters, without the boundaries."""

    letters: str  # three, `#` at a boundary
    start: int
    end: int
    share: float
    shared: bool  # whether a word of the other text has it too


@dataclass(frozen=True, kw_only=True, slots=True)
class WordShare:
    word: str  # as the text contract cuts it
    start: int
    end: int
    share: float
    trigrams: tuple[TrigramShare, ...]  # one for each letter; empty where they were not looked at


@dataclass(frozen=True, kw_only=True, slots=True)
class TextShares:
    """A text's words that were left out in turn, of `num_words` in all."""

    text: str
    side: Side
    num_words: int
    words: tuple[WordShare, ...]

    @property
    def cut(self) -> bool:
        """Whether words were not left out, or trigrams of those that were."""
        return len(self.words) < self.num_words or not all(word.trigrams for word in self.words)


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """The score of a query and a title, as a search computes it, and what carried it."""

    score: float  # the cosine, or minus the distance
    query: TextShares
    title: TextShares


def carried(encoder: Model | Ensemble, query: str, title: str) -> Carried:
    """What carried the score of a pair. Raises UsageError for a text without a word."""
    cut_query, cut_title = _cut(query, "query"), _cut(title, "document")
    scores_Q = np.zeros(len(cut_query.shortened) + 1)
    scores_D = np.zeros(len(cut_title.shortened) + 1)
    members = encoder.members if isinstance(encoder, Ensemble) else (encoder,)
    for member in members:  # the cosine of models side by side is the mean of theirs
        vectors_Qd, vectors_Dd = _vectors(member, cut_query), _vectors(member, cut_title)
        scores_Q += _scores(member, vectors_Qd, vectors_Dd[0]) / len(members)
        scores_D += _scores(member, vectors_Dd, vectors_Qd[0]) / len(members)
    return Carried(
        score=float(scores_Q[0]),
        query=_shares(cut_query, scores_Q, cut_title),
        title=_shares(cut_title, scores_D, cut_query),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cut:
    """A text and its shortened forms: (a word's number, -1 for without it, or the letter whose trigram it lacks)."""

    text: str
    side: Side
    words: Sequence[str]
    placed: Sequence[PlacedWord]
    shortened: Sequence[tuple[int, int]]


def _cut(text: str, side: Side) -> _Cut:
    found = words(text)
    if not found:
        what = "the query" if side == "query" else "the title"
        raise UsageError(
            asked="a score was to be explained",
            found=f"{what} has no word",
            follows="a text without a word has no embedding",
            do=f"give {what} at least one word",
        )
    placed = list(islice(placed_words(text), max(1, min(MOST_WORDS, STEPS // len(found)))))
    shortened = [(number, -1) for number in range(len(placed))]
    for number, word in enumerate(placed):
        letters = len(word.word)
        if (len(shortened) + letters) * len(found) > STEPS:
            break
        if 1 < letters <= LONGEST_WORD:
            shortened += [(number, letter) for letter in range(letters)]
    return _Cut(text=text, side=side, words=found, placed=placed, shortened=shortened)


def _vectors(model: Model, cut: _Cut) -> np.ndarray:
    """Vectors of the text and of its shortened forms, float64 [1 + shortened, dimensions]; zero without a word."""
    word_rows = model.layout.word_rows
    rows_of = word_rows.of(cut.words)
    bags = np.split(rows_of.values, rows_of.offsets[1:-1])
    whole = np.arange(len(cut.words), dtype=np.int32)
    rows = [whole]
    for number, letter in cut.shortened:
        if letter < 0:
            rows.append(np.delete(whole, number))
        else:
            row = whole.copy()
            row[number] = len(bags)
            rows.append(row)
            knows = cut.words[number] in word_rows.row_of  # by itself: its letters are not read
            bags.append(bags[number] if knows else np.delete(bags[number], letter))
    table = TextTable(_ragged(rows), _ragged(bags))
    return encode_limited(model, table, cut.side).astype(np.float64)


def _scores(model: Model, vectors_Nd: np.ndarray, other_d: np.ndarray) -> np.ndarray:
    """Of each vector with another one, float64 [N]."""
    if model.similarity == "euclidean":
        return -np.linalg.norm(vectors_Nd - other_d, axis=1)
    return _unit(vectors_Nd) @ _unit(other_d[None])[0]


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0)


def _shares(cut: _Cut, scores: np.ndarray, other: _Cut) -> TextShares:
    share_of = dict(zip(cut.shortened, (scores[0] - scores[1:]).tolist(), strict=True))
    of_other = {trigram for word in other.words for trigram in trigrams(word)}
    found = []
    for number, placed in enumerate(cut.placed):
        share = share_of[number, -1]
        looked_at = (number, 0) in share_of or len(placed.word) == 1
        parts = []
        for at, trigram in enumerate(trigrams(placed.word) if looked_at else ()):
            around = placed.letters[max(0, at - 1) : at + 2]
            parts.append(
                TrigramShare(
                    letters=trigram[0],
                    start=min(start for start, _ in around),
                    end=max(end for _, end in around),
                    share=share_of.get((number, at), share),
                    shared=trigram in of_other,
                )
            )
        found.append(
            WordShare(word=placed.word, start=placed.start, end=placed.end, share=share, trigrams=tuple(parts))
        )
    return TextShares(text=cut.text, side=cut.side, num_words=len(cut.words), words=tuple(found))


def trigrams(word: str) -> list[tuple[str, tuple[bool, bool]]]:
    """The letter trigrams of a word, one around each letter, each with whether it begins and ends at a boundary."""
    marked = f"{BOUNDARY}{word}{BOUNDARY}"
    return [(marked[at : at + 3], (at == 0, at == len(word) - 1)) for at in range(len(word))]


def _ragged(lists: Sequence[np.ndarray]) -> Ragged:
    return Ragged(starts(np.array([len(one) for one in lists])), np.concatenate(lists))
