"""How well bots are told from people, on simulated logs whose truth is known.

    python benchmarks/bots.py [--searches 20000] [--seeds 1 2 3 4 5] [--record]

Each kind of bot is measured in logs of its own (everything else as in the demonstration), once over 60 days and once
over 3, because an ingest usually reads few days. A verdict counts per client: `bot` at the threshold "surely", `out` at
the threshold "not surely human" (bot or unsure; both are kept out of training). Prints a table; with --record writes
benchmarks/results/bots.json.
"""

import argparse
import json
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from clicktower.beam_jobs.ingest.bots import (
    RULES,
    RULES_VERSION,
    BotRules,
    activity_of,
    client_statistics,
    detect_bots,
    find_crowds,
    merge_bots,
)
from clicktower.beam_jobs.ingest.day_rows import join_search_events
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.ingest.person_key import hash_people
from clicktower.flows.simulation.simulation_config import SimulationConfig
from clicktower.flows.simulation.write_simulation import simulate

NO_BOTS = SimulationConfig(undeclared_bots=0.0, declared_bots=0.0)
KINDS: dict[str, SimulationConfig] = {
    "declared": replace(NO_BOTS, declared_bots=0.05, searches_per_bot=50),
    "machine-gun": replace(NO_BOTS, undeclared_bots=0.1, searches_per_bot=150),
    "slow": replace(NO_BOTS, slow_bots=0.3),
    "clicking": replace(NO_BOTS, clicking_bots=0.06),
    "crowds of 12": replace(NO_BOTS, crowds=0.03),
    "crowds of 6": replace(NO_BOTS, crowds=0.03, clients_per_crowd=6),
    "crowds of 4": replace(NO_BOTS, crowds=0.03, clients_per_crowd=4),
    "none": replace(NO_BOTS, professionals=0.1),
    "all": SimulationConfig(slow_bots=0.05, clicking_bots=0.02, crowds=0.02, professionals=0.03),
}
DAYS = (60, 3)
SEARCHES_A_DAY = 33  # a professional's searches a day
KEY = b"benchmark".ljust(32, b".")
RESULTS = Path(__file__).parent / "results" / "bots.json"


def verdicts(folder: Path) -> dict[int, str]:
    """Person hash -> the name of the rule that caught it, by the functions that the job calls."""
    source = open_source(IngestConfig())
    plan = source.plan([str(folder / "log")])
    rows = pa.concat_tables(
        [pa.Table.from_batches([parsed.rows]) for unit in plan.units for parsed in source.read(unit)]
    )
    joined, _ = join_search_events(rows.unify_dictionaries().combine_chunks(), KEY)
    rules = BotRules()
    bots, passers_by = detect_bots(client_statistics(joined), rules)
    bots = merge_bots([bots, find_crowds(passers_by, activity_of(passers_by), rules)])
    return {client: RULES[rule] for client, rule in zip(bots.clients.tolist(), bots.rules.tolist(), strict=True)}


def measure(config: SimulationConfig) -> dict[str, Counter[str]]:
    """Role -> clients by verdict: `bot`, `unsure`, `people`, and by the rule that caught them."""
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "shop"
        simulate(str(folder), config=config)
        caught = verdicts(folder)
        truth = pq.read_table(folder / "truth" / "searches.parquet", columns=["client_id", "role"])
        pairs = truth.group_by(["client_id", "role"]).aggregate([]).drop_null()
    hashes = hash_people(pairs["client_id"].combine_chunks(), KEY).to_pylist()
    found: dict[str, Counter[str]] = {}
    for client, role in zip(hashes, pairs["role"].to_pylist(), strict=True):
        counts = found.setdefault(role, Counter())
        rule = caught.get(client)
        counts["people" if rule is None else "unsure" if rule.startswith("unsure") else "bot"] += 1
        if rule:
            counts[f"rule:{rule}"] += 1
    return found


def runs(searches: int, seeds: list[int]) -> Iterator[dict]:
    for days in DAYS:
        for kind, config in KINDS.items():
            total: dict[str, Counter[str]] = {}
            for seed in seeds:
                made = replace(config, num_searches=searches, seed=seed, days=days, num_judged_queries=10)
                made = replace(made, searches_per_professional=min(300, SEARCHES_A_DAY * days))
                for role, counts in measure(made).items():
                    total.setdefault(role, Counter()).update(counts)
                print(f"{kind}, {days} days, seed {seed}", file=sys.stderr)
            yield {"kind": kind, "days": days, **scores(total)}


def scores(by_role: dict[str, Counter[str]]) -> dict:
    """Precision and recall of bots at both thresholds, and how many people of each role are kept."""
    bots = sum((counts for role, counts in by_role.items() if role.endswith("_bot")), Counter[str]())
    people = sum((counts for role, counts in by_role.items() if not role.endswith("_bot")), Counter[str]())
    num_bots = bots["bot"] + bots["unsure"] + bots["people"]
    caught = {"surely": bots["bot"], "not_surely_human": bots["bot"] + bots["unsure"]}
    wrong = {"surely": people["bot"], "not_surely_human": people["bot"] + people["unsure"]}
    return {
        "bots": num_bots,
        "recall": {name: _share(count, num_bots) for name, count in caught.items()},
        "precision": {name: _share(count, count + wrong[name]) for name, count in caught.items()},
        "wrongly": wrong,
        "kept": {
            role: _share(counts["people"], counts["people"] + counts["unsure"] + counts["bot"])
            for role, counts in sorted(by_role.items())
            if not role.endswith("_bot")
        },
        "rules": {
            role: {n: c for n, c in sorted(counts.items()) if n[:5] == "rule:"} for role, counts in by_role.items()
        },
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=20_000, help="searches in each log")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/bots.json")
    options = parser.parse_args()
    header = ("bots", "days", "number", "recall", "precision", "recall", "precision", "people", "heavy", "professional")
    print(f"{'':<27}{'surely a bot':>22}{'not surely human':>22}{'kept':>10}")
    print(("{:<14}{:>5}{:>8}" + "{:>11}" * 4 + "{:>10}{:>9}{:>14}").format(*header))
    rows = []
    for row in runs(options.searches, options.seeds):
        rows.append(row)
        cells = [row["recall"]["surely"], row["precision"]["surely"], row["recall"]["not_surely_human"],
                 row["precision"]["not_surely_human"],
                 *(row["kept"].get(role) for role in ("person", "heavy_person", "professional"))]  # fmt: skip
        shown = ["-" if cell is None else f"{cell:.4f}" for cell in cells]
        line = "{:<14}{:>5}{:>8}" + "{:>11}" * 4 + "{:>10}{:>9}{:>14}"
        print(line.format(row["kind"], row["days"], row["bots"], *shown), flush=True)
    if options.record:
        value = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": platform.machine(),
            "rules_version": RULES_VERSION,
            "searches": options.searches,
            "seeds": options.seeds,
            "runs": rows,
        }
        RESULTS.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
