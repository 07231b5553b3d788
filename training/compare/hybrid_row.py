"""The row of the best tower and BM25 together, at a weight that no query had a say in for itself."""

from collections.abc import Callable, Mapping, Sequence

from schemas.judgments import Run
from schemas.stage import Progress, StageResult, find_finished
from training.compare.measured_row import Ended, measure_request, write_row
from training.compare.rows import BASELINE, Row
from training.compare.system import Made, Material, train_seconds
from training.ranking.bm25 import TitleBM25
from training.ranking.embedding import TitleEmbeddings
from training.ranking.hybrid import Hybrid, cross_fit, scores_of_pairs
from training.ranking.ndcg import judged_pairs

_CHOSEN_BY = "ndcg@10"


def best_model(before: Sequence[Ended]) -> Ended | None:
    """The tower or model with the highest NDCG@10 of the rows that have ended."""
    done = [one for one in before if one.state == "done" and one.row.family in ("tower", "model")]
    return max(done, key=lambda one: one.metrics[_CHOSEN_BY], default=None)


def hybrid_row(
    row: Row,
    best: Ended,
    models: Callable[[], Sequence[StageResult]],
    material: Material,
    *,
    store: str,
    inputs: Mapping[str, str],
    progress: Progress,
) -> Ended:
    """The measured hybrid. `models` gives those of the best row, one for each of its seeds."""
    assert best.result
    made_from = {"best": best.result.manifest.digest, "second": BASELINE}
    request = measure_request(row, {**inputs, "from": made_from}, material.config)
    result, _ = find_finished(store, request)
    if result is None:
        bm25 = TitleBM25(material.documents.titles)
        of_bm25 = material.measure(bm25, BASELINE, progress).judged
        made = [_made(row, best.row.name, model, bm25, of_bm25, material, progress) for model in models()]
        result = write_row(store, request, row, made)
    return Ended(row=row, state="done", result=result, made_from=(best.row.name, BASELINE))


def _made(
    row: Row, name: str, trained: StageResult, bm25: TitleBM25, of_bm25: Run, material: Material, progress: Progress
) -> Made:
    from training.ensemble import load_encoder  # torch is loaded where it is used

    collection, config = material.collection, material.config
    model = load_encoder(trained.data)
    tower = TitleEmbeddings(model, material.documents.titles, progress=progress)
    of_tower = material.measure(tower, name, progress).judged
    judged = judged_pairs(collection.qrels)
    first, second = scores_of_pairs(of_tower, judged), scores_of_pairs(of_bm25, judged)
    weights = cross_fit(first, second, judged, collection.queries, gain=config.gain, seed=config.seed)
    near = "cosine" if model.similarity == "cosine" else "minus the distance"
    return Made(
        measured=material.measure(Hybrid(tower, bm25, weights), row.name, progress),
        parameters=model.num_parameters,
        dimensions=model.dimensions,
        train_seconds=train_seconds(trained),
        notes=(
            f"{near} of {name} + weight x BM25; the two halves of the queries use"
            f" {weights.of_half[0]:g} and {weights.of_half[1]:g}, each chosen on the other half",
        ),
    )
