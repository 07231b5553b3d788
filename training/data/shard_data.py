"""Shards for the trainer: flat arrays over the memory-mapped Arrow files (schemas.shard)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from schemas.errors import StageError, require_major
from schemas.negatives import ListedExclusions, draw_allowed, pair_keys
from schemas.shard import EXCLUSIONS, PAIRS, POOL, SCHEMA_VERSION, TEXTS, WORDS, open_table, require_within
from schemas.text_contract import CONTRACT_VERSION
from training.compute.elementary import ln
from training.data.ragged import Ragged, WordRows, from_arrow
from training.data.shard_folder import local_folder
from training.data.shared_pool import ExcludedBy
from training.data.text_batch import TextTable
from training.recipes.objectives import Clicks, Fixed, Pool
from training.recipes.recipe import Recipe

CATALOGUE = "catalogue.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The pairs of one shard, as indices into its texts."""

    texts: TextTable
    query: np.ndarray  # int32 [pairs]
    clicked: np.ndarray  # int32 [pairs]
    negatives: np.ndarray  # int32 [pairs, n], the shard's own
    keys: np.ndarray  # uint64 [pairs], the key of each pair's draw
    exclusion: np.ndarray  # int32 [pairs], which of `exclusions` holds for the pair
    exclusions: Ragged  # for each query the pool rows that may not be its negatives
    excluded_by: ExcludedBy | None = None  # the same the other way round, where a recipe shares negatives
    weights: np.ndarray | None = None  # float32 [pairs], where a recipe weighs pairs
    strings: pa.ChunkedArray | None = None  # the texts themselves, normalised

    def __len__(self) -> int:
        return len(self.query)

    def weighed(self, pairs: np.ndarray) -> np.ndarray | None:
        """The weights of some pairs; None if each counts once."""
        return None if self.weights is None else self.weights[pairs]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardData:
    """Everything that training reads of a build."""

    train: tuple[Shard, ...]
    dev: tuple[Shard, ...]
    pool_texts: TextTable
    pool: np.ndarray  # int32 [pool], the text of each pool row
    word_rows: WordRows
    catalogue: dict[str, Any]
    pool_strings: pa.ChunkedArray | None = None  # of `pool_texts`, normalised

    @property
    def table_rows(self) -> int:
        """Of letter trigrams."""
        return self.word_rows.trigram_rows

    @property
    def train_names(self) -> list[str]:
        """The folder of each of the training shards."""
        return _names(self.catalogue, "train")

    def redraw(self, shard: Shard, pairs: np.ndarray, *, n: int, seed: int, epoch: int) -> np.ndarray:
        """The negatives of some pairs in an epoch, as indices into `pool_texts`, int32 [pairs, n]."""
        listed = ListedExclusions(shard.exclusions.offsets, shard.exclusions.values, len(self.pool))
        rows = draw_allowed(shard.keys[pairs], shard.exclusion[pairs], listed, n=n, seed=seed, epoch=epoch)
        return self.pool[rows]


def load_shards(uri: str, recipe: Recipe, words: Sequence[str] = ()) -> ShardData:
    """The shards below a build's data folder, prepared for a recipe (words limited, clicks shuffled if it says so).

    `words`: those that have a row of their own (ragged).
    Raises StageError (missing or unreadable files, too few negatives) and UnknownVersionError.
    """
    asked = f"the shards in {uri} were to be read for training"
    folder = local_folder(uri)
    catalogue = _catalogue(folder, asked)
    rows = WordRows(int(catalogue["table_rows"]), tuple(words))
    try:
        names = _names(catalogue, "train")
        train = [_shard(f"{folder}/{name}", recipe, rows, number) for number, name in enumerate(names)]
        dev = [_shard(f"{folder}/{name}", recipe, rows, None) for name in _names(catalogue, "dev")]
        pool_texts, pool_strings = shard_texts(f"{folder}/pool", recipe, rows)
        pool = _numbers(open_table(f"{folder}/pool/pool.arrow", POOL)["text"])
        require_within(pool, len(pool_texts), f"{folder}/pool/pool.arrow")
        for shard in (*train, *dev):
            require_within(shard.exclusions.values, len(pool), "exclusions.arrow")
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise StageError(
            asked=asked,
            found=f"a file is missing or unreadable ({str(error).splitlines()[0][:160]})",
            follows="pairs would silently be missing",
            do="run `clicktower build` again",
        ) from None
    data = ShardData(
        train=tuple(train),
        dev=tuple(dev),
        pool_texts=pool_texts,
        pool=pool,
        word_rows=rows,
        catalogue=catalogue,
        pool_strings=pool_strings,
    )
    _check(data, recipe, asked)
    return data


def _names(catalogue: dict[str, Any], split: str) -> list[str]:
    return [made["name"] for made in catalogue["shards"] if made["split"] == split]


def _shard(folder: str, recipe: Recipe, word_rows: WordRows, shuffled_as: int | None) -> Shard:
    """A shard's folder. `shuffled_as`: the number whose permutation a leak check applies to its clicks; None: none."""
    texts, strings = shard_texts(folder, recipe, word_rows)
    pairs = open_table(f"{folder}/pairs.arrow", PAIRS)
    query, clicked = _numbers(pairs["query"]), _numbers(pairs["clicked"])
    if recipe.clicks.shuffle_clicks and shuffled_as is not None:
        key = np.array([recipe.seed, shuffled_as], np.uint64)
        clicked = np.random.Generator(np.random.Philox(key=key)).permutation(clicked)
    negatives = from_arrow(pairs["negatives"])
    if len(np.unique(negatives.lengths)) > 1:
        raise ValueError(f"{folder}/pairs.arrow has pairs of different numbers of negatives")
    exclusions = from_arrow(open_table(f"{folder}/exclusions.arrow", EXCLUSIONS)["rows"])
    for texts_of_pairs in (query, clicked, negatives.values):
        require_within(texts_of_pairs, len(texts), f"{folder}/pairs.arrow")
    require_within(_numbers(pairs["exclusion"]), len(exclusions), f"{folder}/pairs.arrow")
    return Shard(
        texts=texts,
        query=query,
        clicked=clicked,
        negatives=negatives.take(np.arange(len(pairs))).values.reshape(len(pairs), -1),
        keys=pair_keys(strings.take(query).to_pylist(), strings.take(clicked).to_pylist()),
        exclusion=_numbers(pairs["exclusion"]),
        exclusions=exclusions,
        excluded_by=ExcludedBy.of(exclusions) if isinstance(recipe.clicks.negatives, Pool) else None,
        weights=_weights(pairs, recipe.clicks),
        strings=strings,
    )


def _weights(pairs: pa.Table, clicks: Clicks) -> np.ndarray | None:
    """The weight w of each pair; None if each counts once."""
    if clicks.weights == "none":
        return None
    weights = _numbers(pairs["weight" if clicks.weights == "column" else "clicks"])
    if clicks.weights == "log_clicks":
        weights = 1 + ln(weights)
    return weights.astype(np.float32)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return column.to_numpy()


def _catalogue(folder: str, asked: str) -> dict[str, Any]:
    try:
        with open(f"{folder}/{CATALOGUE}", encoding="utf-8") as file:
            catalogue = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise StageError(
            asked=asked,
            found=f"there is no readable {CATALOGUE} among them",
            follows="the table's size and the text contract are unknown",
            do="give the folder that `clicktower build` printed, or run it again",
        ) from None
    require_major(f"{folder}/{CATALOGUE}", catalogue.get("schema_version"), SCHEMA_VERSION)
    require_major(f"the text contract of {folder}", catalogue.get("text_contract"), CONTRACT_VERSION)
    return catalogue


def _check(data: ShardData, recipe: Recipe, asked: str) -> None:
    for table in (data.pool_texts, *(shard.texts for shard in (*data.train, *data.dev))):
        require_rows(table, data.word_rows, asked, "build")
    num_pairs = sum(len(shard) for shard in data.train)
    if num_pairs < recipe.micro_batch:
        raise StageError(
            asked=f"training needs at least one full micro-batch ({recipe.micro_batch:,} pairs)",
            found=f"the shards hold {num_pairs:,} training pairs",
            follows="there would be next to nothing to learn from",
            do=f"lower `build --k`, add days to the window, or set micro_batch={max(1, num_pairs)}",
        )
    for shard in data.train:
        wrong = 0 if shard.weights is None else int((~(shard.weights >= 0) | np.isinf(shard.weights)).sum())
        if wrong:
            raise StageError(
                asked=f"each pair was to be weighed by the shards (objective.weights={recipe.clicks.weights})",
                found=f"{wrong:,} of {len(shard):,} pairs of a shard have a weight below 0 or not finite",
                follows="training would move clicked titles away, or every parameter would become NaN",
                do="correct the column `weight` of the pairs, or set objective.weights=none",
            )
    if isinstance(recipe.clicks.negatives, Fixed):
        held = min(shard.negatives.shape[1] for shard in data.train if len(shard))
        if held < recipe.clicks.num_negatives:
            raise StageError(
                asked=f"each pair was to have {recipe.clicks.num_negatives} fixed negatives",
                found=f"the shards hold {held} for each pair",
                do=f"set objective.num_negatives={held} or objective.negatives=redrawn, or build with more",
            )


# The texts of a shard's folder (schemas.shard) for the trainer.


def shard_texts(folder: str, recipe: Recipe, word_rows: WordRows) -> tuple[TextTable, pa.ChunkedArray]:
    """(the texts, cut as the recipe says; their normalised strings). Raises OSError, ArrowInvalid, ValueError."""
    words, texts = open_table(f"{folder}/words.arrow", WORDS), open_table(f"{folder}/texts.arrow", TEXTS)
    rows = from_arrow(words["trigrams"])
    require_within(from_arrow(texts["words"]).values, len(words), f"{folder}/texts.arrow")
    if word_rows.words:
        rows = word_rows.known(words["word"].to_pylist(), rows)
    table = TextTable(from_arrow(texts["words"]), rows)
    return table.limited(recipe.max_words, recipe.overflow), texts["text"]


def require_rows(table: TextTable, word_rows: WordRows, asked: str, command: str) -> None:
    """Raise StageError where a word's trigrams are not among the table's rows. `command`: what made the shards."""
    highest = int(table.trigrams.values.max(initial=0))
    if highest >= word_rows.num_rows:
        raise StageError(
            asked=asked,
            found=f"trigram id {highest:,} is not below the {word_rows.trigram_rows:,} rows of the catalogue",
            follows="a tower would have no parameters for it",
            do=f"run `clicktower {command}` again",
        )
