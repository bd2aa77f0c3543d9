"""Counters and gauges, the counters of a JVM, pressure."""

import os
import struct
from pathlib import Path

import pytest

from services.collector.accounting import (
    Accountant,
    Counters,
    Gauges,
    Owner,
    ProcessSample,
    growth,
    total,
)
from services.collector.jvm import JvmCounters, JvmSample, places, read
from services.collector.processes import stalled_s

pytestmark = pytest.mark.unit


def test_sums_leave_out_what_is_not_known():
    known, unknown = Gauges(open_files=3), Gauges()
    assert total([known, unknown, known], Gauges) == Gauges(open_files=6)
    assert total([unknown, unknown], Gauges) == Gauges()
    assert total([], Gauges) == Gauges()


def test_growth_is_a_difference_never_negative_and_unknown_without_both():
    now = Counters(read_bytes=9, written_bytes=1, gc_count=4)
    before = Counters(read_bytes=4, written_bytes=5)
    assert growth(now, before) == Counters(read_bytes=5, written_bytes=0)


def sample(born_s, read_bytes, open_files):
    return ProcessSample(
        identity=(1, born_s),
        parent=None,
        owner=Owner("store"),
        cpu_s=0.0,
        ended_children_cpu_s=0.0,
        memory_bytes=0,
        threads=1,
        counters=Counters(read_bytes=read_bytes),
        gauges=Gauges(open_files=open_files),
    )


@pytest.mark.parametrize(("born_s", "first"), [(50.0, None), (150.0, 7)])
def test_a_counter_counts_from_the_first_sample_or_from_a_birth_that_was_seen(born_s, first):
    accountant = Accountant(began_s=100.0)
    usage = accountant.account([sample(born_s, 7, 2)])[Owner("store")]
    assert (usage.counters.read_bytes, usage.gauges.open_files) == (first, 2)
    usage = accountant.account([sample(born_s, 10, 5)])[Owner("store")]
    assert (usage.counters.read_bytes, usage.gauges.open_files) == (3, 5)


def counters_file(**values):
    """A file as HotSpot writes it, with 64-bit counters and a text between them."""
    entries = b""
    for name, value in values.items():
        padded = name.encode() + b"\0" * (8 - len(name) % 8)
        data_at = 20 + len(padded) + (-(20 + len(padded)) % 8)
        kind = b"J" if isinstance(value, int) else b"B"
        vector = 0 if isinstance(value, int) else 8
        head = struct.pack("<iii", data_at + 8, 20, vector) + kind + b"\0\0\0"
        data = struct.pack("<q", value) if isinstance(value, int) else value.encode().ljust(8)
        entry = head + struct.pack("<i", data_at) + padded
        entries += entry.ljust(data_at, b"\0") + data
    prologue = b"\xca\xfe\xc0\xc0\x01\x02\x00\x01" + struct.pack("<iiqii", 0, 0, 0, 32, len(values))
    return prologue + entries


JVM = counters_file(
    **{
        "sun.os.hrt.frequency": 1000,
        "java.property.x": "text",
        "sun.gc.generation.0.space.0.used": 10,
        "sun.gc.generation.0.space.0.capacity": 100,
        "sun.gc.generation.1.space.0.used": 5,
        "sun.gc.generation.1.space.0.capacity": 200,
        "sun.gc.collector.0.time": 2500,
        "sun.gc.collector.0.invocations": 3,
        "sun.gc.collector.2.time": 500,
        "sun.gc.collector.2.invocations": 1,
        "java.ci.totalTime": 7250,
    }
)


def test_heap_collections_and_compilation_are_read_from_the_file_of_counters():
    assert "java.property.x" not in places(JVM)
    assert read(JVM, places(JVM)) == JvmSample(15, 300, None, 3.0, 4, 7.25)


@pytest.mark.parametrize(
    "data", [b"", b"no such file of counters at all, but long enough", JVM[:40]]
)
def test_a_file_of_another_kind_or_one_cut_off_gives_nothing(data):
    assert read(data, places(data)) is None


STATUS = "Name:\tjava\nUid:\t0\t{user}\t0\t0\nNSpid:\t77\t5\n"


@pytest.fixture
def jvm_folder(tmp_path):
    """The folder of a JVM's counters, in a `/proc` of its own."""
    folder = tmp_path / "77" / "root" / "tmp" / "hsperfdata_a"
    folder.mkdir(parents=True)
    (tmp_path / "77" / "status").write_text(STATUS.format(user=os.geteuid()))
    return folder


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_a_file_that_is_none_is_neither_read_nor_waited_for(tmp_path, jvm_folder, make):
    make(jvm_folder / "5")
    assert JvmCounters(77, tmp_path).sample() is None


def test_a_file_in_the_folder_of_another_user_is_not_read(tmp_path, jvm_folder):
    (jvm_folder / "5").write_bytes(JVM)
    (tmp_path / "77" / "status").write_text(STATUS.format(user=os.geteuid() + 1))
    assert not JvmCounters(77, tmp_path).is_known


def test_a_folder_that_is_a_link_is_not_read(tmp_path, jvm_folder):
    (jvm_folder / "5").write_bytes(JVM)
    jvm_folder.rename(tmp_path / "elsewhere")
    jvm_folder.symlink_to(tmp_path / "elsewhere")
    assert not JvmCounters(77, tmp_path).is_known


def test_the_file_is_found_by_the_number_the_process_has_in_its_own_namespace(tmp_path):
    process = tmp_path / "77"
    folder = process / "root" / "tmp" / "hsperfdata_u"
    folder.mkdir(parents=True)
    (process / "status").write_text(STATUS.format(user=os.geteuid()))
    assert not JvmCounters(77, tmp_path).is_known
    (folder / "5").write_bytes(JVM)
    assert JvmCounters(77, tmp_path).sample() == JvmSample(15, 300, None, 3.0, 4, 7.25)
    assert JvmCounters(78, Path(tmp_path)).sample() is None


def test_pressure_is_the_total_of_the_line_some():
    text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n"
    assert stalled_s(text) == 2.5
    assert stalled_s("nothing of the kind\n") is None
