"""A plain run loads little of the house, and nothing that hangs beside the main path."""

import subprocess
import sys

import pytest

from tests import house
from tests.main_path import BESIDE, ENTRIES, is_beside, loaded_by, loaded_from, num_lines

# A ratchet: lower it whenever a run needs less. The aim: 100 files and 21,000 lines.
MOST_FILES, MOST_LINES = 99, 22_770


def test_the_main_path_imports_nothing_that_hangs_beside_it():
    path = loaded_from(ENTRIES)
    assert sorted(filter(is_beside, path)) == []
    assert len(path) <= MOST_FILES
    assert num_lines(path) <= MOST_LINES
    for place in BESIDE:
        assert (house.ROOT / place).exists(), place
    assert any(map(is_beside, loaded_from([*ENTRIES, "training.trainer.classify"]))), "one is found where there is one"


@pytest.mark.slow
def test_a_run_loads_the_files_of_the_main_path_and_no_others(tmp_path):
    command = [sys.executable, "-m", "clicktower.flows.cli", "simulate", str(tmp_path / "data"), "--searches", "4000"]
    subprocess.run(command, check=True, cwd=house.ROOT, stdout=subprocess.DEVNULL)
    config = tmp_path / "pipeline.toml"
    demo = (house.ROOT / "flows/commands/demo.toml").read_text(encoding="utf-8")
    config.write_text(demo.replace("epochs = 3", "epochs = 1"))
    loaded = loaded_by(["run", str(config)], tmp_path / "notes")
    path = loaded_from(ENTRIES)
    assert sorted(loaded - path) == []
    assert sorted(path - loaded) == []
