import asyncio

from benchmarks.open_loop import open_loop

STALL = 0.3


async def load_of_a_server(answers: bytes, **rate):
    """What the load generator tells of a server that stalls before its first answer."""
    seen: list[bytes] = []

    async def serve(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                seen.append(await reader.readexactly(length))
                if len(seen) == 1:
                    await asyncio.sleep(STALL)
                writer.write(answers)
        except asyncio.IncompleteReadError:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    load = await open_loop("127.0.0.1", port, "/", [b"a", b"bcd"], **rate)
    server.close()
    return load, seen


def test_every_request_is_sent_counted_and_timed_from_when_it_was_due():
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    load, seen = asyncio.run(load_of_a_server(answer, per_second=100, seconds=0.5))
    assert len(load.seconds) == 50
    assert load.statuses == {200: 50}
    assert not load.errors
    assert sorted(seen) == [b"a"] * 25 + [b"bcd"] * 25
    assert max(load.seconds) >= STALL
    assert load.connections >= 2  # others did not wait for the one that stalled


def test_refusals_and_broken_answers_are_told():
    load, _ = asyncio.run(load_of_a_server(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", per_second=50, seconds=0.1))
    assert load.statuses == {503: 5}
    load, _ = asyncio.run(load_of_a_server(b"HTTP/1.1 200 OK\r\n\r\n", per_second=50, seconds=0.1))
    assert (load.statuses, load.errors) == ({}, {"ValueError": 5})
