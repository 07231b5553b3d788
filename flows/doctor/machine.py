"""The machine: cores, threads, memory, shared memory, disk, GPU."""

import os
import shutil
import site
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flows.config.settings import Surroundings
from flows.doctor.finding import Finding
from schemas import storage
from training.gpu.device_name import DRIVER_FILES, has_driver

# What a container or a service manager leaves this process of the machine: control groups, version 2 and 1.


_V1_UNLIMITED = 1 << 60  # version 1 writes "no limit" as a number of about 2**63


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """`cores`: how many cores' worth of time; `memory_bytes`: still free below the limit. None: not limited."""

    cores: float | None
    memory_bytes: int | None


def limits(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Limits:
    """The tightest of the limits of this process's group and of all those above it."""
    cores, memory = [], []
    for folder in _folders(groups, own):
        quota = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        if len(quota) == 2 and quota[0].isdigit():
            cores.append(int(quota[0]) / int(quota[1]))
        for most, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            bound, taken = _words(folder / most), _words(folder / used)
            if bound and taken and bound[0].isdigit() and int(bound[0]) < _V1_UNLIMITED:
                memory.append(max(0, int(bound[0]) - int(taken[0]) + _reclaimable(folder)))
    return Limits(cores=min(cores, default=None), memory_bytes=min(memory, default=None))


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


def _reclaimable(folder: Path) -> int:
    """Bytes counted as used that the system gives back when they are asked for: files that were read once."""
    words = _words(folder / "memory.stat")
    stat = dict(zip(words[::2], words[1::2], strict=False))
    return int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


GB = 1e9
# Training on a small log takes 1.5 GB: most of it torch, and a tower or two of 51,000 x 384 floats with velocities.
MIN_MEMORY, GOOD_MEMORY = 2 * GB, 4 * GB
MIN_DISK, GOOD_DISK = 1 * GB, 10 * GB
MIN_SHARED_MEMORY = 1 * GB


def cores() -> Finding:
    """How many cores there are, and how many of them may be used."""
    return judge_cores(
        model=_processor(), present=os.cpu_count() or 1, allowed=len(os.sched_getaffinity(0)), quota=limits().cores
    )


def judge_cores(*, model: str, present: int, allowed: int, quota: float | None) -> Finding:
    """`allowed`: cores this process may be put on; `quota`: cores' worth of time its control group leaves it."""
    facts = {"model": model, "present": present, "allowed": allowed, "quota": quota}
    told = f"{model}, {_count(present, 'core')}"
    if quota is not None and quota < allowed:
        threads = max(1, int(quota))
        return Finding(
            name="cores",
            state="look",
            found=f"{told}, but its control group leaves {quota:g} of {'it' if allowed == 1 else 'them'}",
            follows=f"training would start {allowed} threads, which the system stops for a part of the time",
            do=f"give --threads {threads} to train (threads = {threads} in pipeline.toml and sweep.toml)",
            facts=facts,
        )
    if allowed < present:
        return Finding(name="cores", state="good", found=f"{told}, {allowed} of them for this process", facts=facts)
    return Finding(name="cores", state="good", found=told, facts=facts)


def threads(around: Surroundings) -> Finding:
    """Environment variables that make threads get in each other's way."""
    return judge_threads(around, allowed=len(os.sched_getaffinity(0)), openmp=_openmp_libraries())


def judge_threads(around: Surroundings, *, allowed: int, openmp: Sequence[str]) -> Finding:
    """`openmp`: packages that bring an OpenMP library of their own; each of them keeps a pool of threads."""
    told, do = [], []
    pinning = {
        "OMP_PROC_BIND": around.omp_proc_bind.lower() not in ("", "false", "0"),
        "GOMP_CPU_AFFINITY": bool(around.gomp_cpu_affinity),
        "KMP_AFFINITY": around.kmp_affinity.lower() not in ("", "none", "disabled"),
    }
    for name in (name for name, is_set in pinning.items() if is_set):
        told.append(f"{name} is set: loading torch pins the process, and every thread it starts, to one core")
        do.append(f"unset {name}")
    if around.omp_wait_policy.lower() == "active":
        told.append("OMP_WAIT_POLICY=active: idle threads keep their cores busy")
        do.append("set OMP_WAIT_POLICY=passive")
    elif len(openmp) > 1 and around.omp_wait_policy.lower() != "passive" and not around.omp_num_threads:
        told.append(f"{len(openmp)} OpenMP libraries ({', '.join(openmp)}): their idle threads spin against each other")
        do.append("set OMP_WAIT_POLICY=passive")
    for name, value in (
        ("OMP_NUM_THREADS", around.omp_num_threads),
        ("MKL_NUM_THREADS", around.mkl_num_threads),
        ("OPENBLAS_NUM_THREADS", around.openblas_num_threads),
    ):
        if value.isdigit() and int(value) > allowed:
            told.append(f"{name}={value}, with {_count(allowed, 'core')}")
            do.append(f"unset {name}")
    if told:
        return Finding(
            name="threads",
            state="look",
            found="; ".join(told),
            follows="the same results, several times slower",
            do=", ".join(do),
        )
    return Finding(name="threads", state="good", found="no environment variable gets in their way")


def memory() -> Finding:
    """What is free, of the machine and of what its control group leaves."""
    return judge_memory(*_memory(Path("/proc/meminfo").read_text(encoding="utf-8")), limits())


def judge_memory(total: int, available: int, left: Limits) -> Finding:
    """In bytes: what the machine has, what is free of it."""
    free = min(available, available if left.memory_bytes is None else left.memory_bytes)
    limited = ", for the limit of its control group" if free < available else ""
    facts = {"total_bytes": total, "free_bytes": free}
    found = f"{_gb(free)} free of {_gb(total)}{limited}"
    if free < MIN_MEMORY:
        return Finding(
            name="memory",
            state="bad",
            found=found,
            follows=f"training the default recipe takes {_gb(MIN_MEMORY)}: the system would end it",
            do="end other programs, or give this one more" if not limited else "raise the container's memory",
            facts=facts,
        )
    if free < GOOD_MEMORY:
        return Finding(
            name="memory",
            state="look",
            found=found,
            follows="enough for one worker on a small log",
            do="keep workers = 1, at_once = 1 in a sweep, and Beam in one process",
            facts=facts,
        )
    return Finding(name="memory", state="good", found=found, facts=facts)


def shared_memory(folder: str = "/dev/shm") -> Finding:
    """Where Ray's workers hand objects to each other."""
    if not os.path.isdir(folder):
        return Finding(name="shared memory", state="note", found=f"there is no {folder}; Ray uses files instead")
    return judge_shared_memory(shutil.disk_usage(folder).free)


def judge_shared_memory(free: int) -> Finding:
    facts = {"free_bytes": free}
    if free < MIN_SHARED_MEMORY:
        return Finding(
            name="shared memory",
            state="look",
            found=f"{_gb(free)} free",
            follows="one worker needs none; with more, Ray falls back to files, or fails",
            do="start the container with --shm-size=2g, or train with one worker",
            facts=facts,
        )
    return Finding(name="shared memory", state="good", found=f"{_gb(free)} free", facts=facts)


def disk(store: str) -> Finding:
    """Room for the store, and whether it can be written. Of a URI only whether its protocol is known here."""
    if not storage.is_local(store):
        return Finding(name="disk", state="note", found="the store is a URI of a known protocol, and was not looked at")
    folder = Path(storage.filesystem(store)[1])
    while not folder.exists():
        folder = folder.parent
    return judge_disk(shutil.disk_usage(folder).free, is_writable=folder.is_dir() and os.access(folder, os.W_OK))


def judge_disk(free: int, *, is_writable: bool) -> Finding:
    facts = {"free_bytes": free, "writable": is_writable}
    if not is_writable:
        return Finding(
            name="disk",
            state="bad",
            found="the store's folder cannot be written",
            follows="no stage could keep what it makes",
            do="choose another folder, or change who may write there",
            facts=facts,
        )
    if free < MIN_DISK:
        return Finding(
            name="disk",
            state="bad",
            found=f"{_gb(free)} free where the store is to be",
            follows="the demonstration alone takes about half a gigabyte with its checkpoints",
            do="free some space, or choose another folder with --into",
            facts=facts,
        )
    if free < GOOD_DISK:
        return Finding(
            name="disk",
            state="look",
            found=f"{_gb(free)} free where the store is to be",
            follows="while a log is read, rows wait in files about as large as the uncompressed log",
            do="see that a log of yours fits, with `clicktower check`",
            facts=facts,
        )
    return Finding(name="disk", state="good", found=f"{_gb(free)} free where the store is to be", facts=facts)


def gpu(driver_files: Sequence[str] = DRIVER_FILES) -> Finding:
    """GPUs that torch can use. torch takes seconds to load, so it is asked only where there is a driver at all."""
    if not has_driver(driver_files):
        return Finding(name="GPU", state="note", found="none; everything runs on the CPU", facts={"gpus": []})
    import torch

    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        return Finding(
            name="GPU",
            state="look",
            found=f"there is a device, which torch ({built}) cannot use",
            follows="everything runs on the CPU",
            do="install a driver that is new enough" if torch.version.cuda else "install a build of torch with CUDA",
            facts={"gpus": []},
        )
    cards = [torch.cuda.get_device_properties(at) for at in range(torch.cuda.device_count())]
    told = [{"name": card.name, "memory_bytes": card.total_memory} for card in cards]
    found = ", ".join(f"{card.name} ({_gb(card.total_memory)})" for card in cards)
    return Finding(name="GPU", state="good", found=f"{found}; training takes it", facts={"gpus": told})


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.lower().startswith(("model name", "cpu model", "hardware")):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def _memory(meminfo: str) -> tuple[int, int]:
    """(total, available) bytes in the text of /proc/meminfo."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    return total, available


def _openmp_libraries() -> list[str]:
    """The installed packages that bring an OpenMP library."""
    found = set()
    for folder in map(Path, site.getsitepackages()):
        for pattern in ("*.libs/lib*omp*.so*", "*/lib/lib[gi]*omp*.so*", "*/.libs/lib*omp*.so*"):
            names = [path for path in folder.glob(pattern) if path.name.startswith(("libgomp", "libiomp", "libomp"))]
            found |= {path.relative_to(folder).parts[0].removesuffix(".libs") for path in names}
    return sorted(found)


def _count(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / GB:.1f} GB" if num_bytes < 10 * GB else f"{num_bytes / GB:,.0f} GB"
