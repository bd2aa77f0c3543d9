"""The whole machine, as the operating system describes it."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from services.collector import processes
from services.runtime.limits import ProcessLimits

pytestmark = pytest.mark.unit

DISKS = {
    "sda": SimpleNamespace(read_bytes=10, write_bytes=100),
    "sda1": SimpleNamespace(read_bytes=10, write_bytes=100),
    "cciss/c0d0": SimpleNamespace(read_bytes=1, write_bytes=2),
    "dm-0": SimpleNamespace(read_bytes=11, write_bytes=102),
}
ALL = SimpleNamespace(read_bytes=22, write_bytes=204)


@pytest.mark.parametrize(
    ("hardware", "of_all", "expected"),
    [
        (("sda", "cciss!c0d0"), ALL, (11, 102)),
        ((), ALL, (22, 204)),
        ((), None, (None, None)),
    ],
    ids=["volumes on disks", "a system that does not say", "no disks"],
)
def test_bytes_of_a_disk_count_once(tmp_path, monkeypatch, hardware, of_all, expected):
    for name in hardware:
        (tmp_path / name / "device").mkdir(parents=True)
    (tmp_path / "dm-0").mkdir()
    monkeypatch.setattr(processes, "BLOCK_DEVICES", tmp_path)

    def counters(perdisk=False):
        return (DISKS if of_all else {}) if perdisk else of_all

    monkeypatch.setattr(psutil, "disk_io_counters", counters)
    found = processes.read_machine(ProcessLimits(2, 8, 4)).counters
    assert (found.read_bytes, found.written_bytes) == expected


def test_of_a_quota_the_use_is_that_of_its_group(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 7250000\n")
    (tmp_path / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=40000\n")
    allowed = ProcessLimits(1.5, 3_000, 1_000, "quota", tmp_path)
    found = processes.read_machine(allowed)
    assert (found.cpu_s, found.memory_bytes) == (7.25, 2_000)
    assert found.counters.cpu_pressure_seconds == 0.04
    assert processes.counts_use(allowed)
    (tmp_path / "cpu.stat").write_text("nr_throttled 0\n")
    assert not processes.counts_use(allowed)


def test_of_an_affinity_the_use_is_that_of_its_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    def times(percpu=False):
        busy = [SimpleNamespace(user=10.0 * n, system=n, idle=99.0, steal=n) for n in range(4)]
        return busy if percpu else SimpleNamespace(user=60.0, system=6.0, steal=6.0)

    monkeypatch.setattr(psutil, "cpu_times", times)
    monkeypatch.setattr(processes, "processors", lambda: {1, 3})
    found = processes.read_machine(ProcessLimits(2, 8, 4, "affinity"))
    assert (found.cpu_s, found.counters.steal_seconds) == (44.0, 4)
    assert processes.read_machine(ProcessLimits(4, 8, 4)).cpu_s == 66.0
