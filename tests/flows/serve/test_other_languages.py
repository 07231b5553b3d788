"""A client that is not in Python: docs/trigrams.mjs against a release's golden texts, in Node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.flows.serve.service_release import publish_named
from tests.trained_model import TABLE_ROWS, trained_stage

CLIENT = Path(__file__).parents[3] / "docs" / "trigrams.mjs"


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    made = publish_named(trained_stage(str(folder / "store")), str(folder / "live"), "one", folder)
    return Path(made.folder, "golden.jsonl")


def run(golden: Path) -> subprocess.CompletedProcess:
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on the path: the client in JavaScript cannot be run")
    return subprocess.run(
        [node, str(CLIENT), str(golden), str(TABLE_ROWS)], capture_output=True, text=True, check=False
    )


def test_node_cuts_every_golden_text_into_the_same_trigrams(golden):
    done = run(golden)
    count = len(golden.read_text(encoding="utf-8").splitlines())
    assert count > 50
    assert (done.returncode, done.stdout) == (0, f"{count} of {count} golden texts agree\n")


def test_and_says_where_it_does_not(golden, tmp_path):
    lines = [json.loads(line) for line in golden.read_text(encoding="utf-8").splitlines()]
    lines[0]["trigram_ids"][0][0] += 1
    lines[1]["words"][0] += "x"
    other = tmp_path / "golden.jsonl"
    other.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = run(other)
    assert (done.returncode, done.stdout) == (1, f"{len(lines) - 2} of {len(lines)} golden texts agree\n")
