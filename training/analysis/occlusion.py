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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from schemas.errors import UsageError
from schemas.words import words
from training.analysis.word_spans import PlacedWord, placed_words
from training.encode import encode_limited
from training.ensemble import Ensemble
from training.model import Model
from training.ragged import Ragged, starts
from training.ranking.embedding import Side
from training.text_batch import TextTable

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
