"""What Dataflow's template launcher runs: the parameters of metadata.json as `clicktower ingest`, the rest to Beam."""

import argparse
import sys
from collections.abc import Sequence

from flows.cli import run

OURS = ("into", "date", "format", "mapping", "person_key")


def command(arguments: Sequence[str]) -> list[str]:
    """The words of `clicktower ingest` for a launcher's `--name=value` arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--into", required=True)
    for name in OURS[1:]:
        parser.add_argument(f"--{name}")
    known, engine = parser.parse_known_args(list(arguments))
    given = [(name, getattr(known, name)) for name in OURS]
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given if value]
    return ["ingest", known.logs, *words, "--json", "--", *engine]


if __name__ == "__main__":
    sys.exit(run(command(sys.argv[1:])))
