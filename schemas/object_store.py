"""Object stores: their file systems, the errors of their clients, and claims without locks."""

import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import fsspec
from fsspec.core import split_protocol, url_to_fs

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError, UsageError, place
from clicktower.schemas.stage import holder_of, signature

# It prints the trace of each request that it repeats. GCSFS_DEBUG undoes this.
logging.getLogger("gcsfs").setLevel(logging.CRITICAL)

# The extra of clicktower that reads and writes a kind of URI.
_EXTRAS = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "azure"),
}


def filesystem(uri: str, options: Mapping[str, Any]) -> tuple[fsspec.AbstractFileSystem, str]:
    """As storage.filesystem, with options of fsspec. Of a name with `::` each part that fsspec should open within the
    next has a `://` of its own; without them it is a name like any other.
    """
    parts = uri.split("::") if all("://" in part for part in uri.split("::")) else [uri]
    kind, *around = [_class_of(split_protocol(part)[0]) for part in parts]
    try:
        if around:
            return url_to_fs(uri, **options)
        return kind(**kind._get_kwargs_from_urls(uri), **options), kind._strip_protocol(uri)
    except ValueError as error:  # adlfs, where no account is named
        raise StageError(
            f"The client of {uri.partition('://')[0]}:// refuses its settings: {error}",
            "Set the account and its credentials in the environment (docs/running.md).",
        ) from None


def _class_of(protocol: str) -> type[fsspec.AbstractFileSystem]:
    try:
        return fsspec.get_filesystem_class(protocol)
    except ValueError:
        raise UsageError(
            f"{protocol}:// is an address of a kind that is not known here.",
            "Give a path, or a URI such as s3://, gs:// or abfs://.",
        ) from None
    except ImportError as error:
        how = f"pip install 'clicktower[{_EXTRAS[protocol]}]'" if protocol in _EXTRAS else error
        raise StageError(
            f"The package that reads and writes {protocol}:// is not installed here.",
            f"Install it ({how}), or run the command where it is installed.",
        ) from None


# Errors of object stores' clients that their file systems do not turn into OSError, by package, with its credentials.
_AWS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role"
_GOOGLE = "GOOGLE_APPLICATION_CREDENTIALS, `gcloud auth application-default login`, a service account"
_AZURE = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, an identity"
_OF_OBJECT_STORES = {
    **dict.fromkeys(("botocore", "aiobotocore", "s3fs"), _AWS),
    **dict.fromkeys(("gcsfs", "google"), _GOOGLE),
    **dict.fromkeys(("azure", "adlfs"), _AZURE),
    "aiohttp": "",
}


def store_error(error: BaseException) -> StageError | None:
    """The user's error for an exception of an object store's client; None for any other. Its message is omitted."""
    kind = type(error).__name__
    package = type(error).__module__.split(".")[0]
    if package not in _OF_OBJECT_STORES:
        return None
    if "Credential" in kind or "Token" in kind or "Profile" in kind:
        return StageError(
            f"The object store's client has no credentials that it can use ({kind}).",
            f"Set them where the store's own tools look for them ({_OF_OBJECT_STORES[package]}).",
        )
    if "NotFound" in kind:
        return StageError(f"The object store has nothing of that name ({kind}).", "Check the bucket or container.")
    return TransientError(
        f"The object store did not answer in time ({kind} in {place(error)}). Finished parts are kept.",
        "Check the store, and its address if it is one of your own, then run the same command again.",
    )


# Claims on an object store, which has no locks.
#
# A claim is an object that is created only if it does not exist (`claim-000001.json`), and that its holder rewrites
# every BEAT_SECONDS while it works. A waiting process that sees no rewrite for TAKE_OVER_SECONDS by its own clock takes
# over by creating the object with the next number; of several, one succeeds. If the holder was only slow, both work and
# no harm is done: the first to write the manifest wins (stage).

# On an object store, where each beat and each check is a paid request.
BEAT_SECONDS = 10.0
TAKE_OVER_SECONDS = 60.0
LOOK_SECONDS = 2.0
_NUMBERED = re.compile(r"claim-\d{6}\.json")


@contextmanager
def object_claim(
    folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str]
) -> Iterator[None]:
    """As stage.claimed."""
    claim = _create(folder, progress, reads)
    ended = Event()

    def beat() -> None:
        while not ended.wait(BEAT_SECONDS):
            with suppress(Exception):  # the store is unreachable for a moment: one beat is missing
                storage.write_atomic(claim, signature(reads))

    beating = Thread(target=beat, daemon=True)  # a daemon ends with a killed process
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        with suppress(Exception):  # an error of the stage is more important; the next process takes over after a while
            storage.remove(claim)


def _create(folder: str, progress: Callable[[str, int, int | None], None], reads: Collection[str]) -> str:
    """Create this process's claim once no other exists, or once the newest is no longer renewed; returns its URI."""
    seen: tuple[str, bytes] = ("", b"")
    since = time.monotonic()
    while True:
        newest = max(claims(folder), default="")
        sign = read_claim(storage.join(folder, newest)) if newest else b""
        if sign is None:
            continue  # released between the two checks
        if (newest, sign) != seen:
            seen, since = (newest, sign), time.monotonic()
        if newest and time.monotonic() - since < TAKE_OVER_SECONDS:
            progress(f"another process is making this: waiting ({holder_of(sign)})", 0, None)
            time.sleep(LOOK_SECONDS)
            continue
        number = int(newest[len("claim-") : -len(".json")]) + 1 if newest else 1
        name_of_claim = f"claim-{number:06}.json"
        if not storage.write_new(storage.join(folder, name_of_claim), signature(reads)):
            continue
        # Between the check and the claim others may have come and gone. It counts only if the sole other claim is the
        # one taken over, unchanged.
        signatures = {name: read_claim(storage.join(folder, name)) for name in claims(folder) if name != name_of_claim}
        if all(content in (None, sign) for content in signatures.values()):
            for name in signatures:
                storage.remove(storage.join(folder, name))
            return storage.join(folder, name_of_claim)
        storage.remove(storage.join(folder, name_of_claim))


def claims(folder: str) -> list[str]:
    return [name for name in storage.list_names(folder) if _NUMBERED.fullmatch(name)]


def read_claim(claim: str) -> bytes | None:
    """The content of a claim; None if its holder has released it meanwhile."""
    try:
        return storage.read_bytes(claim)
    except FileNotFoundError:
        return None
