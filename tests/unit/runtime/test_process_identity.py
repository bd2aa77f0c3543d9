"""Identity of a process beyond its pid."""

import os
import subprocess
import sys

import psutil
import pytest

from services.runtime.process_identity import birth_of, parent_of

pytestmark = pytest.mark.unit


def test_the_birth_of_a_process_stays_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch):
    if not psutil.LINUX:
        pytest.skip("only Linux tells it")
    before, created = birth_of(os.getpid()), psutil.Process().create_time()
    an_hour_earlier = psutil.boot_time() - 3600
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: an_hour_earlier)
    assert psutil.Process().create_time() < created - 3000
    assert birth_of(os.getpid()) == before


def test_two_processes_have_two_births_and_one_that_is_gone_has_none():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert birth_of(child.pid) == birth_of(child.pid)
        assert birth_of(child.pid) != birth_of(os.getpid())
        child.communicate(b"\n")
    with pytest.raises(psutil.NoSuchProcess):
        birth_of(child.pid)


def test_elsewhere_it_is_the_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("psutil.LINUX", False)
    assert birth_of(os.getpid()) == str(psutil.Process().create_time())


@pytest.mark.parametrize("linux", [psutil.LINUX, False])
def test_the_parent_of_a_process_is_who_started_it(monkeypatch: pytest.MonkeyPatch, linux: bool):
    monkeypatch.setattr("psutil.LINUX", linux)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert parent_of(child.pid) == os.getpid()
        child.communicate(b"\n")
    with pytest.raises(psutil.NoSuchProcess):
        parent_of(child.pid)
