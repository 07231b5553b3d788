"""What a store keeps and what goes, beside releases, windows, claims, running stages, and removals that were killed."""

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.ingest.dated_days import register
from clicktower.beam_jobs.ingest.days import Window, open_window
from clicktower.beam_jobs.ingest.erased_people import mark_erased
from clicktower.flows import run_options
from clicktower.flows.commands import prune as command
from clicktower.flows.config.guard_rules import KeepRules
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.retention import Pruning, prune
from clicktower.schemas import storage
from clicktower.schemas.day_version import list_dates, newest_version
from clicktower.schemas.errors import TransientError, UsageError
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.release import RELEASE, Release, release_folder
from clicktower.schemas.stage import StageResult, claimed, open_result, require_present, run_stage, silent
from tests.flows.test_chain import PIPELINE

FIRST = date(2026, 1, 1)
LATER = datetime.now(UTC) + timedelta(days=2)  # when nothing that a test makes is young any more


def day(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def make(store, stage: str, *, inputs: dict | None = None, size: int = 100, **config) -> StageResult:
    def produce(folder: str) -> Outcome:
        storage.write_atomic(storage.join(folder, "data.bin"), os.urandom(size))
        return Outcome()

    request = Request(stage=stage, stage_version=1, config=config, inputs=inputs or {})
    return run_stage(str(store), request, produce)


def ingest(store, date: str, log: str = "") -> StageResult:
    result = make(store, "ingest", date=date, inputs={"logs": [log or f"log of {date}"], "person_key": "k"})
    register(str(store), result.manifest.request)
    return result


def night(store, number: int, *, start: str | None = None, last: int = 3) -> dict[str, str]:
    """The digests of a night's outputs, by stage. Each is made later than those of the night before."""
    ingest(store, day(number))
    window = Window(until=day(number), last=last, allow_missing=True)
    days = [result.manifest.digest for result in open_window([str(store)], window).ingests]
    shards = make(store, "build", inputs={"days": days}).manifest.digest
    model = make(store, "train", inputs={"shards": shards, "start": start}).manifest.digest
    evaluation = make(store, "evaluate", inputs={"model": model, "qrels": "a" * 64}).manifest.digest
    made = {"build": shards, "train": model, "evaluate": evaluation}
    for stage, digest in made.items():
        _date_back(Path(store) / stage / digest, number)
    return made


def _date_back(folder: Path, number: int) -> None:
    """As if it had been made in the morning after a night."""
    record = json.loads((folder / "manifest.json").read_bytes())
    record["created"] = f"{day(number + 1)}T04:00:00+00:00"
    (folder / "manifest.json").write_text(json.dumps(record))


def release(uri, digest: str, made: dict[str, str]) -> None:
    inputs = {"model": made["train"], "evaluation": made["evaluate"], "documents": "f" * 64}
    folder = release_folder(str(uri), digest)
    record = Release(
        digest=digest, inputs=inputs, num_documents=1, dimensions=1, text_contract={}, index={}, evaluation={}
    )  # fmt: skip
    storage.write_atomic(storage.join(folder, RELEASE), json.dumps(record.to_json()).encode())


def there(store, stage: str) -> set[str]:
    return {path.parent.name for path in Path(store).glob(f"{stage}/*/manifest.json")}


def gone(pruning: Pruning, stage: str) -> set[str]:
    return {one.digest for one in pruning.removed if one.stage == stage}


def at(number: int) -> datetime:
    return datetime.combine(FIRST, datetime.min.time(), UTC) + timedelta(days=number)


def test_ten_nights_leave_what_releases_windows_and_the_newest_models_need(tmp_path):
    store, uri = tmp_path / "store", tmp_path / "release"
    nights = [night(store, 0)]
    for number in range(1, 10):
        nights.append(night(store, number, start=nights[-1]["train"]))
    release(uri, "0" * 24, nights[2])
    foreign = make(store, "evaluate", inputs={"model": "9" * 24})  # of a model in another store
    _date_back(Path(foreign.folder), 8)

    shown = prune(str(store), KeepRules(days=4, models=2), releases=[str(uri)], dry_run=True, now=at(10))
    assert len(there(store, "train")) == 10, "a dry run removes nothing"
    done = prune(str(store), KeepRules(days=4, models=2), releases=[str(uri)], now=at(10))
    assert done.removed == shown.removed
    assert list_dates(str(store)) == [day(number) for number in (6, 7, 8, 9)]
    assert len(there(store, "ingest")) == 4
    # The newest two, that of the release, and what the three started from.
    assert there(store, "train") == {nights[number]["train"] for number in (1, 2, 7, 8, 9)}
    assert there(store, "build") == {nights[number]["build"] for number in (2, 8, 9)}
    # Of models that stay, while they are young enough, and that of the release.
    expected = {nights[number]["evaluate"] for number in (2, 7, 8, 9)} | {foreign.manifest.digest}
    assert there(store, "evaluate") == expected
    files = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert files == sum(done.kept_bytes.values())
    assert gone(prune(str(store), KeepRules(days=4, models=2), releases=[str(uri)], now=at(10)), "train") == set()
    assert [path.name for path in store.rglob("removed.json")] == []
    window = open_window([str(store)], Window(until=day(9), last=4))
    assert len(window.ingests) == 4


def test_what_a_run_a_person_or_the_last_day_made_stays_with_what_it_was_made_from(tmp_path):
    made = [night(tmp_path, number) for number in range(6)]
    ensemble = make(tmp_path, "combine", inputs={"models": [made[0]["train"], made[1]["train"]]})
    _date_back(Path(ensemble.folder), 1)
    young = make(tmp_path, "evaluate", inputs={"model": made[2]["train"]}, k=1)
    done = prune(str(tmp_path), KeepRules(days=1, models=1), needed={made[3]["build"]}, dates={day(0)})
    assert {young.manifest.digest} <= there(tmp_path, "evaluate")
    assert there(tmp_path, "train") == {made[number]["train"] for number in (0, 1, 2, 5)}
    assert there(tmp_path, "build") == {made[number]["build"] for number in (0, 1, 2, 3, 5)}
    assert list_dates(str(tmp_path)) == [day(0)], "the window of the run"
    assert ensemble.manifest.digest not in gone(done, "combine")


def test_every_version_of_a_date_goes_with_what_erasures_left_of_it(tmp_path):
    store = str(tmp_path)
    early, late = ingest(store, day(0)), ingest(store, day(0), "a late one")
    replaced = make(store, "ingest", date=day(0), inputs={"logs": ["both"], "person_key": "k"})
    register(store, replaced.manifest.request, replace_day=True)
    erased = ingest(store, day(1))
    inputs = {**erased.manifest.request.inputs, "erased_from": erased.manifest.digest}
    remainder = make(store, "ingest", date=day(1), inputs=inputs)
    mark_erased(erased.folder, remainder.manifest.digest)
    storage.remove(erased.data)
    storage.remove(f"{erased.folder}/manifest.json")
    undated = make(store, "ingest", inputs={"logs": ["undated"]})
    kept = ingest(store, day(40))
    assert newest_version(store, day(0)).version == 3
    done = prune(store, KeepRules(days=10), now=at(50))
    expected = (early, late, replaced, remainder)
    assert gone(done, "ingest") == {result.manifest.digest for result in expected}
    assert there(store, "ingest") == {kept.manifest.digest, undated.manifest.digest}
    assert {path.name for path in (tmp_path / "ingest").iterdir()} == there(store, "ingest"), "no mark is left"
    assert list_dates(store) == [day(40)]
    prune(store, KeepRules(days=10), now=LATER + timedelta(days=20))
    assert list_dates(store) == []
    assert there(store, "ingest") == set(), "one without a date is as old as its manifest"


def test_what_a_running_stage_reads_stays_until_it_has_ended(tmp_path):
    made = [night(tmp_path, number) for number in range(4)]
    ingests = open_window([str(tmp_path)], Window(first=day(0), until=day(0))).ingests
    reads = {made[0]["train"], ingests[0].manifest.digest}
    script = (
        "import sys; from clicktower.schemas.stage import claimed\n"
        f"with claimed({str(tmp_path / 'judgments' / ('a' * 24))!r}, print, {sorted(reads)!r}):\n"
        "    print('claimed', flush=True); sys.stdin.readline()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "claimed\n"
        prune(str(tmp_path), KeepRules(days=1, models=1), now=at(30))
        assert there(tmp_path, "train") == {made[0]["train"], made[3]["train"]}
        assert made[0]["build"] in there(tmp_path, "build")
        assert made[0]["evaluate"] in there(tmp_path, "evaluate"), "made from what is read"
        assert list_dates(str(tmp_path)) == [day(0)]
        other.communicate("\n")
    prune(str(tmp_path), KeepRules(days=1, models=1), now=at(30))
    assert there(tmp_path, "train") == {made[3]["train"]}
    assert list_dates(str(tmp_path)) == []


@pytest.mark.parametrize("holder", ["an ingest", "an earlier version"])
def test_a_process_that_may_need_anything_keeps_all_of_it(tmp_path, holder):
    for number in range(4):
        night(tmp_path, number)
    folder = tmp_path / ("ingest" if holder == "an ingest" else "build") / ("a" * 24)
    with claimed(str(folder), silent):
        if holder != "an ingest":
            (folder / "claim.json").write_text('{"process": 1}')
        done = prune(str(tmp_path), KeepRules(days=1, models=1), now=at(30))
    assert len(list_dates(str(tmp_path))) == 4
    assert len(there(tmp_path, "train")) == (1 if holder == "an ingest" else 4)
    assert len(done.waits) == 1


@pytest.mark.parametrize("moment", ["before it looks", "after it looked"])
def test_a_stage_that_opened_a_day_that_goes_keeps_it_or_is_told_so(tmp_path, monkeypatch, moment):
    """Its claim comes at the worst moments of a removal: the day has lost its name, and its files are there or not."""
    for number in range(3):
        ingest(tmp_path, day(number))
    opened = open_window([str(tmp_path)]).ingests
    reads = [result.manifest.digest for result in opened]
    from clicktower.schemas import removal

    held = claimed(str(tmp_path / "build" / ("b" * 24)), silent, reads)
    hide, clear = removal._hide, removal.clear

    def hiding(folder: str) -> None:
        hide(folder)
        if moment == "before it looks" and not (tmp_path / "build").exists():
            held.__enter__()

    def clearing(folder: str) -> None:
        if moment == "after it looked" and not (tmp_path / "build").exists():
            held.__enter__()
        clear(folder)

    monkeypatch.setattr(removal, "_hide", hiding)
    monkeypatch.setattr(removal, "clear", clearing)
    prune(str(tmp_path), KeepRules(days=1), now=at(30))
    if moment == "before it looks":
        require_present(opened)
        assert all(Path(result.data, "data.bin").exists() for result in opened)
    else:
        with pytest.raises(TransientError, match="was removed as this stage began"):
            require_present(opened)
    held.__exit__(None, None, None)
    assert list_dates(str(tmp_path)) == [], "no window finds them any more"
    monkeypatch.undo()
    prune(str(tmp_path), KeepRules(days=1), now=at(30))
    assert there(tmp_path, "ingest") == set()


def test_a_window_that_is_opened_while_its_days_go_has_the_others(tmp_path, monkeypatch):
    from clicktower.beam_jobs.ingest import days

    for number in range(3):
        ingest(tmp_path, day(number))
    opened = days.open_result

    def as_a_day_goes(folder: str, *stages: str, **words) -> StageResult:
        if len(list_dates(str(tmp_path))) == 3:
            prune(str(tmp_path), KeepRules(days=29), now=at(30))
        return opened(folder, *stages, **words)

    monkeypatch.setattr(days, "open_result", as_a_day_goes)
    window = open_window([str(tmp_path)])
    assert sorted(window.versions) == [day(1), day(2)]
    assert [result.manifest.request.config["date"] for result in window.ingests].count(day(0)) == 0
    monkeypatch.undo()
    with pytest.raises(UsageError, match="none from 2026-01-01 to 2026-01-01"):
        open_window([str(tmp_path)], Window(first=day(0), until=day(0)))


def test_half_made_outputs_of_dead_processes_go_when_they_are_a_week_old(tmp_path):
    made = night(tmp_path, 0)
    finished = tmp_path / "train" / made["train"]
    half, holding = (tmp_path / "train" / (letter * 24) for letter in "de")
    for folder in (half / "attempt-1", half / "checkpoints", holding / "attempt-1", finished / "checkpoints"):
        folder.mkdir(parents=True)
        (folder / "part.bin").write_bytes(b"x" * 10)
    (finished / "manifest.json.damaged-1").write_bytes(b"{}")
    (half / "claim.json").write_text('{"process": 1, "reads": []}')  # its holder was killed

    def remains() -> dict[str, int]:
        done = prune(str(tmp_path), KeepRules(), now=at(1))
        return {one.digest: one.num_bytes for one in done.removed}

    assert remains() == {made["train"]: 12}
    assert sorted(path.name.split("-")[0] for path in finished.iterdir()) == ["attempt", "manifest.json"]
    week = time.time() - 8 * 24 * 3600
    for path in [half, holding, *half.rglob("*"), *holding.rglob("*")]:
        os.utime(path, (week, week))
    with claimed(str(holding), silent):
        assert remains() == {"d" * 24: 20}
    assert not half.exists()
    assert (holding / "attempt-1/part.bin").exists()


@pytest.mark.slow
def test_a_removal_that_was_killed_at_any_call_is_finished_by_the_next(tmp_path):
    """At some of its calls; tests.crash_points takes them all."""
    from tests.crash_points import KILLED

    number = 0
    made = [night(tmp_path / "before", at_night) for at_night in range(3)]
    while True:
        store = tmp_path / str(number)
        shutil.copytree(tmp_path / "before", store)
        script = (
            "import os, sys\nfrom datetime import datetime\n"
            "from clicktower.flows.config.guard_rules import KeepRules\nfrom clicktower.flows.retention import prune\n"
            "calls = 0\n"
            "def hook(event, arguments):\n"
            "    global calls\n"
            f"    if event in ('os.rename', 'os.remove', 'os.rmdir') and {str(store)!r} in str(arguments[0]):\n"
            f"        if calls == {number}: os._exit({KILLED})\n"
            "        calls += 1\n"
            "sys.addaudithook(hook)\n"
            f"prune({str(store)!r}, KeepRules(days=1, models=1), now=datetime.fromisoformat({at(30).isoformat()!r}))"
        )
        code = subprocess.run([sys.executable, "-c", script], check=False).returncode
        assert code in (0, KILLED)
        held = {day for day in list_dates(str(store)) if newest_version(str(store), day)}
        for one in held:  # what a window finds is whole
            open_window([str(store)], Window(first=one, until=one))
        prune(str(store), KeepRules(days=1, models=1), now=at(30))
        assert there(store, "train") == {made[2]["train"]}
        assert there(store, "build") == {made[2]["build"]}
        assert there(store, "ingest") == set()
        assert {path.name for path in store.rglob("*.json")} == {"manifest.json"}
        if code == 0:
            break
        number += 17
    assert number > 20


def test_the_command_shows_a_table_and_prints_one_object(tmp_path, capsys):
    for number in range(7):
        night(tmp_path, number)
    command.prune(str(tmp_path), dry_run=True)
    table = capsys.readouterr().out
    assert "would go" in table
    assert f"{day(0)} to {day(6)}" in table
    command.prune(str(tmp_path), json=True)
    done = json.loads(capsys.readouterr().out)
    assert (done["stage"], done["path"], done["dry_run"]) == ("prune", str(tmp_path), False)
    assert done["removed_bytes"] == sum(one["num_bytes"] for one in done["removed"]) > 0
    assert {one["stage"] for one in done["removed"]} == {"ingest", "build", "train", "evaluate"}
    with pytest.raises(UsageError, match="Nothing is published at"):
        command.prune(str(tmp_path), release=[str(tmp_path / "misspelt")])
    with pytest.raises(UsageError, match="no output of a stage"):
        command.prune(str(tmp_path / "nowhere"))


@pytest.fixture(scope="module")
def six_nights(tmp_path_factory) -> tuple[Path, list[dict[str, str]]]:
    store = tmp_path_factory.mktemp("nights")
    return store, [night(store, number) for number in range(6)]


@pytest.mark.slow
@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(
    keep_days=st.integers(1, 8), keep_models=st.integers(1, 4), released=st.sets(st.integers(0, 5), max_size=2),
    now=st.integers(8, 12),
)  # fmt: skip
def test_whatever_the_rules_what_stays_is_whole_and_what_is_needed_stays(
    six_nights, tmp_path_factory, keep_days, keep_models, released, now
):
    store, made = tmp_path_factory.mktemp("copies") / "store", six_nights[1]
    shutil.copytree(six_nights[0], store)
    for number in released:
        release(store / "release", f"{number:024d}", made[number])
    uris = [str(store / "release")] if released else []
    prune(str(store), KeepRules(days=keep_days, models=keep_models), releases=uris, now=at(now))
    spared = released | set(range(6 - keep_models, 6))
    assert there(store, "train") == {made[number]["train"] for number in spared}
    assert there(store, "build") == {made[number]["build"] for number in spared}
    assert {made[number]["evaluate"] for number in released} <= there(store, "evaluate")
    assert list_dates(str(store)) == [day(number) for number in range(6) if number >= now - keep_days]
    for stage in ("ingest", "build", "train", "evaluate"):
        for digest in there(store, stage):
            result = open_result(str(store / stage / digest))
            assert all(Path(result.folder, file.path).exists() for file in result.manifest.files)


def test_a_run_removes_by_its_settings_and_never_from_its_own_window(tmp_path):
    (tmp_path / "pipeline.toml").write_text(
        PIPELINE.format(train="").replace("log.ndjson", "{date}.ndjson")
        + "[window]\nlast = 2\n[keep]\ndays = 2\nmodels = 1\n"
    )
    config = read_pipeline(str(tmp_path / "pipeline.toml"))
    made = [night(tmp_path / "store", number, last=2) for number in range(6)]
    release(tmp_path / "release", "0" * 24, made[0])
    results = {"train": {"digest": made[3]["train"]}, "report": "report.html", "drift": []}
    done = run_options.prune(config, results, day(4))  # by today's clock all days are long past
    assert list_dates(config.store) == [day(3), day(4)]
    assert there(config.store, "train") == {made[number]["train"] for number in (0, 3, 5)}
    assert done["stage"] == "prune"
