"""The Python interface: what `import clicktower` offers."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.release import MODEL, read_pointer

if TYPE_CHECKING:
    from clicktower.flows.releases.document_filter import Filter
    from clicktower.flows.releases.search import Hit, Mode
    from clicktower.training.model.embedding import Side
    from clicktower.training.model.model import AnyEncoder


class Model:
    """A model that encodes and explains texts.

    path: the folder or URI that it was loaded from. folder: that of the model's two files.
    """

    def __init__(self, path: str) -> None:
        from clicktower.training.model.model_folder import model_source
        from clicktower.training.model.text_encoder import load_text_encoder

        self.path = path
        self.folder = model_source(path).folder
        self._encoder = load_text_encoder(self.folder)

    @property
    def dimensions(self) -> int:
        """The numbers of a vector."""
        return self._encoder.dimensions

    @property
    def similarity(self) -> str:
        """How vectors are compared: "cosine", or "euclidean" for the distance."""
        return self._encoder.similarity

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of queries, float32 [texts, dimensions]; zero for a text without a word.

        By cosine they have length 1, so that a dot product is the cosine.

        >>> model = load("store/train/DIGEST")
        >>> cosines = model.encode_queries(["hammer", "red hose"]) @ model.encode_titles(["Claw hammer, 16 oz."]).T
        >>> cosines.shape
        (2, 1)
        """
        return self._encode(texts, "query")

    def encode_titles(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of titles, in the same form."""
        return self._encode(texts, "document")

    def explain(self, query: str, title: str) -> dict[str, Any]:
        """The cosine or distance of a query and a title, and each word's share of it: what it loses without the word.

        The result has the keys of `POST /v1/explain` (flows.releases.word_shares). Where words or terms have a share of
        the score it is None: a release has the titles that weigh them. Raises UsageError for a text without a word.

        >>> explained = load("store/train/DIGEST").explain("claw hamer", "Claw hammer, 16 oz.")
        >>> [word["word"] for word in explained["query"]["words"]]
        ['claw', 'hamer']
        """
        from clicktower.flows.releases.word_shares import explain_pair

        return explain_pair(self._torch_model, query, title)

    @cached_property
    def _torch_model(self) -> "AnyEncoder":
        from clicktower.training.model.model import load_encoder

        return load_encoder(self.folder)

    def _encode(self, texts: Sequence[str], side: "Side") -> np.ndarray:
        from clicktower.flows.releases.encode_texts import encode

        if isinstance(texts, str):
            raise UsageError("Several texts are expected, and this is a single one.", "Put it into a list: [text].")
        return encode(self._encoder, texts, side)[0]


class Release(Model):
    """A release: its model, and searches of its documents.

    The pointer is resolved once, so all answers are from one release; load again to follow it. Threads may share it.

    >>> release = load("release")
    >>> hits = release.search("hammer", k=3)
    >>> [hit.rank for hit in hits], hits[0].score >= hits[1].score
    ([1, 2, 3], True)
    """

    def __init__(self, path: str) -> None:
        from clicktower.flows.releases.search import OpenRelease

        self.path = path
        self._opened = OpenRelease(path)
        self.folder = storage.join(self._opened.folder, MODEL)
        self._encoder = self._opened.encoder

    @property
    def digest(self) -> str:
        """The digest that names the release."""
        return self._opened.release.digest

    def search(
        self,
        text: str,
        k: int = 10,
        *,
        mode: "Mode" = "hybrid",
        lexical_share: float | None = None,
        where: "Filter | None" = None,
    ) -> "list[Hit]":
        """The k best documents, best first; each has `rank`, `id`, `title`, `score` and `columns`.

        mode: hybrid, the whole score of the model; vector, its vectors alone; or bm25. lexical_share: of the terms in a
        hybrid's score, instead of the model's. where: the documents to choose from, by columns that the release keeps:
        `{"price": {"lt": 20}, "category": ["drill", "saw"]}`. Raises
        UsageError for a query without a word and for a filter that does not fit the documents.
        """
        return self._opened.search(text, k, mode, lexical_share=lexical_share, where=where)

    def explain(
        self, query: str, title: str, *, mode: "Mode" = "hybrid", lexical_share: float | None = None
    ) -> dict[str, Any]:
        """The score that `search` gives a title for a query, and what contributes to it: vectors, words and terms, and
        each word of the query.

        The result is that of `POST /v1/explain` (flows.releases.word_shares). mode, lexical_share: of the search.
        Raises UsageError for a text without a word.

        >>> release = load("release")
        >>> hit = release.search("claw hamer", k=1)[0]
        >>> release.explain("claw hamer", hit.title)["score"] == hit.score
        True
        """
        from clicktower.flows.releases.word_shares import explain_hit

        return explain_hit(self._opened, query, title, mode, lexical_share=lexical_share)


def load(path: str) -> Model:
    """The live release at a folder or URI that `publish` wrote to, or the model in a folder that `train` or `combine`
    printed.

    Raises UsageError and StageError: nothing there, damage, another version.
    """
    return Model(path) if read_pointer(path) is None else Release(path)


def train(
    shards: str, *, into: str, recipe: str = "", fields: Mapping[str, Any] | None = None, **options: Any
) -> Model:
    """Train towers on the shards that `build` printed, and load them; a finished training is reused.

    recipe: a name or a TOML file, by default that of `clicktower train`. fields: its fields by dotted name.
    options: those of training.trainer.launch.train, such as workers, device, teacher or progress.
    Raises UsageError and StageError.

    >>> model = train("store/build/DIGEST", into="store", fields={"tower.cells": 8, "epochs": 1})
    >>> model.dimensions
    8
    """
    from clicktower.flows.config.toml_file import recipe_named
    from clicktower.schemas.section import changed
    from clicktower.training.model.named_recipes import DEFAULT
    from clicktower.training.trainer import launch

    named, word_vectors = recipe_named(recipe or DEFAULT)
    options = {"word_vectors": word_vectors, **options}
    return Model(launch.train(shards, store=into, recipe=changed(named, fields or {}), **options).folder)


def run(config: str, date: str | None = None) -> dict[str, Any]:
    """Run the pipeline of a pipeline.toml, as `clicktower run` does: the JSON result of every stage by name.

    date: fills {date} in log.files (2026-09-01); by default yesterday. Each stage is a process; its progress goes to
    stderr. Raises the StageError of a stage that fails.

    >>> run("pipeline.toml")["publish"]["stage"]
    'publish'
    """
    from clicktower.flows.commands.pipelines import run_locally

    return run_locally(config, date)
