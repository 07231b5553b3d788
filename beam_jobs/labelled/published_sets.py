"""The original files of published data sets: their form, columns and classes, with words cut by the Unicode rule.

snli          snli_1.0_*.jsonl (Bowman et al. 2015); lines without a gold label (-) have the fate unreadable_label
quora         quora_duplicate_questions.tsv, with its header
quora-bimpm   train.tsv, dev.tsv and test.tsv of the split of BiMPM (Wang et al. 2017), cut into words already
yelp          yelp_academic_dataset_review.json, the stars of reviews
"""

from collections.abc import Mapping

from beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping

PUBLISHED: Mapping[str, LabelledConfig] = {
    "snli": LabelledConfig(
        mapping=LabelledMapping(
            columns=LabelledColumns(first="sentence1", second="sentence2", label="gold_label"),
        ),
        format="jsonl",
        classes=("contradiction", "entailment", "neutral"),
        words="unicode",
    ),
    "quora": LabelledConfig(
        mapping=LabelledMapping(
            columns=LabelledColumns(first="question1", second="question2", label="is_duplicate"),
            quote='"',
            quoted_newlines=True,
        ),
        classes=("0", "1"),
        words="unicode",
    ),
    "quora-bimpm": LabelledConfig(
        mapping=LabelledMapping(columns=LabelledColumns(first=2, second=3, label=1), header=False),
        classes=("0", "1"),
    ),
    "yelp": LabelledConfig(
        mapping=LabelledMapping(columns=LabelledColumns(text="text", label="stars")),
        format="jsonl",
        classes=("1", "2", "3", "4", "5"),
        words="unicode",
    ),
}
