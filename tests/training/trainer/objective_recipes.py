"""Small recipes of labelled objectives, for tests that train."""

from tests.recipes import recipe_with

PAIRS = recipe_with(name="pairs", objective="classify", optimiser="adam", tower="bilstm", cells=8,
               features="siamese", head_units=16, dropout=0.1, l2=1e-4, epochs=2, minibatch=32, micro_batch=8,
               step=0.01)  # fmt: skip
TEXTS = recipe_with(name="texts", objective="classify", optimiser="adam", tower="self_attentive", cells=8,
               attention_units=8, hops=3, penalty=0.1, head="pruned", row_units=4, column_units=2, epochs=2,
               minibatch=32, micro_batch=8, step=0.01)  # fmt: skip
GENERATE = recipe_with(name="generate", objective="generate", optimiser="adam", tower="variational", cells=8, latent=6,
                  decoder_cells=8, decoder_columns=6, vocabulary=30, kappa_rate=0.1, kappa_middle=20,
                  epochs=2, minibatch=32, micro_batch=8, step=0.01)  # fmt: skip
