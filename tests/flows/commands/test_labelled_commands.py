"""`clicktower build-labelled` and `evaluate-labelled` as a user and a program see them."""

import json

import pytest

from clicktower.flows.cli import run
from tests.trained_model import trained_stage

MAPPING = 'delimiter = ","\nheader = false\n[columns]\nfirst = 2\nsecond = 3\nlabel = 1\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    same = [f"1,how do i mend a hose number {i},mending hose number {i}\n" for i in range(40)]
    other = [f"0,how do i paint deck {i},which screw holds shelf x{i}\n" for i in range(40)]
    (folder / "pairs.csv").write_text("".join(same + other))
    (folder / "pairs.toml").write_text(MAPPING)
    return folder


@pytest.fixture(scope="module")
def by_flags(folder) -> list[str]:
    named = ["--first", "2", "--second", "3", "--label", "1", "--no-header", "--delimiter", ","]
    return ["build-labelled", str(folder / "pairs.csv"), *named, "--into", str(folder / "store")]


def test_a_mapping_says_what_flags_say(folder, by_flags, capsys):
    share = ["--set", "dev_share=0.3"]
    assert run([*by_flags, *share]) == 0
    out, output = capsys.readouterr()
    assert "labelled pairs of 2 classes to train on" in output
    assert "labelled line held out" in out
    by_mapping = [*by_flags[:2], "--mapping", str(folder / "pairs.toml"), "--into", str(folder / "store"), *share]
    assert run([*by_mapping, "--json"]) == 0
    built = json.loads(capsys.readouterr().out)
    assert built["reused"]
    assert built["ledger"]["total"] == 80

    model = trained_stage(str(folder / "store"))
    asked = ["evaluate-labelled", "--model", model, "--labelled", built["path"], "--into", str(folder / "store")]
    assert run([*asked, "--set", "num_resamples=100"]) == 0
    out, output = capsys.readouterr()
    assert "area under ROC" in output
    for system in ("ours", "TF-IDF cosine", "symmetric", "word mover's", "majority"):
        assert system in out


def test_columns_named_twice_or_not_at_all_are_wrong_usage(folder, by_flags, capsys):
    assert run([*by_flags, "--mapping", str(folder / "pairs.toml")]) == 2
    assert "and also by flags" in capsys.readouterr().err.lower()
    assert run([*by_flags[:2], "--into", str(folder / "store")]) == 2
    assert "none is named" in " ".join(capsys.readouterr().err.split())
    assert run([*by_flags, "--set", "dev_share=2"]) == 2
