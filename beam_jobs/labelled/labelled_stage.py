"""The stage build-labelled: labelled files -> labelled shards. labelled_job is its Beam pipeline.

build_labelled_shards(["pairs.tsv"], store="store", config=LabelledConfig(mapping=...))
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from clicktower.beam_jobs.engine.beam_stage import run_beam_stage
from clicktower.beam_jobs.labelled.labelled_rows import (
    Format,
    LabelledColumns,
    LabelledConfig,
    LabelledMapping,
    LabelledPart,
    labelled_request,
    labelled_source,
)
from clicktower.schemas.stage import Progress, StageResult, silent


def build_labelled_shards(
    files: Sequence[str],
    *,
    store: str,
    config: LabelledConfig,
    dev: Sequence[str] = (),
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The labelled shards of some files, in STORE/build-labelled/DIGEST.

    files, dev: paths, patterns or folders. With `dev` its lines are held out, and lines of `files` that share a
    sentence with it are dropped; without it, whole components of sentences are held out by a keyed hash. Raises
    UsageError and StageError: no files, missing columns, too many unreadable lines, nothing left to train on or to hold
    out, only one class.
    """
    source = labelled_source(config)
    train_plan = source.plan(files)
    dev_plan = source.plan(dev) if dev else None
    request = labelled_request(train_plan.fingerprints(), dev_plan.fingerprints() if dev_plan else [], config)

    plans = [(train_plan, False), *([(dev_plan, True)] if dev_plan else [])]

    fields = {
        "config": config,
        "parts": tuple(LabelledPart(unit=unit, dev=is_dev) for each, is_dev in plans for unit in each.units),
        "stored_bytes": sum(each.stored_bytes for each, _ in plans),
        "has_dev_file": dev_plan is not None,
    }
    return run_beam_stage(
        store,
        request,
        "clicktower.beam_jobs.labelled.labelled_job:LabelledJob",
        fields,
        input_bytes=sum(each.estimated_bytes for each, _ in plans),
        beam_options=beam_options,
        progress=progress,
    )


# The original files of published data sets: their form, columns and classes, with words cut by the Unicode rule.
#
# snli          snli_1.0_*.jsonl (Bowman et al. 2015); lines without a gold label (-) have the fate unreadable_label
# quora         quora_duplicate_questions.tsv, with its header
# quora-bimpm   train.tsv, dev.tsv and test.tsv of the split of BiMPM (Wang et al. 2017), cut into words already;
#               lines that share a sentence with the dev file are kept, as in published figures
# yelp          yelp_academic_dataset_review.json, the stars of reviews


def _config(
    columns: Mapping[str, Any], classes: str, format: Format, *, cut: bool = False, split: bool = False, **form: Any
) -> LabelledConfig:
    """`cut`: the words are cut already, at spaces. `split`: a published split is kept whole, sentences that both files
    have among it. `form`: of delimited text, as in a mapping.
    """
    mapping = LabelledMapping(columns=LabelledColumns(**columns), **form)
    words: Literal["spaces", "unicode"] = "spaces" if cut else "unicode"
    return LabelledConfig(
        mapping=mapping, format=format, classes=tuple(classes.split()), words=words, keep_shared=split
    )


_SNLI = {"first": "sentence1", "second": "sentence2", "label": "gold_label"}
_QUORA = {"first": "question1", "second": "question2", "label": "is_duplicate"}
PUBLISHED: Mapping[str, LabelledConfig] = {
    "snli": _config(_SNLI, "contradiction entailment neutral", "jsonl"),
    "quora": _config(_QUORA, "0 1", "delimited", quote='"', quoted_newlines=True),
    "quora-bimpm": _config(
        {"first": 2, "second": 3, "label": 1}, "0 1", "delimited", cut=True, split=True, header=False
    ),
    "yelp": _config({"text": "text", "label": "stars"}, "1 2 3 4 5", "jsonl"),
}
