"""The ledger: each line of a log has exactly one fate, and the fates of all lines add up to the lines read.

Line counts travel as a column through every partial aggregate; engine metrics are not used, because they count a
retried bundle twice.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from clicktower.schemas.errors import StageError

# fate -> (kind, what it means in plain words). Kinds: kept, dropped (by a named rule), unreadable.
FATES: Mapping[str, tuple[str, str]] = {
    "unreadable_not_utf8": ("unreadable", "not UTF-8 text"),
    "unreadable_not_json": ("unreadable", "not a JSON object (cut off, say, or nested over 200 deep)"),
    "unreadable_no_query_id": ("unreadable", "no usable query_id (blank, null and the like are none)"),
    "unreadable_field": ("unreadable", "a field is missing or of the wrong type"),
    "unreadable_width": ("unreadable", "more or fewer fields than the columns, or a quote left open"),
    "unreadable_no_query": ("unreadable", "a search without its query"),
    "unreadable_time": ("unreadable", "a time in no form that is read, such as 2026-09-01T10:00:00Z"),
    "unreadable_year": ("unreadable", "a time before 1990 or after 2099: another unit or form than its setting says"),
    "unreadable_label": ("unreadable", "a label is missing, or is not one that was asked for"),
    "time_implausible": ("dropped", "time far from the day of the log"),
    "repeat": ("dropped", "exact repeat of another line"),
    "blank_line": ("dropped", "blank line"),
    "action_line": ("dropped", "bulk action line, which carries no data"),
    "other_action": ("dropped", "event that is no impression, click or conversion"),
    "click_short": ("dropped", "click that ended before the mapping's min_dwell"),
    "search_repeated": ("dropped", "second search line of one query_id"),
    "search_unknown": ("dropped", "event whose search is not in the log"),
    "search_ambiguous": ("dropped", "event of a query_id with different searches, any of which may be its own"),
    "document_missing": ("dropped", "event without a document id"),
    "bot_user_agent": ("dropped", "bot by its user agent"),
    "bot_behaviour": ("dropped", "bot by its behaviour"),
    "bot_crowd": ("dropped", "one of a crowd of fresh clients behind one query"),
    "bot_unsure": ("dropped", "may be a bot: kept out to be sure"),
    "query_empty": ("dropped", "query without a word"),
    "query_adult": ("dropped", "adult query"),
    "query_spam": ("dropped", "spam query"),
    "erased": ("dropped", "erased with a person who asked"),
    "query_judged": ("dropped", "query kept aside for evaluation"),
    "query_below_k": ("dropped", "query that fewer than k people issued"),
    "pair_below_k": ("dropped", "click of a pair that fewer than pair_k people clicked"),
    "document_unknown": ("dropped", "document unknown or without a title"),
    "search": ("kept", "search line of a published query"),
    "impression": ("kept", "impression kept as exposure"),
    "click_train": ("kept", "click in the training pairs"),
    "click_dev": ("kept", "click in the held-out pairs"),
    "conversion_train": ("kept", "conversion in the training pairs"),
    "conversion_dev": ("kept", "conversion in the held-out pairs"),
    # Labelled pairs and texts (labelled.labelled_job).
    "sentence_empty": ("dropped", "sentence without a word"),
    "label_repeated": ("dropped", "same texts and label as another line"),
    "label_conflict": ("dropped", "same texts as another line, with another label"),
    "sentence_in_dev": ("dropped", "training line with a sentence of the dev file"),
    "label_untrained": ("dropped", "held-out line whose label no training line has"),
    "labelled_train": ("kept", "labelled line to train on"),
    "labelled_dev": ("kept", "labelled line held out"),
    # Fates between two stages: ingest assigns them and build resolves them.
    "day_search": ("kept", "search line in the daily aggregate"),
    "day_impression": ("kept", "impression in the daily aggregate"),
    "day_click": ("kept", "click in the daily aggregate"),
    "day_conversion": ("kept", "conversion in the daily aggregate"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Lines by fate, in the order of FATES; those without a line are left out. `total` is counted independently, where
    lines are read, so that `check` can fail.
    """

    total: int
    lines: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.lines) - set(FATES))
        if unknown:
            raise ValueError(f"fates without a name in FATES: {unknown}")
        object.__setattr__(self, "lines", {fate: self.lines[fate] for fate in FATES if self.lines.get(fate)})

    def of_kind(self, kind: str) -> int:
        """The number of lines with a kind of fate: kept, dropped or unreadable."""
        return sum(count for fate, count in self.lines.items() if FATES[fate][0] == kind)

    def losses(self, most: int = 3) -> str:
        """The fates that took the most lines, for a sentence: `374 bot by its behaviour; 4 query without a word`."""
        lost = {fate: count for fate, count in self.lines.items() if count and FATES[fate][0] != "kept"}
        largest = sorted(lost, key=lambda fate: -lost[fate])[:most]
        return "; ".join(f"{lost[fate]:,} {FATES[fate][1]}" for fate in largest)

    def check(self) -> "Ledger":
        """This ledger, if it adds up. Raises StageError otherwise: a line was lost or counted twice."""
        accounted = sum(self.lines.values())
        if accounted != self.total:
            raise StageError(
                f"The ledger accounts for {accounted:,} of {self.total:,} lines: lines are lost or counted twice.",
                "Report this as a defect; nothing was published.",
            )
        return self


def merge_ledgers(ledgers: Iterable[Ledger]) -> Ledger:
    """The joint ledger of several disjoint inputs."""
    total, lines = 0, Counter[str]()
    for ledger in ledgers:
        total += ledger.total
        lines.update(ledger.lines)
    return Ledger(total=total, lines=lines)


def continue_with(before: Ledger, after: Mapping[str, int]) -> Ledger:
    """The ledger from the log to the shards: the fates from build replace the day_* lines of `before`."""
    ended = {fate: count for fate, count in before.lines.items() if not fate.startswith("day_")}
    return merge_ledgers([Ledger(total=before.total, lines=ended), Ledger(total=0, lines=after)]).check()
