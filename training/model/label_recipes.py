"""The recipes that learn from labels.

Step and epochs were chosen on a fifth of the training questions of `question_pairs` (gated-attention: sentences of
`snli`), all else by single trials on held-out ones; docs/labelled.md has figures over seeds. An LSTM has a forget gate,
as in the papers. attentive-texts, and what var-siamese learns first, have what they had before that.
"""

from dataclasses import replace

from training.model.click_recipes import SELF_ATTENTIVE, VARIATIONAL
from training.model.objective_settings import (
    MLP,
    Classify,
    GatedFeatures,
    PlainFeatures,
    Pretraining,
    Pruned,
    SiameseFeatures,
    W2Features,
)
from training.model.recipe import Adam, Recipe
from training.towers.tower_settings import CNN, GRU, SWEM, BiLSTM, MaxPooled

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

# siamese-lstm with the maximum over all states instead of the last ones: InferSent's encoder.
SIAMESE_MAX = replace(SIAMESE_LSTM, name="siamese-max", tower=MaxPooled(cells=48, forget_gate=True, forget_bias=1.0))

# siamese-lstm with the other encoders of Deudon's table: a GRU, a CNN with windows of three words, and no network but
# the mean and the maximum of the words' vectors (`--set tower.aggregate=aver` or `max`: one of the two). W has 288
# columns of each, of siamese-lstm 384.
SIAMESE_GRU = replace(SIAMESE_LSTM, name="siamese-gru", tower=GRU(cells=96), epochs=2)
SIAMESE_CNN = replace(SIAMESE_LSTM, name="siamese-cnn", tower=CNN(cells=96, window=3), epochs=2)
SIAMESE_SWEM = replace(SIAMESE_LSTM, name="siamese-swem", tower=SWEM(cells=288), epochs=4)

# Lin et al.'s model of entailment: self-attention with four hops, the gated encoder of both texts.
# Sizes are ours: 48 cells a direction for 300, d_a 32 for 150, r 4 for 30, 128 hidden units for 4,000.
GATED_ATTENTION = replace(
    SIAMESE_LSTM,
    name="gated-attention",
    tower=SELF_ATTENTIVE.tower,
    objective=Classify(features=GatedFeatures(factors=48), head=MLP(units=128), dropout=0.3),
)

# Lin et al.'s classifier of single texts: self-attention with four hops, the pruned layer (p = 16, q = 4).
ATTENTIVE_TEXTS = replace(
    GATED_ATTENTION,
    name="attentive-texts",
    objective=Classify(features=PlainFeatures(), head=Pruned(row_units=16, column_units=4), dropout=0.3),
    optimiser=Adam(step=0.001),
    epochs=4,
)

# Deudon's VAR-Siamese: distributions of texts, learnt by reconstruction, then classified by the terms of W₂.
# `paraphrase` names the class of pairs that mean the same. Sizes are ours: 48 cells a direction and h = 96 for 1,000,
# and so is the schedule of κ. With the paper's (rate 0.002, middle 2,500) 38,000 questions end with a divergence of 0.5
# nats: the decoder no longer listens to z. Word dropout, which the author's program has, keeps it listening.
VAR_SIAMESE = replace(
    SIAMESE_LSTM,
    name="var-siamese",
    tower=VARIATIONAL.tower,
    objective=replace(
        _SIAMESE,
        features=W2Features(),
        l1=1e-5,
        pretrain=Pretraining(
            epochs=10,
            reformulate=True,
            paraphrase="1",
            word_dropout=0.4,
            kappa_rate=0.001,
            kappa_middle=6000,
        ),
    ),
    optimiser=Adam(step=0.001),
    epochs=2,
)

LABEL_RECIPES = (
    SIAMESE_LSTM, SIAMESE_MAX, SIAMESE_GRU, SIAMESE_CNN, SIAMESE_SWEM, GATED_ATTENTION, ATTENTIVE_TEXTS, VAR_SIAMESE,
)  # fmt: skip
