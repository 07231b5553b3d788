"""clicktower doctor"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rich.table import Table
from rich.text import Text

from flows.show import console
from flows.show.console import errors, output
from training.compute.device import has_driver
from training.kernel.kernel_library import Status, status

# What keeps a run from working here; what works, but less well than it could; what is as it should be; a mere fact.
State = Literal["bad", "look", "good", "note"]
_MARKS = {"bad": ("✗", "bold red"), "look": ("!", "bold yellow"), "good": ("✓", "green"), "note": ("·", "dim")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """The result of one check: in words, and in `facts` for programs. Neither contains a secret or a user's name.

    `follows`: what does not work, or works worse; `do`: how to fix it. Both are empty where all is well.
    """

    name: str
    state: State
    found: str
    follows: str = ""
    do: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def doctor(*, json: bool = False) -> int:
    """Report whether this machine can run everything: which path training takes and why,
    the packages, memory and engines, and what to do about what is missing.

    Nothing is changed, and nothing private is shown. Exit code 1 means that
    something prevents a run on this machine.

        clicktower doctor
        clicktower doctor --json

    Parameters
    ----------
    json
        Print the findings as one JSON object.
    """
    from beam_jobs.compiled.log_library import why_not
    from beam_jobs.engine.engine_options import FLINK_JOB_SERVER, PRISM, PYTHON_WORKER
    from flows.config.settings import Settings, Surroundings

    begun = time.perf_counter()
    folder, java_home = Settings().engines, Surroundings().java_home
    checks: dict[str, Callable[[], Finding]] = {
        "path": lambda: training_path(status(), has_compiler=any(map(shutil.which, ("g++", "c++", "clang++")))),
        "GPU": gpu,
        "log reader": lambda: log_reader(why_not()),
        "packages": lambda: packages(needed(metadata.requires("clicktower") or ()), installed()),
        "memory": lambda: memory(*_free_memory(Path("/proc/meminfo").read_text(encoding="utf-8")), memory_left()),
        "Prism": lambda: engine("Prism", folder, (PRISM,)),
        "Flink": lambda: engine("Flink", folder, (FLINK_JOB_SERVER, PYTHON_WORKER)),
        "Java": lambda: java(_java_version(java_home)),
    }
    findings = [checked(name, check) for name, check in checks.items()]
    path = findings[0].facts
    result = {
        "stage": "doctor",
        "ready": not any(one.state == "bad" for one in findings),
        "training_path": path.get("path", "unknown"),
        "instructions": path.get("instructions", ""),
        "findings": [asdict(one) for one in findings],
        "duration_seconds": round(time.perf_counter() - begun, 3),
    }
    console.emit(result, json, _show)
    return 0 if result["ready"] else 1


def checked(name: str, check: Callable[[], Finding]) -> Finding:
    """The finding of a check. A check that fails is reported with its kind of error, and stops no other."""
    try:
        return check()
    except Exception as error:  # whatever a machine has in store: nobody should have to mend the doctor first
        return Finding(
            name=name,
            state="look",
            found=f"could not be checked ({type(error).__name__})",
            follows="its state is unknown",
            do="nothing, if all else works; otherwise report it",
        )


def training_path(found: Status, *, has_compiler: bool) -> Finding:
    """The compiled kernel, or the reference path in torch. `has_compiler`: now, not at installation."""
    facts = {
        "path": "compiled" if found.available else "reference",
        "instructions": found.instructions,
        "reason": found.reason,
    }
    if found.available and found.instructions == "generic":
        return Finding(
            name="path",
            state="look",
            found="the compiled kernel, without AVX2 or AVX-512",
            follows="the same results, at a part of the speed",
            do="use a processor that has them, or see that the virtual machine shows them",
            facts=facts,
        )
    if found.available:
        return Finding(
            name="path",
            state="good",
            found=f"the compiled kernel with {found.instructions} (lstm, bilstm, rnn); torch for other towers",
            facts=facts,
        )
    again = "install clicktower again (in a checkout: touch pyproject.toml && make setup)"
    do = again if has_compiler else f"install a C++ compiler (apt-get install g++, dnf install gcc-c++), then {again}"
    return Finding(
        name="path",
        state="look",
        found=f"the reference path in torch: {found.reason}",
        follows="everything works, and recurrent towers train and encode several times slower",
        do="use a processor that has them, if speed matters" if "processor" in found.reason else do,
        facts=facts,
    )


def gpu() -> Finding:
    """The GPUs that torch can use. torch takes seconds to load, so it is asked only where there is a driver."""
    if not has_driver():
        return Finding(name="GPU", state="note", found="none; everything runs on the CPU")
    import torch

    if not torch.cuda.is_available():
        return Finding(
            name="GPU",
            state="look",
            found=f"there is a device that torch {torch.__version__} cannot use",
            follows="everything runs on the CPU",
            do="install a newer driver, or a build of torch with CUDA",
        )
    cards = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
    return Finding(name="GPU", state="good", found=f"{', '.join(cards)}; training takes it", facts={"gpus": cards})


def log_reader(reason: str) -> Finding:
    """The compiled reader of regular lines, or Python; `reason`: why nothing compiled is used, empty where it is."""
    facts = {"reader": "python" if reason else "compiled"}
    if not reason:
        return Finding(name="log reader", state="good", found="compiled, for UBI; Python for other logs", facts=facts)
    return Finding(
        name="log reader",
        state="look",
        found=f"Python: {reason}",
        follows="everything works, and reading UBI logs takes several times as much processor time",
        do="install a C++ compiler if there is none, then clicktower again"
        " (in a checkout: touch pyproject.toml && make setup)",
        facts=facts,
    )


# What does not work without an extra.
_NEEDED_BY = {
    "": "nothing works",
    "beam": "check, ingest, build, judgments and erase do not work",
    "train": "train, sweep, evaluate and publish do not work",
    "compare": "compare has no doc2vec row",
    "check": "check tells writing systems, and no languages",
    "publish": "publish, search, run and demo do not work",
    "flows": "run and demo do not work",
    "serve": "serve does not work",
    "cli": "no command works",
}
_SHOWN = ("torch", "pyarrow", "apache-beam", "ray", "prefect", "lancedb")


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """A declared package: its extra ("" for all) and its versions."""

    extra: str
    name: str
    versions: SpecifierSet


def packages(wanted: Iterable[Needed], found: Mapping[str, str]) -> Finding:
    """The packages that are missing or in an undeclared version. `found`: the installed versions by canonical name."""
    wanted = [one for one in wanted if one.extra in _NEEDED_BY]
    missing = [one for one in wanted if one.name not in found]
    other = [
        one for one in wanted if one.name in found and not one.versions.contains(found[one.name], prereleases=True)
    ]
    shown = {name: found[name] for name in _SHOWN if name in found}
    facts = {"versions": shown, "missing": sorted(one.name for one in missing)}
    if missing:
        extras = sorted({one.extra for one in missing if one.extra})
        return Finding(
            name="packages",
            state="bad",
            found=f"{', '.join(facts['missing'])} missing",
            follows="; ".join(_NEEDED_BY[extra] for extra in sorted({one.extra for one in missing})),
            do=f"pip install 'clicktower[{','.join(extras)}]'" if extras else "install clicktower again",
            facts=facts,
        )
    if other:
        return Finding(
            name="packages",
            state="look",
            found=", ".join(f"{one.name} {found[one.name]} (declared: {one.versions})" for one in other),
            follows="some versions outside of these are known to fail when they are used, not when they are installed",
            do="install clicktower again, with its constraints.txt",
            facts=facts,
        )
    named = ", ".join(f"{name} {version}" for name, version in shown.items())
    return Finding(name="packages", state="good", found=named, facts=facts)


def needed(requires: Sequence[str]) -> list[Needed]:
    """The declared packages in lines like `torch>=2.6; extra == "train"`, without those of clicktower's own extras."""
    made = []
    for requirement in map(Requirement, requires):
        extra = re.search(r"""extra == ["']([\w-]+)["']""", str(requirement.marker or ""))
        name = canonicalize_name(requirement.name)
        if name != "clicktower":
            made.append(Needed(extra=extra.group(1) if extra else "", name=name, versions=requirement.specifier))
    return made


def installed() -> dict[str, str]:
    """The version of every installed package, by canonical name, from its metadata, since imports take seconds."""
    return {canonicalize_name(one.name): one.version for one in metadata.distributions() if one.name}


GB = 1e9
# Training on a small log takes 1.5 GB: most of it torch, and a tower or two of 51,000 x 384 floats with velocities.
_MIN_MEMORY, _GOOD_MEMORY = 2 * GB, 4 * GB
_UNLIMITED = 1 << 60  # version 1 of control groups writes "no limit" as a number of about 2**63


def memory(total: int, available: int, left: int | None) -> Finding:
    """The memory in bytes: total, available, and what the control group leaves (None: no limit)."""
    free = available if left is None else min(available, left)
    limited = ", for the limit of its control group" if free < available else ""
    facts = {"total_bytes": total, "free_bytes": free}
    found = f"{free / GB:.1f} GB free of {total / GB:.1f} GB{limited}"
    if free < _MIN_MEMORY:
        return Finding(
            name="memory",
            state="bad",
            found=found,
            follows=f"training the default recipe takes {_MIN_MEMORY / GB:.0f} GB: the system would end it",
            do="end other programs, or give this one more" if not limited else "raise the container's memory",
            facts=facts,
        )
    if free < _GOOD_MEMORY:
        return Finding(
            name="memory",
            state="look",
            found=found,
            follows="enough for one worker on a small log",
            do="keep workers = 1, at_once = 1 in a sweep, and Beam in one process",
            facts=facts,
        )
    return Finding(name="memory", state="good", found=found, facts=facts)


def _free_memory(meminfo: str) -> tuple[int, int]:
    """(total, available) bytes in the text of /proc/meminfo."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, available


def memory_left(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """The bytes left below the tightest limit of this process's control group and its ancestors, version 1 or 2."""
    left = []
    for folder in _folders(groups, own):
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            bound, taken = _words(folder / most), _words(folder / used)
            if bound and taken and bound[0].isdigit() and int(bound[0]) < _UNLIMITED:
                stat = _words(folder / "memory.stat")
                counts = dict(zip(stat[::2], stat[1::2], strict=False))
                # Files that were read once count as used, and are given up when memory is asked for.
                reclaimable = int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
                left.append(max(0, int(bound[0]) - int(taken[0]) + reclaimable))
    return min(left, default=None)


def _folders(groups: Path, own: Path) -> Iterator[Path]:
    """The folders of this process's groups and those above. A container sees its own as the topmost."""
    for line in own.read_text(encoding="utf-8").splitlines() if own.exists() else ():
        _, controllers, path = line.split(":", 2)
        top = groups / controllers if controllers else groups
        folder = top / path.strip("/")
        yield top
        while folder != top and folder.is_relative_to(top):
            yield folder
            folder = folder.parent


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


def engine(name: str, folder: str, files: tuple[str, ...]) -> Finding:
    """Whether an engine's files are in the folder of `make engines`."""
    missing = [file for file in files if not os.path.exists(os.path.join(folder, file))]
    if not missing:
        return Finding(name=name, state="good", found="in the folder of the engines")
    part = "not there" if len(missing) == len(files) else f"in part: {', '.join(missing)} missing"
    return Finding(
        name=name, state="note", found=f"{part}; only --runner={name}Runner needs it, and `make engines` brings it"
    )


_MIN_JAVA = 11


def java(printed: str | None) -> Finding:
    """The version of the Java that Flink would use, from the output of `java -version`; None where there is no Java."""
    if printed is None:
        return Finding(name="Java", state="note", found="none; only Flink needs it")
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', printed)
    number = int(version.group(1)) if version else None
    if number is not None and number >= _MIN_JAVA:
        return Finding(name="Java", state="good", found=f"Java {number}", facts={"version": number})
    return Finding(
        name="Java",
        state="look",
        found="a Java of unknown version" if number is None else f"Java {number}",
        follows=f"Flink needs {_MIN_JAVA} or later",
        do="install Java 17, or let JAVA_HOME name one",
        facts={"version": number},
    )


def _java_version(java_home: str) -> str | None:
    program = shutil.which("java", path=f"{java_home}/bin") if java_home else shutil.which("java")
    if not program:
        return None
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=10, check=False)
    return done.stderr + done.stdout


def _show(result: Mapping[str, Any]) -> None:
    """The verdict, then every finding."""
    findings = result["findings"]
    bad, look = (sum(one["state"] == state for one in findings) for state in ("bad", "look"))
    verdict = Text("✓ this machine can run it", "bold green")
    if bad:
        verdict = Text(f"✗ in the way of a run on this machine: {_count(bad, 'thing')}", "bold red")
    if look:
        verdict.append(f"; {_count(look, 'thing')} to look at", "bold yellow")
    output.print(verdict, soft_wrap=True)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column()
    for one in findings:
        mark, style = _MARKS[one["state"]]
        quiet = "dim" if one["state"] == "note" else ""
        table.add_row(Text(mark, style), one["name"], Text.from_markup(console.plain(one["found"]), style=quiet))
        if one["follows"]:
            table.add_row("", "", Text.from_markup(console.plain(one["follows"]), style="dim"))
        if one["do"]:
            table.add_row("", "", Text.from_markup(f"→ {console.plain(one['do'])}"))
    output.print(table)
    errors.print(Text(f"checked for {result['duration_seconds']:.1f} s; nothing was changed", "dim"))


def _count(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
