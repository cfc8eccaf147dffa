"""Description of the machine that a benchmark runs on."""

import os
import platform
from pathlib import Path

CPUS = Path("/proc/cpuinfo")


def machine() -> dict[str, str | int]:
    """Number of cores this process may use, CPU model, memory in GB, Python version and operating system."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": cores,
        "cpu": _model(),
        "memory_gb": round(memory / 1e9),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _model() -> str:
    if CPUS.exists():
        for line in CPUS.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
