"""What a container or a service manager leaves this process of the machine: control groups, version 2 and 1."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
