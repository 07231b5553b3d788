"""Storage by URI: a local folder by default, or any fsspec file system (s3://, gs://, memory://).

Three guarantees: a file or folder under its final name is complete (`write_atomic`, `building`); of two writers of one
name exactly one wins (`write_new`); and on this machine everything below a private folder (`make_folder`) is private
too. The rest of the project relies on these.
"""

import errno
import glob
import hashlib
import mmap
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pkgutil import resolve_name
from typing import IO, TypeVar

import fsspec
from fsspec.implementations.local import LocalFileSystem

BUILDING = ".building-"  # what the name of an unfinished file or folder begins with
ABANDONED_SECONDS = 24 * 3600  # after which nobody works at it any more
REMOVE_TRIES = 10
# An attempt at an output and its scratch folder, which their stage alone makes (`make_folder`): a thread or a worker
# that is late does not bring them back.
_ATTEMPT = re.compile(r"attempt-[0-9a-f]{12}(-scratch)?")
_MARKS = set("*?[")  # of a pattern
_NO_FOLDERS = {"s3", "gs", "abfs"}
Found = TypeVar("Found")


def filesystem(uri: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The file system of a URI, and the URI's path in it.

    Raises UsageError for an unknown kind of URI, StageError where the package of a known one is not installed or has no
    account.
    """
    uri = str(uri)
    fresh = {"use_listings_cache": False}  # others write too: an earlier listing may be stale
    if "://" not in uri or uri.startswith("file:"):
        return LocalFileSystem(**fresh), LocalFileSystem._strip_protocol(uri)
    return resolve_name("clicktower.schemas.object_store:filesystem")(uri, fresh)


def is_local(uri: str) -> bool:
    """Whether the URI is on this machine's own file system."""
    return "file" in _protocols(filesystem(uri)[0])


def absolute(uri: str) -> str:
    """The absolute URI: a local path from the root, any other URI unchanged."""
    return filesystem(uri)[1] if is_local(uri) else str(uri)


def join(uri: str, *parts: str) -> str:
    """The URI of `parts` below `uri`."""
    return "/".join([str(uri).rstrip("/"), *parts])


def exists(uri: str) -> bool:
    fs, path = filesystem(uri)
    return fs.exists(path)


def size_bytes(uri: str) -> int | None:
    """The size of a file, or None without one."""
    fs, path = filesystem(uri)
    try:
        info = fs.info(path)
    except FileNotFoundError:
        return None
    return int(info["size"]) if info["type"] == "file" else None


def is_link(folder: str, path: str) -> bool:
    """Whether a path below a local folder is a link, or leads through one; object stores have none."""
    if not is_local(folder):
        return False
    root = os.path.realpath(filesystem(folder)[1])
    return os.path.realpath(os.path.join(root, path)) != os.path.normpath(os.path.join(root, path))


def list_files(uri: str) -> list[str]:
    """Every file below a folder, as sorted paths relative to it; empty if there is no folder."""
    fs, root = filesystem(uri)
    if not fs.exists(root):
        return []
    root = root.rstrip("/")
    return sorted(path[len(root) + 1 :] for path in fs.find(root))


def list_sizes(uri: str) -> dict[str, int]:
    """Every file below a folder, as a path relative to it, with its bytes; one listing of an object store."""
    fs, root = filesystem(uri)
    root = root.rstrip("/")
    try:
        return {path[len(root) + 1 :]: info["size"] or 0 for path, info in fs.find(root, detail=True).items()}
    except FileNotFoundError:  # a folder or file that another process removed meanwhile
        return {name: size for name in list_files(uri) if (size := size_bytes(join(uri, name))) is not None}


def modified(uri: str) -> float:
    """When a file, or a local folder, was last written: seconds since the epoch. Raises FileNotFoundError."""
    fs, path = filesystem(uri)
    return fs.modified(path).timestamp()


def list_folders(uri: str) -> list[str]:
    """The names of the folders in a folder, sorted; empty if there is no folder."""
    return _names(uri, "directory")


def list_names(uri: str) -> list[str]:
    """The names of the files directly in a folder, sorted; empty if there is no folder."""
    return _names(uri, "file")


def _names(uri: str, kind: str) -> list[str]:
    fs, root = filesystem(uri)
    try:
        inside = [entry["name"] for entry in fs.ls(root, detail=True) if entry["type"] == kind]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in inside)


def make_folder(uri: str, *, private: bool = False) -> None:
    """Make a folder, unless it exists. `private`: for its owner alone, even if it was open to others before.

    The bucket's own rules govern who may read an object store.
    """
    fs, path = filesystem(uri)
    _make(fs, path, is_new_attempt=True)
    if private and is_local(uri) and os.stat(path).st_mode & 0o077:
        with suppress(PermissionError):  # it belongs to another user
            os.chmod(path, 0o700)


def remove(uri: str) -> None:
    """Remove a file or a folder with everything below it; a missing one is no error.

    Two may remove the same folder at once, and a third may still write to it: a file that is gone, or new, is no error.
    """
    fs, path = filesystem(uri)
    for _ in range(REMOVE_TRIES):
        if not fs.exists(path):
            return
        try:
            fs.rm(path, recursive=True)
            return  # without another look: by now the name may be that of another process's file, such as a claim
        except OSError as error:
            if not isinstance(error, FileNotFoundError) and error.errno != errno.ENOTEMPTY:
                raise


def open_read(uri: str) -> IO[bytes]:
    fs, path = filesystem(uri)
    return fs.open(path, "rb")


def read_bytes(uri: str) -> bytes:
    """A file's current bytes, in one request, without cached listings."""
    fs, path = filesystem(uri)
    return fs.cat_file(path)


def map_bytes(uri: str) -> mmap.mmap | bytearray:
    """A file's bytes, writable for this process alone: mapped from a local disk, read from elsewhere.

    They stay as they are when the file is removed. Raises ValueError for an empty local file.
    """
    fs, path = filesystem(uri)
    if is_local(uri):
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    with fs.open(path, "rb") as file:
        content = bytearray(file.seek(0, os.SEEK_END))
        file.seek(0)
        if (got := file.readinto(content)) != len(content):
            raise OSError(errno.EIO, f"only {got} of {len(content)} bytes could be read", uri)
    return content


def read_ranges(ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
    """The bytes of each (file, first byte, number of bytes); an object store's are fetched in parallel.

    Raises OSError if a file is too short.
    """
    if not ranges:
        return []
    fs, _ = filesystem(ranges[0][0])
    paths = [filesystem(uri)[1] for uri, _, _ in ranges]
    ends = [first + num_bytes for _, first, num_bytes in ranges]
    result = fs.cat_ranges(paths, [first for _, first, _ in ranges], ends, on_error="raise")
    if short := next((uri for (uri, _, length), got in zip(ranges, result, strict=True) if len(got) != length), None):
        raise OSError(errno.EIO, "the file is shorter than when it was written", short)
    return result


def open_new(uri: str) -> IO[bytes]:
    """Open a file for writing, under a name that nobody else uses and nobody reads before it is closed."""
    fs, path = filesystem(uri)
    _make(fs, fs._parent(path))
    return open(path, "wb", opener=_as_its_folder) if is_local(uri) else fs.open(path, "wb")


def move(source: str, target: str) -> None:
    """Rename a file within a file system; the folder is created."""
    fs, path = filesystem(source)
    to = filesystem(target)[1]
    _make(fs, fs._parent(to))
    fs.mv(path, to)


def copy(source: str, target: str) -> None:
    """Copy a file within a file system, by a hard link if possible, since files never change."""
    fs, path = filesystem(source)
    to = filesystem(target)[1]
    _make(fs, fs._parent(to))
    if is_local(source):
        with suppress(OSError):
            os.link(path, to)
            return
    fs.cp_file(path, to)


def write_atomic(uri: str, *pieces: bytes | memoryview) -> None:
    """Replace a file by the concatenated `pieces`: a reader sees the old bytes or the new ones, never a mixture.

    A failure (disk full) leaves the old file unchanged and removes the partial one. On a local disk pieces are written
    without copying; an object store receives them as one.
    """
    fs, path = filesystem(uri)
    _make(fs, fs._parent(path))
    if not is_local(uri):
        fs.pipe_file(path, b"".join(pieces))  # object stores publish an object when its upload completes
        return
    attempt = _write_beside(path, *pieces)
    try:
        os.replace(attempt, path)
    except OSError:
        os.unlink(attempt)
        raise


def write_new(uri: str, content: bytes) -> bool:
    """Create a file that must not exist yet. False, and nothing is written, if another process created it first.

    On an object store also True if another process created it with the very same bytes.
    """
    fs, path = filesystem(uri)
    _make(fs, fs._parent(path))
    if not is_local(uri):
        try:
            fs.pipe_file(path, content, mode="create")
        except FileExistsError:  # by another process, or by this very request, repeated after its answer was lost
            with suppress(FileNotFoundError):
                return fs.cat_file(path) == content
            return False
        return True
    attempt = _write_beside(path, content)
    try:
        os.link(attempt, path)  # fails if the name is taken; a rename would silently replace it
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):  # the file exists under its name
            os.unlink(attempt)
    _sync(fs._parent(path))
    return True


@contextmanager
def building(uri: str, *, abandoned_seconds: float = ABANDONED_SECONDS) -> Iterator[str]:
    """A name beside `uri` under which the block makes a file or a folder, to be given its own name by `place`; removed
    at the end of the block.

    What a killed process left of the same on this machine, so long ago, is removed first; with 0 all of it, as a caller
    may that has a claim.
    """
    folder, _, name = absolute(uri).rstrip("/").rpartition("/")
    begin = f"{folder}/{BUILDING}{name}-"
    if is_local(uri):
        for left_behind in glob.glob(f"{glob.escape(begin)}*"):
            with suppress(OSError):
                if not abandoned_seconds or time.time() - os.path.getmtime(left_behind) > abandoned_seconds:
                    remove(left_behind)
    built = f"{begin}{uuid.uuid4().hex[:12]}"
    try:
        yield built
    finally:
        with suppress(OSError):
            remove(built)


def place(built: str, uri: str) -> None:
    """Rename a file or a folder from `building`, once its files are on the disk. An object store copies them.

    Raises OSError if a folder with that name has anything in it.
    """
    fs, path = filesystem(built)
    to = filesystem(uri)[1]
    if not is_local(uri):
        fs.mv(path, to, recursive=is_folder(built))
        return
    for file in walk(path) if os.path.isdir(path) else [path]:
        _sync(file)
    os.rename(path, to)


def _make(fs: fsspec.AbstractFileSystem, path: str, *, is_new_attempt: bool = False) -> None:
    """Make a folder and its parents; below a private one each is private. An object store has none.

    Raises FileNotFoundError below the folder of an attempt that has ended.
    """
    if _NO_FOLDERS & set(_protocols(fs)):
        return  # s3fs would look for the bucket each time, and create one for a misspelt name
    if not isinstance(fs, LocalFileSystem):
        fs.makedirs(path, exist_ok=True)
    elif not os.path.isdir(path):
        if _ATTEMPT.fullmatch(os.path.basename(path)) and not is_new_attempt:
            raise FileNotFoundError(errno.ENOENT, "the attempt that it belongs to has ended", path)
        _make(fs, fs._parent(path))
        with suppress(FileExistsError):
            os.mkdir(path, _mode_below(path))


def _as_its_folder(path: str, flags: int) -> int:
    """An opener of files that gives no one more access than the folder does."""
    return os.open(path, flags, _mode_below(path) & 0o666)


def _mode_below(path: str) -> int:
    return os.stat(os.path.dirname(path) or ".").st_mode & 0o777 | 0o700


def _sync(path: str) -> None:
    """Sync a file, or a folder's entries, to the disk: otherwise a power failure may lose them, or a new name."""
    entries = os.open(path, os.O_RDONLY)
    try:
        os.fsync(entries)
    finally:
        os.close(entries)


def _write_beside(path: str, *pieces: bytes | memoryview) -> str:
    attempt = f"{path}.{uuid.uuid4().hex}.partial"
    try:
        with open(attempt, "xb", opener=_as_its_folder) as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        if os.path.exists(attempt):
            os.unlink(attempt)
        raise
    return attempt


def sha256(uri: str) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with open_read(uri) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # of which it needs readinto


def fingerprint(uri: str) -> str:
    """The identity of an input file: its content on a local disk, the store's own key (ETag or similar) elsewhere.

    Hashing a terabyte over a network only to learn that nothing changed would cost more than the stage. If a web server
    gives a file neither ETag nor date, its content is hashed all the same.
    """
    if is_local(uri) or not (seen := state(uri)):
        return sha256(uri)
    return hashlib.sha256(f"{filesystem(uri)[1]}\0{seen}".encode()).hexdigest()


def state(uri: str) -> str:
    """A value that changes with every write to a file, read in one request; empty if a web server gives none."""
    fs, path = filesystem(uri)
    if is_local(uri):
        status = os.stat(path)  # without the inode: machines may number a shared folder differently
        return f"{status.st_size}-{status.st_mtime_ns}"
    if "http" not in _protocols(fs):
        return fs.ukey(path)
    info = fs.info(path)  # fsspec's own key of a web server's file is its address
    facts = [f"{name}={info[name]}" for name in ("ETag", "Content-MD5", "Digest", "Last-Modified") if info.get(name)]
    return " ".join([*facts, f"size={info.get('size')}"]) if facts else ""


def _protocols(fs: fsspec.AbstractFileSystem) -> Sequence[str]:
    return fs.protocol if isinstance(fs.protocol, list | tuple) else (fs.protocol,)


def map_files(function: Callable[[str], Found], uris: Iterable[str]) -> list[Found]:
    """`function` of each file, in order, computed by several threads: hashing and waiting for a disk or a network
    release the interpreter.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, uris))


def expand(pattern: str) -> list[str]:
    """The files and folders that a path or pattern (`logs/*.gz`) names, sorted. What exists under the very name is
    meant, even if the name could be a pattern, and so are the folders that a pattern begins with.
    """
    fs, path = filesystem(pattern)
    if fs.exists(path):
        return _uris(fs, [path])
    folder = path.rpartition("/")[0]
    while _MARKS & set(folder) and not fs.exists(folder):
        folder = folder.rpartition("/")[0]
    tail = path[len(folder) :]
    return _uris(fs, fs.glob(glob.escape(folder) + tail) if _MARKS & set(tail) else [])


def is_folder(uri: str) -> bool:
    fs, path = filesystem(uri)
    return not fs.isfile(path) and fs.isdir(path)  # a web server's file would be loaded to look for links in it


def is_pipe(uri: str) -> bool:
    """Whether the URI is a pipe, or another thing on this machine that can be read only once."""
    fs, path = filesystem(uri)
    if not isinstance(fs, LocalFileSystem) or not os.path.exists(path):
        return False
    mode = os.stat(path).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def walk(folder: str) -> list[str]:
    """Every file below a folder, sorted; on this machine also through links, but not to a folder that a link is in."""
    fs, path = filesystem(folder)
    return _uris(fs, _walk(path) if isinstance(fs, LocalFileSystem) else fs.find(path))


def _walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    here = os.path.realpath(folder)
    if here in above:
        return
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _walk(entry.path, (*above, here))
        elif entry.is_file() or entry.is_symlink():  # of a broken link the reader says what is wrong
            yield entry.path


def _uris(fs: fsspec.AbstractFileSystem, paths: Iterable[str]) -> list[str]:
    return sorted(paths if isinstance(fs, LocalFileSystem) else map(fs.unstrip_protocol, paths))
