"""Publishers that end themselves with SIGKILL at their n-th step on the disk: run as a program, asked line by line.

    in:  URI, tab, n (0: do not kill, count the steps)
    out: exit status (-9 where it was killed), tab, steps

A step is what CPython's audit events tell of files below the URI: a folder made, a file opened to read or to write,
renamed, linked, removed; on an object store, a request. The kill comes before the step is done.

Each publisher is a fork of this process, which has loaded what takes seconds to load, and no thread.
"""

import os
import signal
import sys

import onnxruntime  # noqa: F401
import pandas  # noqa: F401
import pyarrow.dataset  # noqa: F401

import clicktower.flows.releases.query_onnx  # noqa: F401
from clicktower.flows.releases.publish import PublishConfig, publish

STEPS = {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def published(uri: str, kill_at: int, model: str, documents: str) -> int:
    """How many steps it took, if nothing killed it."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def event(name: str, arguments: tuple) -> None:
        if name in STEPS and arguments and str(arguments[0]).startswith(uri):
            step()

    if uri.startswith("s3://"):
        from aiobotocore.httpsession import AIOHTTPSession

        send = AIOHTTPSession.send

        async def counted(session, request):
            step()
            return await send(session, request)

        AIOHTTPSession.send = counted
    else:
        sys.addaudithook(event)
    publish(model, documents=documents, to=uri, config=PublishConfig(num_recall_queries=20))
    return steps


def main(model: str, documents: str) -> None:
    for line in sys.stdin:
        uri, kill_at = line.rstrip("\n").split("\t")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, str(published(uri, int(kill_at), model, documents)).encode())
            os._exit(0)
        os.close(writing)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with os.fdopen(reading) as pipe:
            print(status, pipe.read(), sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
