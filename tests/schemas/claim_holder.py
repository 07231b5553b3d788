"""What tests/schemas/test_claim.py runs as a process of its own: make a stage, slowly, in a store.

Arguments: the store, a file that the work lasts until it is there, and one to write a line to when the work begins.
"""

import os
import subprocess
import sys
import time
from subprocess import DEVNULL

from clicktower.schemas import storage
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import run_stage

REQUEST = Request(stage="build", stage_version=1, config={"k": 5}, inputs={"log": "abc"})


def main(store: str, let_go: str, begun: str) -> None:
    def produce(folder: str) -> Outcome:
        storage.write_atomic(storage.join(folder, "a.bin"), b"0123456789")
        # Both outlive this process where that is killed: one that it executed, and one that it forked.
        subprocess.Popen(["sleep", "600"], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(600)
            os._exit(0)
        with open(begun, "a") as file:
            file.write("began\n")
        while not os.path.exists(let_go):
            time.sleep(0.02)
        return Outcome(counts={"rows": 10})

    result = run_stage(store, REQUEST, produce, lambda *reported: print(*reported, file=sys.stderr, flush=True))
    print("reused" if result.reused else "made", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
