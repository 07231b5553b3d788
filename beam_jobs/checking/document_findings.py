"""Problems with a documents file, each with a remedy."""

from collections.abc import Iterator, Mapping
from typing import Any

from clicktower.beam_jobs.checking.findings import LOOK, NOTE, LogFinding

_SHARE_TO_LOOK_AT = 0.01


def wrong_documents(documents: Mapping[str, Any]) -> Iterator[LogFinding]:
    """Skipped rows, HTML in titles, broken letters, ids with white space inside, of CatalogueFacts."""
    skipped = documents.get("skipped", ())
    total = documents["num_documents"] + sum(rows["rows"] for rows in skipped)
    for rows in skipped:
        yield LogFinding(
            level=LOOK if rows["rows"] > _SHARE_TO_LOOK_AT * total else NOTE,
            code=f"documents_{rows['reason']}",
            problem=f"{rows['problem']}.",
            fix=rows["fix"],
        )
    if documents.get("entities"):
        yield LogFinding(
            level=LOOK,
            code="documents_entities",
            problem=f"{documents['entities']:,} titles hold HTML, such as `&amp;` or `&#39;`: the model learns it as"
            " words, and people see it.",
            fix="Unescape the titles where they are exported (Python: html.unescape).",
        )
    if documents.get("broken_letters"):
        yield LogFinding(
            level=LOOK,
            code="documents_broken_letters",
            problem=f"{documents['broken_letters']:,} titles hold the mark U+FFFD, which a program wrote where it could"
            " not read a letter.",
            fix="Export the titles again, read in the encoding that they were written in.",
        )
    if documents.get("spaced_ids"):
        yield LogFinding(
            level=NOTE,
            code="documents_spaced_ids",
            problem=f"{documents['spaced_ids']:,} ids have white space inside, which TREC's qrels cannot hold; the runs"
            " of `evaluate` write it as %20.",
            fix="Leave it if no qrels name these documents, or write the ids without it in the documents and the log.",
        )
