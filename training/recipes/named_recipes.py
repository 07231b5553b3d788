"""The named recipes that a user can ask for.

Where a recipe's docstring gives NDCG@10, it is of single trainings with seed 1, judged on dev queries with at least
five judgments (`evaluate --min-judged 5`), which chose the values, too: product titles (33,468 pairs; BM25 0.851, a
random order 0.836), entity names (7,906; 0.260, 0.169), Chinese titles (7,026; 0.823, 0.695), abstracts (16,047; 0.860,
0.805). Another seed moves NDCG@10 of product titles by about 0.004. Tables and what was tried are in docs/quality.md.
"""

from collections.abc import Callable
from dataclasses import replace

from schemas.errors import UsageError
from training.recipes.objectives import (
    MLP,
    Classify,
    Clicks,
    GatedFeatures,
    PlainFeatures,
    Pool,
    Pretraining,
    Pruned,
    SiameseFeatures,
    W2Features,
)
from training.recipes.recipe import Adam, Nesterov, Recipe
from training.recipes.towers import CLSM, DSSM, LSTM, RNN, Bag, BiLSTM, MaxPooled, SelfAttentive, Variational

_LSTM = LSTM(recurrent_range=0.01, recurrent_step=0.00004)
_FULL_LSTM = replace(_LSTM, forget_gate=True, peepholes=True, forget_bias=5.0)
_ATTENTION = SelfAttentive(cells=48, attention_units=32, hops=4, penalty=0.1)
_CLICKS = Clicks(tie_towers=True, start="idf", gamma=10.0)
_POOL = Pool(size=512, softmax=True)
_SIAMESE = Classify(features=SiameseFeatures(), head=MLP(units=64), dropout=0.3)

# Recipes of the objectives that learn from labels, beside those of clicks in named_recipes.
#
# Values were chosen on the held-out questions of `question_pairs` and the held-out sentences of `snli`, by single
# trials (docs/labelled.md has figures over seeds). The step of Adam and the batches are about the papers'.


def siamese_lstm() -> Recipe:
    """Two texts through one bidirectional LSTM, the four features of InferSent, a layer of 64 ReLU units."""
    return Recipe(
        name="siamese-lstm",
        tower=BiLSTM(cells=48),
        objective=_SIAMESE,
        optimiser=Adam(step=0.001),
        minibatch=128,
        micro_batch=64,
        epochs=4,
    )


def siamese_max() -> Recipe:
    """siamese-lstm with the maximum over all states instead of the last ones: InferSent's encoder."""
    return replace(siamese_lstm(), name="siamese-max", tower=MaxPooled(cells=48))


def gated_attention() -> Recipe:
    """Lin et al.'s model of entailment: self-attention with four hops, the gated encoder of both texts.

    Sizes are ours: 48 cells a direction for 300, d_a 32 for 150, r 4 for 30, 128 hidden units for 4,000.
    """
    return replace(
        siamese_lstm(),
        name="gated-attention",
        tower=_ATTENTION,
        objective=Classify(features=GatedFeatures(factors=48), head=MLP(units=128), dropout=0.3),
    )


def attentive_texts() -> Recipe:
    """Lin et al.'s classifier of single texts: self-attention with four hops, the pruned layer (p = 16, q = 4)."""
    return replace(
        gated_attention(),
        name="attentive-texts",
        objective=Classify(features=PlainFeatures(), head=Pruned(row_units=16, column_units=4), dropout=0.3),
    )


def var_siamese() -> Recipe:
    """Deudon's VAR-Siamese: distributions of texts, learnt by reconstruction, then classified by the terms of W₂.

    `paraphrase` names the class of pairs that mean the same. Sizes are ours: 48 cells a direction and h = 96 for 1,000,
    and so is the schedule of κ. With the paper's (rate 0.002, middle 2,500) 38,000 questions end with a divergence of
    0.5 nats: the decoder no longer listens to z. Word dropout, which the author's program has, keeps it listening.
    """
    return replace(
        siamese_lstm(),
        name="var-siamese",
        tower=Variational(cells=48, latent=96),
        objective=replace(
            _SIAMESE,
            features=W2Features(),
            l1=1e-5,
            pretrain=Pretraining(
                epochs=10,
                reformulate=True,
                paraphrase="1",
                decoder_cells=96,
                decoder_columns=64,
                vocabulary=3000,
                word_dropout=0.4,
                kappa_rate=0.001,
                kappa_middle=6000,
            ),
        ),
    )


LABELLED_RECIPES: tuple[Callable[[], Recipe], ...] = (
    siamese_lstm,
    siamese_max,
    gated_attention,
    attentive_texts,
    var_siamese,
)


def lstm_96() -> Recipe:
    """The paper's main model: an LSTM of 96 cells without forget gate and peepholes, n = 4; one tower for both sides.

    W's rows are initialised by trigram rarity, and the recurrent parameters start near zero: before the first update
    it ranks like weighted trigrams. The recurrent parameters move by a hundredth of W's step, since their gradient
    is a sum over all words of all texts. Product titles, entity names, Chinese titles, the first 32 words of abstracts:
    0.862, 0.330, 0.808, 0.876. In two towers with everything in ±0.2, γ 5, one step of 0.002 and twenty epochs: 0.859,
    0.272, 0.702, 0.821. With this start in ±0.3: 0.857, 0.310, 0.806, 0.870, and then in two towers 0.857, 0.290,
    0.803.
    """
    return Recipe(
        name="lstm-96",
        tower=_LSTM,
        objective=_CLICKS,
        optimiser=Nesterov(step=0.004),
        initial_range=0.1,
        epochs=5,
    )


def lstm_64() -> Recipe:
    """The LSTM row of Table IV with 64 cells: NDCG@10 of product titles 0.861 for lstm-96's 0.862."""
    return replace(lstm_96(), name="lstm-64", tower=replace(_LSTM, cells=64))


def lstm_32() -> Recipe:
    """The LSTM row of Table IV with 32 cells: NDCG@10 of product titles 0.855, with ±0.3 as much."""
    return replace(lstm_96(), name="lstm-32", tower=replace(_LSTM, cells=32))


def rnn_288() -> Recipe:
    """The RNN row of Table IV: as many parameters in W as lstm-96.

    288 recurrent units in ±0.2 have a spectral radius near 2 (0.2 / √3 x √288): tanh saturates and nothing is learned.
    ±0.05 keeps it below 1; but the recurrence must not start near zero, as an LSTM's does: a plain RNN has no other
    memory. Judged NDCG@10 of product titles 0.856; of longer ones hardly above a random order (Chinese: 0.733).
    """
    return replace(
        lstm_96(),
        name="rnn-288",
        tower=RNN(cells=288, recurrent_step=0.0002),
        optimiser=Nesterov(step=0.002),
        initial_range=0.05,
    )


def lstm_full_96() -> Recipe:
    """lstm-96 with forget gate and peepholes (all of eq. 2), which the paper drops; the gate is open at the start."""
    return replace(lstm_96(), name="lstm-full-96", tower=_FULL_LSTM)


def bilstm_96() -> Recipe:
    """The bidirectional row of Table IV: 96 cells in each direction, so 192 dimensions.

    The paper does not say whether 96 is meant for one direction or for both. NDCG@10 of product titles 0.864.
    """
    return replace(lstm_96(), name="bilstm-96", tower=BiLSTM(recurrent_range=0.01, recurrent_step=0.00004))


def lstm_pool_96() -> Recipe:
    """lstm-96 against all of 512 titles that the pairs of a micro-batch share: it finds more among all titles.

    What each part of it is worth is in docs/quality.md.
    """
    return replace(lstm_96(), name="lstm-pool-96", objective=replace(_CLICKS, negatives=_POOL))


def lstm_pool_192() -> Recipe:
    """`lstm-pool-96` with twice the cells: it ranks best. NDCG@10 of product titles 0.864, recall@100 0.69.

    Of entity names 0.347, Chinese titles 0.810, the first 32 words of abstracts 0.897 (ten epochs 0.894). With W in
    ±0.3 0.864 and 0.67, 0.344, 0.805, 0.894 (ten); in ±0.05 0.864 and 0.69, 0.332, 0.813, 0.891 (ten).
    """
    return replace(lstm_pool_96(), name="lstm-pool-192", tower=replace(_LSTM, cells=192))


def lstm_long_96() -> Recipe:
    """`lstm-pool-96` with forget gate and peepholes, the gate open at the start: for texts of twenty words and more.

    Chinese titles of 21 words: NDCG@10 0.821 for 0.812. Abstracts: 0.890 from their first 32 words, where lstm-pool-96
    has 0.892, and 0.889 from their first 64.
    """
    return replace(lstm_pool_96(), name="lstm-long-96", tower=_FULL_LSTM)


def dssm() -> Recipe:
    """The DSSM row of Table IV: trigram counts of the whole text, 288 tanh units, 96 tanh units.

    Start, towers and γ as lstm-96's; it has no recurrence that would need a step of its own. Judged NDCG@10 of product
    titles, entity names, Chinese titles and the first 32 words of abstracts: 0.861, 0.288, 0.808, 0.862; with a uniform
    start, γ 5 and two towers 0.860, 0.247, 0.808 and, of whole abstracts, 0.807.
    """
    return replace(lstm_96(), name="dssm", tower=DSSM(hidden=288, cells=96), optimiser=Nesterov(step=0.002))


def clsm_1() -> Recipe:
    """The CLSM row of Table IV with windows of one word: dssm's start, a quarter of its step.

    Judged NDCG@10 as for dssm: 0.857, 0.300, 0.790, 0.863; with dssm's step 0.857, 0.290 and 0.738, where its
    loss does not come down.
    """
    return replace(dssm(), name="clsm-1", tower=CLSM(window=1, hidden=288, cells=96), optimiser=Nesterov(step=0.0005))


def clsm_3() -> Recipe:
    """The CLSM row of Table IV with windows of three words."""
    return replace(clsm_1(), name="clsm-3", tower=CLSM(window=3, hidden=288, cells=96))


def clsm_5() -> Recipe:
    """The CLSM row of Table IV with windows of five words."""
    return replace(clsm_1(), name="clsm-5", tower=CLSM(window=5, hidden=288, cells=96))


def bag_512() -> Recipe:
    """Letter trigrams added up, 512 dimensions, started by how rare each is: no row of Table IV.

    Chosen on train queries left out of training (docs/quality.md), on 28,526 pairs: judged NDCG@10 0.857, 0.858, 0.858
    after 1, 3 and 5 epochs; 256 dimensions with half the step 0.859, the same with γ 10 0.859. One tower for both sides
    is level with two (0.859 each with 256 dimensions, 0.858 and 0.859 with 512), and half as large. An LSTM of 96 cells
    that starts from nothing has 0.853.
    """
    return Recipe(
        name="bag-512",
        tower=Bag(cells=512),
        objective=replace(_CLICKS, gamma=5.0),
        optimiser=Nesterov(step=0.004),
        initial_range=0.1,
        epochs=5,
    )


def bag_pool_512() -> Recipe:
    """`bag-512` against all of 512 titles that the pairs of a micro-batch share: it finds more among all titles.

    Chosen on the same left-out queries (docs/quality.md): NDCG@10 0.861 for 0.857, recall@100 0.68 for 0.59 (seed 1);
    half the step 0.860, twice the step 0.861, γ 20 with half the step 0.860 and recall@100 0.72.
    """
    return replace(
        bag_512(),
        name="bag-pool-512",
        objective=replace(_CLICKS, negatives=_POOL),
        optimiser=Nesterov(step=0.002),
    )


def self_attentive() -> Recipe:
    """Lin et al.'s structured self-attention: four sums of the states of an LSTM of 48 cells in each direction.

    As many parameters in W as lstm-96; a start by rarity gained nothing (0.855). On 33,468 pairs (docs/quality.md),
    after 3 epochs, mean of three seeds: judged NDCG@10 0.859 without a penalty, 0.855 with 0.1, 0.833 with 1; in titles
    the hops overlap by 0.107, 0.004 and 0.048. More epochs were not tried, nor other sizes.
    """
    return Recipe(name="self-attentive", tower=_ATTENTION, epochs=10)


def max_pooled() -> Recipe:
    """The largest state over the words, of an LSTM of 48 cells in each direction: as many parameters in W as lstm-96.

    Start and steps are lstm-96's: NDCG@10 of product titles 0.860, of Chinese titles 0.788; with everything in ±0.2,
    one step of 0.002 and two towers 0.855 (3 epochs) and 0.742.
    """
    return replace(
        lstm_96(), name="max-pooled", tower=MaxPooled(cells=48, recurrent_range=0.01, recurrent_step=0.00004)
    )


def variational() -> Recipe:
    """Deudon's encoder: a normal distribution of 96 dimensions, from an LSTM of 48 cells in each direction.

    As many parameters in W as lstm-96. Before the first update σ is near log 2, a part of the embedding that all
    texts have in common: a wider start and a larger γ tell them apart sooner. On 33,468 pairs
    (docs/quality.md), after 3 epochs, seed 1, judged NDCG@10: ±0.2 0.844 with γ 5 and with γ 10; ±0.35 0.852 with γ 5,
    0.856 with γ 10 (seed 2: 0.854); a start by rarity gained nothing (0.855). More epochs were not tried.
    """
    return Recipe(
        name="variational",
        tower=Variational(cells=48, latent=96),
        objective=Clicks(gamma=10.0),
        initial_range=0.35,
        epochs=10,
    )


_NAMED: tuple[Callable[[], Recipe], ...] = (
    lstm_96, lstm_64, lstm_32, lstm_full_96, lstm_pool_96, lstm_pool_192, lstm_long_96, bilstm_96, rnn_288,
    dssm, clsm_1, clsm_3, clsm_5, bag_512, bag_pool_512, self_attentive, max_pooled, variational,
    *LABELLED_RECIPES,
)  # fmt: skip


def names() -> list[str]:
    """The names `recipe` knows."""
    return [make().name for make in _NAMED]


def recipe(name: str) -> Recipe:
    """The recipe of a name. Raises UsageError for an unknown one."""
    for make in _NAMED:
        if (found := make()).name == name:
            return found
    raise UsageError(
        asked=f"the recipe {name!r} was to be trained",
        found="there is no recipe of that name",
        do=f"use one of {', '.join(names())}",
    )
