"""The whole machine: what it does, and who else makes it wait."""

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

    Its processor time is what all processors spent on anything: not idle, not waiting for disks,
    not taken away by a hypervisor. Its memory is what is not available to new processes.
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
    """Seconds since boot in which some task waited, from a file of /proc/pressure."""
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
    """Counters of the devices that are hardware: what a volume, RAID or loop device writes is in
    those that it is made of. Where no device is known to be hardware, the machine's sum."""
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
    """None where the system does not say; psutil then has nothing, or a file that is not there."""
    with suppress(OSError, NotImplementedError):
        found = psutil.cpu_freq()
        return float(found.current) if found else None
    return None


def _threads() -> int:
    """Threads of the machine where the system says (Linux: `running/all` in loadavg), else 0."""
    try:
        return int(LOADAVG.read_text().split()[3].split("/")[1])
    except (OSError, IndexError, ValueError):
        return 0
