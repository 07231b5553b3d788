"""A process that imports what the workers of a job need and forks one for each line of its input.

    python -m beam_jobs.engine.fork_server MODULE...

A line holds the address of the runner's control service, the worker's name, the bytes of its cache and the file that
takes what it says, with tabs between. Of a worker that a signal ended its output has a line: the name, a tab, the
signal's number. The process ends when its input and its workers have: it has no thread and no connection of its own, so
that nothing is lost in a fork.
"""

import gc
import os
import signal
import sys
import traceback
from contextlib import suppress
from importlib import import_module

from beam_jobs.engine import unused_imports


def main(modules: list[str]) -> None:
    gc.disable()  # it would look at what is imported again and again
    unused_imports.keep_out()
    for module in ("apache_beam.runners.worker.sdk_worker", *modules):
        import_module(module)
    gc.enable()
    gc.set_threshold(20_000)  # of what workers make little is held in circles
    gc.freeze()  # or else the first collection of each worker looks at, and so copies, all of it
    names: dict[int, str] = {}  # of the workers, by process

    def tell_of_the_ended(*_: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if os.WIFSIGNALED(ended[1]):
                    os.write(sys.stdout.fileno(), f"{names.get(ended[0], '')}\t{os.WTERMSIG(ended[1])}\n".encode())

    signal.signal(signal.SIGCHLD, tell_of_the_ended)
    for line in sys.stdin:
        address, name, cache_bytes, log = line.rstrip("\n").split("\t")
        if pid := os.fork():
            names[pid] = name
        else:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _work(address, name, int(cache_bytes), log)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _work(address: str, name: str, cache_bytes: int, log: str) -> None:
    """What a worker does from the fork to its end."""
    said = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(said, sys.stdout.fileno())
    os.dup2(said, sys.stderr.fileno())
    try:
        from apache_beam.runners.worker.sdk_worker import SdkHarness  # which `main` has imported

        SdkHarness(address, worker_id=name, state_cache_size=cache_bytes, data_buffer_time_limit_ms=0).run()
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what else a process does at its end is not a worker's


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # nothing is to be done at its end, and taking Beam apart takes a quarter of a second
