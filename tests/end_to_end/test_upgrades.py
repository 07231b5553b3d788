"""What an earlier version wrote is opened (kept_store); what a later one writes is refused, and left as it is."""

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clicktower
from clicktower.beam_jobs.build.build_stage import BUILD, BuildConfig, build_shards
from clicktower.beam_jobs.ingest.days import open_window
from clicktower.beam_jobs.ingest.erase import Erasure, erase
from clicktower.beam_jobs.ingest.ingest_stage import INGEST
from clicktower.flows.config.guard_rules import KeepRules
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.guards import drift
from clicktower.flows.plan import plan
from clicktower.flows.releases import publish as publishing
from clicktower.flows.releases.kept_releases import list_releases, rollback, verify
from clicktower.flows.releases.publish import PUBLISH, PublishConfig, Published, publish
from clicktower.flows.retention import Pruning, prune
from clicktower.flows.serve.live import Live
from clicktower.schemas.day_version import list_dates, newest_version
from clicktower.schemas.errors import LaterVersionError
from clicktower.schemas.manifest import SEAL, seal, to_bytes
from clicktower.schemas.release import Decision
from clicktower.schemas.stage import Stage, StageResult, find_finished_in, open_result
from clicktower.training.evaluation.evaluate_stage import EVALUATE, evaluate
from clicktower.training.evaluation.row import EvaluateConfig
from clicktower.training.model.model import load_encoder
from clicktower.training.trainer.launch import TRAIN
from tests.end_to_end.shop import clicktower as command
from tests.kept_store import STAGES, archives, opened

VERSIONS: dict[str, Stage] = {stage.name: stage for stage in (INGEST, BUILD, TRAIN, EVALUATE, PUBLISH)}


@dataclass
class Kept:
    """A store as an earlier version, or the one before a change, wrote it, and what that version said of it."""

    folder: Path
    told: dict[str, Any]

    def of(self, name: str) -> str:
        return str(self.folder / name)

    def output(self, stage: str) -> Path:
        return self.folder / "store" / stage / self.told["digests"][stage]

    def is_of_today(self, stage: str) -> bool:
        """Whether this version would make a stage's output alike."""
        return self.told["versions"][stage] == VERSIONS[stage].version

    @property
    def judged(self) -> dict[str, str]:
        return {name.partition(".")[0]: self.of(name) for name in ("documents.tsv", "queries.tsv", "qrels.txt")}

    def answers_alike(self) -> bool:
        """Whether its live release finds what the release found when it was made."""
        release = clicktower.load(self.of("release"))
        return all(
            [[hit.id, pytest.approx(hit.score, abs=1e-6)] for hit in release.search(query, 5, mode=mode)] == hits
            for mode, of_mode in self.told["hits"].items()
            for query, hits in of_mode.items()
        )


@pytest.fixture(params=archives(), ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def kept(request) -> Iterator[Kept]:
    with opened(request.param) as (folder, told):
        yield Kept(folder, told)


def test_it_is_whole_and_its_release_answers_as_it_did(kept):
    release = clicktower.load(kept.of("release"))
    assert kept.answers_alike()
    for query, vector in kept.told["vectors"].items():
        np.testing.assert_allclose(release.encode_queries([query])[0], vector, atol=1e-6)
    assert verify(kept.of("store")) == verify(kept.of("release")) == []
    [listed] = list_releases(kept.of("release"))
    assert (listed["state"], listed["digest"], listed["wrong"]) == ("live", kept.told["digests"]["publish"], "")


@pytest.mark.slow
def test_its_model_is_evaluated_and_published_anew_and_answers_alike(kept):
    model = str(kept.output("train"))
    again = evaluate(model, **kept.judged, store=kept.of("store"), config=EvaluateConfig(num_examples=3))
    assert again.manifest.outcome.metrics["systems"]["model"]["ndcg@10"]["mean"] == pytest.approx(kept.told["ndcg@10"])
    made = publish(
        model, documents=kept.of("documents.tsv"), to=kept.of("release"), evaluation=again.folder,
        config=PublishConfig(index="ivf", num_recall_queries=30),
    )  # fmt: skip
    assert made.release.encoded["encoded"] == 0, "the vectors of the earlier release serve"
    assert made.pointer.previous == kept.told["digests"]["publish"]
    assert kept.answers_alike()
    assert rollback(kept.of("release")).is_live
    assert kept.answers_alike()


@pytest.mark.slow
def test_a_run_reuses_all_that_this_version_would_make_alike_and_makes_the_rest_anew(kept):
    """A stage runs if its version has risen, or if one before it ran; a plan says so."""
    pipeline, date, before = kept.of("pipeline.toml"), kept.told["days"][-1], kept.told["digests"]
    planned = {row["stage"]: row for row in plan(read_pipeline(pipeline), date)["plan"]}
    done = command("run", pipeline, "--date", date, "--json")
    assert done.returncode == 0, done.stderr
    results, runs = json.loads(done.stdout), False
    for stage in STAGES:
        is_later = not kept.is_of_today(stage)
        runs |= is_later
        assert (planned[stage]["runs"], results[stage]["reused"]) == (runs, not runs)
        assert (results[stage]["digest"] == before[stage]) is not runs
        if is_later:
            assert "version of the stage" in planned[stage]["because"] or "runs" in planned[stage]["because"]
    assert verify(kept.of("store")) == verify(kept.of("release")) == []


@pytest.mark.slow
def test_its_days_lose_a_person_and_are_built_from_again(kept):
    store, dates = kept.of("store"), kept.told["days"]
    before = {date: newest_version(store, date).version for date in dates}
    done = erase([kept.told["person"]], store=store)
    assert (done.num_ids, done.num_found) == (1, 1)
    assert done.dates
    assert all(version == before[date] + 1 for date, version in done.dates.items())
    assert {made.stage for made in done.made_before} >= {"build", "train", "evaluate"}
    shards = build_shards([store], kept.of("documents.tsv"), store=store, config=BuildConfig(k=1, table_rows=1_000))
    assert shards.manifest.outcome.counts["train_pairs"]
    assert verify(store) == []


def test_it_is_pruned_as_a_store_of_today(kept):
    store, now = kept.of("store"), datetime(2099, 1, 1, tzinfo=UTC)
    done = prune(store, KeepRules(days=1, models=1), releases=[kept.of("release")], now=now)
    assert {gone.stage for gone in done.removed} == {"ingest", "measure"}
    assert list_dates(store) == []
    assert kept.output("train").exists()
    assert verify(store) == []


# A later version. Its records may have more fields: that is a later minor version, and is read.


@dataclass(frozen=True)
class Record:
    """A record with a version: where it is, and what reads it. (Shards and files of days: test_train, test_days.)"""

    pattern: str
    read: Callable[[Kept], object]
    field: str = "schema_version"


def evaluated_again(kept: Kept) -> StageResult:
    config = EvaluateConfig(**open_result(str(kept.output("evaluate"))).manifest.request.config)
    return evaluate(str(kept.output("train")), **kept.judged, store=kept.of("store"), config=config)


def found_again(kept: Kept) -> StageResult | None:
    return find_finished_in(str(kept.output("evaluate")))[0]


def published_again(kept: Kept) -> Published:
    model, evaluation = str(kept.output("train")), str(kept.output("evaluate"))
    return publish(
        model, documents=kept.of("documents.tsv"), to=kept.of("release"), evaluation=evaluation,
        config=PublishConfig(index="ivf", num_recall_queries=20),
        decide=lambda *_: Decision(promote=True, reason="it is asked for"),
    )  # fmt: skip


def pruned(kept: Kept) -> Pruning:
    return prune(kept.of("store"), KeepRules(), releases=[kept.of("release")])


def without_another(kept: Kept) -> Erasure:
    return erase([kept.told["person"]], store=kept.of("store"))


def model(kept: Kept) -> object:
    return load_encoder(open_result(str(kept.output("train"))).data)


def observed(kept: Kept) -> object:
    return drift.read(kept.of("store"), kept.told["days"][0])


RECORDS = {
    "an output that a stage reads": Record("store/train/*/manifest.json", evaluated_again),
    "an output that a stage would reuse": Record("store/evaluate/*/manifest.json", found_again),
    "an output that could go": Record("store/build/*/manifest.json", pruned),
    "a model": Record("store/train/*/*/model.json", model),
    "a version of a day": Record("store/days/*/version-*.json", lambda kept: open_window([kept.of("store")])),
    "an erased ingest": Record("store/ingest/*/erased.json", lambda kept: open_window([kept.of("store")])),
    "a list of erased people": Record("store/private/erased/erasure-*.json", without_another),
    "a key of people": Record("store/private/person-key.json", without_another, "version"),
    "figures of a run": Record("store/observed/*.json", observed),
    "a release to search": Record("release/releases/*/release.json", lambda kept: clicktower.load(kept.of("release"))),
    "a release to make": Record("release/releases/*/release.json", published_again),
    "a pointer to follow": Record("release/pointer.json", lambda kept: clicktower.load(kept.of("release"))),
    "a pointer to move": Record("release/pointer.json", lambda kept: rollback(kept.of("release"))),
}


def raise_version(path: Path, field: str, *, major: int = 0, minor: int = 0) -> None:
    value = json.loads(path.read_bytes())
    first, *others = (int(number) for number in str(value[field]).split("."))
    value |= {field: ".".join(map(str, (first + major, *(number + minor for number in others)))), "said_later": True}
    for part in value.get("parts", ()):  # of a day
        part["said_later"] = True
    path.write_bytes(to_bytes(seal(value) if SEAL in value else value))


@pytest.mark.parametrize("name", RECORDS)
def test_what_a_later_version_wrote_is_refused_and_left_as_it_is(kept, name):
    record = RECORDS[name]
    paths = list(kept.folder.glob(record.pattern))
    assert paths
    for path in paths:
        raise_version(path, record.field, major=1)
    before = {path: path.read_bytes() for path in kept.folder.rglob("*") if path.is_file()}
    with pytest.raises(LaterVersionError, match=r"has version \d+[\d.]*; this clicktower reads version \d") as refused:
        record.read(kept)
    assert refused.value.fix == "Upgrade clicktower."
    assert {path: path.read_bytes() for path in before if path.exists()} == before


def test_what_a_later_minor_version_wrote_is_read(kept):
    for name in {record.pattern: name for name, record in RECORDS.items()}.values():
        for path in kept.folder.glob(RECORDS[name].pattern):
            if path.name != "model.json":  # whose bytes its manifest records
                raise_version(path, RECORDS[name].field, minor=7)
    assert kept.answers_alike()
    assert list_releases(kept.of("release"))[0]["state"] == "live"
    assert evaluated_again(kept).reused is kept.is_of_today("evaluate")
    assert published_again(kept).reused is kept.is_of_today("publish")
    assert open_window([kept.of("store")]).ingests
    assert observed(kept)
    assert without_another(kept).num_found == 1
    assert not pruned(kept).waits


def test_a_release_of_a_later_version_is_listed_and_kept_beside_new_ones(kept):
    """So an older batch that goes on for a night does no harm; it replaces no live release that it cannot read."""
    made = published_again(kept).release.digest
    later = kept.folder / "release/releases" / ("b" * 24)
    shutil.copytree(kept.folder / "release/releases" / made, later)
    raise_version(later / "release.json", "schema_version", major=1)
    listed = {row["digest"]: row for row in list_releases(kept.of("release"))}
    assert (listed[later.name]["state"], listed[made]["state"]) == ("kept", "live")
    assert "this clicktower reads version" in listed[later.name]["wrong"]
    assert publishing.prune(kept.of("release"), keep=0) == []
    assert later.exists()


def test_a_service_goes_on_with_its_release_where_a_later_version_publishes_and_follows_a_rollback(kept, caplog):
    uri, before, failures = kept.of("release"), kept.told["digests"]["publish"], list[int]()
    live = Live(uri, changed=lambda _: None, failed=lambda: failures.append(1))
    config = PublishConfig(index="ivf", num_recall_queries=30)
    made = publish(str(kept.output("train")), documents=kept.of("documents.tsv"), to=uri, config=config)
    raise_version(Path(made.folder, "release.json"), "schema_version", major=1)
    asyncio.run(live.look())
    assert (live.current.digest, failures) == (before, [1])
    assert "Upgrade clicktower." in caplog.text
    with pytest.raises(LaterVersionError):  # started anew it has nothing to serve
        Live(uri, changed=lambda _: None, failed=lambda: None)
    rollback(uri, release=before)
    assert Live(uri, changed=lambda _: None, failed=lambda: None).current.digest == before
