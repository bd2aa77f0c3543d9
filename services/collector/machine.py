"""Resource use of the whole machine, and time lost to other users of it."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from schemas import protocol
from services.collector.accounting import Owner, ProcessSample
from services.collector.measures import Counters, Gauges

MACHINE = Owner(protocol.MACHINE)
LOADAVG = Path("/proc/loadavg")
PRESSURE = Path("/proc/pressure")
BLOCK_DEVICES = Path("/sys/block")
MICROSECOND_S = 1e-6


def read_machine() -> ProcessSample:
    """The whole machine as if it were one process born at its boot.

    Its processor time is everything except idle, I/O wait and steal. Its memory is what is not
    available to new processes.
    """
    cpu = psutil.cpu_times()
    memory = psutil.virtual_memory()
    busy_s = cpu.user + cpu.system + sum(getattr(cpu, n, 0.0) for n in ("nice", "irq", "softirq"))
    return ProcessSample(
        identity=(-1, 0.0),
        parent=None,
        owner=MACHINE,
        cpu_s=busy_s,
        ended_children_cpu_s=0.0,
        memory_bytes=memory.total - memory.available,
        threads=_threads(),
        counters=_counters(getattr(cpu, "steal", None)),
        gauges=Gauges(load_1m=psutil.getloadavg()[0], frequency_mhz=_frequency_mhz()),
    )


def stalled_s(text: str) -> float | None:
    """Seconds since boot in which some task was stalled, from a file of /proc/pressure."""
    for line in text.splitlines():
        kind, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if kind == "some" and name == "total" and value.isdecimal():
                return int(value) * MICROSECOND_S
    return None


def _counters(steal_s: float | None) -> Counters:
    disks, networks = _disks(), psutil.net_io_counters()
    return Counters(
        read_bytes=sum(disk.read_bytes for disk in disks) if disks else None,
        written_bytes=sum(disk.write_bytes for disk in disks) if disks else None,
        received_bytes=networks.bytes_recv if networks else None,
        sent_bytes=networks.bytes_sent if networks else None,
        steal_seconds=steal_s,
        cpu_pressure_seconds=_pressure_s("cpu"),
        io_pressure_seconds=_pressure_s("io"),
        memory_pressure_seconds=_pressure_s("memory"),
    )


def _disks() -> list[Any]:
    """Counters of hardware devices; writes to volumes, RAID and loop devices are counted there.
    The machine's sum if no hardware device is known."""
    found = psutil.disk_io_counters(perdisk=True) or {}
    real = [
        disk
        for name, disk in found.items()
        if (BLOCK_DEVICES / name.replace("/", "!") / "device").exists()
    ]
    return real or [disk for disk in [psutil.disk_io_counters()] if disk]


def _pressure_s(name: str) -> float | None:
    with suppress(OSError):
        return stalled_s((PRESSURE / name).read_text())
    return None


def _frequency_mhz() -> float | None:
    """None if the system does not report it; psutil then has nothing, or a missing file."""
    with suppress(OSError, NotImplementedError):
        found = psutil.cpu_freq()
        return float(found.current) if found else None
    return None


def _threads() -> int:
    """Threads of the machine if reported (Linux: `running/all` in loadavg), else 0."""
    try:
        return int(LOADAVG.read_text().split()[3].split("/")[1])
    except (OSError, IndexError, ValueError):
        return 0
