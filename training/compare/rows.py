"""The rows of the comparison, in Table IV's order, with the figures the paper prints for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from schemas.errors import UsageError
from training.ranking.ndcg import CUTOFFS
from training.recipes.named_recipes import Recipe, recipe
from training.recipes.recipe import changed

Family = Literal["floor", "logged", "lexical", "topics", "paragraph", "tower", "model", "hybrid", "run"]

HYBRID, BASELINE = "hybrid", "bm25"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A system to measure.

    `name`: what a user types; `title`: what a reader sees. `paper`: NDCG@1, 3 and 10 in percent, where the paper has
    the row. `recipe`: what a tower is trained by. `settings`: what else decides the row's figures. `source`: a model
    folder, a TREC run or published weights that the user brings.
    """

    name: str
    title: str
    family: Family
    paper: tuple[float, float, float] | None = None
    recipe: Recipe | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None


# Palangi et al., Table IV: NDCG@1, @3, @10 in percent.
_PAPER: Mapping[str, tuple[float, float, float]] = {
    "skip-thought": (26.9, 29.7, 36.2),
    "doc2vec": (29.1, 31.8, 38.4),
    "ulm": (30.4, 32.7, 38.5),
    "bm25": (30.5, 32.8, 38.8),
    "plsa": (30.8, 33.7, 40.2),
    "dssm": (31.0, 34.4, 41.7),
    "clsm-1": (31.8, 35.1, 42.6),
    "clsm-3": (32.1, 35.2, 42.7),
    "clsm-5": (32.0, 35.2, 42.6),
    "rnn-288": (31.7, 35.0, 42.3),
    "lstm-32": (31.9, 35.5, 42.7),
    "lstm-64": (32.9, 36.3, 43.4),
    "lstm-96-n2": (32.6, 36.0, 43.4),
    "lstm-96": (33.1, 36.5, 43.6),
    "lstm-96-n6": (33.1, 36.6, 43.6),
    "lstm-96-n8": (33.1, 36.4, 43.7),
    "bilstm-96": (33.2, 36.6, 43.6),
}

_TOWERS: Sequence[tuple[str, str, Callable[[], Recipe]]] = (
    ("dssm", "DSSM, 288 and 96 units", lambda: recipe("dssm")),
    ("clsm-1", "CLSM, windows of 1 word", lambda: recipe("clsm-1")),
    ("clsm-3", "CLSM, windows of 3 words", lambda: recipe("clsm-3")),
    ("clsm-5", "CLSM, windows of 5 words", lambda: recipe("clsm-5")),
    ("rnn-288", "RNN, 288 cells", lambda: recipe("rnn-288")),
    ("lstm-32", "LSTM, 32 cells", lambda: recipe("lstm-32")),
    ("lstm-64", "LSTM, 64 cells", lambda: recipe("lstm-64")),
    ("lstm-96-n2", "LSTM, 96 cells, n = 2", lambda: changed(recipe("lstm-96"), {"objective.num_negatives": 2})),
    ("lstm-96", "LSTM, 96 cells, n = 4", lambda: recipe("lstm-96")),
    ("lstm-96-n6", "LSTM, 96 cells, n = 6", lambda: changed(recipe("lstm-96"), {"objective.num_negatives": 6})),
    ("lstm-96-n8", "LSTM, 96 cells, n = 8", lambda: changed(recipe("lstm-96"), {"objective.num_negatives": 8})),
    ("bilstm-96", "bidirectional LSTM", lambda: recipe("bilstm-96")),
    ("lstm-full-96", "full LSTM, 96 cells", lambda: recipe("lstm-full-96")),
    ("lstm-pool-96", "LSTM against a pool", lambda: recipe("lstm-pool-96")),
    ("lstm-pool-192", "the same, 192 cells", lambda: recipe("lstm-pool-192")),
    ("lstm-long-96", "full LSTM for long texts", lambda: recipe("lstm-long-96")),
    ("self-attentive", "self-attention, 4 hops", lambda: recipe("self-attentive")),
    ("max-pooled", "LSTM both ways, maximum", lambda: recipe("max-pooled")),
    ("variational", "normal distribution", lambda: recipe("variational")),
    ("bag-512", "bag of trigrams, 512 units", lambda: recipe("bag-512")),
    ("bag-pool-512", "the bag against a pool", lambda: recipe("bag-pool-512")),
)


def all_rows(
    *,
    change: Callable[[Recipe], Recipe] = lambda made: made,
    topics: int = 500,
    skip_thought: str | None = None,
    logged: str | None = None,
    models: Mapping[str, str] | None = None,
    runs: Mapping[str, str] | None = None,
) -> list[Row]:
    """Every row there can be, in the order they are shown.

    `change` is applied to each tower's recipe. `topics`: of PLSA. `skip_thought`: the folder of its published weights.
    `logged`: a TREC run of the ranking that the search engine showed. `models` and `runs`: trained models' folders and
    TREC runs by the names the user gives them. Raises UsageError for a name that is taken, or no topic.
    """
    if topics < 1:
        raise UsageError(asked=f"PLSA was to have {topics} topics", found="it needs at least 1", do="give 100 to 500")
    rows = [
        Row(name="random", title="random order", family="floor"),
        *([Row(name="logged", title="as the search engine ranked", family="logged", source=logged)] if logged else []),
        Row(name="skip-thought", title="Skip-Thought", family="paragraph", source=skip_thought),
        Row(name="doc2vec", title="Doc2Vec", family="paragraph"),
        Row(name="ulm", title="ULM, Dirichlet", family="lexical"),
        Row(name=BASELINE, title="BM25", family="lexical"),
        Row(name="plsa", title=f"PLSA, {topics} topics", family="topics", settings={"topics": topics}),
        *(Row(name=name, title=title, family="tower", recipe=change(make())) for name, title, make in _TOWERS),
        *(Row(name=name, title=name, family="model", source=uri) for name, uri in (models or {}).items()),
        Row(name=HYBRID, title="a tower and BM25", family="hybrid"),
        *(Row(name=name, title=name, family="run", source=uri) for name, uri in (runs or {}).items()),
    ]
    names = [row.name for row in rows]
    if taken := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(
            asked="models and runs were to be rows of the comparison",
            found=f"there is a row named {', '.join(taken)} already",
            do="give them other names, name=PATH",
        )
    return [replace(row, paper=_PAPER.get(row.name)) for row in rows]


def chosen(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """The rows of some names, in the order of `rows`; all of them where no name is given. Raises UsageError."""
    known = [row.name for row in rows]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            asked=f"the rows {', '.join(names)} were to be compared",
            found=f"there is no row named {', '.join(unknown)}",
            do=f"choose from {', '.join(known)}",
        )
    return [row for row in rows if not names or row.name in names]


def paper_to_baseline(row: Row) -> dict[str, float] | None:
    """What the paper prints for a row minus what it prints for BM25, in points of NDCG by measure."""
    if row.paper is None:
        return None
    return {f"ndcg@{k}": round(a - b, 1) for k, a, b in zip(CUTOFFS, row.paper, _PAPER[BASELINE], strict=True)}
