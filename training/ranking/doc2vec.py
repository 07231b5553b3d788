"""Doc2Vec of titles and queries: the paragraph vectors of the paper's Table IV, on gensim.

The settings are the paper's (section VI): every word counts (min_count 1), windows of 5 words, 100 dimensions, frequent
words thinned at 1e-4, 5 noise words, 30 epochs, trained on the texts of training and test alike, without judgments.

The paper describes the distributed memory (PV-DM: a word is predicted from its window and the text's own vector) and
uses the trained vectors of queries too: that is `memory`. The default is the distributed bag of words with word vectors
trained beside it, in windows of 5, which infers the vector of a query. It was better on 1,229 dev queries of product
search: NDCG@1/3/10 of 0.670/0.708/0.856 and with another seed 0.666/0.701/0.854, where the distributed memory with
inferred queries has 0.651/0.682/0.845, the bag of words alone 0.647/0.688/0.847 and BM25 0.664/0.698/0.851. Over the
whole collection it finds 0.562 of the relevant titles among 100, distributed memory 0.168, BM25 0.609.

A title has the vector that training gave it. Inferring it again, as for a query, ranked no better (0.847 either way
with the bag of words alone) and costs as much as a third of the training.

Everything is a function of the texts, in their order, and the seed: gensim runs with one worker, and a query's vector
is inferred from a start and noise words that the query itself decides. (gensim's own `infer_vector` starts from
Python's salted hash and draws noise from where the last call stopped, so its answers differ from run to run.)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import keyed_digest, normalise, words
from clicktower.training.model.embedding import distinct_texts, unit


class TitleDoc2Vec:
    """Cosines of a query's vector and every title's."""

    def __init__(
        self,
        titles: Sequence[str],
        other_texts: Sequence[str] = (),
        *,
        dimensions: int = 100,
        thinning: float = 1e-4,
        epochs: int = 30,
        window: int = 5,
        memory: bool = False,
        seed: int = 0,
        progress: Progress = silent,
    ) -> None:
        """Trained on the distinct titles and the other texts (queries); a repeated text counts once.

        `memory`: by PV-DM, and each query has the vector from training, so it must be one of the texts.

        Raises StageError if gensim is not installed, or no text has a word.
        """
        self.dimensions, self._memory, self._seed = dimensions, memory, seed
        distinct, self._text_of_N = distinct_texts(titles)
        self._row_of = {text: row for row, text in enumerate(dict.fromkeys([*distinct, *map(normalise, other_texts)]))}
        texts = [words(text) for text in self._row_of]
        settings = {"vector_size": dimensions, "sample": thinning, "epochs": epochs, "window": window}
        settings["seed"] = seed % 2**32  # gensim takes no larger one
        settings |= {"dm": 1} if memory else {"dm": 0, "dbow_words": 1}
        self._model = _train(texts, settings, progress)
        self._titles_TD = unit(self._model.dv.vectors[: len(distinct)])
        self._titles_TD[[not text for text in texts[: len(distinct)]]] = 0  # only their random start

    @property
    def parameters(self) -> int:
        """The number of stored values: a vector per training text, and two per word."""
        model = self._model
        return model.dv.vectors.size + model.wv.vectors.size + model.syn1neg.size

    @property
    def word_vectors(self) -> tuple[list[str], np.ndarray]:
        """(the words of the texts, their trained vectors float32 [words, dimensions])."""
        return list(self._model.wv.index_to_key), self._model.wv.vectors

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The cosine of each query and title, float32 [queries, titles]; 0 for a title without a word and
        a query without a known one. Raises as `vectors`.
        """
        return (unit(self.vectors(queries)) @ self._titles_TD.T)[:, self._text_of_N]

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Inferred vectors, float32 [texts, dimensions]; each depends on its own text alone, zero without a known
        word. By PV-DM those of the training; raises ValueError for a text that was not trained on.
        """
        if self._memory:
            rows = [self._row_of.get(normalise(text), -1) for text in texts]
            if -1 in rows:
                raise ValueError(f"{rows.count(-1):,} of {len(rows):,} texts were not trained on, and have no vector")
            return self._model.dv.vectors[rows].reshape(-1, self.dimensions)
        return np.array([self._infer(normalise(text)) for text in texts], np.float32).reshape(-1, self.dimensions)

    def _infer(self, text: str) -> np.ndarray:
        """The vector that explains the words of a text best, from a start of its own; the model does not change."""
        from gensim.models.doc2vec import train_document_dbow

        model, known_words = self._model, [word for word in words(text) if word in self._model.wv]
        vector = np.zeros((1, self.dimensions), np.float32)
        if not known_words:
            return vector[0]
        rng = np.random.default_rng(int.from_bytes(keyed_digest(text, self._seed, b"doc2vec"), "big"))
        vector += (rng.random(self.dimensions, np.float32) - np.float32(0.5)) / self.dimensions
        model.random.seed(int(rng.integers(1 << 32)))  # thinning and noise words are drawn from it
        work = np.zeros(self.dimensions, np.float32)
        held = {"learn_words": False, "learn_hidden": False, "doctag_vectors": vector,
                "doctags_lockf": np.ones(1, np.float32)}  # fmt: skip
        for alpha in np.linspace(model.alpha, model.min_alpha, model.epochs):
            train_document_dbow(model, known_words, [0], alpha, work, **held)
        return vector[0]


def _train(texts: list[list[str]], settings: dict[str, Any], progress: Progress) -> Any:
    try:
        from gensim.models.callbacks import CallbackAny2Vec
        from gensim.models.doc2vec import Doc2Vec, TaggedDocument
    except ImportError as error:
        raise StageError(
            f"Doc2Vec needs gensim, which is not installed ({error}).", "Install it: pip install 'clicktower[compare]'."
        ) from None
    if not any(texts):
        raise StageError(
            f"None of the {len(texts):,} texts for Doc2Vec has a word.", "Give titles or queries with words."
        )

    class Epochs(CallbackAny2Vec):
        epoch = 0

        def on_epoch_begin(self, model: Any) -> None:
            progress("train Doc2Vec", self.epoch, settings["epochs"])
            self.epoch += 1

    return Doc2Vec(
        [TaggedDocument(text, [row]) for row, text in enumerate(texts)],
        min_count=1,
        negative=5,
        **settings,
        workers=1,
        callbacks=[Epochs()],
    )
