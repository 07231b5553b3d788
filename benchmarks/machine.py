"""The machine that a figure is of, as its record names it."""

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def processor() -> str:
    """As `AMD EPYC, Zen 4, L1d 32K, L2 1024K, L3 32768K`: a cloud's own names do not tell generations apart."""
    if not CPUINFO.exists():
        return platform.processor() or platform.machine()
    facts = {key.strip(): value.strip() for key, _, value in (row.partition(":") for row in _rows_of_first_core())}
    parts = [facts.get("model name", platform.machine())]
    if "cpu family" in facts:
        family, model = int(facts["cpu family"]), int(facts["model"])
        zen = _zen(family, model) if facts.get("vendor_id") == "AuthenticAMD" else None
        parts.append(f"Zen {zen}" if zen else f"family {family} model {model}")
    for cache in sorted(CACHES.glob("index*")):
        level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            parts.append(f"L{level}{'d' * (kind == 'Data')} {size}")
    return ", ".join(parts)


def machine() -> str:
    """The processor, and how many of its cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor()}, {cores} cores"


def _rows_of_first_core() -> list[str]:
    return CPUINFO.read_text().partition("\n\n")[0].splitlines()


def _zen(family: int, model: int) -> int | None:
    """The generation by AMD's family and model (Linux: arch/x86/kernel/cpu/amd.c)."""
    if family == 23:
        return 2 if model >= 0x30 else 1
    if family == 25:
        return 4 if 0x10 <= model <= 0x1F or 0x60 <= model <= 0xAF else 3
    return 5 if family == 26 else None
