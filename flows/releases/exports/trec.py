"""A TREC run of a release: the k best documents of each query of a file, as the release itself answers."""

from collections.abc import Iterator

from flows.search import OpenRelease
from schemas import storage
from schemas.errors import StageError
from schemas.judgments import read_queries, run_lines
from schemas.stage import Progress
from schemas.words import words


def write_trec(where: str, opened: OpenRelease, queries: str, k: int, progress: Progress) -> tuple[int, int]:
    """(queries, those of them without a word, which have no results). Raises UsageError or StageError."""
    asked = read_queries(queries)
    without = sum(not words(text) for text in asked.values())
    tag = f"clicktower-{opened.release.digest}"

    def answers() -> Iterator[str]:
        for done, (query_id, text) in enumerate(asked.items()):
            progress("search", done, len(asked))
            if words(text):
                scores = {_field(hit.id): hit.score for hit in opened.search(text, k)}
                yield from run_lines({_field(query_id): scores}, tag)

    with storage.open_new(where) as file:
        for line in answers():
            file.write(line.encode())
    return len(asked), without


def _field(name: str) -> str:
    if not name or len(name.split()) != 1 or name.strip() != name:
        raise StageError(
            asked="a TREC run was to be written",
            found="an id has white space in it, or is empty",
            follows="the fields of its line could not be told apart",
            do="give ids without white space, or use another form",
        )
    return name
