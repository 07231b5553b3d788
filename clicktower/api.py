"""The Python interface: what `import clicktower` offers."""

import os
from collections.abc import Iterable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.release import MODEL, read_pointer
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import words

if TYPE_CHECKING:
    from clicktower.flows.releases.document_filter import Filter
    from clicktower.flows.releases.search import Hit, Mode
    from clicktower.training.model.embedding import Side


class Model:
    """A model that encodes and explains texts.

    path: the folder or URI that it was loaded from. folder: that of the model's two files. Pickled, as for a process
    pool, it is a path, from which it is loaded again.
    """

    def __init__(self, path: str) -> None:
        from clicktower.training.model.model import load_encoder
        from clicktower.training.model.model_folder import model_source

        self.path = path
        self.folder = model_source(path).folder
        self._encoder = load_encoder(self.folder)

    @property
    def dimensions(self) -> int:
        """The numbers of a vector."""
        return self._encoder.dimensions

    @property
    def similarity(self) -> str:
        """How vectors are compared: "cosine", or "euclidean" for the distance."""
        return self._encoder.similarity

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (storage.absolute(self.path),)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Model":
        return self  # nothing in it changes

    def __copy__(self) -> "Model":
        return self

    def encode_queries(self, texts: Iterable[str], *, progress: Progress = silent) -> np.ndarray:
        """The vectors of queries, float32 [texts, dimensions]; zero for a text without a word.

        By cosine they have length 1, so that a dot product is the cosine. texts: a list, tuple or generator, a NumPy
        array, a column of Arrow, pandas or Polars. progress: is called with (what, done, total). Raises UsageError for
        a single text and for a value that is no text.

        >>> model = load("store/train/DIGEST")
        >>> cosines = model.encode_queries(["hammer", "red hose"]) @ model.encode_titles(["Claw hammer, 16 oz."]).T
        >>> cosines.shape
        (2, 1)
        """
        return self._encode(texts, "query", progress)

    def encode_titles(self, texts: Iterable[str], *, progress: Progress = silent) -> np.ndarray:
        """The vectors of titles, in the same form."""
        return self._encode(texts, "document", progress)

    def explain(self, query: str, title: str) -> dict[str, Any]:
        """The cosine or distance of a query and a title, and each word's share of it: what it loses without the word.

        The result has the keys of `POST /v1/explain` (flows.releases.word_shares). Where words or terms have a share of
        the score it is None: a release has the titles that weigh them. Raises UsageError for a text without a word.

        >>> explained = load("store/train/DIGEST").explain("claw hamer", "Claw hammer, 16 oz.")
        >>> [word["word"] for word in explained["query"]["words"]]
        ['claw', 'hamer']
        """
        from clicktower.flows.releases.word_shares import explain_pair

        return explain_pair(self._encoder, query, title)

    def _encode(self, texts: Iterable[str], side: "Side", progress: Progress) -> np.ndarray:
        from clicktower.flows.releases.encode_lines import encode

        return encode(self._encoder, _text_list(texts), side, progress)[0]


class Release(Model):
    """A release: its model, and searches of its documents.

    The pointer is resolved once, so all answers are from one release; load again to follow it. Threads may share it,
    and processes by pickle, which opens the same release again. digest: of a release that is kept at the path; None:
    the live one.

    >>> release = load("release")
    >>> hits = release.search("hammer", k=3)
    >>> [hit.rank for hit in hits], hits[0].score >= hits[1].score
    ([1, 2, 3], True)
    """

    def __init__(self, path: str, *, digest: str | None = None) -> None:
        from clicktower.flows.releases.search import OpenRelease

        self.path = path
        self._opened = OpenRelease(path, digest=digest)
        self.folder = storage.join(self._opened.folder, MODEL)
        self._encoder = self._opened.encoder

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), digest=self.digest), (storage.absolute(self.path),)

    @property
    def digest(self) -> str:
        """The digest that names the release."""
        return self._opened.release.digest

    @overload
    def search(  # type: ignore[overload-overlap]  # a text is a collection of letters, too
        self,
        text: str,
        k: int = 10,
        *,
        offset: int = 0,
        mode: "Mode" = "hybrid",
        lexical_share: float | None = None,
        where: "Filter | None" = None,
    ) -> "list[Hit]": ...

    @overload
    def search(
        self,
        text: Iterable[str],
        k: int = 10,
        *,
        offset: int = 0,
        mode: "Mode" = "hybrid",
        lexical_share: float | None = None,
        where: "Filter | None" = None,
    ) -> "list[list[Hit]]": ...

    def search(
        self,
        text: str | Iterable[str],
        k: int = 10,
        *,
        offset: int = 0,
        mode: "Mode" = "hybrid",
        lexical_share: float | None = None,
        where: "Filter | None" = None,
    ) -> "list[Hit] | list[list[Hit]]":
        """The k best documents, best first; each has `rank`, `id`, `title`, `score` and `columns`. Of several texts,
        such as a list or a column, a list for each.

        offset: of the best to skip; pages reach the first 100. mode: hybrid, the whole score of the model; vector, its
        vectors alone; or bm25. lexical_share: of the terms in a hybrid's score, instead of the model's. where: the
        documents to choose from, by columns that the release keeps: `{"price": {"lt": 20}, "category": ["drill",
        "saw"]}`. Raises UsageError for a query without a word, for settings of another type or out of range, and for a
        filter that does not fit the documents.
        """
        search = partial(self._opened.search, k=k, mode=mode, offset=offset, lexical_share=lexical_share, where=where)
        if isinstance(text, str) or not isinstance(text, Iterable):
            return search(text)
        hits = []
        for number, each in enumerate(_text_list(text), 1):
            try:
                hits.append(search(each))
            except UsageError:
                if words(each):  # a setting is wrong
                    raise
                raise UsageError(f"Text number {number:,} has no word to search for.", "Leave it out.") from None
        return hits

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


def load(path: str | os.PathLike[str]) -> Model:
    """The live release at a folder or URI that `publish` wrote to, or the model in a folder that `train` or `combine`
    printed.

    Raises UsageError and StageError: nothing there, damage, another version, another file.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(where := os.fspath(path), str) or not where:
        raise UsageError("A release or a model is loaded by its path.", "Give a folder or a URI as text.")
    try:
        return Model(where) if read_pointer(where) is None else Release(where)
    except (StageError, ImportError):
        raise
    except Exception as error:  # of the file system or of a store's client
        from clicktower.flows.show.failures import explain

        raise explain(error) from error


def train(
    shards: str, *, into: str, recipe: str = "", fields: Mapping[str, Any] | None = None, **options: Any
) -> Model:
    """Train towers on the shards that `build` printed, and load them; a finished training is reused.

    recipe: a name or a TOML file, by default that of `clicktower train`. fields: its fields by dotted name.
    options: those of training.trainer.launch.train, and of its Compute and Sources, such as workers, device, teacher
    or progress.
    Raises UsageError and StageError.

    >>> model = train("store/build/DIGEST", into="store", fields={"tower.cells": 8, "epochs": 1})
    >>> model.dimensions
    8
    """
    from clicktower.flows.config.toml_file import recipe_named
    from clicktower.schemas.section import changed, take_fields
    from clicktower.training.model.recipe import DEFAULT, Compute, Sources
    from clicktower.training.trainer import launch

    named, word_vectors = recipe_named(recipe or DEFAULT)
    options = {"word_vectors": word_vectors, **options}
    options |= {"compute": take_fields(Compute, options), "sources": take_fields(Sources, options)}
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


def _text_list(texts: Iterable[str]) -> list[str]:
    """Texts of any ordered collection, in Python. Raises UsageError for another value, and for values that are no text.

    A DataFrame or an array of several dimensions would be read as something else than its texts.
    """
    if isinstance(texts, str):
        raise UsageError("Several texts are expected, and this is a single one.", "Put it into a list: [text].")
    is_ordered = isinstance(texts, Iterable) and not isinstance(texts, bytes | bytearray | Mapping | Set)
    if not is_ordered or getattr(texts, "ndim", 1) != 1:
        raise UsageError(
            f"Several texts are expected, and this is of type {type(texts).__name__}.",
            "Give a list, a tuple, a generator, or an array or a column of texts.",
        )
    # Values of Arrow and NumPy become Python's.
    in_python = getattr(texts, "to_pylist", None) or getattr(texts, "tolist", None)
    result = in_python() if in_python else list(texts)
    for number, text in enumerate(result, 1):
        if not isinstance(text, str):
            raise UsageError(
                f"Text number {number:,} is no text, but of type {type(text).__name__}.",
                "Give texts alone: leave out what is missing, and write numbers as text.",
            )
    return result
