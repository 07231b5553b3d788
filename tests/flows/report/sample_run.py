"""An invented run, small and complete, with texts that try to break out of the page."""

from math import sin
from typing import Any

from clicktower.flows.report.blocks import Beside, Table
from clicktower.flows.report.training_blocks import pictures, training_facts
from clicktower.training.model.recipe import recipe
from tests.recipes import varied

NASTY = "<script>alert('x')</script> 1/2 in. Angle & \"Brace\""
RECIPE = varied(recipe("lstm-96"), clip_norm=100.0)


def interval(mean: float, **more: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02, **more}


def stage(name: str, number: int, seconds: float, reused: bool, **more: Any) -> dict[str, Any]:
    return {"stage": name, "digest": f"{number}f3a9c" * 5, "path": f"/tmp/store/{name}/{number}f3a9c",
            "reused": reused, "duration_seconds": seconds, "labels": {}, **more}  # fmt: skip


LEDGER = {
    "total": 328_728,
    "lines": {
        "search": 15_000, "impression": 118_000, "click_train": 18_005, "click_dev": 950, "query_below_k": 135_257,
        "bot_behaviour": 32_284, "bot_user_agent": 3_597, "query_adult": 1_217, "query_spam": 1_064,
        "query_empty": 1_185, "repeat": 1_578, "search_unknown": 322, "unreadable_not_json": 130,
        "unreadable_not_utf8": 76, "unreadable_no_query_id": 62, "unreadable_field": 1,
    },
}  # fmt: skip
TABLE = {
    "n": 400,
    "n_informative": 390,
    "confidence": 0.95,
    "gain": "exponential",
    "systems": {
        "model": {"ndcg@1": interval(0.801), "ndcg@10": interval(0.861), "collection_ndcg@10": interval(0.455)},
        "vectors": {"ndcg@1": interval(0.788), "ndcg@10": interval(0.852), "collection_ndcg@10": interval(0.377)},
        "bm25": {"ndcg@1": interval(0.634), "ndcg@10": interval(0.757), "collection_ndcg@10": interval(0.371)},
        "random": {"ndcg@1": interval(0.240), "ndcg@10": interval(0.468), "collection_ndcg@10": interval(0.005)},
    },
    "difference": {"of": "model", "to": "bm25", "measures": {
        "ndcg@1": interval(0.167, p=0.0001), "ndcg@10": {"mean": 0.104, "low": 0.082, "high": 0.127, "p": 0.0001},
        "collection_ndcg@10": interval(0.084, p=0.0001)}},
    "rules": {"discount": "log2(rank + 1)", "no_results": "a query without results has the value 0"},
    "warnings": ["3 queries have no word: they have no results and count 0"],
}  # fmt: skip
EPOCHS = [
    {"epoch": e, "train_loss": 0.2 + 1.4 * 0.85**e, "dev_loss": 0.4 + 1.2 * 0.84**e, "dev_ndcg@1": 0.8 - 0.5 * 0.8**e,
     "dev_ndcg@3": 0.81 - 0.5 * 0.8**e, "dev_ndcg@10": None if e == 3 else 0.861 - 0.4 * 0.8**e, "clipped_share": 1 / e}
    for e in range(1, 31)
]  # fmt: skip
STEPS = [
    {"update": u, "loss": 0.2 + 1.4 * 0.85 ** (u / 30) * (1.1 + 0.1 * sin(u)), "sent_bytes": 0,
     "gradient_norm_query": 300 * 0.9 ** (u / 30) * (1.1 + sin(u)),
     "gradient_norm_document": 500 * 0.9 ** (u / 30) * (1.1 + sin(2 * u))}
    for u in range(1, 901)
]  # fmt: skip
TRAIN = stage(
    "train", 2, 64.9, False, counts={"pairs": 7_590, "updates": 900},
    metrics={"epoch": 30, "train_loss": 0.211, "dev_loss": 0.402, "dev_ndcg@10": 0.861, "watched": "judgments",
             "pairs_per_second": 3_511.0, "workers": 2, "threads": 1, "arithmetic": "compiled 3", "device": "cpu",
             "instructions": "avx512", "resumed": [{"update": 120, "workers": 2}]},
)  # fmt: skip
RESULTS = {
    "ingest": stage("ingest", 0, 12.4, True, ledger=LEDGER, counts={"queries": 11_058},
                    metrics={"first_time": "2026-09-01T00:00:03Z", "last_time": "2026-09-02T23:10:00Z"}),
    "build": stage("build", 1, 6.8, True, ledger=LEDGER,
                   counts={"train_pairs": 7_590, "dev_pairs": 402, "pool_documents": 3_984},
                   metrics={"left_at_k": [{"k": 0, "queries": 11_058, "clicks": 42_457, "pairs": 27_109},
                                          {"k": 2, "queries": 3_980, "clicks": 33_120, "pairs": 18_400},
                                          {"k": 5, "queries": 1_051, "clicks": 23_199, "pairs": 9_662}]}),
    "train": TRAIN,
    "evaluate": stage("evaluate", 3, 4.2, False, metrics=TABLE, labels={"simulated": True}),
    "publish": stage("publish", 4, 2.1, False, metrics={
        "release": "/tmp/store/release", "live": False, "num_documents": 3_984, "encoded": {},
        "recall": 1.0, "index": {"kind": "none"}}),
    "report": "report.html",
    "drift": [{"words": "lines of the log", "value": "10", "usual": "20", "basis": "4 Mondays",
               "alarm": f"half as many {NASTY}", "stops": False},
              {"words": "share of bots", "value": "1%", "usual": "1%", "basis": "4 Mondays", "alarm": ""}],
}  # fmt: skip
PROMOTION = {
    "live": False, "reason": f"NDCG@10 0.86 {NASTY}",
    "figures": {"measure": "ndcg@10", "difference": interval(-0.01), "slices": [
        {"slice": "query length", "part": "1 word", "n": 60, "live": 0.5, "candidate": 0.4, "difference": -0.1,
         "limit": 0.02, "decides": True, "worse": True},
        {"slice": "spelling", "part": "all words known", "n": 9, "live": 0.5, "candidate": 0.6, "difference": 0.1,
         "limit": 0.02, "decides": False, "worse": False}]},
}  # fmt: skip


def sample_run() -> dict[str, Any]:
    """The arguments of run_page."""
    titles = [("Arkin Beige Linen Sofa, 72 in.", 3), ("Kelham Loveseat with Grey Leather", 1), (NASTY, 0),
              ("Ulton Sofa", None)]  # fmt: skip
    ranking = [{"title": title, "grade": grade, "score": 0.9 - 0.1 * i} for i, (title, grade) in enumerate(titles)]
    queries = {"couch beige linen": "gain", NASTY: "loss", "hoover": "no shared word", "half inch pipe": "drawn"}
    rankings = {"model": ranking, "bm25": ranking[::-1]}
    return {
        "title": f"Demonstration {NASTY}",
        "results": RESULTS,
        "k": 5,
        "training": [
            Beside(blocks=pictures(RECIPE, EPOCHS, STEPS, TRAIN), only="page"),
            Table(caption="Facts", rows=training_facts(RECIPE, TRAIN, {"parameters": 37_943_040}, STEPS)),
        ],
        "examples": [{"query": query, "why": why, "rankings": rankings} for query, why in queries.items()],
        "decision": PROMOTION,
        "commands": ['clicktower search --release /tmp/store/release "couch beige linen"',
                  "clicktower verify /tmp/store/release"],
        "settings": {"cells": 96, "gamma": 5.0, "forget_gate": False, "word_vectors": None},
        "versions": {"python": "3.11.9", "pyarrow": "25.0.1", "torch": "2.9.0"},
    }  # fmt: skip
