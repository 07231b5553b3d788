"""Shards for the trainer: flat arrays over the memory-mapped Arrow files of a build (schemas.shard), and micro-batches
of their pairs."""

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.manifest import OutputFile, damaged_files, from_bytes
from clicktower.schemas.process import make_scratch
from clicktower.schemas.shard import (
    EXCLUSIONS,
    PAIRS,
    POOL,
    SCHEMA_VERSION,
    TEXTS,
    WORDS,
    ListedExclusions,
    absorb,
    draw,
    open_table,
    pair_keys,
    require_within,
)
from clicktower.schemas.text_contract import CONTRACT_VERSION
from clicktower.training.model.objective_settings import Clicks, Fixed, Pool, Redrawn
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_table import Ragged, TextTable, WordRows, from_arrow, list_offsets

CATALOGUE = "catalogue.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """The pairs of one shard, as indices into its texts."""

    texts: TextTable
    strings: pa.ChunkedArray  # the texts themselves, normalised
    query: np.ndarray  # int32 [pairs]
    clicked: np.ndarray  # int32 [pairs]
    negatives: np.ndarray  # int32 [pairs, n], the shard's own
    keys: np.ndarray  # uint64 [pairs], the key of each pair's draw
    exclusion: np.ndarray  # int32 [pairs], the pair's list in `exclusions`
    exclusions: Ragged  # the pool rows that may not be negatives of each query
    excluded_by: "ExcludedBy | None" = None  # its inverse, for a recipe with shared negatives
    weights: np.ndarray | None = None  # float32 [pairs], for a recipe that weighs pairs

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
    train_names: tuple[str, ...]  # the folder of each of the training shards
    pool_texts: TextTable
    pool_strings: pa.ChunkedArray  # of `pool_texts`, normalised
    pool: np.ndarray  # int32 [pool], the text of each pool row
    word_rows: WordRows

    def redraw(self, shard: Shard, pairs: np.ndarray, *, n: int, seed: int, epoch: int) -> np.ndarray:
        """The negatives of some pairs in an epoch, as indices into `pool_texts`, int32 [pairs, n]."""
        listed = ListedExclusions(shard.exclusions.offsets, shard.exclusions.values, len(self.pool))
        rows = draw(shard.keys[pairs], shard.exclusion[pairs], listed, n=n, seed=seed, epoch=epoch)
        return self.pool[rows]


@dataclass(frozen=True, slots=True)
class ExcludedBy:
    """A shard's exclusions, inverted: for each row of the build's pool the lists that contain it.

    It gives the exclusions of a shared pool's few rows; a query's own list may be as long as its clicks are many.
    """

    codes: np.ndarray  # int64, ascending: row * 2^32 + list

    @classmethod
    def of(cls, exclusions: Ragged) -> "ExcludedBy":
        codes = exclusions.values[exclusions.offsets[0] : exclusions.offsets[-1]].astype(np.int64) << 32
        codes |= np.repeat(np.arange(len(exclusions)), exclusions.lengths)
        codes.sort()
        return cls(codes)

    def among(self, rows: np.ndarray, lists: np.ndarray) -> "PoolExclusions":
        """Whether each of these lists [K] (ascending) contains each of these rows of the pool [S]."""
        begin, end = np.searchsorted(self.codes, rows << 32), np.searchsorted(self.codes, (rows + 1) << 32)
        at = np.repeat(begin - list_offsets(end - begin)[:-1], end - begin)
        codes = self.codes[at + np.arange(len(at))] & np.int64(0xFFFFFFFF)
        column = np.repeat(np.arange(len(rows)), end - begin)
        line = np.minimum(np.searchsorted(lists, codes), len(lists) - 1)
        is_member = lists[line] == codes
        line, column = line[is_member], column[is_member]
        excluded_KS = np.zeros((len(lists), len(rows)), bool)
        excluded_KS[line, column] = True
        return PoolExclusions(excluded_KS, len(rows) - np.bincount(line, minlength=len(lists)))


@dataclass(frozen=True, slots=True)
class PoolExclusions:
    """The excluded rows within a shared pool, as shard.Exclusions."""

    excluded_KS: np.ndarray  # bool
    allowed_K: np.ndarray  # int64, the number of rows that each list does not contain

    @property
    def num_rows(self) -> int:
        return self.excluded_KS.shape[1]

    def num_allowed(self, of_pair: np.ndarray) -> np.ndarray:
        return self.allowed_K[of_pair]

    def holds(self, of_pair: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self.excluded_KS[of_pair[:, None], rows]

    def allowed(self, of_pair: int) -> np.ndarray:
        return np.flatnonzero(~self.excluded_KS[of_pair])


def load_shards(folder: str, recipe: Recipe, words: Sequence[str] = ()) -> ShardData:
    """The shards in a local folder, prepared for a recipe (words limited, clicks shuffled if it says so).

    `words`: those that have a row of their own (text_table.WordRows).
    Raises StageError (missing or unreadable files, too few negatives) and UnknownVersionError.
    """
    with open_catalogue(folder, CATALOGUE, SCHEMA_VERSION, stage="build") as catalogue:
        rows = WordRows(int(catalogue["table_rows"]), tuple(words))
        names = names_of(catalogue, "train")
        train = [_shard(f"{folder}/{name}", recipe, rows, number) for number, name in enumerate(names)]
        dev = [_shard(f"{folder}/{name}", recipe, rows, None) for name in names_of(catalogue, "dev")]
        pool_texts, pool_strings = shard_texts(f"{folder}/pool", recipe, rows)
        pool = open_table(f"{folder}/pool/pool.arrow", POOL)["text"].to_numpy()
        require_within(pool, len(pool_texts), f"{folder}/pool/pool.arrow")
        for shard in (*train, *dev):
            require_within(shard.exclusions.values, len(pool), "exclusions.arrow")
    for table in (pool_texts, *(shard.texts for shard in (*train, *dev))):
        require_rows(table, rows, folder, "build")
    _require_trainable(train, recipe)
    return ShardData(
        train=tuple(train),
        dev=tuple(dev),
        train_names=tuple(names),
        pool_texts=pool_texts,
        pool_strings=pool_strings,
        pool=pool,
        word_rows=rows,
    )


@contextmanager
def open_catalogue(folder: str, name: str, version: str, *, stage: str, uri: str = "") -> Iterator[dict[str, Any]]:
    """The catalogue of a stage's folder, which may be a copy of `uri`. Within, unreadable content is a StageError."""
    try:
        with open(f"{folder}/{name}", encoding="utf-8") as file:
            catalogue = from_bytes(file.read())
        require_major(f"{folder}/{name}", catalogue.get("schema_version"), version, stage=stage)
        require_major(f"the text contract of {folder}", catalogue.get("text_contract"), CONTRACT_VERSION, stage=stage)
        yield catalogue
    except (OSError, pa.ArrowInvalid, ValueError, KeyError) as error:
        raise StageError(
            f"A file is missing or unreadable in the shards in {uri or folder} ({str(error).splitlines()[0][:160]}).",
            f"Give the folder that `clicktower {stage}` printed, or run it again.",
        ) from None


def names_of(catalogue: Mapping[str, Any], split: str) -> list[str]:
    """The names of the shards of a split."""
    return [shard["name"] for shard in catalogue["shards"] if shard["split"] == split]


def _shard(folder: str, recipe: Recipe, word_rows: WordRows, shuffled_as: int | None) -> Shard:
    """The content of a shard's folder. `shuffled_as`: the number whose permutation a leak check applies to its clicks;
    None: none.
    """
    texts, strings = shard_texts(folder, recipe, word_rows)
    pairs = open_table(f"{folder}/pairs.arrow", PAIRS)
    query, clicked, exclusion = (pairs[name].to_numpy() for name in ("query", "clicked", "exclusion"))
    if recipe.clicks.shuffle_clicks and shuffled_as is not None:
        key = np.array([recipe.seed, shuffled_as], np.uint64)
        clicked = np.random.Generator(np.random.Philox(key=key)).permutation(clicked)
    negatives = from_arrow(pairs["negatives"])
    if len(np.unique(negatives.lengths)) > 1:
        raise ValueError(f"{folder}/pairs.arrow has pairs of different numbers of negatives")
    exclusions = from_arrow(open_table(f"{folder}/exclusions.arrow", EXCLUSIONS)["rows"])
    for texts_of_pairs in (query, clicked, negatives.values):
        require_within(texts_of_pairs, len(texts), f"{folder}/pairs.arrow")
    require_within(exclusion, len(exclusions), f"{folder}/pairs.arrow")
    return Shard(
        texts=texts,
        strings=strings,
        query=query,
        clicked=clicked,
        negatives=negatives.take(np.arange(len(pairs))).values.reshape(len(pairs), -1),
        keys=pair_keys(strings.take(query).to_pylist(), strings.take(clicked).to_pylist()),
        exclusion=exclusion,
        exclusions=exclusions,
        excluded_by=ExcludedBy.of(exclusions) if isinstance(recipe.clicks.negatives, Pool) else None,
        weights=_weights(pairs, recipe.clicks),
    )


def _weights(pairs: pa.Table, clicks: Clicks) -> np.ndarray | None:
    """The weight w of each pair; None if each counts once."""
    if clicks.weights == "none":
        return None
    weights = pairs["weight"].to_numpy().astype(np.float64)
    if clicks.weights == "log_clicks":
        weights = np.where(weights < 1, weights, 1 + ln(np.maximum(weights, 1)))
    return weights.astype(np.float32)


def ln(values: np.ndarray) -> np.ndarray:
    """The natural logarithms, float64, of numbers with many repeats.

    The C library's: NumPy's own differ in the last bit between processors with AVX-512 and without.
    """
    distinct, place = np.unique(values, return_inverse=True)
    return np.array([math.log(value) for value in distinct.tolist()])[place]


def _require_trainable(train: Sequence[Shard], recipe: Recipe) -> None:
    num_pairs = sum(map(len, train))
    if num_pairs < recipe.micro_batch:
        raise StageError(
            f"The shards hold {num_pairs:,} training pairs, and training needs at least one full micro-batch"
            f" ({recipe.micro_batch:,} pairs).",
            f"Lower `build --k`, add days to the window, or set micro_batch={max(1, num_pairs)}.",
        )
    for shard in train:
        wrong = 0 if shard.weights is None else int((~(shard.weights >= 0) | np.isinf(shard.weights)).sum())
        if wrong:
            raise StageError(
                f"{wrong:,} of {len(shard):,} pairs of a shard have a weight below 0 or not finite"
                f" (objective.weights={recipe.clicks.weights}): training would move clicked titles away, or every"
                " parameter would become NaN.",
                "Correct the column `weight` of the pairs, or set objective.weights=none.",
            )
    if isinstance(recipe.clicks.negatives, Fixed):
        held = min(shard.negatives.shape[1] for shard in train if len(shard))
        if held < recipe.clicks.num_negatives:
            raise StageError(
                f"The shards hold {held} for each pair of the {recipe.clicks.num_negatives} fixed negatives that"
                f" {recipe.name} reads.",
                f"Run `clicktower build --set num_negatives={recipe.clicks.num_negatives}` again, or set"
                f" objective.num_negatives={held} or objective.negatives=redrawn.",
            )


def shard_texts(folder: str, recipe: Recipe, word_rows: WordRows) -> tuple[TextTable, pa.ChunkedArray]:
    """(the texts, cut as the recipe says; their normalised strings). Raises OSError, ArrowInvalid, ValueError."""
    words, texts = open_table(f"{folder}/words.arrow", WORDS), open_table(f"{folder}/texts.arrow", TEXTS)
    rows = from_arrow(words["trigrams"])
    require_within(from_arrow(texts["words"]).values, len(words), f"{folder}/texts.arrow")
    if word_rows.words:
        rows = word_rows.known(words["word"].to_pylist(), rows)
    table = TextTable(from_arrow(texts["words"]), rows)
    return table.limited(recipe.max_words, recipe.overflow), texts["text"]


def require_rows(table: TextTable, word_rows: WordRows, folder: str, command: str) -> None:
    """Raise StageError if a word's trigrams exceed the table's rows. `command`: what made the shards."""
    highest = int(table.trigrams.values.max(initial=0))
    if highest >= word_rows.num_rows:
        raise StageError(
            f"Trigram id {highest:,} is not below the {word_rows.trigram_rows:,} rows of the catalogue in {folder}.",
            f"Run `clicktower {command}` again.",
        )


def local_folder(uri: str) -> str:
    """The folder itself if it is on this machine, otherwise a local copy that can be memory-mapped.

    The copy is removed when this process ends, or, after a kill, when the next copy is made.
    """
    if storage.is_local(uri):
        return storage.filesystem(uri)[1]
    copy = make_scratch()
    for name in storage.list_files(uri):
        os.makedirs(os.path.dirname(f"{copy}/{name}"), exist_ok=True)
        with storage.open_read(storage.join(uri, name)) as source, open(f"{copy}/{name}", "wb") as target:
            shutil.copyfileobj(source, target)
    return copy


class ShardFiles:
    """The files of the shards, checked against the build's manifest, because the model carries its digest.

    Every worker compares every byte before it trains and again before the model is written, and after each epoch those
    of files that have changed by the file system's account. A resumed run starts with the first comparison.

    `folder`: where this worker reads them, on its own machine. `files`: what the build wrote, relative to it.
    """

    def __init__(self, folder: str, files: Sequence[OutputFile]) -> None:
        self.folder, self._files = folder, files
        self._seen: dict[str, tuple[int, ...]] = {}

    def compare(self, when: str, *, only_touched: bool = False) -> None:
        """Check every byte. `when`: "Before training" and the like. Raises StageError that names the files."""
        seen = {file.path: self._look(file) for file in self._files}
        files = [file for file in self._files if not only_touched or seen[file.path] != self._seen[file.path]]
        if damage := damaged_files(self.folder, files, hashes=True):
            more = f"; and {len(damage) - 3:,} more" if len(damage) > 3 else ""
            raise StageError(
                f"{when} the shards in {self.folder} differ from their manifest: {'; '.join(damage[:3])}{more}.",
                "Put the files back, or run `clicktower build` again; the same command continues from there.",
            )
        self._seen = seen

    def _look(self, file: OutputFile) -> tuple[int, ...]:
        try:
            status = os.stat(f"{self.folder}/{file.path}")
        except OSError:
            return ()
        return status.st_size, status.st_mtime_ns, status.st_ino


# Micro-batches: which pairs are computed together, and which documents are each query's candidates.
#
#     Order.epoch -> MicroBatch -> pairs_of -> Pairs
#
# Shapes: B pairs, N documents, C = 1 + n candidates with the clicked one first; of a shared pool K lists of exclusions,
# one for each query of the micro-batch, and S titles.


WINDOW = 16  # micro-batches within which texts are grouped by length


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Pairs that are computed together, rows of one shard."""

    shard: int
    pairs: np.ndarray  # int64
    place: int  # in the order of the epoch


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """The order of training: a function of the data, the seed and the epoch alone (docs/model.md section 5).

    Each shard's pairs are permuted, a window of them is sorted by length and cut into micro-batches of fixed size (the
    last of a shard may be shorter), the micro-batches of all shards are permuted, and consecutive runs of them are the
    minibatches. The order does not depend on the workers.

    lengths: for each shard the number of words of each pair's query and clicked title together.
    """

    lengths: Sequence[np.ndarray]
    micro_batch: int
    minibatch: int
    seed: int

    @property
    def num_pairs(self) -> int:
        return sum(len(lengths) for lengths in self.lengths)

    @property
    def num_minibatches(self) -> int:
        """Large updates in an epoch, the same in every epoch."""
        num_micro_batches = sum(-(-len(lengths) // self.micro_batch) for lengths in self.lengths)
        return -(-num_micro_batches // (self.minibatch // self.micro_batch))

    def epoch(self, epoch: int) -> list[list[MicroBatch]]:
        """The minibatches of an epoch, each a list of micro-batches; every pair is in exactly one."""
        micro_batches = [
            (shard, pairs)
            for shard, lengths in enumerate(self.lengths)
            for pairs in self._micro_batches(shard, lengths, epoch)
        ]
        permuted = self._random(epoch, len(self.lengths)).permutation(len(micro_batches))
        in_order = (micro_batches[at] for at in permuted)
        shuffled = [MicroBatch(shard, pairs, place) for place, (shard, pairs) in enumerate(in_order)]
        run = self.minibatch // self.micro_batch
        return [shuffled[start : start + run] for start in range(0, len(shuffled), run)]

    def _micro_batches(self, shard: int, lengths: np.ndarray, epoch: int) -> list[np.ndarray]:
        permuted = self._random(epoch, shard).permutation(len(lengths))
        window = np.arange(len(lengths)) // (WINDOW * self.micro_batch)
        grouped = permuted[np.lexsort((lengths[permuted], window))]
        return [grouped[start : start + self.micro_batch] for start in range(0, len(grouped), self.micro_batch)]

    def _random(self, epoch: int, stream: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=np.array([self.seed, epoch << 32 | stream], np.uint64)))


def pair_lengths(shard: Shard) -> np.ndarray:
    """The number of words of each pair's query and clicked title together."""
    words = shard.texts.words.lengths
    return words[shard.query] + words[shard.clicked]


Texts = tuple[TextTable, np.ndarray]  # a table, and indices of its texts


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Queries and documents to encode, and the candidates of each query in the loss (click_loss)."""

    queries: Texts  # [B]
    documents: tuple[Texts, ...]  # [N] numbered from 0, one part after the other
    candidates: np.ndarray  # int32 [B, C] numbers of documents, the clicked one first; -1: none
    weights: np.ndarray | None  # float32 [B]; None: each pair counts once
    taught: np.ndarray | None = None  # float32 [B, C], a teacher's probabilities (trainer.click_teacher)


def pairs_of(micro_batch: MicroBatch, data: ShardData, recipe: Recipe, epoch: int) -> Pairs:
    """A micro-batch's pairs with the negatives of an epoch; a function of its arguments alone."""
    shard, pairs, n = data.train[micro_batch.shard], micro_batch.pairs, recipe.clicks.num_negatives
    if isinstance(pool := recipe.clicks.negatives, Pool):
        return _sharing(micro_batch, shard, data, recipe, pool, epoch)
    if isinstance(recipe.clicks.negatives, Redrawn):
        negatives = (data.pool_texts, data.redraw(shard, pairs, n=n, seed=recipe.seed, epoch=epoch))
    else:
        negatives = (shard.texts, shard.negatives[pairs, :n])
    query, clicked = (shard.texts, shard.query[pairs]), (shard.texts, shard.clicked[pairs])
    return apart(query, clicked, negatives, shard.weighed(pairs))


def apart(query: Texts, clicked: Texts, negatives: Texts, weights: np.ndarray | None = None) -> Pairs:
    """Pairs that do not share negatives: queries [B], clicked titles [B], and their own negatives [B, n]."""
    num_pairs, n = negatives[1].shape
    numbers = np.arange(num_pairs * (1 + n), dtype=np.int32)
    return Pairs(
        queries=query,
        documents=(clicked, (negatives[0], negatives[1].ravel())),
        candidates=np.concatenate([numbers[:num_pairs, None], numbers[num_pairs:].reshape(num_pairs, n)], axis=1),
        weights=weights,
    )


# Shared negatives: a small pool, drawn again for each micro-batch (docs/model.md section 6).

_KEY = int.from_bytes(b"shared", "little")  # the start of the hash: not the key of any pair's own draw


def _sharing(micro_batch: MicroBatch, shard: Shard, data: ShardData, recipe: Recipe, pool: Pool, epoch: int) -> Pairs:
    """Pairs with negatives from one shared pool. Each drawn title is encoded once, any other not at all."""
    pairs, seed = micro_batch.pairs, recipe.seed
    assert shard.excluded_by is not None
    size = pool.size or recipe.micro_batch
    rows = shared_pool(len(data.pool), size, seed=seed, epoch=epoch, place=micro_batch.place)
    lists, of_pair = np.unique(shard.exclusion[pairs], return_inverse=True)
    exclusions = shard.excluded_by.among(rows, lists)
    if pool.softmax:
        places = all_pool_indices(of_pair, exclusions)
    else:
        n = recipe.clicks.num_negatives
        places = n_of_pool(shard.keys[pairs], of_pair, exclusions, n=n, seed=seed, epoch=epoch)

    titles, clicked = np.unique(shard.clicked[pairs], return_inverse=True)
    used, negatives = _renumber_used(places, len(rows))
    return Pairs(
        queries=(shard.texts, shard.query[pairs]),
        documents=((data.pool_texts, data.pool[rows[used]]), (shard.texts, titles)),
        candidates=np.concatenate([(len(used) + clicked[:, None]).astype(np.int32), negatives], axis=1),
        weights=shard.weighed(pairs),
    )


def shared_pool(num_rows: int, size: int, *, seed: int, epoch: int, place: int) -> np.ndarray:
    """The rows of the build's pool that a micro-batch shares, int64 [S]: distinct; all of them for a size that large.

    The first distinct ones of hash(seed, epoch, place, k) mod num_rows for k = 0, 1, ..., with the hash of
    schemas.shard. `place`: the micro-batch's place in the order of the epoch.
    """
    size = min(size, num_rows)
    state = absorb(absorb(absorb(np.array([_KEY], np.uint64), seed), epoch), place)
    rows, tried = np.empty(0, np.int64), 0
    while len(rows) < size:
        drawn = absorb(state, np.arange(tried, tried + 2 * size)) % np.uint64(num_rows)
        rows, tried = np.concatenate([rows, drawn.astype(np.int64)]), tried + 2 * size
        first = np.unique(rows, return_index=True)[1]
        rows = rows[np.sort(first)]
    return rows[:size]


def n_of_pool(
    keys: np.ndarray, of_pair: np.ndarray, exclusions: PoolExclusions, *, n: int, seed: int, epoch: int
) -> np.ndarray:
    """n places in the shared pool per pair, int64 [B, n]: distinct, unclicked for its query, drawn by the pair's key.

    A pair with fewer unclicked titles in the pool has all of those, and -1 for the rest.
    """
    enough = exclusions.num_allowed(of_pair) >= n
    places = np.full((len(keys), n), -1, np.int64)
    places[enough] = draw(keys[enough], of_pair[enough], exclusions, n=n, seed=seed, epoch=epoch)
    for pair in np.flatnonzero(~enough):
        allowed = exclusions.allowed(of_pair[pair])
        places[pair, : len(allowed)] = allowed
    return places


def all_pool_indices(of_pair: np.ndarray, exclusions: PoolExclusions) -> np.ndarray:
    """All indices into the shared pool for each pair, int32 [B, S]; -1 if the title was clicked for its query."""
    places = np.arange(exclusions.num_rows, dtype=np.int32)
    return np.where(exclusions.excluded_KS, np.int32(-1), places)[of_pair]


def _renumber_used(places: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(the used ones of `size` places, ascending; `places` as int32 numbers of those, with -1 unchanged)."""
    used = np.zeros(size + 1, bool)
    used[places] = True
    used[-1] = False  # the target of -1
    if used[:-1].all():
        return np.arange(size), places.astype(np.int32, copy=False)
    number = np.full(size + 1, -1, np.int32)
    number[used] = np.arange(used.sum())
    return np.flatnonzero(used), number[places]
