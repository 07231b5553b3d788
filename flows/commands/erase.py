"""clicktower erase"""

import sys
from dataclasses import asdict
from getpass import getpass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from flows.show import console, present
from flows.show.console import errors, output, plain
from schemas import storage
from schemas.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.ingest.erase import Erasure


# Client ids from stdin or a file: no argument, error or message ever holds one.


def read_client_ids(client_id: str | None, file: str | None) -> list[str]:
    """The ids, each once. `client_id` may only be `-`, for stdin. Raises UsageError."""
    asked = "people were to be erased"
    if client_id is not None and client_id != "-":
        raise UsageError(
            asked=asked,
            found="a client id stands on the command line",
            follows="the shell's history and the list of processes would keep it",
            do="write `--client-id -` and give the id on stdin, or use --client-ids-file; and clear your history",
        )
    if (client_id is None) == (file is None):
        raise UsageError(
            asked=asked,
            found="it must be said once where their client ids are",
            do="give either `--client-id -` (stdin) or `--client-ids-file FILE`",
        )
    return _parse(_read(file), asked)


def _read(file: str | None) -> bytes:
    if file is not None:
        try:
            return storage.read_bytes(file)
        except FileNotFoundError:
            raise UsageError(
                asked="client ids were to be read from a file", found="there is no such file", do="check the path"
            ) from None
    if sys.stdin.isatty():
        return getpass("client id (not shown): ").encode()
    return sys.stdin.buffer.read()


def _parse(content: bytes, asked: str) -> list[str]:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise UsageError(asked=asked, found="the client ids are no UTF-8 text", do="give one id a line") from None
    ids = list(dict.fromkeys(line.removesuffix("\r") for line in lines if line.strip()))
    if not ids:
        raise UsageError(asked=asked, found="there is no client id", do="give one client id a line")
    return ids


def erase(
    *,
    store: str,
    client_id: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    client_ids_file: str | None = None,
    person_key: str | None = None,
    json: bool = False,
) -> None:
    """Erase people, on their request, from the private days of a store.

    The ids are read from a file or from stdin, never from the command line,
    which other users of the machine and the shell's history can see. Queries
    that only these people typed are removed; from all others their hash is
    removed. Reports which shards and models were made before.

        clicktower erase --store store --client-id -
        clicktower erase --store store --client-ids-file ids.txt

    Parameters
    ----------
    store
        The store whose days are changed.
    client_id
        `-`: read client ids, as the log spells them, from stdin, one per line (not echoed on a terminal).
    client_ids_file
        A file with one client id per line.
    person_key
        The key file that logs were ingested with, if it was not the store's own.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.ingest.erase import erase as run

    client_ids = read_client_ids(client_id, client_ids_file)
    with console.progress_bar("erase") as progress:
        erasure = run(client_ids, store=store, person_key=person_key, progress=progress)
    console.emit(as_result(store, erasure), json, show)


# What an erasure did, as JSON and as a person reads it. Never who it was about.


def as_result(store: str, erasure: "Erasure") -> dict[str, Any]:
    """The JSON object of an erasure. `reused`: there was nothing to change."""
    return {
        "stage": "erase",
        "digest": "",  # an erasure has no name of its own: what names it would name the person
        "path": store,
        "reused": not erasure.num_ingests,
        "counts": {
            "ingests_changed": erasure.num_ingests,
            "queries_removed": erasure.num_queries,
            "queries_with_one_person_less": erasure.num_sets,
            "lines_removed": erasure.num_lines,
        },
        "days": dict(erasure.dates),
        "without_key": list(erasure.keyless),
        "unfinished": list(erasure.unfinished),
        "made_before": [asdict(made) for made in erasure.made_before],
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
    for date, version in result["days"].items():
        output.print(f"{date} is now version {version}")
    _list("Cannot be changed any more, since the key of their window is gone:", result["without_key"])
    _list("Left behind by ingests that did not finish; run them again, or remove these folders:", result["unfinished"])
    made = [f"{one['stage']:<9} {one['path']} ({one['created']})" for one in result["made_before"]]
    _list("Made before from days that an erasure has changed since; build, train and publish again, then remove:", made)
    errors.print("[dim]Raw logs, and copies of the store, are not touched: remove the person from them too.[/]")


def _list(title: str, lines: list[str]) -> None:
    if lines:
        output.print(f"\n{title}")
        for line in lines:
            output.print(f"  {plain(line)}", soft_wrap=True)
