"""A store and its releases under random commands, compared with a model of some hundred lines.

    python -m tests.store_machine [--steps N] [--seed N]

Log files of two dates appear, grow, are renamed and joined; they are ingested alone and together, early and late, once
more, and in place of a day; people are erased, and nobody of them comes back with a later ingest; windows are built,
trained, published, rolled back and pruned; days and models past their retention go from the store, and a log that is
ingested again is a new day. Any command may be killed, or get an I/O error, at one of its calls that
change the disk; it is then repeated. After each command the days, pairs and releases are those of the model. Commands
run in processes forked from this one, which has started no thread.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from datetime import date as calendar_date
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.beam_jobs.sources.ubi_lines import event, search
from tests.crash_points import KILLED, MODULES, Disk, date_back, run

DATES = ("2026-09-01", "2026-09-02")
CLIENTS = tuple(f"client-{number}" for number in range(5))
QUERIES = ("angle bracket", "wood screw", "deck paint", "garden hose")
CLICKABLE = tuple(f"d{number}" for number in range(6))
TITLES = {f"d{number}": f"thing number {number}" for number in range(20)}
SETTINGS = ("tower.cells=4", "minibatch=1", "micro_batch=1", "epochs=1")
CALLS = 40  # most commands have fewer that change the disk
OK, REFUSED, WRONG_USAGE = 0, 1, 2


class Visit(NamedTuple):
    """A search of one client, and a click."""

    number: int
    client: str
    query: str
    document: str

    def lines(self, date: str) -> Iterable[bytes]:
        yield search(f"s{self.number}", self.query, self.client, f"{date}T10:00:00.000Z")
        yield event(f"s{self.number}", "click", self.document, 1, self.client, f"{date}T10:00:05.000Z")


File = tuple[Visit, ...]


@dataclass(frozen=True)
class Part:
    """An ingest: its files, who had been erased before, and, as erasures come, whom it lost."""

    files: frozenset[File]
    left_out: frozenset[str] = frozenset()
    erased: set[str] = field(default_factory=set, compare=False)

    @property
    def visits(self) -> set[Visit]:
        return {visit for file in self.files for visit in file}

    @property
    def kept(self) -> set[Visit]:
        return {visit for visit in self.visits if visit.client not in self.left_out}

    def rows(self) -> tuple[dict[str, set[str]], Counter, Counter]:
        """People and searches by query, and clicks by query and document."""
        people, searches, clicks = defaultdict(set), Counter(), Counter()
        for visit in self.kept:
            people[visit.query].add(visit.client)
        people = {query: clients - self.erased for query, clients in people.items() if clients - self.erased}
        for visit in self.kept:
            if visit.query in people:
                searches[visit.query] += 1
                clicks[visit.query, visit.document] += 1
        return people, searches, clicks


class StoreModel:
    """What a store has to contain."""

    def __init__(self) -> None:
        self.days: dict[str, list[Part]] = {}
        self.ingests: dict[tuple[str, frozenset[File]], Part] = {}  # all that were ever made
        self.erased: frozenset[str] = frozenset()

    def ingest(self, date: str, files: frozenset[File], *, replace: bool) -> int:
        """The exit code."""
        part = self.ingests.get((date, files), Part(files, self.erased))
        parts = self.days.get(date, [])
        of_day = {file for earlier in parts for file in earlier.files}
        shared = [earlier for earlier in parts if earlier.visits & part.visits]
        if not replace and files < of_day:
            return OK
        self.ingests[date, files] = part  # made, even if the day then refuses it
        if replace or files >= of_day:
            parts = [part]
        elif all(earlier.visits <= part.visits for earlier in shared):
            parts = [*(earlier for earlier in parts if earlier not in shared), part]
        else:
            return REFUSED
        self.days[date] = parts
        return OK

    def erase(self, client: str) -> None:
        self.erased |= {client}
        for part in self.ingests.values():
            if any(visit.client == client for visit in part.visits):
                part.erased.add(client)

    def remove(self, dates: Iterable[str]) -> None:
        for date in dates:
            self.days.pop(date, None)
        self.ingests = {key: part for key, part in self.ingests.items() if key[0] not in dates}

    def rows(self, dates: Iterable[str]) -> tuple[dict[str, set[str]], Counter, Counter]:
        people, searches, clicks = defaultdict(set), Counter(), Counter()
        for date in dates:
            for part in self.days.get(date, ()):
                of_part = part.rows()
                for query, clients in of_part[0].items():
                    people[query] |= clients
                searches += of_part[1]
                clicks += of_part[2]
        return people, searches, clicks

    def pairs(self, dates: Iterable[str], k: int) -> Counter:
        """Clicks by query and title."""
        people, _, clicks = self.rows(dates)
        kept = {pair: number for pair, number in clicks.items() if len(people[pair[0]]) >= k}
        return Counter({(query, TITLES[document]): number for (query, document), number in kept.items()})


class ReleasesModel:
    """What has been published: releases by age, which is live, and which was before."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.live: str | None = None
        self.previous: str | None = None

    def publish(self, release: str, *, candidate: bool, keep: int) -> None:
        if release == self.live:
            return
        if release not in self.kept:
            self.kept.append(release)
        if not candidate:
            self.live, self.previous = release, self.live
        spared = {release, self.live, self.previous}
        others = [old for old in self.kept if old not in spared]
        gone = others[: max(0, len(others) - keep)]
        self.kept = [old for old in self.kept if old not in gone]

    def rollback(self, release: str | None) -> int:
        """The exit code."""
        target = release or self.previous
        if self.live is None or target is None or target not in self.kept:
            return WRONG_USAGE
        if target != self.live:
            self.live, self.previous = target, self.live
        return OK


def forked(function: Callable[[], Any]) -> Any:
    """The result of a function, which runs in a process of its own and returns something for JSON."""
    read, write = os.pipe()
    if process := os.fork():
        os.close(write)
        with os.fdopen(read) as answer:
            text = answer.read()
        assert os.waitpid(process, 0)[1] == 0, text
        return json.loads(text)
    code = 1
    try:
        with os.fdopen(write, "w") as answer:
            json.dump(function(), answer)
        code = 0
    finally:
        os._exit(code)


def days_of(store: str, dates: Iterable[str]) -> dict[str, Any]:
    """By date: people, searches and clicks as in `StoreModel.rows`, with numbers of people instead of people."""
    from clicktower.beam_jobs.ingest.days import Window, day_files, open_window, read_day_file

    result = {}
    for date in dates:
        people, searches, clicks = defaultdict(set), Counter(), Counter()
        ingests = open_window([store], Window(first=date, until=date)).ingests
        for row in (row for file in day_files(ingests, "queries") for row in read_day_file(file).to_pylist()):
            people[row["query"]] |= set(row["people"])
            searches[row["query"]] += row["searches"]
        for row in (row for file in day_files(ingests, "exposures") for row in read_day_file(file).to_pylist()):
            clicks[f"{row['query']}\t{row['document_id']}"] += row["clicks"]
        counts = {query: len(hashes) for query, hashes in people.items()}
        result[date] = [counts, dict(searches), dict(clicks)]
    return result


def pairs_of(folder: str) -> list:
    """(query, clicked title, clicks) of a build, after a check that no negative was clicked for its query."""
    from clicktower.schemas.stage import open_result
    from tests.beam_jobs.build.day_folders import read_pairs

    pairs = read_pairs(open_result(folder))
    clicked = {(pair["query"], pair["clicked"]) for pair in pairs}
    assert not any((pair["query"], title) in clicked for pair in pairs for title in pair["negatives"]), pairs
    return [[pair["query"], pair["clicked"], pair["clicks"], pair["split"]] for pair in pairs]


class StoreMachine(RuleBasedStateMachine):
    commands = 0
    disturbed = 0

    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        root = Path(self.scratch.name)
        self.folder, self.output, self.logs = root / "work", root / "output", root / "logs"
        self.folder.mkdir()
        self.logs.mkdir()
        self.store, self.release = str(self.folder / "store"), str(self.folder / "release")
        self.documents = root / "documents.tsv"
        self.documents.write_text("".join(f"{id_}\t{title}\n" for id_, title in TITLES.items()))
        self.files: dict[str, list[File]] = {date: [] for date in DATES}
        self.paths: dict[File, str] = {}
        self.num_visits = 0
        self.expected, self.releases = StoreModel(), ReleasesModel()
        self.builds: dict[str, int] = {}  # folder -> pairs to train on
        self.models: dict[str, str] = {}  # folder -> its release, once published
        self.trained: list[str] = []

    def teardown(self) -> None:
        self.scratch.cleanup()

    def command(self, *arguments: str, code: int = OK, disturb: tuple[str, int] | None = None) -> dict:
        """Run a command, disturbed first, and return what `--json` prints."""
        type(self).commands += 1
        words = [str(argument) for argument in arguments]
        if disturb:
            first = run(words, self.folder, self.output, mode=disturb[0], at=disturb[1])
            type(self).disturbed += first == KILLED or first == REFUSED != code
            assert first in (OK, REFUSED, code, KILLED), self.output.read_text()
            assert "Traceback" not in self.output.read_text(), self.output.read_text()
        seen = run(words, self.folder, self.output)
        text = self.output.read_text()
        assert seen == code, f"{words}: {seen} instead of {code}\n{text}"
        assert "Traceback" not in text, text
        return next((json.loads(line) for line in text.splitlines() if line.startswith("{")), {})

    visits = st.lists(
        st.tuples(st.sampled_from(CLIENTS), st.sampled_from(QUERIES), st.sampled_from(CLICKABLE)),
        min_size=1,
        max_size=6,
    )
    disturb = st.none() | st.tuples(st.sampled_from(Disk.modes), st.integers(1, CALLS))

    def _write(self, date: str, file: File) -> None:
        path = self.logs / f"{sum(map(len, self.files.values()))}.ndjson"
        path.write_bytes(b"".join(line + b"\n" for visit in file for line in visit.lines(date)))
        self.files[date].append(file)
        self.paths[file] = str(path)

    def _number(self, visits: list[tuple[str, str, str]]) -> File:
        self.num_visits += len(visits)
        return tuple(Visit(self.num_visits - number, *visit) for number, visit in enumerate(visits))

    @rule(date=st.sampled_from(DATES), visits=visits)
    def a_file_appears(self, date, visits):
        self._write(date, self._number(visits))

    @precondition(lambda self: any(self.files.values()))
    @rule(data=st.data(), visits=visits)
    def a_file_grows(self, data, visits):
        date = data.draw(st.sampled_from([date for date in DATES if self.files[date]]))
        file = data.draw(st.sampled_from(self.files[date]))
        self._write(date, file + self._number(visits))

    @precondition(lambda self: any(self.files.values()))
    @rule(data=st.data())
    def files_are_joined(self, data):
        """Or one is renamed: the new name has the content of all."""
        date = data.draw(st.sampled_from([date for date in DATES if self.files[date]]))
        files = data.draw(st.lists(st.sampled_from(self.files[date]), min_size=1, max_size=2, unique=True))
        self._write(date, tuple(dict.fromkeys(visit for file in files for visit in file)))

    @precondition(lambda self: any(self.files.values()))
    @rule(data=st.data(), replace=st.booleans(), disturb=disturb)
    def ingest(self, data, replace, disturb):
        date = data.draw(st.sampled_from([date for date in DATES if self.files[date]]))
        files = data.draw(st.lists(st.sampled_from(self.files[date]), min_size=1, max_size=3, unique=True))
        self._ingest(date, frozenset(files), replace, disturb)

    @precondition(lambda self: self.expected.ingests)
    @rule(data=st.data(), replace=st.booleans(), disturb=disturb)
    def ingest_again(self, data, replace, disturb):
        self._ingest(*data.draw(st.sampled_from(list(self.expected.ingests))), replace, disturb)

    def _ingest(self, date: str, files: frozenset[File], replace: bool, disturb: tuple[str, int] | None) -> None:
        code = self.expected.ingest(date, files, replace=replace)
        logs = [self.paths[file] for file in files]
        options = ["--replace-day"] if replace else []
        self.command("ingest", *logs, "--date", date, *options, "--into", self.store, code=code, disturb=disturb)
        self.compare_days()

    @precondition(lambda self: self.expected.days)
    @rule(client=st.sampled_from(CLIENTS), disturb=disturb)
    def erase(self, client, disturb):
        self.expected.erase(client)
        ids = self.logs / "ids.txt"
        ids.write_text(f"{client}\n")
        self.command("erase", "--store", self.store, "--client-ids-file", str(ids), disturb=disturb)
        self.compare_days()

    def compare_days(self) -> None:
        dates = list(self.expected.days)
        seen = forked(lambda: days_of(self.store, dates))
        for date in dates:
            people, searches, clicks = self.expected.rows([date])
            counts = {query: len(clients) for query, clients in people.items()}
            named = {f"{query}\t{document}": number for (query, document), number in clicks.items()}
            assert seen[date] == [counts, dict(searches), named], (date, seen[date], counts, searches, named)

    @precondition(lambda self: self.expected.days)
    @rule(k=st.integers(1, 3), dates=st.sampled_from([DATES[:1], DATES[1:], DATES]), disturb=disturb)
    def build(self, k, dates, disturb):
        held = [date for date in dates if date in self.expected.days]
        pairs = self.expected.pairs(held, k)
        code = WRONG_USAGE if not held else REFUSED if not pairs else OK
        window = ["--from", dates[0], "--to", dates[-1], "--allow-missing-days"]
        options = ["--k", k, "--set", "num_negatives=2", "--set", "dev_share=0.2", "--json"]
        result = self.command(
            "build", "--days", self.store, "--documents", self.documents, *window, *options, "--into", self.store,
            code=code, disturb=disturb,
        )  # fmt: skip
        if code == OK:
            rows = forked(lambda: pairs_of(result["path"]))
            assert Counter({(query, title): clicks for query, title, clicks, _ in rows}) == pairs, (rows, pairs)
            self.builds[result["path"]] = sum(split == "train" for *_, split in rows)

    @precondition(lambda self: self.builds)
    @rule(data=st.data(), number=st.integers(0, 1), disturb=disturb)
    def train(self, data, number, disturb):
        shards = data.draw(st.sampled_from(sorted(self.builds)))
        code = OK if self.builds[shards] else REFUSED
        fields = [word for setting in (*SETTINGS, f"seed={number}") for word in ("--set", setting)]
        options = ["--recipe", "lstm-32", *fields, "--json"]
        result = self.command("train", "--shards", shards, *options, "--into", self.store, code=code, disturb=disturb)
        if code == OK and result["path"] not in self.trained:
            self.trained.append(result["path"])

    @precondition(lambda self: self.trained)
    @rule(data=st.data(), candidate=st.booleans(), keep=st.integers(0, 2), disturb=disturb)
    def publish(self, data, candidate, keep, disturb):
        model = data.draw(st.sampled_from(self.trained))
        options = ["--set", f"keep={keep}", *(["--candidate"] if candidate else []), "--json"]
        result = self.command(
            "publish", "--model", model, "--documents", self.documents, "--to", self.release, *options, disturb=disturb
        )
        self.releases.publish(result["digest"], candidate=candidate, keep=keep)
        self.compare_releases()

    @rule(data=st.data())
    def rollback(self, data):
        target = data.draw(st.none() | st.sampled_from(self.releases.kept)) if self.releases.kept else None
        options = ["--release", target] if target else []
        self.command("rollback", "--to", self.release, *options, code=self.releases.rollback(target))
        self.compare_releases()

    def compare_releases(self) -> None:
        if not self.releases.kept:
            return
        from clicktower.flows.releases.kept_releases import list_releases

        rows = forked(lambda: list_releases(self.release))
        assert {row["digest"] for row in rows} == set(self.releases.kept), (rows, vars(self.releases))
        states = {row["state"]: row["digest"] for row in rows}
        assert states.get("live") == self.releases.live, (rows, vars(self.releases))
        assert states.get("previous") == self.releases.previous, (rows, vars(self.releases))

    @precondition(lambda self: self.expected.days)
    @rule(days=st.integers(0, 2), models=st.integers(1, 2), disturb=disturb)
    def prune(self, days, models, disturb):
        """As if all outputs were of a year ago; what is made afterwards is newer. `days`: how many dates are old."""
        date_back(Path(self.store))
        keep_days = (datetime.now(UTC).date() - calendar_date.fromisoformat(DATES[0])).days - days
        options = ["--keep-days", keep_days, "--keep-models", models]
        options += ["--release", self.release] if self.releases.kept else []
        self.command("prune", self.store, *options, disturb=disturb)
        self.expected.remove(DATES[:days])
        self.compare_days()
        kept = {path.parent.name for path in Path(self.store).glob("train/*/manifest.json")}
        self.trained = [folder for folder in self.trained if Path(folder).name in kept]
        self.builds = {
            folder: pairs for folder, pairs in self.builds.items() if (Path(folder) / "manifest.json").exists()
        }
        released = {
            json.loads(path.read_bytes())["inputs"]["model"]
            for path in self.folder.glob("release/releases/*/release.json")
        }
        assert released <= kept
        assert len(kept) >= min(models, len(kept | released))
        shards = {
            json.loads((Path(folder) / "manifest.json").read_bytes())["request"]["inputs"]["shards"]
            for folder in self.trained
        }
        assert {Path(folder).name for folder in self.builds} == shards
        assert {path.name for path in Path(self.store).glob("ingest/*/*.json")} <= {"manifest.json", "erased.json"}

    @precondition(lambda self: self.expected.days)
    @rule()
    def verify(self):
        self.command("verify", self.store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shrink", action="store_true", help="look for a shorter way to a failure")
    arguments = parser.parse_args()
    for module in (*MODULES, "clicktower.flows.releases.kept_releases"):
        import_module(module)
    length = min(arguments.steps, 40)
    chosen = settings(
        max_examples=arguments.steps // length, stateful_step_count=length, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, *([Phase.shrink] if arguments.shrink else [])],
        print_blob=True,
    )  # fmt: skip
    run_state_machine_as_test(seed(arguments.seed)(StoreMachine), settings=chosen)
    json.dump({"commands": StoreMachine.commands, "disturbed": StoreMachine.disturbed}, sys.stdout)


if __name__ == "__main__":
    main()
