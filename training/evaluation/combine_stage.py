"""Combining models: an ensemble (model.ensemble) of trained and imported ones, with shares given or chosen.

    combine(["store/train/DIGEST", "store/import-encoder/DIGEST"], store="store", judged=Judged(...))

Writes a model folder to STORE/combine/DIGEST. The shares of two models are those with the best NDCG@10 of judged
queries. What they are worth is measured by cross-fitting (ranking.hybrid): on each half of the queries with the share
that the other half chooses.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clicktower.schemas.errors import UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.manifest import Outcome
from clicktower.schemas.section import DEFAULT_LANGUAGE, Language
from clicktower.schemas.stage import Progress, Stage, StageResult, open_result, run_stage, silent
from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.ensemble import Ensemble, stored_ensemble
from clicktower.training.model.model import load_encoder, load_model
from clicktower.training.model.model_folder import read_model, write_files
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.hybrid import best_weight, cross_fit, ndcg_of_weights
from clicktower.training.ranking.measure import JudgedCollection, collection_of
from clicktower.training.ranking.ndcg import JudgedPairs, judged_pairs, ndcg
from clicktower.training.ranking.title_ranking import WordMatches, mixed
from clicktower.training.trainer.launch import fingerprints

COMBINE = Stage("combine", version=3)
SECOND_SHARES = tuple(step / 20 for step in range(1, 20))  # of the second model
MIN_JUDGED = 2  # judgments of a query that tells two rankings apart


def combine(
    models: Sequence[str],
    *,
    store: str,
    shares: Sequence[float] = (),
    judged: Judged | None = None,
    language: Language = DEFAULT_LANGUAGE,
    progress: Progress = silent,
) -> StageResult:
    """The ensemble of these models: folders that `train` or `import-encoder` made. Without shares their order does not
    matter.

    `shares`: of each model in the score; equal ones without them. `judged`: choose the shares of two models by these
    judgments. Raises UsageError for fewer than two models, a repeated one, shares that are no shares, models of
    different text contracts, or one that compares by distance, and StageError for one that is damaged or is itself
    combined.
    """
    results = [open_result(model) for model in models]
    digests = [result.manifest.digest for result in results]
    if len(set(digests)) < max(2, len(digests)):
        problem = "An ensemble has at least two models." if len(digests) < 2 else "One of the models is given twice."
        raise UsageError(problem, "Give different models, of other seeds or other recipes.")
    if shares and (len(shares) != len(models) or min(shares) <= 0 or not np.isfinite(shares).all()):
        raise UsageError(
            f"The shares {', '.join(f'{share:g}' for share in shares)} are not one number above 0 for each of the"
            f" {len(models)} models.",
            "Give as many shares as models, in their order.",
        )
    if judged and (shares or len(models) != 2):
        raise UsageError(
            "Judgments choose the shares of two models, and "
            + ("the shares are given." if shares else f"there are {len(models)}."),
            "Leave the judged files out, or combine two models without --shares.",
        )
    if not shares and not judged:
        results.sort(key=lambda result: result.manifest.digest)
    scaled = [share / sum(shares) for share in shares]
    inputs = {
        "models": [result.manifest.digest for result in results],
        **({"judged": fingerprints(judged)} if judged else {}),
    }
    settings: dict[str, Any] = {"shares": scaled} if shares else {}
    if judged and language != DEFAULT_LANGUAGE:
        settings["language"] = language
    request = COMBINE.request(settings, inputs)

    def produce(folder: str) -> Outcome:
        encoders = _open_members(results)
        chosen, figures = _choose(encoders, judged, language, progress) if judged else (scaled, {})
        write_files(folder, *stored_ensemble([read_model(result.data) for result in results], chosen))
        ensemble = Ensemble(members=tuple(encoders), shares=tuple(chosen))
        return Outcome(
            counts={"models": len(encoders), "parameters": ensemble.num_parameters},
            metrics={
                "members": [encoder.name for encoder in encoders],
                "dimensions": ensemble.dimensions,
                "train_seconds": sum(result.manifest.duration_seconds for result in results),
                **({"shares": chosen} if chosen else {}),
                **figures,
            },
            labels={name: value for result in results for name, value in result.manifest.outcome.labels.items()},
        )

    return run_stage(store, request, produce, progress)


def _open_members(results: Sequence[StageResult]) -> list[Any]:
    from clicktower.training.model.imported_encoder import ImportedEncoder

    encoders = [
        load_encoder(result.data) if result.manifest.request.stage == "import-encoder" else load_model(result.data)
        for result in results
    ]
    trained = [encoder for encoder in encoders if not isinstance(encoder, ImportedEncoder)]
    if len({str(sorted(encoder.text_contract.items())) for encoder in trained}) > 1:
        raise UsageError(
            "The models are trained on different text contracts or table sizes: a text would not mean the same to all"
            " of them.",
            "Train them on shards of one build.",
        )
    if any(encoder.similarity != "cosine" for encoder in encoders):
        raise UsageError(
            "One of the models compares by distance, and a mean of cosines and distances means nothing.",
            "Combine models that compare by cosine.",
        )
    return encoders


def _choose(
    encoders: Sequence[Any], judged: Judged, language: Language, progress: Progress
) -> tuple[list[float], dict[str, Any]]:
    """(the shares of two encoders, what is known of them)."""
    collection = collection_of(judged, min_judged=MIN_JUDGED)
    pairs = judged_pairs(collection.qrels)
    bm25 = TitleBM25(collection.titles, language) if any(encoder.lexical_share for encoder in encoders) else None
    first, second = (_scores(encoder, bm25, pairs, collection, progress) for encoder in encoders)
    weights = [share / (1 - share) for share in SECOND_SHARES]  # first + weight * second is as ordered as the mean
    best = SECOND_SHARES[best_weight(ndcg_of_weights(first, second, pairs, weights))]
    fitted = cross_fit(first, second, pairs, collection.queries, choices=weights)
    of_query = np.array([fitted.of(collection.queries[query_id]) for query_id in pairs.query_ids])
    systems = {"first": first, "second": second, "cross_fitted": first + of_query[pairs.query_of] * second}
    return [1 - best, best], {
        "chosen_on": len(pairs.query_ids),
        "shares_of_halves": [SECOND_SHARES[weights.index(weight)] for weight in fitted.of_half],
        "ndcg@10": {name: _ndcg(scores, pairs, collection) for name, scores in systems.items()},
    }


def _ndcg(scores: np.ndarray, pairs: JudgedPairs, collection: JudgedCollection) -> float:
    """As `evaluate` measures it: an unknown document gains nothing."""
    run: dict[str, dict[str, float]] = {query_id: {} for query_id in collection.qrels}
    for query, document_id, score in zip(pairs.query_of, pairs.document_ids, scores.tolist(), strict=True):
        if np.isfinite(score):
            run[pairs.query_ids[query]][document_id] = score
    return float(np.mean(ndcg(collection.qrels, run, (10,))[10]))


def _scores(
    encoder: Any, bm25: TitleBM25 | None, pairs: JudgedPairs, collection: JudgedCollection, progress: Progress
) -> np.ndarray:
    """An encoder's score of each judged pair, float64; -inf for an unknown document and a query without a word."""
    query_of, row_of = np.asarray(pairs.query_of), collection.row_of
    row_P = np.array([row_of.get(document_id, -1) for document_id in pairs.document_ids])
    has_word = np.array([bool(words(collection.queries[query_id])) for query_id in pairs.query_ids])
    scored = np.flatnonzero((row_P >= 0) & has_word[query_of])
    rows, title_of = np.unique(row_P[scored], return_inverse=True)
    queries, query_at = np.unique(query_of[scored], return_inverse=True)
    titles_TD = search_vectors(encoder, [collection.titles[row] for row in rows], "document", progress=progress)
    texts = [collection.queries[pairs.query_ids[at]] for at in queries]
    scores = np.einsum("pd,pd->p", search_vectors(encoder, texts, "query")[query_at], titles_TD[title_of])
    word_share, lexical_share = encoder.word_share, encoder.lexical_share
    matches = WordMatches(encoder, collection.titles) if word_share else None
    for at, text in enumerate(texts):
        of_query = np.flatnonzero(query_at == at)
        of_titles = row_P[scored[of_query]]
        of_words = matches.scores_of(text, of_titles) if matches else None
        of_terms = bm25.relative_scores_of(text, of_titles) if bm25 else None
        scores[of_query] = mixed(scores[of_query], of_words, of_terms, word_share, lexical_share)
    result = np.full(len(pairs), -np.inf)
    result[scored] = scores
    return result
