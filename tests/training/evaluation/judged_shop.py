"""The shards of the little shop, and its titles judged for queries that name things by another word."""

from pathlib import Path

from clicktower.schemas.judgments import Judged
from tests.training.small_shards import THINGS, shop, write_build


def judged_shop(folder: Path) -> tuple[str, Judged]:
    """(the stage folder of a build of 120 pairs, documents and judgments of 16 queries), written below `folder`."""
    pairs, titles = shop(120)
    (folder / "documents.tsv").write_text("".join(f"d{i}\t{title}\n" for i, title in enumerate(titles)))
    queries = [f"{kind} {other}" for kind in ("steel", "oak") for other in THINGS.values()]
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{query}\n" for i, query in enumerate(queries)))
    thing_of = {other: thing for thing, other in THINGS.items()}
    with (folder / "qrels.txt").open("w") as out:
        for q, query in enumerate(queries):
            kind, other = query.split()
            for d in range(q % 7, len(titles), 7):
                grade = (thing_of[other] in titles[d]) * (1 + (kind in titles[d]))
                out.write(f"q{q} 0 d{d} {grade}\n")
    files = Judged(
        documents=str(folder / "documents.tsv"), queries=str(folder / "queries.tsv"), qrels=str(folder / "qrels.txt")
    )
    return write_build(str(folder / "store"), {"train-00000": pairs}, titles), files
