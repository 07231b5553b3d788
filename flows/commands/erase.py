"""clicktower erase: people leave the days of a store."""

import sys
from dataclasses import asdict
from getpass import getpass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from clicktower.flows.commands.options import Json
from clicktower.flows.show import console, present
from clicktower.flows.show.console import errors, output, plain
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.text_file import decoded, lines

if TYPE_CHECKING:
    from clicktower.beam_jobs.ingest.erase import Erasure


def read_client_ids(client_id: str | None, file: str | None) -> list[str]:
    """The ids, each once; quotes as CSV writes them around an id are no part of it. `client_id` may only be `-`, for
    stdin. Raises UsageError, and StageError as `decoded`.
    """
    if client_id is not None and client_id != "-":
        raise UsageError(
            "A client id stands on the command line: the shell's history and the list of processes would keep it.",
            "Write `--client-id -` and give the id on stdin, or use --client-ids-file; and clear your history.",
        )
    if (client_id is None) == (file is None):
        raise UsageError(
            "The client ids to erase must come from one place.",
            "Give either `--client-id -` (stdin) or `--client-ids-file FILE`.",
        )
    try:
        if file is not None:
            content = storage.read_bytes(file)
        elif sys.stdin.isatty():
            content = getpass("client id (not shown): ").encode()
        else:
            content = sys.stdin.buffer.read()
    except FileNotFoundError:
        raise UsageError(f"There is no file of client ids {file}.", "Check the path.") from None
    typed = [line.strip() for _, line in lines(decoded(content, file or "The text on stdin"))]
    is_quoted = [len(line) > 1 and line[0] == line[-1] == '"' for line in typed]
    bare = [line[1:-1].replace('""', '"') if quoted else line for line, quoted in zip(typed, is_quoted, strict=True)]
    ids = list(dict.fromkeys(filter(None, bare)))
    if not ids:
        raise UsageError("There is no client id to erase.", "Give one client id per line.")
    return ids


def erase(
    *,
    store: str,
    client_id: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    client_ids_file: str | None = None,
    person_key: str | None = None,
    json: Json = False,
) -> None:
    """Erase people, on their request, from the private days of a store.

    The ids are read from a file or from stdin, never from the command line,
    which other users of the machine and the shell's history can see. Queries
    that only these people typed are removed; from all others their hash is
    removed. Reports which shards and models were made before.

    The people are put on a private list first (STORE/private/erased), by which
    every later ingest drops their lines, whatever log it reads. Hashes of the
    log's lines stay, until the key of their window is deleted.

        clicktower erase --store store --client-id -
        clicktower erase --store store --client-ids-file ids.txt

    Args:
        store: The store whose days are changed.
        client_id: `-`: read client ids, as the log spells them, from stdin, one per line (not echoed on a terminal).
            Case counts; spaces, invisible characters, quotes around an id and a `.0` at the end do not.
        client_ids_file: A file with one client id per line.
        person_key: The key file that logs were ingested with, if it was not the store's own.
    """
    from clicktower.beam_jobs.ingest import erase

    client_ids = read_client_ids(client_id, client_ids_file)
    with console.progress_bar("erase") as progress:
        erasure = erase.erase(client_ids, store=store, person_key=person_key, progress=progress)
    console.emit(erasure_json(store, erasure), json, show)


def erasure_json(store: str, erasure: "Erasure") -> dict[str, Any]:
    """The JSON object of an erasure. `reused`: there was nothing to change."""
    return {
        "stage": "erase",
        "digest": "",  # an erasure has no digest: one would identify the person
        "path": store,
        "reused": not erasure.num_ingests,
        "counts": {
            "ids": erasure.num_ids,
            "ids_found": erasure.num_found,
            "ingests_changed": erasure.num_ingests,
            "queries_removed": erasure.num_queries,
            "queries_with_one_person_less": erasure.num_sets,
            "lines_removed": erasure.num_lines,
        },
        "days": dict(erasure.dates),
        "without_key": list(erasure.keyless),
        "unfinished": list(erasure.unfinished),
        "made_before": [asdict(output_made) for output_made in erasure.made_before],
    }


def show(result: dict[str, Any]) -> None:
    """What was removed, what could not be, and what was made before."""
    counts = result["counts"]
    if result["reused"]:
        present.stage_line("erase", "nothing to remove: no day whose key is there holds these people")
    else:
        present.stage_line(
            "erase",
            f"{counts['queries_removed']:,} queries that nobody else typed are removed"
            f" ({counts['lines_removed']:,} lines), {counts['queries_with_one_person_less']:,} count fewer people,"
            f" in {counts['ingests_changed']:,} ingests",
        )
    unknown = counts["ids"] - counts["ids_found"]
    output.print(
        f"Ids found in the days: {counts['ids_found']:,} of {counts['ids']:,}."
        + (f" {unknown:,} are not, or not any more: compare their spelling with the log's." if unknown else "")
    )
    output.print(f"Listed in {plain(result['path'])}/private/erased: later ingests drop their lines.", soft_wrap=True)
    for date, version in result["days"].items():
        output.print(f"{date} is now version {version}")
    _list("Cannot be changed any more, since the key of their window is gone:", result["without_key"])
    _list("Left behind by ingests that did not finish; run them again, or remove these folders:", result["unfinished"])
    earlier_outputs = [
        f"{output_made['stage']:<9} {output_made['path']} ({output_made['created']})"
        for output_made in result["made_before"]
    ]
    _list(
        "Made before from days that an erasure has changed since; build, train and publish again, then remove:",
        earlier_outputs,
    )
    errors.print(
        "[dim]Raw logs, and copies of the store, are not touched: remove the person from them too. Keyed hashes of the"
        " log's lines stay (lines.arrow), to recognise a log that comes again; once the key of their window is deleted,"
        " they mean nothing, and the list under that key neither.[/]"
    )


def _list(title: str, lines: list[str]) -> None:
    if lines:
        output.print(f"\n{title}")
        for line in lines:
            output.print(f"  {plain(line)}", soft_wrap=True)
