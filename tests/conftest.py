"""Test configuration. Property tests use the same examples each time, so a failure is reproducible
on any machine. `HYPOTHESIS_PROFILE=explore` uses new examples."""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler.loadfile import LoadFileScheduling

WHOLE_STACKS = "tests/end_to_end/"

settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


class StacksInARow(LoadFileScheduling):
    """The tests of one module run in one process, because they share fixtures. Tests with a whole
    stack run sequentially, because the cores do not suffice for two stacks."""

    def _split_scope(self, nodeid: str) -> str:
        return WHOLE_STACKS if nodeid.startswith(WHOLE_STACKS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> StacksInARow:
    """The scheduler of parallel tests."""
    return StacksInARow(config, log)


CLOSED_S = 60.0


@pytest.fixture(scope="module", autouse=True)
def closed_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a module of unit tests that leaves Kafka clients open: each keeps threads and
    connections. Those of a test that failed are still referred to by its traceback."""
    before, failed = kafka_clients(), request.session.testsfailed
    yield
    if request.session.testsfailed > failed or "/unit/" not in str(request.path):
        return
    deadline_s = time.monotonic() + CLOSED_S
    while (left := kafka_clients() - before) > 0 and time.monotonic() < deadline_s:
        gc.collect()  # a client in a reference cycle, or one that another module's thread closes
        time.sleep(0.1)  # poll interval
    assert left <= 0, f"the module has left {left} Kafka clients open"


def kafka_clients() -> int:
    """Number of librdkafka's clients in this process, by the names of their main threads."""
    found = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            found += (task / "comm").read_text() == "rdk:main\n"
    return found
