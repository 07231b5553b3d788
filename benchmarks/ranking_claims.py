"""What Palangi et al. say of Table IV's rows, on all four sets, with one correction of p for all that pages claim.

    python benchmarks/ranking_claims.py

Reads benchmarks/results/quality-DATASET.json and writes ranking-claims.json beside them: p of `paper-lstm-96` minus
each other row as printed and of each row minus the stemmed BM25, and the means of `paper-lstm-96` minus the stemmed
ULM. p is of paired randomisation, corrected by Holm over all comparisons of all sets at a cutoff. Records have it
corrected for their own set; what it was before that is at most what comes back from the correction, and that bound is
corrected anew: no p here is too small.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from clicktower.training.ranking.ndcg import holm

RESULTS = Path(__file__).parent / "results"
SETS = ("homedepot", "dbpedia_entity", "sogou_qt", "nfcorpus")
CUTOFFS = ("ndcg@1", "ndcg@3", "ndcg@10")
LSTM = "paper-lstm-96"
KINDS = (f"{LSTM} minus", "minus_bm25")  # of the comparisons in a record
ROUNDING = 5e-5  # of p in the records


def uncorrected(p_corrected: Sequence[float]) -> np.ndarray:
    """Upper bounds of the p that Holm's method corrected to these, float64.

    The j-th smallest of m was multiplied by m - j + 1, or is no larger than one that was; of equal ones the last.
    """
    p = np.minimum(np.asarray(p_corrected, np.float64) + ROUNDING, 1)
    rank = np.searchsorted(np.sort(p), p, side="right")
    return np.where(p < 1, p / (len(p) - rank + 1), 1)


def claims(records: Mapping[str, dict]) -> dict:
    """{"comparisons": their number by cutoff, "p": by set, kind, row and cutoff, "minus_ulm": means by set, cutoff}."""
    p_of: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    family: dict[str, list[tuple[dict, float]]] = {cutoff: [] for cutoff in CUTOFFS}
    for name, record in records.items():
        p_of[name] = {kind: {row: {} for row in record[kind]} for kind in KINDS}
        for kind, rows in p_of[name].items():
            for cutoff in CUTOFFS:
                bounds = uncorrected([record[kind][row]["p"][cutoff] for row in rows]).tolist()
                family[cutoff] += zip(rows.values(), bounds, strict=True)
    for cutoff, members in family.items():
        for (p, _), corrected in zip(members, holm([bound for _, bound in members]), strict=True):
            p[cutoff] = round(corrected, 4)
    systems_of = {name: record["systems"] for name, record in records.items()}
    return {
        "comparisons": {cutoff: len(members) for cutoff, members in family.items()},
        "p": p_of,
        "minus_ulm": {
            name: {cutoff: round(systems[LSTM][cutoff] - systems["ulm"][cutoff], 4) for cutoff in CUTOFFS}
            for name, systems in systems_of.items()
        },
    }


def main() -> None:
    records = {name: json.loads((RESULTS / f"quality-{name}.json").read_text(encoding="utf-8")) for name in SETS}
    value = {
        "what": "Comparisons of Table IV's rows in quality-DATASET.json, p corrected by Holm over all sets at a cutoff",
        "command": "python benchmarks/ranking_claims.py",
        "when": {name: record["when"] for name, record in records.items()},
        **claims(records),
    }
    (RESULTS / "ranking-claims.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
