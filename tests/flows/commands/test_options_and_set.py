"""One rule for every command: an option and `--set` of one field agree, or the command is refused; a default yields."""

import inspect
import json
from importlib import import_module

import pytest

from clicktower.flows.cli import run
from clicktower.flows.config.commands import COMMANDS

JUDGED = ["--documents", "d.tsv", "--queries", "q.tsv", "--qrels", "r.txt"]
COLUMNS = ["--text", "text", "--label", "label"]


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "out", "--searches", "300", "--set", "num_searches=400"],
        ["simulate", "out", "--seed", "1", "--set", "seed=2"],
        ["ingest", "log.tsv", "--format", "ubi", "--set", "format=orcas"],
        ["ingest", "log.tsv", "--date", "2026-09-01", "--set", "date=2026-09-02"],
        ["ingest", "log.tsv", "--person-key", "a.key", "--set", "person_key=b.key"],
        ["build", "--days", "store", "--documents", "d.tsv", "--k", "5", "--set", "k=6"],
        ["build", "--days", "store", "--documents", "d.tsv", "--adult-list", "a.txt", "--set", "adult_list=b.txt"],
        ["build-labelled", "a.tsv", *COLUMNS, "--format", "jsonl", "--set", "format=parquet"],
        ["build-labelled", "a.tsv", *COLUMNS, "--label-kind", "class", "--set", "label=value"],
        ["build-labelled", "a.tsv", *COLUMNS, "--delimiter", ",", "--set", "mapping.delimiter=;"],
        ["build-labelled", "a.tsv", *COLUMNS, "--set", "mapping.columns.label=stars"],
        ["build-labelled", "a.tsv", "--text", "1", "--label", "2", "--no-header", "--set", "mapping.header=true"],
        ["judgments", "--days", "store", "--k", "5", "--set", "k=6"],
        ["judgments", "--days", "store", "--min-impressions", "10", "--set", "min_impressions=11"],
        ["train", "--shards", "build", "--epochs", "2", "--set", "epochs=3"],
        ["train", "--shards", "build", "--reduction", "exact", "--set", "reduction=fast"],
        ["evaluate", "--model", "m", *JUDGED, "--min-judged", "1", "--set", "min_judged=2"],
        ["compare", "--shards", "build", *JUDGED, "--min-judged", "1", "--evaluate", "min_judged=2"],
        ["compare", "--shards", "build", *JUDGED, "--seeds", "1", "2", "--set", "seed=2"],
        ["train", "--shards", "build", "--set", "epochs=2", "--set", "epochs=3"],
    ],
    ids=lambda words: " ".join(word for word in words if word.startswith("--") or word == words[0]),
)
def test_an_option_and_set_that_differ_are_refused(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    into = [] if words[0] == "simulate" else ["--into", "store"]
    assert run([*words, *into, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "is set to different values" in error["problem"]
    assert error["fix"]
    assert not list(tmp_path.iterdir())


def test_no_option_beside_set_has_a_default_that_could_override_it():
    """An option that sets a field is None until it is typed; these set none."""
    others = {
        "compute", "sources", "workers", "against", "topics", "word_prior", "colours", "label", "grid", "candidate",
        "if_better", "json", "json_logs", "plan", "recipe", "no_header", "renew_key", "replace_day", "dates",
        "host", "port", "poll_seconds", "drain_seconds",
    }  # fmt: skip
    for name, command in COMMANDS.items():
        parameters = inspect.signature(
            getattr(import_module(f"clicktower.flows.commands.{command.file}"), name.replace("-", "_"))
        ).parameters
        if not {"set", "flags", "rule", "evaluate"} & parameters.keys():
            continue
        with_default = {
            option for option, parameter in parameters.items()
            if parameter.default is not None and parameter.default is not inspect.Parameter.empty
        }  # fmt: skip
        assert with_default <= others, name


def test_set_chooses_a_format_as_its_option_does(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"{n}\tred hammer\td1\thttps://example.org/{n}\n" for n in range(3)]
    (tmp_path / "log.tsv").write_text("".join(lines), encoding="utf-8")
    for words in (["--set", "format=orcas"], ["--format", "orcas"], ["--format", "orcas", "--set", "format=orcas"]):
        assert run(["ingest", "log.tsv", "--into", "store", *words, "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["ledger"]["total"] == 3
        assert result["reused"] == (words[0] == "--format")
