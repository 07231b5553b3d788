"""The one decision that needs all rows at once: which sentences are held out, which classes there are."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_jobs.build.build_config import held_out
from beam_jobs.labelled.labelled_config import LabelledConfig
from schemas.errors import StageError
from schemas.shard import LabelKind

MAX_CLASSES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDecision:
    """`dev_sentences`: the URI of a table of their ids, ascending. `classes`: in order; none for values."""

    dev_sentences: str
    classes: tuple[str, ...]
    num_rows: dict[str, int]  # of each split, at most
    counts: dict[str, int]


def decide(rows: pa.Table, config: LabelledConfig, *, has_dev_file: bool) -> tuple[np.ndarray, SplitDecision]:
    """(the ids of the held-out sentences, uint64 ascending; what else was decided, without its URI).

    rows: first_id, second_id, dev and label of all distinct rows.
    """
    first, second, is_dev = (rows[name].to_numpy(zero_copy_only=False) for name in ("first_id", "second_id", "dev"))
    if has_dev_file:
        dev_ids, counts = np.unique(np.concatenate([first[is_dev], second[is_dev]])), dict[str, int]()
    else:
        dev_ids, counts = held_out_sentences(first, second, salt=config.split_salt, share=config.dev_share)
    in_dev = is_held_out(first, second, dev_ids)
    trains = ~is_dev & ~in_dev
    held = is_dev if has_dev_file else in_dev
    num_rows = {"train": int(trains.sum()), "dev": int(held.sum())}
    of_training = rows["label"].filter(pa.array(trains)).unique().to_pylist() if config.label == "class" else []
    return dev_ids, SplitDecision(
        dev_sentences="", classes=in_order(set(of_training)), num_rows=num_rows, counts=counts
    )


def is_held_out(first: np.ndarray, second: np.ndarray, dev_ids: np.ndarray) -> np.ndarray:
    """Whether either sentence of each row is held out, bool. dev_ids: ascending."""
    found = np.zeros(len(first), bool)
    if len(dev_ids):
        for ids in (first, second):
            place = np.minimum(np.searchsorted(dev_ids, ids), len(dev_ids) - 1)
            found |= dev_ids[place] == ids
    return found


def in_order(names: set[str]) -> tuple[str, ...]:
    """Classes by their number where all are whole numbers, else by their name."""
    try:
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    except ValueError:
        return tuple(sorted(names))


def require_usable(decision: SplitDecision, *, label: LabelKind, dev_share: float, has_dev_file: bool) -> None:
    """Nothing. Raises StageError where there is nothing to train on or to hold out, one class only, or too many."""
    num_train, num_classes = decision.num_rows["train"], len(decision.classes)
    if not num_train:
        raise StageError(
            asked="labelled lines were to be trained on",
            found="every one has a sentence of the dev file" if has_dev_file else "none is left",
            follows="there would be nothing to train on",
            do="give other lines, or another dev file",
        )
    if not decision.num_rows["dev"] and has_dev_file:
        raise StageError(
            asked="a dev file was to be held out",
            found="no usable line is in it",
            follows="nothing could be measured",
            do="look at the file and at which columns are named",
        )
    if not decision.num_rows["dev"] and dev_share:
        raise StageError(
            asked=f"a share of {dev_share:g} was to be held out",
            found=f"of {decision.counts['components']:,} components of sentences none was chosen"
            " that holds no more of the rows than that",
            follows="nothing could be measured",
            do="give more lines, a larger dev_share, or a dev file (--dev)",
        )
    if label == "class" and num_classes == 1:
        raise StageError(
            asked="the labels were to be of at least two classes",
            found=f"all {num_train:,} training lines have one and the same",
            follows="there would be nothing to learn and no threshold to choose",
            do="give lines of at least two classes, or look at which column the label is",
        )
    if num_classes > MAX_CLASSES:
        raise StageError(
            asked="the labels were to be classes",
            found=f"{num_train:,} training lines have {num_classes:,} different ones",
            follows=f"no more than {MAX_CLASSES:,} classes are taken",
            do="say --label-kind value if they are numbers, or look at which column the label is",
        )


# The connected components of sentences that pairs link, and which of them are held out.
#
# Pairs link sentences: if (a, b) is held out and (b, c) is not, b is on both sides. So what the split moves is a whole
# component: all sentences that a chain of pairs connects. A component is held out if the keyed hash of its
# representative, the sentence with the smallest id, is below the share; the id does not know the key, so every
# component is held out with the same probability, however large. One that holds more than the share of all rows by
# itself trains: data that hang together cannot be parted, and most of them must be trained on.
#
# Held in memory by the one worker that does this: ids and places, up to 140 bytes for each row (measured at a million),
# and no text. A hundred million pairs take some 14 GB.


def components(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct ids ascending, uint64 [S]; the representative of each one's component as its place there, int64).

    first, second: ids that a row links, uint64 [rows]; a row of one sentence links it with itself.

    By rounds until nothing changes: both sentences of a row, and their representatives of the round before, take the
    smaller of these; then every sentence takes its representative's own.
    """
    ids, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    a, b = np.split(places.reshape(-1), 2)
    smallest = np.arange(len(ids))
    while True:
        before = smallest.copy()
        joined = np.minimum(smallest[a], smallest[b])
        # The representatives learn of it too, or a chain would take about as many rounds as it has links.
        for end in (a, b):
            np.minimum.at(smallest, before[end], joined)
            np.minimum.at(smallest, end, joined)
        smallest = smallest[smallest]
        if np.array_equal(smallest, before):
            return ids, smallest


def held_out_sentences(
    first: np.ndarray, second: np.ndarray, *, salt: str, share: float
) -> tuple[np.ndarray, dict[str, int]]:
    """(the ids of the held-out sentences, uint64 ascending; counts of the components), as the module says."""
    ids, representative = components(first, second)
    present, of_sentence = np.unique(representative, return_inverse=True)
    of_row = of_sentence[np.searchsorted(ids, first)]
    num_rows = np.bincount(of_row, minlength=len(present))
    is_out = held_out((f"{each:016x}" for each in ids[present].tolist()), salt=salt, share=share)
    is_whole = num_rows > share * len(first)
    counts = {
        "components": len(present),
        "largest_component_rows": int(num_rows.max(initial=0)),
        "components_too_large_to_hold_out": int((is_whole & is_out).sum()),
    }
    return ids[(is_out & ~is_whole)[of_sentence]], counts
