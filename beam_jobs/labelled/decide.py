"""The one decision that needs all rows at once: which sentences are held out, which classes there are."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from beam_jobs.labelled.components import held_out_sentences
from beam_jobs.labelled.config import LabelledConfig
from schemas.errors import StageError
from schemas.labelled import LabelKind

MAX_CLASSES = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`dev_sentences`: the URI of a table of their ids, ascending. `classes`: in order; none for values."""

    dev_sentences: str
    classes: tuple[str, ...]
    num_rows: dict[str, int]  # of each split, at most
    counts: dict[str, int]


def decide(rows: pa.Table, config: LabelledConfig, *, has_dev_file: bool) -> tuple[np.ndarray, Decision]:
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
    return dev_ids, Decision(dev_sentences="", classes=in_order(set(of_training)), num_rows=num_rows, counts=counts)


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


def require_usable(decision: Decision, *, label: LabelKind, dev_share: float, has_dev_file: bool) -> None:
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
            asked="classes were to be told apart",
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
