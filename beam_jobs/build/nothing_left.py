"""Why a build has nothing to train on, as errors for users."""

from collections.abc import Mapping

from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import FATES, Ledger

_ONLY_BOTS = (
    "If they are people, see which rule took them (`metrics.bots` in the manifest of the ingest) and ingest with other"
    " thresholds (docs/privacy.md); a column with the wrong client ids or times makes bots of people too."
)


_FIXES = {  # fate -> what to do if it took the most lines
    **dict.fromkeys(("bot_user_agent", "bot_behaviour", "bot_crowd", "bot_unsure"), _ONLY_BOTS),
    "erased": "Add days on which others asked: those who were erased do not come back.",
    "query_judged": "Add days with other queries than the judged ones.",
}


def no_pairs(ledger: Ledger) -> StageError:
    """The error for lines of which none gives a pair of a query and a title at any k. `ledger`: of these lines."""
    worst = max(ledger.lines, key=lambda fate: (FATES[fate][0] != "kept") * ledger.lines[fate], default="")
    lost = f" Of {ledger.total:,} lines these were lost: {losses}." if (losses := ledger.losses()) else ""
    return StageError(
        f"No click of these days gives a pair of a query and a title, at any k.{lost}",
        _FIXES.get(worst, "`clicktower check` says what becomes of the lines of a log, and what it lacks."),
    )


def no_clicked_title(num_clicked: int) -> StageError:
    """The error for clicks of which none is on a document with a title."""
    return StageError(
        f"None of the {num_clicked:,} clicked document ids is among the documents with a title, so no click has a"
        " title.",
        "Check that the log and the documents file name documents by the same ids.",
    )


def nothing_to_train_on(
    left: Mapping[int, Mapping[str, int]],
    left_at_pair_k: Mapping[int, Mapping[str, int]],
    ledger: Ledger,
    *,
    k: int,
    pair_k: int,
) -> StageError:
    """The error for lines of which no training pair is left at k and pair_k. `left`, `left_at_pair_k`: what there is at
    several values of each, as the result of a build reports it.
    """
    at, ungated = left[k], left[0]
    if not ungated["pairs"]:
        return no_pairs(ledger)
    if k and not left[1]["pairs"]:
        return StageError(
            f"No line with a client id asks for a query that has pairs ({ungated['pairs']:,}): nobody is behind them,"
            f" so none passes k = {k}.",
            "Give a log with client ids; or, for a log that is public already, `--k 0`: no gate at all.",
        )
    if at["pairs"] and pair_k > 1 and not left_at_pair_k[pair_k]["pairs"]:
        return StageError(
            f"Of {at['pairs']:,} pairs at k = {k} none was clicked by pair_k = {pair_k} people.",
            "Lower pair_k, or add days to the window.",
        )
    at_lower_k = ", ".join(f"{row['pairs']:,} at k = {lower_k}" for lower_k, row in left.items() if 0 < lower_k < k)
    return StageError(
        f"{at['queries']:,} of {ungated['queries']:,} queries passed k = {k}. Of {ungated['pairs']:,} pairs"
        f" {at['pairs']:,} are left, none of them for training"
        + (f" (there would be {at_lower_k})." if at_lower_k else "."),
        "Lower `build --k`, add days to the window, or check that the log holds clicks.",
    )
