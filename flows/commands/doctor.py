"""clicktower doctor"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from clicktower.flows.commands.options import Json
from clicktower.flows.config.commands import COMMANDS
from clicktower.flows.report.blocks import Cell, Table, Text
from clicktower.flows.show import console
from clicktower.flows.show.console import emit, errors
from clicktower.flows.show.store_results import finding_rows
from clicktower.schemas.process import limited_groups
from clicktower.schemas.storage import exists
from clicktower.training.kernel.kernel_library import Status, status

if TYPE_CHECKING:
    from clicktower.flows.config.pipeline_config import PipelineConfig

# A check prevents a run, finds room for improvement, passes, or states a fact.
State = Literal["bad", "look", "good", "note"]
GB = 1e9
# Training on a small log takes 1.5 GB: most of it torch, and a tower or two of 51,000 x 384 floats with velocities.
MIN_MEMORY, GOOD_MEMORY = 2 * GB, 4 * GB
SHOWN = ("torch", "pyarrow", "apache-beam", "ray", "prefect")
COMPILE = (
    "Install a C++ compiler if it is missing (apt-get install g++, dnf install gcc-c++), then clicktower again (in a"
    " checkout: touch pyproject.toml && make setup)."
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, and how to fix it where something is wrong. Neither has a secret or a user's name."""

    name: str
    state: State
    text: str
    fix: str = ""


def doctor(config: str | None = None, *, json: Json = False) -> int:
    """Report whether this machine can run everything: which path training takes and why,
    the packages, memory and engines, and what to do about what is missing. With a
    pipeline.toml also when its key of people expires.

    Nothing is changed, and nothing private is shown. Exit code 1 means that
    something prevents a run on this machine.

        clicktower doctor
        clicktower doctor pipeline.toml
        clicktower doctor --json

    Args:
        config: The TOML file of a pipeline, whose store is looked at.
    """
    from clicktower.beam_jobs.compiled.log_library import missing_reason
    from clicktower.beam_jobs.engine.engines import FLINK_JOB_SERVER, PRISM, PYTHON_WORKER
    from clicktower.flows.config.pipeline_config import read_pipeline
    from clicktower.flows.config.settings import Settings

    begun = time.perf_counter()
    engines, path = Path(Settings().engines), status()
    checks: dict[str, Callable[[], Finding]] = {
        "path": lambda: training_path(path),
        "log reader": lambda: log_reader(missing_reason()),
        "packages": lambda: packages(metadata.requires("clicktower") or (), installed()),
        "GPU": gpu,
        "memory": lambda: memory(*free_memory(Path("/proc/meminfo")), memory_left()),
        "Prism": lambda: engine("Prism", engines, (PRISM,)),
        "Flink": lambda: engine("Flink", engines, (FLINK_JOB_SERVER, PYTHON_WORKER)),
    }
    if config:
        pipeline = read_pipeline(config)
        checks["key"] = lambda: person_key(pipeline)
    findings = [checked(name, check) for name, check in checks.items()]
    result = {
        "stage": "doctor",
        "ready": not any(finding.state == "bad" for finding in findings),
        "training_path": "compiled" if path.available else "reference",
        "instructions": path.instructions,
        "findings": [asdict(finding) for finding in findings],
        "duration_seconds": round(time.perf_counter() - begun, 3),
    }
    emit(result, json, show)
    return 0 if result["ready"] else 1


def checked(name: str, check: Callable[[], Finding]) -> Finding:
    """The finding of a check. A check that fails is reported with its kind of error, and stops no other."""
    try:
        return check()
    except Exception as error:  # any surprise of a machine: the doctor itself must not need repair
        return Finding(name, "look", f"could not be checked ({type(error).__name__})", "Report it if something fails.")


def training_path(kernel: Status) -> Finding:
    """The compiled kernel, or the reference path in torch."""
    if not kernel.available:
        fix = "Use a processor that has them, if speed matters." if "processor" in kernel.reason else COMPILE
        text = f"the reference path in torch, several times slower for most recipes: {kernel.reason}"
        return Finding("path", "look", text, fix)
    if kernel.instructions == "generic":
        fix = "Use a processor that has them, or see that the virtual machine shows them."
        return Finding("path", "look", "the compiled kernel, without AVX2 or AVX-512: several times slower", fix)
    from clicktower.training.towers.tower_settings import TowerSettings

    towers = ", ".join(kind for kind, settings in TowerSettings.all_kinds().items() if settings().kernel_trains)
    return Finding("path", "good", f"the compiled kernel with {kernel.instructions} ({towers}); torch for other towers")


def gpu() -> Finding:
    """Whether there is a GPU, and whether it computes what the CPU does (trainer.gpu_check)."""
    from clicktower.training.trainer.job import count_gpus  # loads pyarrow

    if not count_gpus():
        return Finding("GPU", "note", "none that torch can use: training takes the CPU")
    from clicktower.training.trainer.gpu_check import device_of_gpu, gpu_kind, gpu_problem  # loads torch

    device = device_of_gpu()
    text = f"{gpu_kind('cuda')}: training takes the device {device}"
    problems = [f"{name}: {problem}" for name in ("cuda", "cuda-eager") if (problem := gpu_problem(name))]
    if not problems:
        return Finding("GPU", "good", f"{text}; its gradients are those of the CPU")
    return Finding(
        "GPU", "look", f"{text}; {'; '.join(problems)}", "Try another version of torch, Triton or the driver."
    )


def log_reader(reason: str) -> Finding:
    """The compiled reader of regular lines, or Python; `reason`: why nothing compiled is used; empty otherwise."""
    if not reason:
        return Finding("log reader", "good", "compiled, for UBI; Python for other logs")
    return Finding("log reader", "look", f"Python, several times slower for UBI logs: {reason}", COMPILE)


def packages(requires: Sequence[str], versions: Mapping[str, str]) -> Finding:
    """The packages that are missing or in an undeclared version.

    requires: lines like `torch>=2.6; extra == "train"`. versions: the installed ones by canonical name.
    """
    missing, mismatched, extras = list[str](), list[str](), set[str]()
    for requirement in map(Requirement, requires):
        named = re.search(r"""extra == ["']([\w-]+)["']""", str(requirement.marker or ""))
        extra, name = named[1] if named else "", canonicalize_name(requirement.name)
        needed = {"", "cli"}.union(*(command.extras for command in COMMANDS.values()))
        if name == "clicktower" or extra not in needed:
            continue
        if name not in versions:
            missing.append(name)
            extras.add(extra)
        elif not requirement.specifier.contains(versions[name], prereleases=True):
            mismatched.append(f"{name} {versions[name]} (declared: {requirement.specifier})")
    if missing:
        commands = [name for name, command in COMMANDS.items() if extras & set(command.extras)]
        useless = "no command works" if extras & {"", "cli"} else f"these do not work: {', '.join(commands)}"
        to_install = ",".join(sorted(extras - {""}))
        fix = f"Run pip install 'clicktower[{to_install}]'." if to_install else "Install clicktower again."
        return Finding("packages", "bad", f"{', '.join(sorted(missing))} missing: {useless}", fix)
    if mismatched:
        text = f"undeclared versions, which may fail when they are used: {', '.join(mismatched)}"
        return Finding("packages", "look", text, "Install clicktower again, with its constraints.txt.")
    return Finding("packages", "good", ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions))


def installed() -> dict[str, str]:
    """The version of every installed package, by canonical name, from its metadata, since imports take seconds."""
    return {
        canonicalize_name(distribution.name): distribution.version
        for distribution in metadata.distributions()
        if distribution.name
    }


def memory(total: int, available: int, left: int | None) -> Finding:
    """The memory in bytes: total, available, and what the control group leaves (None: no limit)."""
    free = available if left is None else min(available, left)
    limited = ", for the limit of its control group" if free < available else ""
    text = f"{free / GB:.1f} GB free of {total / GB:.1f} GB{limited}"
    if free < MIN_MEMORY:
        text += f"; the system would end training of the default recipe, which takes {MIN_MEMORY / GB:.0f} GB"
        return Finding("memory", "bad", text, "Raise the container's memory." if limited else "End other programs.")
    if free < GOOD_MEMORY:
        fix = "Keep workers = 1, at_once = 1 in a sweep, and Beam in one process."
        return Finding("memory", "look", f"{text}: enough for one worker on a small log", fix)
    return Finding("memory", "good", text)


def free_memory(meminfo: Path) -> tuple[int, int]:
    """(total, available) bytes."""
    fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines())
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, available


def memory_left(groups: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> int | None:
    """The bytes left below the tightest limit of this process's control group (version 2) and those above it."""
    left = []
    for folder, most in limited_groups(groups, process):
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        # Files that were read count as used memory, and are released on demand.
        used = int((folder / "memory.current").read_text()) - int(counts["inactive_file"])
        left.append(max(0, most - used))
    return min(left, default=None)


def engine(name: str, folder: Path, files: Sequence[str]) -> Finding:
    """Whether an engine's files are in the folder of `make engines`."""
    missing = [file for file in files if not (folder / file).exists()]
    if not missing:
        return Finding(name, "good", "in the folder of the engines")
    part = "not there" if len(missing) == len(files) else f"in part: {', '.join(missing)} missing"
    return Finding(name, "note", f"{part}; only --runner={name}Runner needs it, and `make engines` brings it")


def person_key(pipeline: "PipelineConfig") -> Finding:
    """When the key that hashes client ids expires, and whether another follows by itself."""
    from clicktower.beam_jobs.ingest.person_key import default_path, key_state

    settings = pipeline.ingest
    if settings.person_key:
        return Finding("key", "note", "a file of your own, which nothing renews")
    if not exists(default_path(pipeline.store)):
        return Finding("key", "note", "of people: none yet, the first ingest makes it")
    renews = bool(settings.renew_key or settings.key_overlap)
    key = key_state(pipeline.store, renews=renews)
    if notice := key["notice"]:
        problem, _, fix = notice.partition(": ")
        return Finding("key", "look", problem, fix)
    text = f"of people: expires on {key['expires']}, and " + (
        "the next is made in time" if renews else "nothing renews it"
    )
    return Finding("key", "good" if renews else "note", text)


def show(result: Mapping[str, Any]) -> None:
    """The verdict, then every finding."""
    findings = result["findings"]
    bad, look = (sum(finding["state"] == state for finding in findings) for state in ("bad", "look"))
    verdict = f"✗ in the way of a run on this machine: {bad}" if bad else "✓ this machine can run it"
    verdict += f"; to look at: {look}" if look else ""
    rows = []
    for finding in findings:
        text = Cell(text=finding["text"], tone="quiet" if finding["state"] == "note" else "")
        rows += finding_rows(finding["state"], [finding["name"]], text, finding["fix"])
    console.show([Text(text=verdict, tone="worse" if bad else "better"), Table(caption="", rows=rows)])
    errors.print(f"[dim]checked for {result['duration_seconds']:.1f} s; nothing was changed[/]")
