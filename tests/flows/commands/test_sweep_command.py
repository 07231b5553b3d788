"""`clicktower sweep` as a user and a program see it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.flows.cli import build_app, run
from tests.training.small_shards import shop, write_build
from tests.training.sweep.trials_here import here
from tests.waiting import SECONDS, wait_until

SWEEP = """
shards = "{shards}"
into = "store"
threads = 1
{more}
[set]
tower.cells = 8
minibatch = 32
micro_batch = 32
epochs = {epochs}
[fields]
optimiser.step = [0.02, 0.001]
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    pairs, pool = shop(120)
    dev, _ = shop(30, seed=9)
    place = str(tmp_path_factory.mktemp("build"))
    return write_build(place, {"train-00000": pairs, "dev-00000": dev}, pool, labels={"simulated": True})


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    """Trials without processes; tests.training.sweep.test_sweep and the test of an ended sweep have them."""
    monkeypatch.setattr("clicktower.training.sweep.sweep_stage.Processes", lambda at_once, gpus: here())


def write(folder: Path, shards: str, *, epochs: int = 1, more: str = "") -> str:
    path = folder / "sweep.toml"
    path.write_text(SWEEP.format(shards=shards, epochs=epochs, more=more), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_a_sweep_is_one_object_and_its_commands_make_and_publish_the_best(tmp_path, shards, in_this_process, capsys):
    assert run(["sweep", write(tmp_path, shards, more="at_once = 2"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["stage"], result["reused"], result["counts"]["trials"]) == ("sweep", False, 2)
    assert result["path"] == f"{tmp_path}/store/sweep/{result['digest']}"
    best = result["metrics"]["rows"][0]
    train, evaluate, publish = (result["commands"][name] for name in ("train", "evaluate", "publish"))
    for words in (train, evaluate, publish):
        build_app(words[0]).parse_args(words, exit_on_error=False, print_error=False)
    model = f"{tmp_path}/store/train/{best['trials'][0]['digest']}"
    assert model in evaluate
    assert model in publish
    assert run([*train, "--json"]) == 0  # the command that is shown makes that very model, so here it is reused
    trained = json.loads(capsys.readouterr().out)
    assert (trained["reused"], trained["path"]) == (True, model)

    assert result["best"] == f"{result['data']}/best.toml"
    whole = ["train", "--recipe", result["best"], "--shards", shards, "--into", f"{tmp_path}/store", "--json"]
    assert run(whole) == 0  # and so does the recipe that is written
    assert json.loads(capsys.readouterr().out)["path"] == model
    assert "Learning curves" in Path(result["page"]).read_text(encoding="utf-8")

    assert run(["sweep", str(tmp_path / "sweep.toml")]) == 0
    output = capsys.readouterr()
    assert "reused" in output.err
    assert "2 points by dev_loss, lower is better, on held-out clicks" in output.out
    assert "All of this comes from a simulated log." in output.out
    assert shlex.quote(best["trials"][0]["digest"]) in output.out

    assert run(["verify", f"{tmp_path}/store"]) == 0


def test_words_of_all_points_start_from_a_file_but_where_a_point_says_none(tmp_path, shards, in_this_process, capsys):
    (tmp_path / "vectors.txt").write_text("2 3\nhammer 1 0 0\nsteel 0 1 0\n", encoding="utf-8")
    path = tmp_path / "sweep.toml"
    every = 'recipe = "bag-512"\nword_vectors = "vectors.txt"\n'
    shared = '[set]\ntower.cells = 8\nminibatch = 32\nmicro_batch = 32\nepochs = 1\nobjective.start = "uniform"\n'
    head = f'shards = "{shards}"\ninto = "store"\nthreads = 1\n{every}{shared}[fields]\n'
    path.write_text(f'{head}word_vectors = ["none", "tuned", "frozen"]\n', encoding="utf-8")
    assert run(["sweep", str(path), "--plan", "--json"]) == 0
    without, *others = [trial["digest"] for trial in json.loads(capsys.readouterr().out)["trials"]]
    path.write_text(f'{head}word_vectors = ["frozen"]\n', encoding="utf-8")
    assert run(["sweep", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    [trial] = result["metrics"]["rows"][0]["trials"]
    assert trial["digest"] == others[1] != others[0] != without

    into = ["--into", f"{tmp_path}/store", "--json"]
    for words in (result["commands"]["train"], ["train", "--recipe", result["best"], "--shards", shards]):
        assert run([*words, *into[-1:]] if "--into" in words else [*words, *into]) == 0
        trained = json.loads(capsys.readouterr().out)
        assert (trained["reused"], trained["digest"], trained["metrics"]["known_words"]) == (True, others[1], 2)


def test_a_plan_trains_nothing(tmp_path, shards, capsys):
    assert run(["sweep", write(tmp_path, shards, more="seeds = [1, 2]"), "--plan"]) == 0
    output = capsys.readouterr().out
    assert "to train  optimiser.step=0.02, seed 2" in output
    assert "4 trials of 2 points, 0 of them there; dev_loss chooses, lower is better. Nothing was trained." in output
    assert run(["sweep", str(tmp_path / "sweep.toml"), "--plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"points": 2, "trials": 4, "trials_reused": 0}
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "more",
    [
        "measure = 'accuracy'",
        "workers = 'two'",
        "max_trials = 1",
        "at_once = 0",
        "workers = 0",
        "threads = 0",
        "min_workers = 2",
        "seeds = []",
        "seeds = [-1]",
        "seeds = [18_446_744_073_709_551_616]",
        "epochs = 3",  # beside [set] epochs = 1
        "device = 'tpu'",
        "path = 'fast'",
        "sample = {points = 0}",
        "engine = 'slurm'",
        "halving = {eta = 1}",
        "halving = {keep = 2}",
    ],
)
def test_a_sweep_that_makes_no_sense_exits_with_2(tmp_path, shards, more, capsys):
    assert run(["sweep", write(tmp_path, shards, more=more)]) == 2
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "[halving]"])
def test_a_sweep_that_chooses_nothing_exits_with_1_and_names_no_best(tmp_path, shards, in_this_process, more, capsys):
    """Each trial diverges, in an only rung or in the first of two."""
    config = write(tmp_path, shards, epochs=2, more="seeds = [1]")
    text = (
        Path(config)
        .read_text(encoding="utf-8")
        .replace("optimiser.step = [0.02, 0.001]", "objective.gamma = [1e6, 2e5]")
    )
    Path(config).write_text(f"{text}\n{more}\n", encoding="utf-8")
    for _ in range(2):  # the second time it is reused
        assert run(["sweep", config, "--json"]) == 1
        result = json.loads(capsys.readouterr().out)
        assert (result["best"], result["commands"]) == (None, {})
        assert result["counts"]["trials_diverged"] == 2
        assert not Path(f"{result['data']}/best.toml").exists()
    assert run(["sweep", config]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "No point is chosen: every trial diverged." in output
    assert "best" not in output
    page = Path(result["page"]).read_text(encoding="utf-8")
    assert "No point is chosen" in page
    assert ".." not in "".join(trial["failed"] for row in result["metrics"]["rows"] for trial in row["trials"])


@pytest.mark.slow
def test_a_trial_that_the_shards_refuse_failed_and_did_not_diverge(tmp_path, shards, in_this_process, capsys):
    """Fixed negatives beyond those of the build: the recipe is refused, and is not unstable."""
    config = write(tmp_path, shards, more="seeds = [1]")
    text = (
        Path(config)
        .read_text(encoding="utf-8")
        .replace("optimiser.step = [0.02, 0.001]", "objective.num_negatives = [2, 90]")
    )
    Path(config).write_text(text.replace("[set]", '[set]\nobjective.negatives = "fixed"'), encoding="utf-8")
    assert run(["sweep", config]) == 1
    output = capsys.readouterr()
    table = " ".join(output.out.split())
    assert "objective.num_negatives=90 failed with seed 1: The shards hold" in table
    assert "diverged" not in table
    assert "the trials that failed are still to be trained" in table
    assert ".." not in table
    assert "1 of 2 trials failed: The shards hold" in " ".join(output.err.split())


def test_a_size_that_does_not_fit_is_refused_before_any_trial(tmp_path, shards, in_this_process, capsys):
    config = write(tmp_path, shards)
    text = (
        Path(config).read_text(encoding="utf-8").replace("optimiser.step = [0.02, 0.001]", "tower.cells = [8, 1000000]")
    )
    Path(config).write_text(text.replace("[set]\ntower.cells = 8", "[set]"), encoding="utf-8")
    assert run(["sweep", config, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "The sweep cannot try tower.cells=1000000: To train " in error["problem"]
    assert " GB of memory" in error["problem"]
    assert "Set tower.cells to at most " in error["fix"]
    assert not list((tmp_path / "store").glob("train/*"))


@pytest.mark.rehearsal
@pytest.mark.slow
def test_a_sweep_that_is_ended_ends_every_trial_and_the_same_command_goes_on(tmp_path, shards, capsys):
    """SIGINT to the whole terminal, then SIGTERM to the sweep alone, as a scheduler sends it: all processes end,
    half-written models are gone, finished trials stay."""
    config = write(tmp_path, shards, more="at_once = 2")
    text = Path(config).read_text(encoding="utf-8").replace("epochs = 1\n", "")
    Path(config).write_text(text.replace("optimiser.step = [0.02, 0.001]", "epochs = [1, 100_000]"), encoding="utf-8")
    command = [sys.executable, "-m", "clicktower.flows.cli", "sweep", config]
    for ending, end in ((signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)):
        sweep = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert sweep.stderr
        output, line = "", "\n"
        while line and "✓ 1/2" not in output:
            line = sweep.stderr.readline()
            output += line
        wait_until(lambda: len(list(tmp_path.glob("store/train/*/attempt-*/steps.jsonl"))) == 2, "the second trial")
        end(sweep.pid, ending)
        output += sweep.communicate(timeout=SECONDS)[1]
        assert sweep.returncode == 128 + ending
        assert ("reused" in output) == (ending == signal.SIGTERM)  # the trial that the first one finished
        assert "what was finished is kept" in output
        assert "Traceback" not in output
        wait_until(lambda group=sweep.pid: not _is_there(group), "the trials to end")
        assert len(list(tmp_path.glob("store/train/*/attempt-*"))) == 1
        assert not list(tmp_path.glob("store/sweep/*/*"))
    assert run(["sweep", config, "--plan", "--json"]) == 0
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [(trial["fields"]["epochs"], trial["reused"]) for trial in trials] == [(1, True), (100_000, False)]


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
