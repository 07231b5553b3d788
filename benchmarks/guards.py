"""How often promotion and drift alarms are right, on made-up figures whose truth is known.

    python benchmarks/guards.py [--trials 400] [--stores 30]

Promotion: two models on 400 queries whose gain per query is drawn around a true gain. Drift: 90 days of a shop whose
Sundays have a third of the lines, varying from day to day by a known share; then a day with half of its lines.
"""

import argparse
import math
import random
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from clicktower.flows.config.guard_rules import DriftRules, PromotionRules  # noqa: E402
from clicktower.flows.guards.compare_models import Evaluation, decide  # noqa: E402
from clicktower.flows.guards.drift import Observation, alarms  # noqa: E402
from clicktower.flows.guards.usual_figures import watch  # noqa: E402

NUM_QUERIES = 400
WEEK = (1, 1.1, 1.05, 1, 0.9, 0.5, 0.33)
LINES = 10_000
SETTLED = 21  # days after which every weekday was seen three times
RULES = DriftRules()


def promoted(gain: float, spread: float, trials: int, seed: int = 0) -> float:
    """The share of trials in which a model goes live that is better by `gain` on average."""
    rng, rules = np.random.default_rng(seed), PromotionRules(num_resamples=1_000)
    gone_live = 0
    for _ in range(trials):
        live = rng.uniform(0.3, 0.9, NUM_QUERIES)
        lengths = rng.choice(4, NUM_QUERIES, p=[0.15, 0.25, 0.3, 0.3]).tolist()
        evaluations = [
            Evaluation(
                values={"ndcg@10": values.tolist()}, bm25={}, protocol={},
                slices={"length": (["1", "2", "3", "4"], lengths)},
            )
            for values in (live, live + rng.normal(gain, spread, NUM_QUERIES))
        ]  # fmt: skip
        gone_live += decide(*evaluations, rules).promote
    return gone_live / trials


def alarmed(varies: float, stores: int, seed: int = 1) -> tuple[float, float, float]:
    """(warnings in the first three weeks of a store, share of later days, share of halved days noticed at once)."""
    drawn = random.Random(seed)
    early = late = noticed = 0
    for _ in range(stores):
        series = [_day(day, math.exp(drawn.gauss(0, varies))) for day in range(90)]
        for day in range(90):
            found = bool(alarms(watch(series[day], series[max(0, day - 35) : day], RULES)))
            early, late = early + (found and day < SETTLED), late + (found and day >= SETTLED)
        half = _day(90, 0.5 * math.exp(drawn.gauss(0, varies)))
        noticed += bool(alarms(watch(half, series[-35:], RULES)))
    return early / stores, late / (stores * (90 - SETTLED)), noticed / stores


def _day(day: int, times: float) -> Observation:
    when = (date(2026, 8, 3) + timedelta(days=day)).isoformat()
    lines = round(LINES * WEEK[day % 7] * times)
    return Observation(key=when, when=when, dated=True, values={"lines": lines}, asked={"lines": ""})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--stores", type=int, default=30)
    asked = parser.parse_args()
    for gain in (-0.01, 0.0, 0.005, 0.01, 0.02):
        shares = [promoted(gain, spread, asked.trials) for spread in (0.07, 0.15)]
        print(f"true gain {gain:+.3f}: promoted {shares[0]:.0%} (spread 0.07), {shares[1]:.0%} (0.15)", flush=True)
    for varies in (0.05, 0.1, 0.2, 0.3):
        early, late, noticed = alarmed(varies, asked.stores)
        print(f"days vary by {varies:.0%}: {early:.1f} warnings in three weeks, then on {late:.2%} of days; "
              f"half the lines noticed at once {noticed:.0%}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
