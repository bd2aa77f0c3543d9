"""The command line of the local broker."""

from pathlib import Path

import pytest

from deploy.local import broker
from deploy.local.java import Java, accepts, find_java
from services.runtime.settings import ROOT, ServiceSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("stays_up", "has_shenandoah", "collector"),
    [
        (True, True, ["-XX:+UseShenandoahGC"]),
        (True, False, ["-XX:+UseG1GC"]),
        (False, True, ["-XX:+UseG1GC"]),
    ],
)
def test_a_stack_that_stays_up_has_a_concurrent_collector_if_java_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stays_up: bool,
    has_shenandoah: bool,
    collector: list[str],
) -> None:
    monkeypatch.setattr(broker, "accepts", lambda _java, _option: has_shenandoah)
    java = Java(tmp_path, 17)
    settings = ServiceSettings(data=tmp_path, jars=tmp_path)
    command = broker.broker_command(settings, java, is_optimised=stays_up)
    assert [word for word in command if word.endswith("GC")] == collector


def test_an_option_that_java_does_not_know_is_not_accepted() -> None:
    java = find_java(ROOT / ".jars")
    assert accepts(java, "-XX:+UseSerialGC")
    assert not accepts(java, "-XX:+UseNoSuchGC")
