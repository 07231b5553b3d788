"""Recipes of the objectives that learn from labels, beside those of clicks in training.recipes.

Values were chosen on the held-out questions of `question_pairs` and the held-out sentences of `snli`, by single trials
(docs/labelled.md has figures over seeds). The step of Adam and the batches are about the papers'.
"""

from collections.abc import Callable
from dataclasses import replace

from training.recipe import Recipe


def siamese_lstm() -> Recipe:
    """Two texts through one bidirectional LSTM, the four features of InferSent, a layer of 64 ReLU units."""
    return Recipe(
        name="siamese-lstm",
        tower="bilstm",
        cells=48,
        tie_towers=True,
        objective="classify",
        optimiser="adam",
        step=0.001,
        features="siamese",
        head_units=64,
        dropout=0.3,
        minibatch=128,
        micro_batch=64,
        epochs=4,
    )


def siamese_max() -> Recipe:
    """siamese-lstm with the maximum over all states instead of the last ones: InferSent's encoder."""
    return replace(siamese_lstm(), name="siamese-max", tower="max_pooled")


def gated_attention() -> Recipe:
    """Lin et al.'s model of entailment: self-attention with four hops, the gated encoder of both texts.

    Sizes are ours: 48 cells a direction for 300, d_a 32 for 150, r 4 for 30, 128 hidden units for 4,000.
    """
    return replace(
        siamese_lstm(),
        name="gated-attention",
        tower="self_attentive",
        attention_units=32,
        hops=4,
        penalty=0.1,
        features="gated",
        factors=48,
        head_units=128,
    )


def attentive_texts() -> Recipe:
    """Lin et al.'s classifier of single texts: self-attention with four hops, the pruned layer (p = 16, q = 4)."""
    return replace(
        gated_attention(),
        name="attentive-texts",
        features="plain",
        factors=0,
        head="pruned",
        head_units=0,
        row_units=16,
        column_units=4,
    )


def var_siamese() -> Recipe:
    """Deudon's VAR-Siamese: texts are learnt as distributions by being said again, then told apart by the terms of W₂.

    `paraphrase` names the class of pairs that mean the same. Sizes are ours: 48 cells a direction and h = 96 for 1,000,
    and so is the schedule of κ. With the paper's (rate 0.002, middle 2,500) 38,000 questions end with a divergence of
    0.5 nats: the decoder no longer listens to z. Word dropout, which the author's program has, keeps it listening.
    """
    return replace(
        siamese_lstm(),
        name="var-siamese",
        tower="variational",
        latent=96,
        features="w2",
        l1=1e-5,
        pretrain_epochs=10,
        reformulate=True,
        paraphrase="1",
        decoder_cells=96,
        decoder_columns=64,
        vocabulary=3000,
        word_dropout=0.4,
        kappa_rate=0.001,
        kappa_middle=6000,
    )


NAMED: tuple[Callable[[], Recipe], ...] = (siamese_lstm, siamese_max, gated_attention, attentive_texts, var_siamese)
