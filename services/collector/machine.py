"""Resource use of the whole machine, and time lost to other users of it. Where a container, a quota
or an affinity leaves only a part of the machine, that part counts as the machine."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from schemas import protocol
from services.collector.accounting import Counters, Gauges, Owner, ProcessSample
from services.runtime.limits import ProcessLimits, machine, processors, used_s

MACHINE = Owner(protocol.MACHINE)
LOADAVG = Path("/proc/loadavg")
PRESSURE = Path("/proc/pressure")
BLOCK_DEVICES = Path("/sys/block")
MICROSECOND_S = 1e-6
BUSY = ("user", "system", "nice", "irq", "softirq")


def read_machine(allowed: ProcessLimits) -> ProcessSample:
    """The whole machine, or what is allowed of it, as if it were one process born at its boot.

    Its processor time is everything except idle, I/O wait and steal; that of a control group with
    a quota is its own, or 0 if it is not counted (`counts_use`). Its memory is what is not
    available to new processes.
    """
    busy_s, steal_s = _of_processors(allowed)
    if allowed.group is not None:
        busy_s = used_s(allowed.group) or 0.0
    return ProcessSample(
        # What is counted changes when the stack starts; that is no use of processors.
        identity=(-2 if allowed.group else -1, allowed.cores),
        parent=None,
        owner=MACHINE,
        cpu_s=busy_s,
        ended_children_cpu_s=0.0,
        memory_bytes=max(0, allowed.memory_bytes - allowed.free_bytes),
        threads=_threads(),
        counters=_counters(steal_s, _pressure_files(allowed)),
        gauges=Gauges(load_1m=psutil.getloadavg()[0], frequency_mhz=_frequency_mhz()),
    )


def counts_use(allowed: ProcessLimits) -> bool:
    """Whether the system counts the processor time of the allowed part of the machine."""
    return allowed.group is None or used_s(allowed.group) is not None


def stalled_s(text: str) -> float | None:
    """Seconds since boot in which some task was stalled, from a file of /proc/pressure."""
    for line in text.splitlines():
        kind, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if kind == "some" and name == "total" and value.isdecimal():
                return int(value) * MICROSECOND_S
    return None


def _of_processors(allowed: ProcessLimits) -> tuple[float, float | None]:
    """Busy and stolen time in seconds of the allowed processors. Of a quota, the stolen time is its
    part of the machine's."""
    if allowed.limited_by == "affinity":
        times = psutil.cpu_times(percpu=True)
        result = [times[n] for n in processors() if n < len(times)]
    else:
        result = [psutil.cpu_times()]
    busy_s = sum(getattr(each, name, 0.0) for each in result for name in BUSY)
    if not all(hasattr(each, "steal") for each in result):
        return busy_s, None
    part = allowed.cores / machine().cores if allowed.group else 1.0
    return busy_s, part * sum(each.steal for each in result)


def _pressure_files(allowed: ProcessLimits) -> dict[str, Path]:
    """Pressure of the allowed part of the machine if the system tells it, or else the machine's."""
    files = {name: PRESSURE / name for name in ("cpu", "io", "memory")}
    if allowed.group is not None:
        own = {name: allowed.group / f"{name}.pressure" for name in files}
        files |= {name: path for name, path in own.items() if path.exists()}
    return files


def _counters(steal_s: float | None, pressure: Mapping[str, Path]) -> Counters:
    disks, networks = _disks(), psutil.net_io_counters()
    return Counters(
        read_bytes=sum(disk.read_bytes for disk in disks) if disks else None,
        written_bytes=sum(disk.write_bytes for disk in disks) if disks else None,
        received_bytes=networks.bytes_recv if networks else None,
        sent_bytes=networks.bytes_sent if networks else None,
        steal_seconds=steal_s,
        cpu_pressure_seconds=_pressure_s(pressure["cpu"]),
        io_pressure_seconds=_pressure_s(pressure["io"]),
        memory_pressure_seconds=_pressure_s(pressure["memory"]),
    )


def _disks() -> list[Any]:
    """Counters of hardware devices; writes to volumes, RAID and loop devices are counted there.
    The machine's sum if no hardware device is known."""
    result = psutil.disk_io_counters(perdisk=True) or {}
    real = [
        disk
        for name, disk in result.items()
        if (BLOCK_DEVICES / name.replace("/", "!") / "device").exists()
    ]
    return real or [disk for disk in [psutil.disk_io_counters()] if disk]


def _pressure_s(path: Path) -> float | None:
    with suppress(OSError):
        return stalled_s(path.read_text())
    return None


def _frequency_mhz() -> float | None:
    """None if the system does not report it; psutil then has nothing, or a missing file."""
    with suppress(OSError, NotImplementedError):
        result = psutil.cpu_freq()
        return float(result.current) if result else None
    return None


def _threads() -> int:
    """Threads of the machine if reported (Linux: `running/all` in loadavg), else 0."""
    try:
        return int(LOADAVG.read_text().split()[3].split("/")[1])
    except (OSError, IndexError, ValueError):
        return 0
