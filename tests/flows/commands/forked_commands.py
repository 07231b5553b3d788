"""Command lines, each in a fork of one process that has loaded the command line's own help and nothing else.

    in:  a JSON list of command lines, each a list of words
    out: a JSON list: of each its exit code, what it printed, what it complained, and the packages that it had loaded

A process for each would load the same again and again.
"""

import json
import os
import sys
import tempfile
from contextlib import redirect_stdout

from clicktower.flows.cli import main, run


def told(arguments: list[str]) -> dict:
    """What came of a command line."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complained, tempfile.TemporaryFile() as loaded:
        child = os.fork()
        if child == 0:
            code: object = 70  # it was none of ours
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(complained.fileno(), 2)
                sys.argv = ["clicktower", *arguments]
                main()
            except SystemExit as ended:
                code = ended.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                packages = {name.partition(".")[0] for name in sys.modules}
                os.write(loaded.fileno(), json.dumps(sorted(packages)).encode())
                os._exit(code if isinstance(code, int) else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (out, complained, loaded):
            file.seek(0)
        return {
            "code": status,
            "printed": out.read().decode(),
            "complained": complained.read().decode(),
            "loaded": json.loads(loaded.read()),
        }


if __name__ == "__main__":
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        run(["--help"])
    print(json.dumps([told(arguments) for arguments in json.load(sys.stdin)]))
