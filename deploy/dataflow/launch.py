"""The program of Dataflow's template launcher: template parameters as a clicktower command, the rest for Beam.

CLICKTOWER_TEMPLATE names the template, of which NAME.json beside this file describes the parameters.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from clicktower.flows.cli import run


def command(template: str, arguments: Sequence[str]) -> list[str]:
    """The words of a command for a launcher's `--name=value` arguments."""
    described = json.loads(Path(__file__).with_name(f"{template}.json").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for parameter in described["parameters"]:
        if parameter["name"] != "sdk_container_image":  # which is Beam's
            parser.add_argument(f"--{parameter['name']}", required=not parameter.get("isOptional"))
    parameters, engine = parser.parse_known_args(list(arguments))
    values = {name: value for name, value in vars(parameters).items() if value}
    files = [values.pop("logs")] if "logs" in values else []
    options = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    return [template, *files, *options, "--json", "--", *engine]


if __name__ == "__main__":
    sys.exit(run(command(os.environ.get("CLICKTOWER_TEMPLATE", "ingest"), sys.argv[1:])))
