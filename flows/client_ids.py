"""Client ids from stdin or a file: no argument, error or message ever holds one."""

import sys
from getpass import getpass

from schemas import storage
from schemas.errors import UsageError


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
