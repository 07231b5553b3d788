"""Lin et al. (arXiv:1703.03130) and Deudon (VAR-Siamese, NeurIPS 2018) with the sizes and optimisers that they print.

They take word vectors (`--word-vectors FILE`). A step or a bound of SGD is printed for the mean of a minibatch and
stands here divided, or multiplied, by its size, since gradients are summed. Not printed, and not tuned at these sizes:
where parameters start, epochs (of SNLI 4 are), the batch of SNLI, the CNN's window and width, the decoder's vocabulary.

Where the sources disagree: section 4.1 of Lin et al. has 2,000 hidden units for Age, and Table 4's 72 M need 4,000,
which `lin-age` has. Its "other parts" of 1.3 M for Yelp and Age are 0.1 M more than its sizes give, the 22.9 M of SNLI
0.2 M less.
"""

from dataclasses import replace

from training.model.objective_settings import MLP, Classify, GatedFeatures, Generate, W2Features
from training.model.recipe import SGD, AdaGrad, Adam, Recipe, Tuned
from training.towers.tower_settings import CNN, MaxPooled, SelfAttentive, Variational

_LIN = SelfAttentive(
    cells=300, forget_gate=True, forget_bias=1.0, recurrent_range=0.05, attention_units=350, hops=30, penalty=1.0
)

# Reviews and their stars; word2vec of 100 columns.
LIN_YELP = Recipe(
    name="lin-yelp",
    tower=_LIN,
    objective=Classify(head=MLP(units=3000), dropout=0.5, l2=1e-4),
    optimiser=SGD(step=0.06 / 32, clip_value=0.5 * 32),
    word_vectors=Tuned(columns=100),
    initial_range=0.1,
    minibatch=32,
    micro_batch=16,
    epochs=10,
)

# Tweets and their authors' age; the columns of word vectors are not printed, but "other parts" are as large as Yelp's.
LIN_AGE = replace(
    LIN_YELP,
    name="lin-age",
    objective=Classify(head=MLP(units=4000), dropout=0.5, l2=1e-4),
    optimiser=SGD(step=0.06 / 16, clip_value=0.5 * 16),
    minibatch=16,
)

# The baselines of Table 1, with the minibatch of Yelp.
LIN_MAX = replace(
    LIN_YELP,
    name="lin-max",
    tower=MaxPooled(cells=300, forget_gate=True, forget_bias=1.0, recurrent_range=0.05),
)
LIN_CNN = replace(LIN_YELP, name="lin-cnn", tower=CNN(cells=600, window=3))

# Premise and hypothesis; GloVe of 300 columns.
LIN_SNLI = replace(
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

# Deudon's autoencoder: questions as themselves, and as their duplicates. By W₂ alone it is a row of Table 3.
DEUDON_VAE = Recipe(
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

# Questions as themselves alone.
DEUDON_VAE_REPEAT = replace(
    DEUDON_VAE,
    name="deudon-vae-repeat",
    objective=replace(_GENERATE, reformulate=False, paraphrase=""),
)

# VAR-Siamese: `--start` it from one of the two; without, it is the row without pretraining.
DEUDON = replace(
    DEUDON_VAE,
    name="deudon",
    objective=Classify(features=W2Features(), head=MLP(units=1000), l1=1e-5),
    minibatch=128,
)

SISTER_RECIPES = (LIN_YELP, LIN_AGE, LIN_MAX, LIN_CNN, LIN_SNLI, DEUDON_VAE, DEUDON_VAE_REPEAT, DEUDON)
