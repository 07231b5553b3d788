"""What a run would do: which stages run and why, which are reused, and how long each took last time.

Each stage is asked by its own command (schemas.stage.planning): it answers with its finished output, or with the
request that it would run. The difference of that request from the most similar one in the store is the reason. A stage
whose input is yet to be made cannot be asked, and counts as one that runs; if that input was only damaged, and comes
out as it was, it is reused after all.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from clicktower.flows import chain
from clicktower.flows.config.pipeline_config import PipelineConfig
from clicktower.schemas import manifest, storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import Manifest, Request
from clicktower.schemas.release import Release, read_folder
from clicktower.schemas.section import flat
from clicktower.schemas.stage import WouldRun, planning

_FINGERPRINT = re.compile(r"[0-9a-f]{16,}")  # of a key, an output or a file
_LONGEST = 40  # characters of a value that is shown
_UNSET = "unset"  # or at its default, which is not part of a request


def plan(config: PipelineConfig, date: str) -> dict[str, Any]:
    """What each stage of a run would do, as `run --plan --json` prints it. Nothing is made, written or claimed.

    `plan` has, of each stage in their order, `because`: why it runs, or what a run decides again; `seconds`: what it
    took last time, None if that is unknown; `digest`: of the output that is reused. `seconds`: of those stages that run
    and whose time is known.

    Raises what the run would before its first stage, and what a stage that is asked raises: UsageError and StageError.
    """
    date = config.log.date or date
    chain.check(config, date)
    results: dict[str, Any] = {}
    stages: dict[str, tuple[Sequence[str], Callable[[], dict]]] = {
        "ingest": ((), lambda: chain.ingest(config, date)),
        "build": (("ingest",), lambda: chain.build(config, results["ingest"], date)),
        "train": (("build",), lambda: chain.train(config, results["build"])),
        "evaluate": (("train",), lambda: chain.evaluate(config, results["train"])),
        "compare": (("build",), lambda: chain.compare(config, results["build"])),
        "publish": (("train", "evaluate"), lambda: chain.publish(config, results["train"], results["evaluate"])),
    }
    if not config.compare:
        del stages["compare"]
    planned, last_seconds = list[dict[str, Any]](), _last_seconds(config.store, config.publish.to)
    with planning():
        for stage, (needs, ask) in stages.items():
            if missing := [name for name in needs if name not in results]:
                because = f"{missing[0]} runs"
            else:
                try:
                    results[stage] = ask()
                except WouldRun as would:
                    because = _reason(would, _earlier_requests(config, would.request))
                else:
                    planned.append(_reused(results[stage]))
                    continue
            seconds = last_seconds.get(stage)
            planned.append({"stage": stage, "runs": True, "because": because, "seconds": seconds, "digest": None})
    runs = [row for row in planned if row["runs"]]
    return {
        "stage": "run",
        "plan": planned,
        "seconds": round(sum(row["seconds"] or 0.0 for row in runs), 3),
        "unknown": [row["stage"] for row in runs if row["seconds"] is None],
    }


def _reused(result: Mapping[str, Any]) -> dict[str, Any]:
    is_candidate = result["stage"] == "publish" and not result["metrics"]["live"]
    return {
        "stage": result["stage"],
        "runs": False,
        "because": "whether this candidate goes live is decided again" if is_candidate else "",
        "seconds": result["duration_seconds"],
        "digest": result["digest"],
    }


def _last_seconds(store: str, to: str) -> dict[str, float | None]:
    """What the newest release took, the newest evaluation, and each of the outputs that it was made from: the newest
    training may be one of a comparison or a sweep. The newest output of a stage counts if none was evaluated.
    """
    last: dict[str, Manifest] = {}
    for stage in ("evaluate", "train", "build", "ingest", "compare"):
        named = {digest for later in last.values() for digest in later.request.named_digests()}
        if outputs := _manifests(store, stage):
            last[stage] = max(outputs, key=lambda output: (output.digest in named, output.created))
    seconds: dict[str, float | None] = {stage: output.duration_seconds for stage, output in last.items()}
    if releases := _releases(to):
        seconds["publish"] = releases[0].duration_seconds
    return seconds


def _earlier_requests(config: PipelineConfig, request: Request) -> list[Request]:
    """The requests of a stage that were finished, the newest first."""
    if request.stage == "publish":
        return _earlier_releases(config.publish.to, request)
    return [output.request for output in _manifests(config.store, request.stage)]


def _earlier_releases(uri: str, request: Request) -> list[Request]:
    """The requests of the releases at a URI. Of one before 2.1 only inputs are known; the rest is as in `request`."""
    return [
        replace(
            request,
            stage_version=release.stage_version or request.stage_version,
            config=release.config or request.config,
            inputs=release.inputs,
        )
        for release in _releases(uri)
    ]


def _releases(uri: str) -> list[Release]:
    """Those that are kept, the newest first; damaged ones are left out."""
    folder = storage.join(uri, "releases")
    releases = list[Release]()
    for name in storage.list_folders(folder):
        with suppress(StageError):
            releases.append(read_folder(storage.join(folder, name)))
    return sorted(releases, key=lambda release: release.created, reverse=True)


def _manifests(store: str, stage: str) -> list[Manifest]:
    """Those of a stage's finished outputs, the newest first; damaged ones are left out."""
    folder = storage.join(store, stage)

    def read(name: str) -> Manifest | None:
        with suppress(StageError):
            return manifest.read(storage.join(folder, name))
        return None

    outputs = filter(None, storage.map_files(read, storage.list_folders(folder)))
    return sorted(outputs, key=lambda output: output.created, reverse=True)


def _reason(would: WouldRun, earlier: Sequence[Request]) -> str:
    """Why a stage runs, in words."""
    if would.wrong:
        return f"its output is damaged: {would.wrong[0]}"
    if not earlier:
        return "nothing of it is there yet"
    changed = min((differences(request, would.request) for request in earlier), key=len)
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return ", ".join(changed[:3]) + more if changed else "a setting or the version of the stage"


def differences(before: Request, now: Request) -> list[str]:
    """The settings and inputs in which two requests to a stage differ, as `epochs 2 → 3`; of a file or another output
    its name.
    """
    of_settings = list(_changes(_flat(before.config), _flat(now.config)))
    of_inputs = list(_changes(_flat(before.inputs), _flat(now.inputs)))
    version = _change("version of the stage", before.stage_version, now.stage_version)
    seed = _change("seed", before.seed, now.seed) if not of_settings else ""  # a seed may be a setting too
    return [*filter(None, (version, seed)), *of_settings, *of_inputs]


def _flat(value: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted name, as `--set` names them, from what JSON makes of them."""
    values = flat(json.loads(manifest.canonical_json(value)))
    return {name.removeprefix("recipe."): inner for name, inner in values.items()}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in {**now, **before}:
        if change := _change(name, before.get(name, _UNSET), now.get(name, _UNSET)):
            yield change


def _change(name: str, before: Any, now: Any) -> str:
    """A change of a value in words; empty without one."""
    if before == now:
        return ""
    if isinstance(before, list) and isinstance(now, list) and all(map(_is_fingerprint, [*before, *now])):
        counts = ((len({*now} - {*before}), "new"), (len({*before} - {*now}), "gone"))
        return f"{name} ({', '.join(f'{count:,} {state}' for count, state in counts if count)})"
    if any(_is_fingerprint(value) or len(_text(value)) > _LONGEST for value in (before, now)):
        return name
    return f"{name} {_text(before)} → {_text(now)}"


def _is_fingerprint(value: Any) -> bool:
    return isinstance(value, str) and bool(_FINGERPRINT.fullmatch(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
