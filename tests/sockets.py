"""What the processes of a test listen on."""

import ipaddress
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

# In the environment of all that the tests of this process start, also of what outlives its parent; from the beginning,
# since what several tests share is started before any of them.
MARK = "CLICKTOWER_TEST_PROCESSES"
os.environ[MARK] = str(os.getpid())
# In the environment of what a test starts that is to listen to other machines. It may outlive its test by a while.
MAY_LISTEN = "CLICKTOWER_TEST_MAY_LISTEN"
LOOK_SECONDS = 0.3


@contextmanager
def listeners() -> Iterator[set[str]]:
    """Within, notes what this process and all below it listen on that other machines can reach, and who does.

    What the tests of another process start has another mark.
    """
    mark, found, over = os.environ[MARK], set[str](), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            for connection in psutil.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.pid and not _is_loopback(connection.laddr.ip):
                    with suppress(psutil.Error):
                        process = psutil.Process(connection.pid)
                        its = process.environ()
                        if process.pid == os.getpid() or (its.get(MARK) == mark and MAY_LISTEN not in its):
                            command = " ".join(process.cmdline())[:200]
                            found.add(f"{connection.laddr.ip}:{connection.laddr.port} {process.name()} {command}")

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
