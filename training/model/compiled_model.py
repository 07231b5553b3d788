"""A model on the kernels, for encoding texts: without torch, which takes seconds to load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clicktower.schemas.errors import UsageError
from clicktower.schemas.release import Similarity
from clicktower.schemas.text_contract import words
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.embedding import Empty, Side
from clicktower.training.model.kernel_towers import CompiledTower, can_encode, kernel_sizes, tokenised
from clicktower.training.model.model_folder import ShapesDiffer
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_table import Ragged, TextTable, WordRows, list_offsets


@dataclass(frozen=True, kw_only=True)
class CompiledModel:
    recipe: Recipe
    word_rows: WordRows
    towers: Mapping[str, CompiledTower]  # by name
    text_contract: Mapping[str, Any]

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """As `model.Model.encode`, the same bits."""
        require_side(side)
        tower = self.towers[tower_name(self.recipe, side)]
        if len(texts) == 1 and (vector := tower.encode_short(texts[0])) is not None:
            return vector
        return tower.encode(encodable(texts, self.recipe, self.word_rows, empty))

    @property
    def dimensions(self) -> int:
        return next(iter(self.towers.values())).dimensions

    @property
    def similarity(self) -> Similarity:
        return self.recipe.objective.similarity

    @property
    def word_share(self) -> float:
        return self.recipe.clicks.word_share

    @property
    def lexical_share(self) -> float:
        return self.recipe.clicks.lexical_share


def compiled_model(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> CompiledModel | None:
    """The model in the two files of a folder, if the kernels support it on this machine; None for another one.

    Raises ShapesDiffer, and KeyError or TypeError for other content.
    """
    if description.get("words"):
        return None
    recipe = Recipe(**description["recipe"])
    if not can_encode(recipe):
        return None
    table_rows, towers, sizes = description["text_contract"]["table_rows"], {}, kernel_sizes(recipe.tower)
    for name in recipe.objective.towers:
        table_RG, parts = weights[f"{name}.W"], {part: weights[f"{name}.{part}"] for part, _ in sizes.parts}
        sound = table_RG.shape == (table_rows, sizes.columns) and all(
            parts[part].shape == shape for part, shape in sizes.parts
        )
        if not sound or any(array.dtype != np.float32 for array in (table_RG, *parts.values())):
            raise ShapesDiffer
        towers[name] = CompiledTower(recipe, table_RG, parts, table_rows=table_rows)
    return CompiledModel(
        recipe=recipe, word_rows=WordRows(table_rows), towers=towers, text_contract=description["text_contract"]
    )


def require_side(side: str) -> None:
    """Raises UsageError for any side other than query and document."""
    if side not in ("query", "document"):
        raise UsageError(f"There is no side {side!r}.", "Use query or document.")


def require_words(has_word: np.ndarray) -> None:
    """Raises UsageError for a text without a word; `has_word`: of each text."""
    if not has_word.all():
        raise UsageError(
            f"{np.count_nonzero(~has_word):,} of {len(has_word):,} texts have no word (the first is number"
            f" {int(has_word.argmin()) + 1:,}), so they have no embedding.",
            "Leave them out, or ask for zero vectors (empty='zero').",
        )


def encodable(texts: Sequence[str], recipe: Recipe, word_rows: WordRows, empty: Empty) -> TextTable:
    """Texts as a recipe's towers read them. Raises UsageError for a text without a word, unless `empty` is zero."""
    table = text_table(texts, word_rows)
    if empty == "error":
        require_words(table.words.lengths > 0)
    return table.limited(recipe.max_words, recipe.overflow)


def text_table(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """Texts split into words by the text contract, each distinct word once, numbered by appearance, as rows of W."""
    if status().available and not word_rows.words:
        return tokenised(texts, word_rows.trigram_rows)
    return tokenised_in_python(texts, word_rows)


def tokenised_in_python(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """`text_table` by the functions that define the contract."""
    number: dict[str, int] = {}
    of_texts = [[number.setdefault(word, len(number)) for word in words(text)] for text in texts]
    offsets = list_offsets(np.fromiter(map(len, of_texts), np.int64, len(of_texts)))
    flat = np.fromiter((word for text in of_texts for word in text), np.int32, int(offsets[-1]))
    return TextTable(Ragged(offsets, flat), word_rows.of(list(number)))
