"""What a process may use, read from the control groups and mounts of a fake system."""

from collections.abc import Collection
from pathlib import Path

import pytest

from services.definitions import requests
from services.runtime.limits import ProcessLimits, limits, used_s

pytestmark = pytest.mark.unit

GB = 1_000_000_000
UNLIMITED = 9_223_372_036_854_771_712  # what version 1 shows without a limit


def limits_of(proc: Path, affinity: Collection[int] = range(16)) -> ProcessLimits:
    """What a process may use on a machine of 16 cores and 64 GB."""
    return limits(proc, ProcessLimits(16, 64 * GB, 50 * GB), affinity)


def write(folder: Path, **files: str) -> None:
    """Files of a control group; `cpu_max` becomes `cpu.max`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")


def a_process(tmp_path: Path, groups: str, *mounts: tuple[str, str, str]) -> Path:
    """/proc/self of a process. mounts: root, mount point below tmp_path, and type with options."""
    proc = tmp_path / "proc"
    write(proc, cgroup=groups)
    lines = [
        f"30 23 0:28 {root} {tmp_path / place} rw,relatime - {kind}" for root, place, kind in mounts
    ]
    write(proc, mountinfo="\n".join(["22 1 0:20 / / rw - ext4 /dev/sda rw", *lines]))
    return proc


V2 = ("/", "cg", "cgroup2 cgroup2 rw")


def test_without_control_groups_it_is_the_machine(tmp_path: Path) -> None:
    found = limits_of(tmp_path / "none")
    assert (found.cores, found.memory_bytes, found.free_bytes) == (16, 64 * GB, 50 * GB)
    assert (found.limited_by, found.group) == ("", None)


@pytest.mark.parametrize(
    ("quota", "cores", "whole", "text"),
    [
        ("200000 100000", 2, 2, "2"),
        ("150000 100000", 1.5, 2, "1.5"),
        ("5000 10000", 0.5, 1, "0.5"),
        ("max 100000", 16, 16, "16"),
        ("3200000 100000", 16, 16, "16"),
    ],
)
def test_a_quota_of_version_2(
    tmp_path: Path, quota: str, cores: float, whole: int, text: str
) -> None:
    write(tmp_path / "cg/job", cpu_max=quota)
    found = limits_of(a_process(tmp_path, "0::/job", V2))
    assert (found.cores, found.whole_cores, str(found.cores)) == (cores, whole, text)


def test_the_tightest_enclosing_group_counts(tmp_path: Path) -> None:
    write(tmp_path / "cg/slice", cpu_max="100000 100000", memory_max="max")
    write(tmp_path / "cg/slice/pod", cpu_max="400000 100000", memory_max=str(3 * GB))
    write(tmp_path / "cg/slice/pod/job", cpu_max="max 100000", memory_max=str(8 * GB))
    for name, used in (("slice/pod", 2 * GB), ("slice/pod/job", GB)):
        write(tmp_path / "cg" / name, memory_current=str(used))
        write(tmp_path / "cg" / name, memory_stat=f"anon 5\ninactive_file {GB // 2}")
    found = limits_of(a_process(tmp_path, "0::/slice/pod/job", V2))
    assert (found.cores, found.limited_by, found.group) == (1, "quota", tmp_path / "cg/slice")
    assert (found.memory_bytes, found.free_bytes) == (3 * GB, 3 * GB // 2)


def test_groups_of_version_1_with_one_hierarchy_per_controller(tmp_path: Path) -> None:
    write(tmp_path / "cpu/job", cpu_cfs_quota_us="100000", cpu_cfs_period_us="100000")
    write(tmp_path / "cpu", cpu_cfs_quota_us="-1", cpu_cfs_period_us="100000")
    memory = tmp_path / "memory"
    write(memory / "job", memory_limit_in_bytes=str(3 * GB), memory_usage_in_bytes=str(GB))
    write(memory / "job", memory_stat="inactive_file 1\ntotal_inactive_file 250000000")
    write(memory, memory_limit_in_bytes=str(UNLIMITED), memory_usage_in_bytes=str(9 * GB))
    write(memory, memory_stat="total_inactive_file 0")
    found = limits_of(
        a_process(
            tmp_path,
            "9:name=systemd:/\n4:memory:/job\n2:cpu,cpuacct:/job\n0::/",
            ("/", "cpu", "cgroup cgroup rw,cpu,cpuacct"),
            ("/", "memory", "cgroup cgroup rw,memory"),
            ("/", "unified", "cgroup2 cgroup2 rw"),
        )
    )
    assert (found.cores, found.memory_bytes, found.free_bytes) == (1, 3 * GB, 2_250_000_000)


@pytest.mark.parametrize(
    ("root", "path"),
    [("/docker/1a", "/docker/1a"), ("/docker/1a", "/docker/1a/job"), ("/", "/../../other")],
    ids=["the mount is the group", "a group inside it", "outside of the namespace"],
)
def test_in_a_container_the_mount_point_is_its_own_group(
    tmp_path: Path, root: str, path: str
) -> None:
    write(tmp_path / "cg", cpu_max="200000 100000")
    found = limits_of(a_process(tmp_path, f"0::{path}", (root, "cg", "cgroup2 cgroup2 rw")))
    assert found.cores == 2


def test_a_mount_point_with_a_space(tmp_path: Path) -> None:
    write(tmp_path / "a b", cpu_max="200000 100000")
    proc = a_process(tmp_path, "0::/", ("/", "a\\040b", "cgroup2 cgroup2 rw"))
    assert limits_of(proc).cores == 2


@pytest.mark.parametrize(
    ("quota", "cores", "limited_by"),
    [("max 100000", 3, "affinity"), ("250000 100000", 2.5, "quota"), ("800000 1", 3, "affinity")],
)
def test_an_affinity_limits_too(tmp_path: Path, quota: str, cores: float, limited_by: str) -> None:
    write(tmp_path / "cg", cpu_max=quota)
    found = limits_of(a_process(tmp_path, "0::/", V2), {1, 4, 7})
    assert (found.cores, found.limited_by) == (cores, limited_by)


def test_memory_in_use_beyond_the_limit_leaves_none(tmp_path: Path) -> None:
    write(tmp_path / "cg", memory_max=str(GB), memory_current=str(2 * GB), memory_stat="anon 1")
    assert limits_of(a_process(tmp_path, "0::/", V2)).free_bytes == 0


def test_processor_time_of_a_group(tmp_path: Path) -> None:
    write(tmp_path / "two", cpu_stat="usage_usec 2500000\nnr_throttled 3")
    write(tmp_path / "one", cpu_stat="nr_throttled 3", cpuacct_usage="1500000000")
    write(tmp_path / "apart", cpu_stat="nr_throttled 3")
    assert [used_s(tmp_path / name) for name in ("two", "one", "apart")] == [2.5, 1.5, None]


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("200000 100000", {"cores": 2, "host_cores": 16, "host_memory_bytes": 64 * GB}),
        ("max 100000", {"cores": 16}),
    ],
    ids=["a quota", "none"],
)
def test_the_environment_of_a_run_has_the_limit_and_what_the_host_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, expected: dict[str, float]
) -> None:
    write(tmp_path / "cg", cpu_max=quota)
    found = limits_of(a_process(tmp_path, "0::/", V2))
    monkeypatch.setattr(requests, "limits", lambda: found)
    monkeypatch.setattr(requests, "machine", lambda: ProcessLimits(16, 64 * GB, 50 * GB))
    environment = requests.environment()
    assert environment["memory_bytes"] == 64 * GB
    keys = ("cores", "host_cores", "host_memory_bytes")
    assert {key: environment[key] for key in keys if key in environment} == expected
