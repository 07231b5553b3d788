"""A client that is not in Python: docs/trigrams.mjs against a release's golden texts, in Node."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from clicktower.schemas.text_contract import golden_cases, trigram_ids
from tests.flows.serve.service_release import publish_named
from tests.trained_model import TABLE_ROWS, trained_stage

CLIENT = Path(__file__).parents[3] / "docs" / "trigrams.mjs"


@pytest.fixture(scope="module")
def golden(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    made = publish_named(trained_stage(str(folder / "store")), str(folder / "live"), "one", folder)
    return Path(made.folder, "golden.jsonl")


def run(golden: Path, table_rows: int = TABLE_ROWS) -> subprocess.CompletedProcess:
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on the path: the client in JavaScript cannot be run")
    return subprocess.run(
        [node, str(CLIENT), str(golden), str(table_rows)], capture_output=True, text=True, check=False
    )


def test_node_cuts_every_golden_text_into_the_same_trigrams(golden):
    done = run(golden)
    count = len(golden.read_text(encoding="utf-8").splitlines())
    assert count > 50
    assert (done.returncode, done.stdout) == (0, f"{count} of {count} golden texts agree\n")


@pytest.mark.parametrize("table_rows", [1, 50_000, 50_653, 50_654])
def test_and_of_a_table_that_hashes_every_trigram(tmp_path, table_rows):
    cases = [(text, words) for text, words, _ in golden_cases() if words]
    lines = [
        {"text": text, "words": words, "trigram_ids": [trigram_ids([w], table_rows)[1].tolist() for w in words]}
        for text, words in cases
    ]
    golden = tmp_path / "golden.jsonl"
    golden.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert run(golden, table_rows).stdout == f"{len(lines)} of {len(lines)} golden texts agree\n"


def test_and_says_where_it_does_not(golden, tmp_path):
    lines = [json.loads(line) for line in golden.read_text(encoding="utf-8").splitlines()]
    lines[0]["trigram_ids"][0][0] += 1
    lines[1]["words"][0] += "x"
    other = tmp_path / "golden.jsonl"
    other.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = run(other)
    assert (done.returncode, done.stdout) == (1, f"{len(lines) - 2} of {len(lines)} golden texts agree\n")
