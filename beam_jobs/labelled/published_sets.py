"""The original files of published data sets: their form, columns and classes, with words cut by the Unicode rule.

snli          snli_1.0_*.jsonl (Bowman et al. 2015); lines without a gold label (-) have the fate unreadable_label
quora         quora_duplicate_questions.tsv, with its header
quora-bimpm   train.tsv, dev.tsv and test.tsv of the split of BiMPM (Wang et al. 2017), cut into words already
yelp          yelp_academic_dataset_review.json, the stars of reviews
"""

from collections.abc import Mapping
from typing import Any, Literal

from beam_jobs.labelled.labelled_rows import Format, LabelledColumns, LabelledConfig, LabelledMapping


def _config(
    columns: Mapping[str, Any], classes: str, format: Format, *, cut: bool = False, **form: Any
) -> LabelledConfig:
    """`cut`: the words are cut already, at spaces. `form`: of delimited text, as in a mapping."""
    mapping = LabelledMapping(columns=LabelledColumns(**columns), **form)
    words: Literal["spaces", "unicode"] = "spaces" if cut else "unicode"
    return LabelledConfig(mapping=mapping, format=format, classes=tuple(classes.split()), words=words)


_SNLI = {"first": "sentence1", "second": "sentence2", "label": "gold_label"}
_QUORA = {"first": "question1", "second": "question2", "label": "is_duplicate"}
PUBLISHED: Mapping[str, LabelledConfig] = {
    "snli": _config(_SNLI, "contradiction entailment neutral", "jsonl"),
    "quora": _config(_QUORA, "0 1", "delimited", quote='"', quoted_newlines=True),
    "quora-bimpm": _config({"first": 2, "second": 3, "label": 1}, "0 1", "delimited", cut=True, header=False),
    "yelp": _config({"text": "text", "label": "stars"}, "1 2 3 4 5", "jsonl"),
}
