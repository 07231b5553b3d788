"""An index of a release's vectors in partitions, of which a search visits as few as reach the required recall."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from clicktower.flows.releases import make_release
from clicktower.flows.releases.make_release import RecallQueries
from clicktower.flows.releases.release_documents import IVF, EarlierRows, IndexSearch, Rows, read_ivf
from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.schemas import storage
from clicktower.schemas.release import Similarity
from clicktower.schemas.stage import Progress
from clicktower.training.ranking.nearest import Partitions
from clicktower.training.ranking.partitioning import nearest_centre, num_partitions_of, partition

# Partitions to visit, in steps, until the recall is good enough.
_NUM_PROBES = (4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
_MOST_SHARE = 0.5  # of all partitions: visiting more would save nothing
# Of the texts may be new, and the number of partitions be off by so much, before the centres are made anew.
_MOST_NEW = 0.2


def build_ivf(
    folder: str,
    rows: Rows,
    vectors_ND: np.ndarray,
    queries: RecallQueries,
    config: PublishConfig,
    limits: Sequence[tuple[int, np.ndarray]],
    facts: dict[str, Any],
    tried: list[dict[str, Any]],
    *,
    similarity: Similarity,
    progress: Progress,
    earlier: EarlierRows | None,
) -> tuple[dict[str, Any], IndexSearch] | None:
    """As make_release.build_index; None, and no file, if no number of partitions reaches the recall.

    `limits`: (a number of results, the exact score of each query's last one). `tried` gets every attempt.
    """
    for partitions, num_new in _partitions(rows, config, similarity, earlier, progress):
        tensors = {
            "centres": partitions.centres_PD,
            "partition_of": np.ascontiguousarray(partitions.of_N[rows.text_of_N]),
        }
        storage.write_atomic(storage.join(folder, IVF), safetensors.numpy.save(tensors))
        search = IndexSearch(vectors_ND, read_ivf(folder), similarity=similarity)
        num_partitions = len(partitions.centres_PD)
        steps: list[dict[str, Any]] = []
        tried.clear()
        for depth, limits_Q in limits:
            progress(f"measure recall@{depth}", 0, None)
            least = steps[-1]["num_probes"] if steps else 1  # more results need no fewer partitions
            step = _fewest_partitions(search, queries, limits_Q, depth, config.min_recall, num_partitions, least, tried)
            if step is None:
                break
            steps.append(step)
        if len(steps) == len(limits):
            search.steps = steps
            record = {"kind": "ivf", "file": IVF, "num_partitions": num_partitions, "seed": config.seed}
            record |= {**steps[0], "steps": steps, "new_texts": num_new, **facts, "tried": tried}
            return record, search
    storage.remove(storage.join(folder, IVF))
    return None


def _partitions(
    rows: Rows, config: PublishConfig, similarity: Similarity, earlier: EarlierRows | None, progress: Progress
) -> Iterator[tuple[Partitions, int]]:
    """(partitions of the texts, the number of texts that are new since their centres were made): first those of the
    earlier release, if they fit, with each new text in that of its nearest centre; then new ones.
    """
    num_texts = len(rows.vectors_TD)
    if earlier and earlier.index["kind"] == "ivf" and earlier.index["seed"] == config.seed:
        partitions, is_new = read_ivf(earlier.folder), earlier.row_of_T < 0
        num_new = int(is_new.sum()) + earlier.index["new_texts"]
        size = len(partitions.centres_PD) / num_partitions_of(num_texts)
        if num_new <= _MOST_NEW * num_texts and 1 - _MOST_NEW <= size <= 1 + _MOST_NEW:
            progress("put new titles into the index", 0, None)
            of_T = partitions.of_N[earlier.row_of_T]
            of_T[is_new] = nearest_centre(rows.vectors_TD[is_new], partitions.centres_PD, similarity)
            yield Partitions(centres_PD=partitions.centres_PD, of_N=of_T), num_new
    yield partition(rows.vectors_TD, similarity=similarity, seed=config.seed, progress=progress), 0


def _fewest_partitions(
    search: IndexSearch,
    queries: RecallQueries,
    limits_Q: np.ndarray,
    k: int,
    min_recall: float,
    num_partitions: int,
    least: int,
    tried: list[dict[str, Any]],
) -> dict[str, Any] | None:
    """The fewest partitions, `least` or more, that reach the recall at k results, or None; every attempt is added to
    `tried`.
    """
    probes = [number for number in _NUM_PROBES if number <= max(1.0, num_partitions * _MOST_SHARE)]
    # A search whose partitions hold fewer documents than it ranks compares all.
    room = 2 * max(k, queries.num_nearest) * num_partitions / len(search)
    options = [number for number in probes if number >= max(least, room)] or probes[-1:]
    reached: dict[int, float] = {}

    def is_enough(num_probes: int) -> bool:
        reached[num_probes] = make_release.recall(queries.scores(search, k, num_probes), limits_Q, k)
        tried.append({"recall_at": k, "num_probes": num_probes, "recall": reached[num_probes]})
        return reached[num_probes] >= min_recall

    place = bisect_left(options, True, key=is_enough)  # more partitions find no less
    if place == len(options):
        return None
    return {"recall_at": k, "num_probes": options[place], "recall": reached[options[place]]}
