"""A recipe: everything that decides a model's numbers, as one frozen value."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from schemas.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What to train and how. Values the paper leaves open were chosen on held-out data (docs/model.md section 4).

    Raises UsageError for a value that means nothing.
    """

    name: str
    tower: str = "lstm"  # by its name in recipe, which says what settings it has
    cells: int = 96  # recurrent units of one direction; of dssm, clsm and bag, the embedding's dimensions
    hidden: int = 0  # tanh units below the embedding
    window: int = 0  # words
    latent: int = 0  # h, dimensions of the distribution that a text becomes
    attention_units: int = 0  # d_a
    hops: int = 0  # r, weighted sums of the states
    average_hops: bool = False  # the embedding is the mean of its hops, not one after the other
    penalty: float = 0.0  # what ||A Aᵀ - I||² of each text counts in the loss
    forget_gate: bool = False
    peepholes: bool = False
    # Words of a given file start from its vectors (word_vectors), and move like all else, or never.
    word_vectors: Literal["none", "tuned", "frozen"] = "none"
    word_columns: int = 0  # of such a vector; 0: as many as the file's have
    tie_towers: bool = False  # one parameter set for queries and documents
    same_start: bool = True  # both parameter sets start from the same random numbers
    max_words: int = 0  # words of a text that are read; 0: all
    overflow: Literal["merge", "truncate"] = "merge"  # what becomes of the words beyond max_words
    gamma: float = 5.0  # of eq. 5
    num_negatives: int = 4  # n
    # New ones for each pair and epoch, the shards' own, or some that the pairs of a micro-batch share (pairs).
    negatives: Literal["redrawn", "fixed", "pool"] = "redrawn"
    pool_size: int = 0  # titles that a micro-batch shares; 0: as many as micro_batch
    pool_softmax: bool = False  # against every unclicked title of the shared pool instead of n of them
    # What a pair's loss counts: 1, its clicks, 1 + ln(clicks), or what the shards' own column says.
    weights: Literal["none", "clicks", "log_clicks", "column"] = "none"
    teacher_share: float = 0.0  # of the loss: agreeing with a given teacher (teacher) instead of the clicks
    teacher_gamma: float = 5.0  # γ of the teacher's softmax
    epochs: int = 20
    minibatch: int = 256  # pairs of one large update
    micro_batch: int = 128  # pairs computed at once; the unit that workers share out
    step: float = 0.002  # ε of eq. 6; L is the sum over the minibatch
    recurrent_step: float = 0.0  # ε of W_rec, b and W_peep; 0: step
    momentum_edge: float = 0.9  # μ in the first and last 2% of all updates
    momentum_middle: float = 0.9  # μ in between; the paper's 0.995 remembers 200 updates
    clip_norm: float = 0.0  # th_G, for each tower on its own; 0: never
    truncate_steps: int = 0  # T; 0: as long as the longest text
    initial_range: float = 0.2  # parameters start uniform in ±this
    recurrent_range: float = 0.0  # W_rec, b and W_peep start uniform in ±this; 0: in ±initial_range
    forget_bias: float = 0.0  # added to where the forget gate's part of b starts
    start: Literal["uniform", "idf"] = "uniform"  # idf: rows of W in proportion to how rare their trigram is in titles
    reduction: Literal["exact", "fast"] = "exact"
    dtype: Literal["float32", "float64"] = "float32"
    # What is learnt, and the settings that some objectives have (training.objectives, recipe).
    objective: Literal["clicks", "classify", "generate"] = "clicks"
    optimiser: Literal["nesterov", "adam"] = "nesterov"  # adam: `step` is its length, momentum_* do nothing
    features: Literal["plain", "siamese", "w2", "gated"] = "plain"  # of a text's embedding, or of a pair's two
    head: Literal["mlp", "pruned"] = "mlp"  # the layer above them, of
    head_units: int = 0  # ReLU units, or
    row_units: int = 0  # p that see one row of the embedding and
    column_units: int = 0  # q that see one column
    factors: int = 0  # of gated: k; 0: as many as a row of the embedding has numbers
    dropout: float = 0.0  # of features and of the layer above them
    l1: float = 0.0  # what the head's absolute weights count in the loss of each example
    l2: float = 0.0  # what their squares count
    pretrain_epochs: int = 0  # first so many epochs of `generate` on the same texts
    reformulate: bool = False  # a text is also paraphrased: as its clicked title, or
    paraphrase: str = ""  # as the other of a labelled pair of this class
    decoder_cells: int = 0
    decoder_columns: int = 0  # of the decoder's word vectors
    vocabulary: int = 0  # words that the decoder can say, the most frequent ones
    word_dropout: float = 0.0  # of the words that the decoder reads, as unknown
    kappa_rate: float = 0.0  # κ = sigmoid(rate (updates made - middle)), what the divergence counts
    kappa_middle: int = 0
    shuffle_clicks: bool = False  # leak check: clicked titles are permuted among the training pairs
    seed: int = 1

    def __post_init__(self) -> None:
        for field in ("cells", "num_negatives", "epochs", "minibatch", "micro_batch"):
            _require(self, field, "at least 1", getattr(self, field) >= 1)
        for field in ("gamma", "teacher_gamma", "step", "initial_range"):
            _require(self, field, "a number above 0 and at most 1,000,000", 0 < getattr(self, field) <= 1e6)
        for field in ("clip_norm", "truncate_steps", "max_words", "pool_size", "word_columns", "seed"):
            _require(self, field, "at least 0", 0 <= getattr(self, field) < float("inf"))
        for field, kind in get_type_hints(Recipe).items():
            if choices := get_args(kind):
                _require(self, field, f"one of {', '.join(choices)}", getattr(self, field) in choices)
        for field in ("momentum_edge", "momentum_middle"):
            _require(self, field, "at least 0 and below 1", 0 <= getattr(self, field) < 1)
        _require(
            self, "minibatch", f"a multiple of micro_batch ({self.micro_batch})", self.minibatch % self.micro_batch == 0
        )
        no_columns = self.word_vectors != "none" or not self.word_columns
        _require(self, "word_columns", "0 with word_vectors=none", no_columns)
        self._require_a_known_tower()
        self._require_what_its_tower_has()
        self._require_a_pool_to_draw_from()
        self._require_what_its_objective_has()

    @property
    def shared_titles(self) -> int:
        """Titles of the pool that a micro-batch shares."""
        return self.pool_size or self.micro_batch

    def _require_what_its_objective_has(self) -> None:
        """A setting that the objective does not have would be believed and change nothing."""
        has = settings_of(self.objective, self.pretrain_epochs)
        for field, setting in all_settings().items():
            if field in has:
                _require(self, field, setting.wanted, setting.holds(getattr(self, field)))
            else:
                default = default_of(field)
                wanted = f"{default!r} (objective {self.objective} has no use for it)"
                _require(self, field, wanted, getattr(self, field) == default)
        if self.objective != "clicks":
            _require(self, "tie_towers", f"true (objective {self.objective} has one tower)", self.tie_towers)
            _require(self, "start", "uniform (only titles tell how rare a trigram is)", self.start == "uniform")
        if self.objective == "generate" or self.pretrain_epochs:
            _require(self, "tower", "variational (a text is reconstructed from a sample)", self.tower == "variational")
        if self.features == "w2":
            _require(self, "tower", "variational (the features w2 are of μ and σ)", self.tower == "variational")
        _require(self, "paraphrase", "unset without reformulate", self.reformulate or not self.paraphrase)

    def _require_a_pool_to_draw_from(self) -> None:
        shared, n = self.negatives == "pool", self.num_negatives
        for field in ("pool_size", "pool_softmax"):
            _require(self, field, "unset without negatives=pool", shared or not getattr(self, field))
        enough = not shared or self.pool_softmax or self.shared_titles >= n
        _require(self, "pool_size", f"at least num_negatives ({n}); 0 is micro_batch ({self.micro_batch})", enough)

    def _require_a_known_tower(self) -> None:
        if self.tower not in tower_kinds():
            raise UsageError(
                asked=f"the recipe's tower is {self.tower!r}",
                found=f"it must be one of {', '.join(tower_kinds())}",
                do="use one of them, or import the file that adds this one (training.towers.add_tower)",
            )

    def _require_what_its_tower_has(self) -> None:
        """A setting that the tower does not have would be believed and change nothing."""
        for field, setting in TOWER_SETTINGS.items():
            value = getattr(self, field)
            if has_setting(self.tower, field):
                _require(self, field, setting.wanted, setting.holds(value))
            else:
                unset = "false" if isinstance(value, bool) else "0"
                _require(self, field, f"{unset} ({self.tower} has no {setting.part})", not value)
        _require(self, "forget_bias", "0 without forget_gate", self.forget_gate or not self.forget_bias)


def default_of(field: str) -> Any:
    """What a field of a recipe is where nothing else is said."""
    return Recipe.__dataclass_fields__[field].default


def _require(recipe: Recipe, field: str, wanted: str, holds: bool) -> None:
    if not holds:
        raise UsageError(
            asked=f"the recipe's {field} is {getattr(recipe, field)!r}",
            found=f"it must be {wanted}",
            do=f"set {field} to a value of that kind",
        )


# Which settings of a recipe each tower has. Free of torch, which naming and checking a recipe does not need.
#
# A tower that is no part of this package is added by training.towers.add_tower.


@dataclass(frozen=True, slots=True)
class TowerSetting:
    """A setting that some towers have.

    `part`: what a tower without it has none of. `wanted`: its bounds in words, in which `holds`.
    """

    part: str
    wanted: str
    holds: Callable[[Any], bool]


def _at_least_one(part: str) -> TowerSetting:
    return TowerSetting(part, "at least 1", lambda number: number >= 1)


def _switch(part: str) -> TowerSetting:
    return TowerSetting(part, "true or false", lambda switch: switch in (True, False))


TOWER_SETTINGS = {
    "hidden": _at_least_one("layer below the embedding"),
    "window": TowerSetting("window", "odd and at least 1", lambda words: words >= 1 and words % 2 == 1),
    "latent": _at_least_one("distribution"),
    "attention_units": _at_least_one("attention"),
    "hops": _at_least_one("attention"),
    "average_hops": _switch("attention"),
    "penalty": TowerSetting("attention", "at least 0 and at most 1,000,000", lambda factor: 0 <= factor <= 1e6),
    "forget_gate": _switch("gates"),
    "peepholes": _switch("gates"),
    "truncate_steps": TowerSetting("last step to count back from", "at least 0", lambda steps: steps >= 0),
    "recurrent_range": TowerSetting("recurrence", "at least 0 and at most 1,000,000", lambda width: 0 <= width <= 1e6),
    "recurrent_step": TowerSetting("recurrence", "at least 0 and at most 1,000,000", lambda step: 0 <= step <= 1e6),
    "forget_bias": TowerSetting("gates", "from -100 to 100", lambda bias: -100 <= bias <= 100),
}
_GATES = ("forget_gate", "peepholes", "forget_bias", "recurrent_range", "recurrent_step")
_SETTINGS_OF: dict[str, tuple[str, ...]] = {
    "lstm": (*_GATES, "truncate_steps"),
    "bilstm": (*_GATES, "truncate_steps"),
    "rnn": ("truncate_steps", "recurrent_range", "recurrent_step"),
    "dssm": ("hidden",),
    "clsm": ("hidden", "window"),
    "bag": (),
    "self_attentive": (*_GATES, "attention_units", "hops", "average_hops", "penalty"),
    "max_pooled": _GATES,
    "variational": (*_GATES, "truncate_steps", "latent"),
}


def tower_kinds() -> tuple[str, ...]:
    """The names of all towers."""
    return tuple(_SETTINGS_OF)


def has_setting(tower: str, field: str) -> bool:
    """Whether a tower has one of SETTINGS."""
    return field in _SETTINGS_OF[tower]


def declare_tower(name: str, settings: Collection[str]) -> None:
    """Let recipes name a tower and set these of SETTINGS. Raises ValueError for a taken name or an unknown setting."""
    if name in _SETTINGS_OF:
        raise ValueError(f"there is a tower named {name} already")
    if unknown := sorted(set(settings) - set(TOWER_SETTINGS)):
        raise ValueError(
            f"no recipe has {', '.join(unknown)}; a tower's settings are among {', '.join(TOWER_SETTINGS)}"
        )
    _SETTINGS_OF[name] = tuple(settings)


# Which settings of a recipe each objective has (training.objectives). Free of torch, as recipe.
#
# A recipe that is trained on texts before its labels (`pretrain_epochs`) has those of both.


@dataclass(frozen=True, slots=True)
class ObjectiveSetting:
    """`wanted`: its bounds in words, in which `holds`. Where an objective lacks it, it keeps the recipe's default."""

    wanted: str
    holds: Callable[[Any], bool]


def _at_least(least: int) -> ObjectiveSetting:
    return ObjectiveSetting(f"at least {least}", lambda number: number >= least)


def _share() -> ObjectiveSetting:
    return ObjectiveSetting("at least 0 and below 1", lambda share: 0 <= share < 1)


def _factor() -> ObjectiveSetting:
    return ObjectiveSetting("at least 0 and at most 1,000,000", lambda factor: 0 <= factor <= 1e6)


_ANY = ObjectiveSetting("", lambda value: True)  # its type says what it may be, or the recipe itself its bounds


OBJECTIVE_SETTINGS = {
    "classify": {
        "features": _ANY,
        "head": _ANY,
        "head_units": _at_least(0),
        "row_units": _at_least(0),
        "column_units": _at_least(0),
        "factors": _at_least(0),
        "dropout": _share(),
        "l1": _factor(),
        "l2": _factor(),
        "pretrain_epochs": _at_least(0),
    },
    "generate": {
        "reformulate": _ANY,
        "paraphrase": _ANY,
        "decoder_cells": _at_least(1),
        "decoder_columns": _at_least(1),
        "vocabulary": _at_least(1),
        "word_dropout": _share(),
        "kappa_rate": _factor(),
        "kappa_middle": _at_least(0),
    },
    "clicks": {
        "gamma": _ANY,
        "num_negatives": _ANY,
        "negatives": _ANY,
        "pool_size": _ANY,
        "pool_softmax": _ANY,
        "weights": _ANY,
        "teacher_share": ObjectiveSetting("at least 0 and at most 1", lambda share: 0 <= share <= 1),
        "teacher_gamma": _ANY,
        "shuffle_clicks": _ANY,
    },
}


def settings_of(objective: str, pretrain_epochs: int) -> dict[str, ObjectiveSetting]:
    """The settings that mean something to an objective."""
    both = OBJECTIVE_SETTINGS["generate"] if objective == "classify" and pretrain_epochs else {}
    return {**OBJECTIVE_SETTINGS[objective], **both}


def all_settings() -> dict[str, ObjectiveSetting]:
    """The settings that some objective has."""
    return {name: setting for settings in OBJECTIVE_SETTINGS.values() for name, setting in settings.items()}
