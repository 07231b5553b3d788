"""The named recipes. benchmarks/README.md has their figures, and what did not help.

NDCG@10 in a comment is of single trainings with seed 1, on dev queries with at least five judgments (`evaluate
--min-judged 5`): product titles (33,468 pairs; BM25 0.851, a random order 0.836), entity names (7,906; 0.260, 0.169),
Chinese titles (7,026; 0.823, 0.695), the first 32 words of abstracts (16,047; 0.860, 0.805). The values were chosen on
these queries. Another seed moves NDCG@10 of product titles by about 0.004.
"""

from dataclasses import replace

from clicktower.schemas.errors import UsageError
from clicktower.training.model.objective_settings import (
    MLP,
    Classify,
    Clicks,
    GatedFeatures,
    Generate,
    PlainFeatures,
    Pool,
    Pretraining,
    Pruned,
    SiameseFeatures,
    W2Features,
)
from clicktower.training.model.recipe import (
    PRINTED_CLICKS,
    PRINTED_OPTIMISER,
    SGD,
    AdaGrad,
    Adam,
    Nesterov,
    Recipe,
    Tuned,
)
from clicktower.training.towers.tower_settings import (
    CLSM,
    CNN,
    DSSM,
    GRU,
    LSTM,
    RNN,
    SWEM,
    Bag,
    BiLSTM,
    MaxPooled,
    SelfAttentive,
    TowerSettings,
    Variational,
)

# Clicks, tuned: one tower for both sides, W's rows start by trigram rarity, new negatives in each epoch.

_LSTM = LSTM(recurrent_range=0.01, recurrent_step=0.00004)
_FULL_LSTM = replace(_LSTM, forget_gate=True, peepholes=True, forget_bias=5.0)
_CLICKS = Clicks(tie_towers=True, start="idf", gamma=10.0)
_POOLED_CLICKS = replace(_CLICKS, negatives=Pool(size=512, softmax=True))

# The paper's LSTM of 96 cells, n = 4. Before the first update it ranks like weighted trigrams, since the recurrent
# parameters start near zero; they move by a hundredth of W's step, since their gradient is a sum over all words of all
# texts. Of the four collections: 0.862, 0.330, 0.808, 0.876; `paper-lstm-96` with twenty epochs: 0.859, 0.272, 0.702,
# 0.821.
LSTM_96 = Recipe(
    name="lstm-96", tower=_LSTM, objective=_CLICKS, optimiser=Nesterov(step=0.004), initial_range=0.1, epochs=5
)
LSTM_64 = replace(LSTM_96, name="lstm-64", tower=replace(_LSTM, cells=64))  # product titles 0.861
LSTM_32 = replace(LSTM_96, name="lstm-32", tower=replace(_LSTM, cells=32))  # 0.855
LSTM_FULL_96 = replace(LSTM_96, name="lstm-full-96", tower=_FULL_LSTM)  # all of eq. 2; the gate is open at the start

# Against all of 512 titles that the pairs of a micro-batch share: it ranks better among all titles. With twice the
# cells 0.864, 0.347, 0.810, 0.897.
LSTM_POOL_96 = replace(LSTM_96, name="lstm-pool-96", objective=_POOLED_CLICKS)
LSTM_POOL_192 = replace(LSTM_POOL_96, name="lstm-pool-192", tower=replace(_LSTM, cells=192), epochs=4)

# Words and terms have a part in the score (ranking.title_ranking). Queries that choose chose both shares, for four
# collections at once (benchmarks/shares.py).
LSTM_POOL_192_WORDS = replace(
    LSTM_POOL_192, name="lstm-pool-192-words", objective=replace(_POOLED_CLICKS, word_share=0.45, lexical_share=0.4)
)
DEFAULT = LSTM_POOL_192_WORDS.name  # of `train`: the paper's model, and `explain` has gates to show

# For texts of twenty words and more: Chinese titles 0.821 (lstm-pool-96: 0.812), abstracts 0.890 (0.892).
LSTM_LONG_96 = replace(LSTM_POOL_96, name="lstm-long-96", tower=_FULL_LSTM)

# 96 cells in each direction: the paper does not say whether 96 is of one direction or of both. Product titles 0.864.
BILSTM_96 = replace(LSTM_96, name="bilstm-96", tower=BiLSTM(recurrent_range=0.01, recurrent_step=0.00004))

# As many parameters in W as lstm-96. 288 recurrent units in ±0.2 have a spectral radius near 2, and tanh saturates;
# ±0.05 keeps it below 1. The recurrence must not start near zero, since it is a plain RNN's only memory. Product titles
# 0.856; longer titles hardly above a random order (Chinese: 0.733).
RNN_288 = replace(
    LSTM_96,
    name="rnn-288",
    tower=RNN(cells=288, recurrent_step=0.0002),
    optimiser=Nesterov(step=0.002),
    initial_range=0.05,
)

DSSM_96 = replace(  # 0.861, 0.288, 0.808, 0.862
    LSTM_96, name="dssm", tower=DSSM(hidden=288, cells=96), optimiser=Nesterov(step=0.002)
)
# 0.857, 0.300, 0.790, 0.863. With dssm's step the loss on Chinese titles does not fall.
CLSM_1 = replace(DSSM_96, name="clsm-1", tower=CLSM(window=1, hidden=288, cells=96), optimiser=Nesterov(step=0.0005))
CLSM_3 = replace(CLSM_1, name="clsm-3", tower=CLSM(window=3, hidden=288, cells=96))
CLSM_5 = replace(CLSM_1, name="clsm-5", tower=CLSM(window=5, hidden=288, cells=96))

# The sum of letter trigrams. On 28,526 pairs of product titles 0.857 (lstm-96 from random numbers: 0.853); against a
# pool 0.861, and recall@100 0.68 instead of 0.59.
BAG_512 = Recipe(
    name="bag-512",
    tower=Bag(cells=512),
    objective=replace(_CLICKS, gamma=5.0),
    optimiser=Nesterov(step=0.004),
    initial_range=0.1,
    epochs=5,
)
BAG_POOL_512 = replace(BAG_512, name="bag-pool-512", objective=_POOLED_CLICKS, optimiser=Nesterov(step=0.002))

# For a third to two thirds of the time, but without gates (benchmarks/default_recipe.py).
BAG_POOL_512_WORDS = replace(
    BAG_POOL_512, name="bag-pool-512-words", objective=replace(_POOLED_CLICKS, word_share=0.375, lexical_share=0.3)
)

# Lin et al.'s self-attention. Product titles, 3 epochs, three seeds: 0.862 without a penalty, 0.857 with 0.1, 0.831
# with 1.
SELF_ATTENTIVE = Recipe(
    name="self-attentive",
    tower=SelfAttentive(cells=48, forget_gate=True, forget_bias=1.0, attention_units=32, hops=4, penalty=0.1),
    epochs=10,
)
MAX_POOLED = replace(  # product titles 0.860, Chinese titles 0.788
    LSTM_96, name="max-pooled", tower=MaxPooled(cells=48, recurrent_range=0.01, recurrent_step=0.00004)
)

# Deudon's encoder. Before the first update σ is near log 2, a part that all texts share: a wider start and a larger γ
# separate them sooner. Product titles, 3 epochs: ±0.2 0.844; ±0.35 0.852 with γ 5, 0.856 with γ 10.
VARIATIONAL = Recipe(
    name="variational",
    tower=Variational(cells=48, latent=96, forget_gate=True, forget_bias=1.0),
    objective=Clicks(gamma=10.0),
    initial_range=0.35,
    epochs=10,
)

CLICK_RECIPES = (
    LSTM_96, LSTM_64, LSTM_32, LSTM_FULL_96, LSTM_POOL_96, LSTM_POOL_192, LSTM_POOL_192_WORDS, LSTM_LONG_96, BILSTM_96,
    RNN_288, DSSM_96, CLSM_1, CLSM_3, CLSM_5, BAG_512, BAG_POOL_512, BAG_POOL_512_WORDS, SELF_ATTENTIVE, MAX_POOLED,
    VARIATIONAL,
)  # fmt: skip

# Labels. Step and epochs were chosen on a fifth of the training questions of `question_pairs` (gated-attention:
# sentences of `snli`), all else by single trials on held-out ones. An LSTM has a forget gate, as in the papers.

_SIAMESE = Classify(features=SiameseFeatures(), head=MLP(units=64), dropout=0.3)

# Two texts through one bidirectional LSTM, the four features of InferSent, a layer of 64 ReLU units.
SIAMESE_LSTM = Recipe(
    name="siamese-lstm",
    tower=BiLSTM(cells=48, forget_gate=True, forget_bias=1.0),
    objective=_SIAMESE,
    optimiser=Adam(step=0.002),
    minibatch=128,
    micro_batch=64,
    epochs=3,
)
# InferSent's encoder, then the others of Deudon's table. W has 384 columns of the first two and 288 of the others.
SIAMESE_MAX = replace(SIAMESE_LSTM, name="siamese-max", tower=MaxPooled(cells=48, forget_gate=True, forget_bias=1.0))
SIAMESE_GRU = replace(SIAMESE_LSTM, name="siamese-gru", tower=GRU(cells=96), epochs=2)
SIAMESE_CNN = replace(SIAMESE_LSTM, name="siamese-cnn", tower=CNN(cells=96, window=3), epochs=2)
SIAMESE_SWEM = replace(SIAMESE_LSTM, name="siamese-swem", tower=SWEM(cells=288), epochs=4)

# Lin et al.'s model of entailment. Sizes are ours: 48 cells a direction for 300, d_a 32 for 150, r 4 for 30, 128 hidden
# units for 4,000.
GATED_ATTENTION = replace(
    SIAMESE_LSTM,
    name="gated-attention",
    tower=SELF_ATTENTIVE.tower,
    objective=Classify(features=GatedFeatures(factors=48), head=MLP(units=128), dropout=0.3),
)
ATTENTIVE_TEXTS = replace(  # their classifier of single texts, with the pruned layer (p = 16, q = 4)
    GATED_ATTENTION,
    name="attentive-texts",
    objective=Classify(features=PlainFeatures(), head=Pruned(row_units=16, column_units=4), dropout=0.3),
    optimiser=Adam(step=0.001),
    epochs=4,
)

# Deudon's VAR-Siamese: distributions of texts, learnt by reconstruction, then classified by the terms of W₂.
# `paraphrase` names the class of pairs with the same meaning. Sizes and the schedule of κ are ours: with the paper's
# (rate 0.002, middle 2,500) 38,000 questions end with a divergence of 0.5 nats, and the decoder ignores z. Word
# dropout, which the author's program has, prevents that.
VAR_SIAMESE = replace(
    SIAMESE_LSTM,
    name="var-siamese",
    tower=VARIATIONAL.tower,
    objective=replace(
        _SIAMESE,
        features=W2Features(),
        l1=1e-5,
        pretrain=Pretraining(
            epochs=10, reformulate=True, paraphrase="1", word_dropout=0.4, kappa_rate=0.001, kappa_middle=6000
        ),
    ),
    optimiser=Adam(step=0.001),
    epochs=2,
)

LABEL_RECIPES = (
    SIAMESE_LSTM, SIAMESE_MAX, SIAMESE_GRU, SIAMESE_CNN, SIAMESE_SWEM, GATED_ATTENTION, ATTENTIVE_TEXTS, VAR_SIAMESE,
)  # fmt: skip

# The towers of Table IV as the paper prints them: two towers from separate random numbers, one step size, μ
# 0.9/0.995/0.9, each tower's gradient re-normalised, and the build's random negatives (`build --set num_negatives=8`
# serves n = 2 to 8). T is the longest text. The paper does not print γ, ε, the initial range, the epochs, th_G and the
# minibatch: the first four were chosen on held-out clicks (docs/model.md, section 4); ε and the range came out alike.

PRINTED = "paper-"


def _printed_recipe(name: str, tower: TowerSettings, *, epochs: int, n: int = 4, gamma: float = 10.0) -> Recipe:
    return Recipe(
        name=PRINTED + name,
        tower=tower,
        objective=replace(PRINTED_CLICKS, num_negatives=n, gamma=gamma),
        optimiser=replace(PRINTED_OPTIMISER, step=0.001, clip_norm=5.0),
        initial_range=0.05,
        epochs=epochs,
        minibatch=256,
    )


PRINTED_RECIPES = (
    _printed_recipe("dssm", DSSM(), epochs=14),
    _printed_recipe("clsm-1", CLSM(window=1), epochs=7),
    _printed_recipe("clsm-3", CLSM(window=3), epochs=7),
    _printed_recipe("clsm-5", CLSM(window=5), epochs=7),
    _printed_recipe("rnn-288", RNN(cells=288), epochs=7, gamma=5.0),
    _printed_recipe("lstm-32", LSTM(cells=32), epochs=12),
    _printed_recipe("lstm-64", LSTM(cells=64), epochs=11),
    _printed_recipe("lstm-96-n2", LSTM(), n=2, epochs=15),
    _printed_recipe("lstm-96", LSTM(), epochs=18),
    _printed_recipe("lstm-96-n6", LSTM(), n=6, epochs=13),
    _printed_recipe("lstm-96-n8", LSTM(), n=8, epochs=17),
    _printed_recipe("bilstm-96", BiLSTM(), epochs=8),
)

# Lin et al. (arXiv:1703.03130) and Deudon (VAR-Siamese, NeurIPS 2018) with their printed sizes and optimisers. They
# take word vectors (`--word-vectors FILE`). A printed step or bound of SGD is for the mean of a minibatch and is here
# divided, or multiplied, by its size, since gradients are summed. Not printed, and not tuned at these sizes: initial
# parameters, epochs (except SNLI's 4), the batch of SNLI, the CNN's window and width, the decoder's vocabulary. Section
# 4.1 of Lin et al. has 2,000 hidden units for Age, but Table 4's 72 M need 4,000, which `lin-age` has.

_LIN = SelfAttentive(
    cells=300, forget_gate=True, forget_bias=1.0, recurrent_range=0.05, attention_units=350, hops=30, penalty=1.0
)
LIN_YELP = Recipe(  # reviews and their stars; word2vec of 100 columns
    name="lin-yelp",
    tower=_LIN,
    objective=Classify(head=MLP(units=3000), dropout=0.5, l2=1e-4),
    optimiser=SGD(step=0.06 / 32, clip_value=0.5 * 32),
    word_vectors=Tuned(columns=100),
    initial_range=0.1,
    minibatch=32,
    micro_batch=32,
    epochs=10,
)
LIN_AGE = replace(  # tweets and their authors' age
    LIN_YELP,
    name="lin-age",
    objective=Classify(head=MLP(units=4000), dropout=0.5, l2=1e-4),
    optimiser=SGD(step=0.06 / 16, clip_value=0.5 * 16),
    minibatch=16,
    micro_batch=16,
)
LIN_MAX = replace(
    LIN_YELP, name="lin-max", tower=MaxPooled(cells=300, forget_gate=True, forget_bias=1.0, recurrent_range=0.05)
)
LIN_CNN = replace(LIN_YELP, name="lin-cnn", tower=CNN(cells=600, window=3))
LIN_SNLI = replace(  # premise and hypothesis; GloVe of 300 columns
    LIN_YELP,
    name="lin-snli",
    tower=replace(_LIN, attention_units=150, penalty=0.3),
    objective=Classify(features=GatedFeatures(), head=MLP(units=4000)),
    optimiser=AdaGrad(step=0.01),
    word_vectors=Tuned(columns=300),
    epochs=4,
)

_GENERATE = Generate(
    reformulate=True,
    paraphrase="1",
    decoder_cells=1000,
    decoder_columns=300,
    vocabulary=20_000,
    kappa_rate=0.002,
    kappa_middle=2500,
)
DEUDON_VAE = Recipe(  # questions as themselves and as their duplicates; with W₂ alone it is a row of Table 3
    name="deudon-vae",
    tower=Variational(cells=1000, latent=1000, forget_gate=True, forget_bias=1.0, recurrent_range=0.03),
    objective=_GENERATE,
    optimiser=Adam(step=0.001),
    word_vectors=Tuned(columns=300),
    initial_range=0.05,
    minibatch=256,
    micro_batch=64,
    epochs=10,
)
DEUDON_VAE_REPEAT = replace(
    DEUDON_VAE, name="deudon-vae-repeat", objective=replace(_GENERATE, reformulate=False, paraphrase="")
)
DEUDON = replace(  # VAR-Siamese: `--start` it from one of the two; otherwise it is the row without pretraining
    DEUDON_VAE, name="deudon", objective=Classify(features=W2Features(), head=MLP(units=1000), l1=1e-5), minibatch=128
)

PUBLISHED_SIZE_RECIPES = (LIN_YELP, LIN_AGE, LIN_MAX, LIN_CNN, LIN_SNLI, DEUDON_VAE, DEUDON_VAE_REPEAT, DEUDON)

_NAMED = {recipe.name: recipe for recipe in CLICK_RECIPES + LABEL_RECIPES + PRINTED_RECIPES + PUBLISHED_SIZE_RECIPES}


def names() -> list[str]:
    """The names `recipe` knows."""
    return list(_NAMED)


def recipe(name: str) -> Recipe:
    """The recipe with that name. Raises UsageError for an unknown one."""
    if name not in _NAMED:
        raise UsageError(f"There is no recipe {name!r}.", f"Use one of {', '.join(_NAMED)}.")
    return _NAMED[name]
