"""A service beside hostile clients: what one good client waits, alone and beside sixteen of each bad kind, in turns.

    python benchmarks/abuse.py --release release [--rounds 20] [--workers 1] [--record]

The bad clients share an address other than the good client's, and run in a process of the lowest priority: on machines
of their own they would not take the service's cores. Many addresses that ask what anybody may ask are not told from
visitors; that is left to a proxy's limits. The good client asks one search and /healthz after the other on a kept
connection. With --record the figures are kept in benchmarks/results/abuse.json.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from itertools import cycle
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "abuse.json"
HOST, BAD_ADDRESS = "127.0.0.1", "127.0.0.2"
NUM_CLIENTS = 16
ASKED = 20  # of each path in a round
GOOD = ("/v1/search", "/healthz")
_SEARCH = json.dumps({"query": "steel angle bracket"})
_JSON = {"Content-Type": "application/json"}


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def search(query: str) -> bytes:
    return post("/v1/search", json.dumps({"query": query}).encode())


# What clients of each kind send, in turn.
REQUESTS: dict[str, list[bytes]] = {
    "huge bodies": [
        post("/v1/embed", json.dumps({"texts": ["angle bracket " * 100] * 256, "side": "query"}).encode()),
        post("/v1/search", b'{"query": "' + b"a" * 2_000_000 + b'"}'),
    ],
    "deep JSON": [post("/v1/search", b"[" * 900_000), post("/v1/search", b'{"where": ' * 90_000)],
    "U+FDFA": [search("\ufdfa" * 2_000), post("/v1/embed", json.dumps(
        {"texts": ["a"] * 200 + ["\ufdfa" * 2_000] * 20, "side": "document"}, ensure_ascii=False).encode())],
    "repeated words": [search("steel " * 300), search("steel " * 30), search("a " * 900)],
    "many requests": [search("steel angle bracket")],
    "malformed HTTP": [b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00" * 40, b"POST / HTTP/9.9\r\nA B\r\n\r\n"],
}  # fmt: skip


async def ask(requests: Iterable[bytes], port: int) -> None:
    """Send one request after the other on a connection that is kept while the service keeps it."""
    reader = writer = None
    for request in requests:
        try:
            if not reader or not writer:
                reader, writer = await asyncio.open_connection(HOST, port, local_addr=(BAD_ADDRESS, 0))
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            is_kept = b"connection: close" not in head
        except (OSError, asyncio.IncompleteReadError):
            is_kept = False
        if writer and not is_kept:
            writer.close()
            reader = writer = None


async def send_slowly(port: int) -> None:
    """A body of 100 bytes, a byte at a time, on several connections."""
    unfinished = post("/v1/search", b" " * 100)[:-100]
    await trickle(unfinished, port)


async def stay_half_open(port: int) -> None:
    """Half a head, and then nothing."""
    await trickle(b"POST /v1/search HTT", port)


async def trickle(first: bytes, port: int) -> None:
    """Send the beginning of a request on eight connections, a byte now and then; open those again that are ended."""
    connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    while True:
        with contextlib.suppress(OSError):
            while len(connections) < 8:
                connections.append(await asyncio.open_connection(HOST, port, local_addr=(BAD_ADDRESS, 0)))
                connections[-1][1].write(first)
            for _, writer in connections:
                writer.write(b" ")
        await asyncio.sleep(0.1)
        for connection in [one for one in connections if one[0].at_eof() or one[1].is_closing()]:
            connection[1].close()
            connections.remove(connection)


KINDS: dict[str, Callable[[int], Awaitable[None]]] = {
    "slow bodies": send_slowly,
    "half-open connections": stay_half_open,
    **{kind: lambda port, requests=requests: ask(cycle(requests), port) for kind, requests in REQUESTS.items()},  # type: ignore[misc]
}


@contextmanager
def bad_clients(kind: str, port: int) -> Iterator[None]:
    """Sixteen clients of a kind, in a process of their own."""
    process = multiprocessing.get_context("fork").Process(target=_be_bad, args=(kind, port), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _be_bad(kind: str, port: int) -> None:
    os.nice(19)

    async def all_of_them() -> None:
        await asyncio.gather(*(KINDS[kind](port) for _ in range(NUM_CLIENTS)))

    asyncio.run(all_of_them())


class GoodClient:
    """Seconds of each path alone and beside bad clients, measured in turns."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.seconds = {(path, is_beside): [] for path in GOOD for is_beside in (False, True)}  # type: ignore[var-annotated]

    def measure(self, kind: str, rounds: int) -> None:
        """Raises RuntimeError if the good client is not answered."""
        with contextlib.closing(HTTPConnection(HOST, self._port, timeout=600)) as connection:
            for _ in range(rounds):
                self._round(connection, is_beside=False)
                with bad_clients(kind, self._port):
                    time.sleep(0.3)  # until they are at it
                    self._round(connection, is_beside=True)

    def _round(self, connection: HTTPConnection, *, is_beside: bool) -> None:
        for _ in range(ASKED):
            for path in GOOD:
                started = time.perf_counter()
                if path == "/healthz":
                    connection.request("GET", path)
                else:
                    connection.request("POST", path, _SEARCH, _JSON)
                answer = connection.getresponse()
                answer.read()
                self.seconds[path, is_beside].append(time.perf_counter() - started)
                if answer.status != 200:
                    raise RuntimeError(f"{path} answered {answer.status}")

    def milliseconds(self, path: str, percentile: float, *, is_beside: bool) -> float:
        return float(np.percentile(self.seconds[path, is_beside], percentile) * 1e3)


def figures(client: GoodClient) -> dict[str, dict[str, float]]:
    """p50 and p99 in milliseconds, alone and beside, of each path."""
    return {
        f"{path}, {'beside' if is_beside else 'alone'}": {
            f"p{percentile}_ms": round(client.milliseconds(path, percentile, is_beside=is_beside), 2)
            for percentile in (50, 99)
        }
        for path in GOOD
        for is_beside in (False, True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    command = [
        sys.executable,
        "-m",
        "clicktower.flows.cli",
        "serve",
        "--release",
        asked.release,
        "--port",
        "0",
        "--json",
    ]
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "load_at_start": round(os.getloadavg()[0], 1),
        "workers": asked.workers,
        "kinds": {},
    }
    with subprocess.Popen([*command, "--workers", str(asked.workers)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            started = json.loads(server.stdout.readline())
            result["documents"] = started["counts"]["documents"]
            port = int(started["url"].rsplit(":", 1)[1])
            GoodClient(port).measure(next(iter(KINDS)), 1)  # until the release is in memory
            for kind in KINDS:
                client = GoodClient(port)
                client.measure(kind, asked.rounds)
                result["kinds"][kind] = figures(client)  # type: ignore[index]
                print(kind, json.dumps(result["kinds"][kind]), file=sys.stderr, flush=True)  # type: ignore[index]
        finally:
            server.terminate()
    result["load_at_end"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result, indent=1))
    if asked.record:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
