"""Usage of the machine, by the stack and by others."""

from typing import Any

import pytest

from services.conductor.suites.running import MachineUsage

pytestmark = pytest.mark.unit


def sample(second: int, service: str, cpu_seconds: float) -> dict[str, Any]:
    return {
        "time": second * 1000,
        "service": service,
        "cpu_seconds": cpu_seconds,
        "interval_s": 1.0,
    }


def a_usage(seconds: range, machine: float, **own: float) -> MachineUsage:
    usage = MachineUsage()
    for second in seconds:
        usage.add(sample(second, "machine", machine))
        for service, cpu_seconds in own.items():
            usage.add(sample(second, service, cpu_seconds))
    return usage


def test_what_others_use_is_the_machine_less_our_own_services() -> None:
    usage = a_usage(range(100, 110), machine=1.75, kafka=0.5, store=0.25)
    assert usage.of_others(110_000) == pytest.approx(1.0)


def test_what_is_long_ago_does_not_count() -> None:
    usage = a_usage(range(100, 110), machine=2.0, kafka=0.0)
    for second in range(110, 120):
        usage.add(sample(second, "machine", 0.5))
        usage.add(sample(second, "kafka", 0.0))
    assert usage.of_others(120_000) == pytest.approx(0.5)


def test_samples_are_forgotten_also_while_nobody_asks() -> None:
    usage = a_usage(range(100, 1000), machine=2.0, kafka=0.5)
    assert len(usage._samples) == 2 * 11
    assert usage.of_others(999_000) == pytest.approx(1.5)


def test_too_little_is_known_just_after_the_start() -> None:
    assert a_usage(range(100, 104), machine=2.0, kafka=0.5).of_others(104_000) is None


def test_samples_that_do_not_fit_each_other_are_not_a_negative_use() -> None:
    assert a_usage(range(100, 110), machine=0.5, kafka=0.6).of_others(110_000) == 0


def test_our_own_use_is_counted_from_the_mark() -> None:
    usage = a_usage(range(100, 110), machine=2.0, kafka=0.5)
    usage.mark()
    usage.add(sample(110, "kafka", 0.25))
    usage.add(sample(110, "machine", 2.0))
    assert usage.own_cpu_seconds == 0.25


def test_who_sees_only_itself_does_not_call_the_stack_others() -> None:
    """A collector in a container: the machine's usage is attributed to the stack."""
    usage = a_usage(range(100, 110), machine=1.5, collector=0.25)
    assert usage.of_others(110_000) is None
    assert usage.own_cpu_seconds == 15.0
    usage.add(sample(110, "kafka", 0.5))
    assert usage.of_others(111_000) is not None
    assert usage.own_cpu_seconds == 3.0
