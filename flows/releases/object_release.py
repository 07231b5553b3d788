"""A release on an object store, which renames no folder and replaces no object "if unchanged" (publish).

The release is built on this machine, its files are uploaded, and release.json, without which no reader accepts a
folder, is created last. A publisher that dies in between leaves objects that no pointer names; publishing the same
request again removes them.

A claim may be taken over there, but an object can be created only if it does not exist (S3 and compatible stores,
Google Cloud Storage and Azure: fsspec's mode "create"). So each swap of the pointer has a number, and creates
URI/swaps/NUMBER.json with the next one: of two publishers that saw the same pointer one creates it. Then pointer.json
is written as the starting point for readers; they look for later swaps from there (schemas.release). If a file system's
create is only "check, then write", as in fsspec's default, one of two swaps within the same milliseconds is lost.
"""

import os

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import damaged_files, to_bytes
from clicktower.schemas.release import RELEASE, Pointer, Release, swap_name


def move_damaged(folder: str, aside: str) -> None:
    """Move a damaged release; a part of one, which a cut-off upload left, is removed."""
    if not storage.exists(storage.join(folder, RELEASE)):
        storage.remove(folder)
        return
    for name in storage.list_files(folder):
        storage.move(storage.join(folder, name), storage.join(aside, name))


def upload(built: str, release: Release, folder: str) -> None:
    """Upload a release that was built on this machine. Raises StageError if files there differ from those built."""
    fs, root = storage.filesystem(folder)
    for file in release.files:
        fs.put_file(os.path.join(built, file.path), f"{root}/{file.path}")
    if wrong := damaged_files(folder, release.files, hashes=True):
        raise StageError(
            f"The release uploaded to {folder} is damaged: {'; '.join(wrong[:5])}. What is live stays as it is.",
            "Publish again.",
        )
    storage.write_new(storage.join(folder, RELEASE), to_bytes(release.to_json()))


def create_swap(uri: str, pointer: Pointer) -> bool:
    """Create the object of a swap; False where another publisher created it."""
    return storage.write_new(storage.join(uri, swap_name(pointer.number)), to_bytes(pointer.to_json()))
