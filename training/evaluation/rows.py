"""The rows of the comparison in Table IV's order: each row's system, and the figures that the paper prints.

A new baseline is a file in training/ranking and an entry in `all_rows`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed
from clicktower.schemas.stage import Progress
from clicktower.training.evaluation.row import BM25_IN_THE_PAPER, BM25_ROW, RANDOM_ORDER, ComparisonInputs, Figures, Row
from clicktower.training.model.recipe import PRINTED, Recipe, recipe
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.doc2vec import TitleDoc2Vec
from clicktower.training.ranking.plsa import ITERATIONS, TitleLanguageModel, TitlePLSA

HYBRID = "hybrid"
Change = Callable[[Recipe], Recipe]

# The towers of Table IV, each printed and tuned, then those that the paper does not have.
_TOWERS: Sequence[tuple[str, str, Figures]] = (
    ("dssm", "DSSM, 288 and 96 units", (31.0, 34.4, 41.7)),
    ("clsm-1", "CLSM, win = 1", (31.8, 35.1, 42.6)),
    ("clsm-3", "CLSM, win = 3", (32.1, 35.2, 42.7)),
    ("clsm-5", "CLSM, win = 5", (32.0, 35.2, 42.6)),
    ("rnn-288", "RNN, 288 cells", (31.7, 35.0, 42.3)),
    ("lstm-32", "LSTM, 32 cells", (31.9, 35.5, 42.7)),
    ("lstm-64", "LSTM, 64 cells", (32.9, 36.3, 43.4)),
    ("lstm-96-n2", "LSTM, 96 cells, n = 2", (32.6, 36.0, 43.4)),
    ("lstm-96", "LSTM, 96 cells, n = 4", (33.1, 36.5, 43.6)),
    ("lstm-96-n6", "LSTM, 96 cells, n = 6", (33.1, 36.6, 43.6)),
    ("lstm-96-n8", "LSTM, 96 cells, n = 8", (33.1, 36.4, 43.7)),
    ("bilstm-96", "bidirectional LSTM", (33.2, 36.6, 43.6)),
)
_OURS: Sequence[tuple[str, str]] = (
    ("lstm-full-96", "full LSTM, 96 cells"),
    ("lstm-pool-96", "LSTM against a pool"),
    ("lstm-pool-192", "LSTM, 192 cells, pool"),
    ("lstm-pool-192-words", "LSTM, 192 cells, words"),
    ("lstm-long-96", "full LSTM for long texts"),
    ("self-attentive", "self-attention, 4 hops"),
    ("max-pooled", "LSTM both ways, maximum"),
    ("variational", "normal distribution"),
    ("bag-512", "bag of trigrams, 512 units"),
    ("bag-pool-512", "the bag against a pool"),
    ("bag-pool-512-words", "the bag, pool, words"),
)


def all_rows(
    *,
    change: Change = lambda recipe: recipe,
    topics: int = 500,
    word_prior: float = 0.01,
    logged: str | None = None,
    models: Mapping[str, str] | None = None,
    runs: Mapping[str, str] | None = None,
) -> list[Row]:
    """Every possible row, in the order of display.

    `change` is applied to each tower's recipe. `topics`: of PLSA; `word_prior`: of PLSA as printed. `logged`: a TREC
    run of the ranking that the search engine showed. `models` and `runs`: trained models' folders and TREC runs by the
    names that the user gives them; a run named skip-thought fills the paper's row. Raises UsageError for a repeated
    name, no topics or a prior below 0.
    """
    if not word_prior >= 0:
        raise UsageError(f"The word prior {word_prior} of PLSA is below 0.", "Give 0.01.")
    if topics < 1:
        raise UsageError(f"PLSA needs at least 1 topic, and has {topics}.", "Give 100 to 500.")
    runs = dict(runs or {})
    rows = [
        RANDOM_ORDER,
        *([Row(name="logged", title="as the search engine ranked", family="logged", source=logged)] if logged else []),
        Row(
            name="skip-thought", title="Skip-Thought", family="paragraph", paper=(26.9, 29.7, 36.2),
            source=runs.get("skip-thought"),
            needs=None if "skip-thought" in runs else "no run of its vectors was given (--run skip-thought=FILE)",
        ),
        Row(
            name="doc2vec", title="Doc2Vec", family="paragraph", paper=(29.1, 31.8, 38.4), table="tuned",
            make=_doc2vec, learns_from_shards=True,
        ),
        Row(
            name="doc2vec-printed", title="Doc2Vec", family="paragraph", paper=(29.1, 31.8, 38.4), table="as printed",
            make=partial(_doc2vec, memory=True), learns_from_shards=True,
        ),
        Row(
            name="ulm", title="ULM, Dirichlet", family="lexical", paper=(30.4, 32.7, 38.5), table="tuned",
            make=lambda inputs, _: TitleLanguageModel(inputs.documents.titles, inputs.config.language),
        ),
        Row(
            name="ulm-printed", title="ULM, words by white space", family="lexical", paper=(30.4, 32.7, 38.5),
            table="as printed", make=lambda inputs, _: TitleLanguageModel(inputs.documents.titles, None),
        ),
        BM25_ROW,
        Row(
            name="bm25-printed", title="BM25, words by white space", family="lexical", paper=BM25_IN_THE_PAPER,
            table="as printed", make=lambda inputs, _: TitleBM25(inputs.documents.titles, None, k1=1.2, b=0.75),
        ),
        Row(
            name="plsa", title=f"PLSA, {topics} topics", family="topics", paper=(30.8, 33.7, 40.2), table="tuned",
            make=partial(_plsa, topics=topics), settings={"topics": topics},
        ),
        Row(
            name="plsa-printed", title=f"PLSA, {topics} topics", family="topics", paper=(30.8, 33.7, 40.2),
            table="as printed", make=partial(_plsa, topics=topics, word_prior=word_prior, as_printed=True),
            settings={"topics": topics, "word_prior": word_prior}, learns_from_shards=True,
        ),
        *(_printed_row(name, title, paper, change) for name, title, paper in _TOWERS),
        *(_tuned_row(name, title, paper, change) for name, title, paper in _TOWERS),
        *(Row(name=name, title=title, family="tower", recipe=change(recipe(name))) for name, title in _OURS),
        *(Row(name=name, title=name, family="model", source=uri) for name, uri in (models or {}).items()),
        Row(name=HYBRID, title="a tower and BM25", family="hybrid"),
        *(Row(name=name, title=name, family="run", source=uri) for name, uri in runs.items() if name != "skip-thought"),
    ]  # fmt: skip
    names = [row.name for row in rows]
    if taken := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            f"There is a row named {', '.join(taken)} already.", "Give models and runs other names, name=PATH."
        )
    return rows


def _plsa(
    inputs: ComparisonInputs, progress: Progress, *, topics: int, word_prior: float = 0.0, as_printed: bool = False
) -> TitlePLSA:
    return TitlePLSA(
        inputs.documents.titles, None if as_printed else inputs.config.language, topics=topics,
        seed=inputs.config.seed, word_prior=word_prior,
        training_titles=inputs.training_titles if as_printed else (),
        tell=lambda step: progress("train topics", step, ITERATIONS),
    )  # fmt: skip


def _doc2vec(inputs: ComparisonInputs, progress: Progress, **settings: Any) -> TitleDoc2Vec:
    judged = [inputs.collection.queries[query_id] for query_id in inputs.collection.searchable]
    texts = [*inputs.training_queries, *judged]
    return TitleDoc2Vec(inputs.documents.titles, texts, seed=inputs.config.seed, progress=progress, **settings)


def _printed_row(name: str, title: str, paper: Figures, change: Change) -> Row:
    printed = recipe(PRINTED + name)
    changed_recipe = change(printed)
    is_still = changed_recipe.as_printed and _row_of(changed_recipe) == _row_of(printed)
    needs = None if is_still else "with the settings given (--set) it is not as printed any more"
    return Row(
        name=PRINTED + name,
        title=title,
        family="tower",
        paper=paper,
        table="as printed",
        recipe=changed_recipe,
        needs=needs,
    )


def _tuned_row(name: str, title: str, paper: Figures, change: Change) -> Row:
    base, _, n = name.partition("-n")  # another n: lstm-96's recipe
    tuned = changed(recipe(base), {"objective.num_negatives": n}) if n else recipe(base)
    changed_recipe = change(tuned)
    if _row_of(changed_recipe) != _row_of(tuned):  # a tower or n unlike the paper's row
        return Row(name=name, title=f"{name}, changed", family="tower", recipe=changed_recipe)
    return Row(name=name, title=title, family="tower", paper=paper, table="tuned", recipe=changed_recipe)


def _row_of(recipe: Recipe) -> tuple[object, ...]:
    """The paper's entry for a row."""
    sizes = (getattr(recipe.tower, name_of_field, None) for name_of_field in ("kind", "cells", "hidden", "window"))
    return *sizes, recipe.clicks.num_negatives


def select_rows(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows with some names, in the order of `rows`; all of them without names. Raises UsageError."""
    all_names = [row.name for row in rows]
    if unknown := [name for name in names if name not in all_names]:
        raise UsageError(f"There is no row named {', '.join(unknown)}.", f"Choose from {', '.join(all_names)}.")
    return [row for row in rows if not names or row.name in names]
