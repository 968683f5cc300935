"""What this machine can run, and why not: looked at, never changed.

Each check gives a `Finding`: `ok`, `note` (works, but slower or without something) or `fail` (the quickstart cannot
run), what was seen and, where there is one, the remedy. Memory in GiB, loads as a share of one core.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

GIB = 2**30
NEEDED_MEMORY_GIB = 4.0  # the quickstart's peak is below this
NEEDED_DISK_GIB = 1.0
BUSY = 0.5  # a core that others use more than this slows everything that waits for all cores


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: Literal["ok", "note", "fail"]
    seen: str
    remedy: str = ""


def examine() -> dict[str, Any]:
    """All findings: {"ready": whether the quickstart can run, "findings": [...]}."""
    checks: tuple[Callable[[], Iterator[Finding]], ...] = (
        python,
        packages,
        cores,
        memory,
        folders,
        torch_and_devices,
        engines,
    )
    findings = [finding for check in checks for finding in check()]
    return {
        "ready": all(finding.state != "fail" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
    }


def python() -> Iterator[Finding]:
    seen = f"{platform.python_version()} at {sys.executable}"
    if sys.prefix == sys.base_prefix:
        yield Finding("python", "note", f"{seen}, not in a virtual environment", "make quickstart sets up its own")
    else:
        yield Finding("python", "ok", seen)


def packages() -> Iterator[Finding]:
    """Required packages: there, within their ranges and, in a source checkout, at the versions that are tested."""
    remedy = "pip install -c constraints.txt -e ."
    if find_spec("packaging") is None:
        yield Finding("packages", "fail", "the required packages are not installed", remedy)
        return
    from packaging.requirements import Requirement

    try:
        declared = [Requirement(text) for text in metadata.requires("socialrl") or []]
    except metadata.PackageNotFoundError:
        yield Finding("packages", "fail", "socialrl is not installed here", remedy)
        return
    missing, outside, other = [], [], []
    pins = tested_versions()
    for requirement in declared:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = installed(requirement.name)
        if version is None:
            missing.append(requirement.name)
        elif not requirement.specifier.contains(version, prereleases=True):
            outside.append(f"{requirement.name} {version} (wanted {requirement.specifier})")
        elif requirement.name in pins and pins[requirement.name] != version.partition("+")[0]:
            other.append(f"{requirement.name} {version} (tested: {pins[requirement.name]})")
    if missing or outside:
        yield Finding("packages", "fail", ", ".join([*(f"{name} missing" for name in missing), *outside]), remedy)
    elif other:
        yield Finding("packages", "note", ", ".join(other), remedy)
    else:
        yield Finding("packages", "ok", "all there" + (", at the tested versions" if pins else ""))


def tested_versions() -> dict[str, str]:
    """Name → version of the constraints file of a source checkout; empty where there is none."""
    path = Path(__file__).parent.parent / "constraints.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name.lower(): version for name, equal, version in (line.partition("==") for line in lines) if equal}


def installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cores() -> Iterator[Finding]:
    """How many cores there are for us, and what others do on them."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = cgroup_cores()
    seen = f"{allowed} cores" + (f", limited to {limit:g}" if limit is not None and limit < allowed else "")
    busy = busy_shares(0.5)
    if busy:
        seen += ", busy now: " + " ".join(f"{share:.0%}" for share in busy)
    threads = os.environ.get("OMP_NUM_THREADS")
    seen += f", OMP_NUM_THREADS={threads}" if threads else ""
    if busy and allowed > 1 and sum(share > BUSY for share in busy) >= 1 + (len(busy) - allowed):
        yield Finding("cores", "note", seen, "OMP_NUM_THREADS=1 keeps the pace beside a busy neighbour")
    else:
        yield Finding("cores", "ok" if allowed > 1 else "note", seen)


def cgroup_cores() -> float | None:
    """The processor limit of this container, in cores; None where there is none."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def busy_shares(seconds: float) -> list[float]:
    """The share of time that each core was not idle while we slept; empty where the system does not say."""
    before = _core_times()
    if not before:
        return []
    time.sleep(seconds)
    shares = []
    for (idle, total), (idle_then, total_then) in zip(_core_times(), before, strict=False):
        shares.append(1 - (idle - idle_then) / max(1, total - total_then))
    return shares


def _core_times() -> list[tuple[int, int]]:
    """(idle, total) ticks of each core."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return []
    ticks = [list(map(int, line.split()[1:9])) for line in lines if line.startswith("cpu") and line[3].isdigit()]
    return [(numbers[3] + numbers[4], sum(numbers)) for numbers in ticks]


def memory() -> Iterator[Finding]:
    free = free_memory_gib()
    if free is None:
        yield Finding("memory", "note", "this system does not say how much is free")
    elif free < NEEDED_MEMORY_GIB:
        remedy = f"the quickstart wants {NEEDED_MEMORY_GIB:g} GiB: end something else"
        yield Finding("memory", "note", f"{free:.1f} GiB free", remedy)
    else:
        yield Finding("memory", "ok", f"{free:.1f} GiB free")


def free_memory_gib() -> float | None:
    """What can still be had, within the container's own limit."""
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024 / GIB
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        return free if limit == "max" else min(free, (int(limit) - used) / GIB)
    except (OSError, ValueError):
        return free


def folders() -> Iterator[Finding]:
    """The cache of built models and the folder for runs: writable, with room."""
    from socialrl_cli.tiny import cache_dir

    for name, path in (("cache folder", cache_dir()), ("runs folder", Path("runs"))):
        there = path.absolute()
        while not there.exists():
            there = there.parent
        room = shutil.disk_usage(there).free / GIB
        seen = f"{path}, {room:.1f} GiB free"
        if not os.access(there, os.W_OK):
            yield Finding(name, "fail", f"{seen}, not writable", f"make {there} writable or work elsewhere")
        elif room < NEEDED_DISK_GIB:
            yield Finding(name, "note", seen, f"free at least {NEEDED_DISK_GIB:g} GiB")
        else:
            yield Finding(name, "ok", seen)


def torch_and_devices() -> Iterator[Finding]:
    if find_spec("torch") is None:
        yield Finding("torch", "fail", "not installed", "pip install -c constraints.txt torch")
        return
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    yield Finding("torch", "ok", f"{torch.__version__}, {build}, {torch.get_num_threads()} threads")
    if not torch.cuda.is_available():
        why = "torch is a CPU build" if not torch.version.cuda else "no CUDA device answers"
        yield Finding("gpu", "note", f"none: {why}", "everything runs on the processor, in float32")
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        seen = f"{torch.cuda.get_device_name(number)}, {free / GIB:.0f} of {total / GIB:.0f} GiB free"
        yield Finding(f"gpu {number}", "ok", seen)


def engines() -> Iterator[Finding]:
    """Where tokens can come from, beside the embedded engine."""
    version = installed("openai")
    yield Finding("openai", "ok" if version else "fail", version or "not installed")
    yield vllm()
    if find_spec("gguf") is None:
        yield Finding("gguf", "note", "not installed", "needed only to read models in GGUF files: pip install gguf")
    else:
        yield Finding("gguf", "ok", installed("gguf") or "")


def vllm() -> Finding:
    """What --engine vllm would start."""
    from scenarios.errors import UsageError
    from socialrl_cli.engines.launching import VARIABLE, find

    try:
        return Finding("vllm", "ok", f"--engine vllm starts {find()}")
    except UsageError as error:
        if os.environ.get(VARIABLE):
            return Finding("vllm", "note", str(error), f"mend or unset {VARIABLE}")
        return Finding(
            "vllm", "note", "not installed", f"the embedded engine is used; {VARIABLE} names another's Python"
        )
