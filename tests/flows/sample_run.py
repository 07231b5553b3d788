"""An invented run, small and complete, with texts that try to break out of the page."""

from math import sin

from flows.report import Example, RankedTitle, RunSummary, StageSummary, TrainingSummary
from schemas.search_log import Ledger

NASTY = "<script>alert('x')</script> 1/2 in. Angle & \"Brace\""


def sample_run() -> RunSummary:
    def interval(mean: float) -> dict[str, float]:
        return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}

    stages = [
        ("ingest", "328,728 lines -> 11,058 queries; 41,904 lines dropped, 269 unreadable", 12.4, True),
        ("build", "7,590 pairs to train on, 402 held out, 3,984 titles in the pool", 6.8, True),
        ("train", "30 epochs, training loss 0.211, held-out loss 0.402, 3,511 pairs/s", 64.9, False),
        ("evaluate", "NDCG@10 0.861, BM25 0.757, over 400 queries", 4.2, False),
        ("publish", "3,984 documents, recall@10 of the index 1.000, live", 2.1, False),
    ]
    titles = [
        ("Arkin Beige Linen Sofa, 72 in.", 3),
        ("Kelham Loveseat with Grey Leather", 1),
        (NASTY, 0),
        ("Ulton Sofa", None),
    ]
    rankings = [RankedTitle(title=title, grade=grade, score=0.9 - 0.1 * i) for i, (title, grade) in enumerate(titles)]
    queries = [
        ("couch beige linen", "gain"),
        (NASTY, "loss"),
        ("hoover", "no shared word"),
        ("half inch pipe", "drawn"),
    ]
    return RunSummary(
        title=f"Demonstration {NASTY}",
        simulated=True,
        description="A simulated shop: 30,000 searches over 60 days, 3,984 documents, 400 judged queries.",
        stages=[
            StageSummary(name=name, digest=f"{i}f3a9c" * 5, path=f"/tmp/store/{name}/{i}f3a9c", reused=reused,
                         duration_seconds=seconds, headline=headline)
            for i, (name, headline, seconds, reused) in enumerate(stages)
        ],
        ledger=Ledger(total=328_728, lines={
            "search": 15_000, "impression": 118_000, "click_train": 18_005, "click_dev": 950, "query_below_k": 135_257,
            "bot_behaviour": 32_284, "bot_user_agent": 3_597, "query_adult": 1_217, "query_spam": 1_064,
            "query_empty": 1_185, "repeat": 1_578, "search_unknown": 322, "unreadable_not_json": 130,
            "unreadable_not_utf8": 76, "unreadable_no_query_id": 62, "unreadable_field": 1,
        }),
        privacy=[{"k": 0, "queries": 11_058, "clicks": 42_457, "pairs": 27_109},
                 {"k": 2, "queries": 3_980, "clicks": 33_120, "pairs": 18_400},
                 {"k": 5, "queries": 1_051, "clicks": 23_199, "pairs": 9_662},
                 {"k": 10, "queries": 402, "clicks": 15_020, "pairs": 5_100}],
        k=5,
        training=_training(),
        table={
            "n": 400,
            "confidence": 0.95,
            "systems": {
                "model": {"ndcg@1": interval(0.801), "ndcg@3": interval(0.812), "ndcg@10": interval(0.861),
                          "collection_ndcg@10": interval(0.455), "recall@100": interval(0.912)},
                "bm25": {"ndcg@1": interval(0.634), "ndcg@3": interval(0.645), "ndcg@10": interval(0.757),
                         "collection_ndcg@10": interval(0.371), "recall@100": interval(0.701)},
                "random": {"ndcg@1": interval(0.240), "ndcg@3": interval(0.268), "ndcg@10": interval(0.468)},
            },
            "difference": {"of": "model", "to": "bm25", "measures": {
                "ndcg@10": {"mean": 0.104, "low": 0.082, "high": 0.127, "p": 0.0001}}},
            "rules": {"discount": "log2(rank + 1)", "no_results": "a query without results has the value 0"},
            "warnings": ["3 queries have no word: they have no results and count 0"],
        },
        examples=[Example(query=query, ours=rankings, bm25=rankings[::-1], why=why) for query, why in queries],
        promotion={"live": False, "reason": f"NDCG@10 0.86 {NASTY}", "figures": {
            "measure": "ndcg@10", "difference": interval(-0.01), "slices": [
                {"slice": "query length", "part": "1 word", "n": 60, "live": 0.5, "candidate": 0.4,
                 "difference": -0.1, "limit": 0.02, "decides": True, "worse": True},
                {"slice": "spelling", "part": "all words known", "n": 9, "live": 0.5, "candidate": 0.6,
                 "difference": 0.1, "limit": 0.02, "decides": False, "worse": False}]}},
        drift=[{"figure": "lines", "words": "lines of the log", "value": "10", "usual": "20", "basis": "4 Mondays",
                "alarm": f"half as many {NASTY}", "stops": False},
               {"figure": "bots", "words": "share of bots", "value": "1%", "usual": "1%", "basis": "4 Mondays",
                "alarm": "", "stops": False}],
        release="/tmp/store/release",
        commands=['clicktower search --release /tmp/store/release "couch beige linen"',
                  "clicktower verify /tmp/store/release"],
        settings={"recipe": {"cells": 96, "gamma": 5.0, "step": 0.002, "forget_gate": False}, "k": 5, "seed": 0},
        versions={"python": "3.11.9", "pyarrow": "25.0.1", "torch": "2.9.0"},
    )  # fmt: skip


def _training() -> TrainingSummary:
    def around(name: str, value: float) -> dict[str, float]:
        return {name: value, f"{name}_low": 0.9 * value, f"{name}_high": 1.2 * value}

    return TrainingSummary(
        figures=[("NDCG@10", "0.861", "on judgments"), ("Speed", "3,511", "pairs per second, in the last epoch")],
        facts=[("Recipe", f"lstm-96: {NASTY}"), ("Parameters", "37,943,040"),
               ("Computed by", "compiled, avx512, cpu, float32")],
        epochs=[{"epoch": e, "train_loss": 0.2 + 1.4 * 0.85**e, "dev_loss": 0.4 + 1.2 * 0.84**e,
                 "dev_ndcg@1": 0.8 - 0.5 * 0.8**e, "dev_ndcg@3": 0.81 - 0.5 * 0.8**e,
                 "dev_ndcg@10": None if e == 3 else 0.861 - 0.4 * 0.8**e, "clipped_share": 1 / e}
                for e in range(1, 31)],
        steps=[{"epoch": e / 8, **around("loss", 0.2 + 1.4 * 0.85 ** (e / 8)),
                **around("gradient_norm_query", 300 * 0.9 ** (e / 8) * (1.1 + sin(e))),
                **around("gradient_norm_document", 500 * 0.9 ** (e / 8) * (1.1 + sin(2 * e))),
                "pairs_per_second": 3_511 + 100 * sin(e)} for e in range(1, 241)],
        num_steps=900,
        clip_norm=100.0,
        watched="judgments",
    )  # fmt: skip
