"""Requests at a fixed rate, whatever the answers do: an open-loop load of HTTP/1.1 POSTs over kept connections.

A request's time runs from the moment it was due, so a service that falls behind cannot hide it by slowing the asker
down (coordinated omission). Connections are opened as needed, up to MOST_CONNECTIONS as a proxy would, and kept.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_CONNECTIONS = 64


@dataclass(slots=True)
class Load:
    """What came back: seconds from due to answered, by request; statuses; and what went wrong otherwise."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter = field(default_factory=Counter)
    errors: Counter = field(default_factory=Counter)
    connections: int = 0


class _Connections:
    def __init__(self, host: str, port: int, load: Load) -> None:
        self._host, self._port, self._load = host, port, load
        self._free = asyncio.Semaphore(MOST_CONNECTIONS)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: bytes) -> int:
        async with self._free:
            return await self._ask(request)

    async def _ask(self, request: bytes) -> int:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port)
            self._load.connections += 1
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        at = lowered.index(b"content-length:") + len(b"content-length:")
        await reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))
        self._idle.append((reader, writer))
        return int(head[9:12])

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def open_loop(
    host: str, port: int, path: str, bodies: Sequence[bytes], *, per_second: float, seconds: float
) -> Load:
    """POST the bodies in turn, `per_second` of them for so long."""
    load = Load()
    connections = _Connections(host, port, load)
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies]

    async def one(request: bytes, due: float) -> None:
        try:
            load.statuses[await asyncio.wait_for(connections.ask(request), 30)] += 1
        except Exception as error:
            load.errors[type(error).__name__] += 1
        load.seconds.append(time.perf_counter() - due)

    started, tasks = time.perf_counter(), set()
    for number in range(round(per_second * seconds)):
        due = started + number / per_second
        if (wait := due - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(one(requests[number % len(requests)], due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    connections.close()
    return load
