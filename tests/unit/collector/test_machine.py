"""The whole machine, as the operating system describes it."""

from types import SimpleNamespace

import psutil
import pytest

from services.collector import machine

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
    monkeypatch.setattr(machine, "BLOCK_DEVICES", tmp_path)

    def counters(perdisk=False):
        return (DISKS if of_all else {}) if perdisk else of_all

    monkeypatch.setattr(psutil, "disk_io_counters", counters)
    found = machine.read_machine().counters
    assert (found.read_bytes, found.written_bytes) == expected
