"""The machine that a figure is of, as its record names it."""

import os
import platform
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def processor() -> str:
    """As `AMD EPYC, Zen 4, L1d 32K, L2 1024K, L3 32768K`: a cloud's own names do not tell generations apart."""
    parts = [_facts().get("model name") or platform.processor() or platform.machine(), generation()]
    for cache in sorted(CACHES.glob("index*")):
        level, kind, size = ((cache / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            parts.append(f"L{level}{'d' * (kind == 'Data')} {size}")
    return ", ".join(filter(None, parts))


def generation() -> str:
    """As `Zen 4`, from AMD's family and model (Linux: arch/x86/kernel/cpu/amd.c); of others `family 6 model 143`."""
    facts = _facts()
    if "cpu family" not in facts:
        return ""
    family, model = int(facts["cpu family"]), int(facts["model"])
    if facts["vendor_id"] == "AuthenticAMD":
        if family == 23:
            return "Zen 2" if model >= 0x30 else "Zen 1"
        if family == 25:
            return "Zen 4" if 0x10 <= model <= 0x1F or 0x60 <= model <= 0xAF else "Zen 3"
        if family == 26:
            return "Zen 5"
    return f"family {family} model {model}"


def machine() -> str:
    """The processor, and how many of its cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{processor()}, {cores} cores"


def _facts() -> dict[str, str]:
    """What Linux says of the first core."""
    rows = CPUINFO.read_text().partition("\n\n")[0].splitlines() if CPUINFO.exists() else []
    return {key.strip(): value.strip() for key, _, value in (row.partition(":") for row in rows)}
