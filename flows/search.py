"""Search the live release: a query as a person types it -> ranked documents."""

from dataclasses import dataclass

from flows.release_folder import files_of
from flows.release_index import nearest, open_table
from schemas.errors import StageError, UsageError, require_major
from schemas.manifest import damaged_files
from schemas.release import MODEL, read_release
from schemas.trigrams import CONTRACT_VERSION
from schemas.words import words
from training.ensemble import load_encoder
from training.ranking.embedding import unit_vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    rank: int
    id: str
    title: str
    score: float  # cosine


class OpenRelease:
    """A release opened once: the pointer is resolved here, and every search stays in that release's folder."""

    def __init__(self, uri: str) -> None:
        """Raises StageError where nothing was published, or it is damaged or of another version."""
        self.folder, self.release = read_release(uri)
        require_major(f"the text contract of {uri}", self.release.text_contract.get("trigrams"), CONTRACT_VERSION)
        if wrong := damaged_files(self.folder, files_of(self.release)):
            raise StageError(
                asked=f"the release at {uri} was to be opened",
                found=f"{'; '.join(wrong[:3])}",
                follows="its answers could not be believed",
                do="publish again: it will be repaired",
            )
        self._model = load_encoder(f"{self.folder}/{MODEL}")
        self._table = open_table(self.folder)

    def search(self, text: str, k: int = 10) -> list[Hit]:
        """The k documents nearest to a query, best first, ties by descending id. Raises UsageError without a word."""
        if k < 1:
            raise UsageError(asked=f"k = {k} documents were to be found", found="k must be at least 1", do="raise k")
        _require_words(text)
        vector = unit_vectors(self._model, [text], "query")[0]
        found = nearest(self._table, self.release.index, vector, k)
        return [Hit(rank=rank, id=i, title=title, score=score) for rank, (i, title, score) in enumerate(found, 1)]


def search(release: str, text: str, k: int = 10) -> list[Hit]:
    """The k documents of the live release at a URI that are nearest to a query. Raises UsageError or StageError."""
    _require_words(text)  # before anything is loaded
    return OpenRelease(release).search(text, k)


def _require_words(text: str) -> None:
    if not words(text):
        raise UsageError(
            asked="documents were to be found for a query",
            found="the query has no word",
            follows="a text without a word has no embedding",
            do="type at least one word",
        )
