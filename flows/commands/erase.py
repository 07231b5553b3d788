"""clicktower erase"""

from typing import Annotated

from cyclopts import Parameter

from flows import console, present_erasure
from flows.client_ids import read_client_ids


def erase(
    *,
    store: str,
    client_id: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    client_ids_file: str | None = None,
    person_key: str | None = None,
    json: bool = False,
) -> None:
    """Take people who ask for it out of the private days of a store.

    The ids are read from a file or from stdin, never from the command line,
    which other users of the machine and the shell's history can see. Queries
    that only these people typed are removed; from all others their hash is. Says
    which shards and models were made before.

        clicktower erase --store store --client-id -
        clicktower erase --store store --client-ids-file ids.txt

    Parameters
    ----------
    store
        The store whose days are changed.
    client_id
        `-`: read the client id, as the log spells it, from stdin (typed unseen on a terminal); more of them one a line.
    client_ids_file
        A file with one client id a line.
    person_key
        A key file that logs were ingested with, if it was not the store's own.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.ingest.erase import erase as run

    client_ids = read_client_ids(client_id, client_ids_file)
    with console.progress_bar("erase") as progress:
        erasure = run(client_ids, store=store, person_key=person_key, progress=progress)
    console.emit(present_erasure.as_result(store, erasure), json, present_erasure.show)
