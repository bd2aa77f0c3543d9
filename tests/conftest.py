"""Test configuration. Property tests use the same examples each time, so a failure is reproducible
on any machine. `HYPOTHESIS_PROFILE=explore` uses new examples."""

import os

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
    """Scheduler for two processes: the tests of one module run in one process, because they share
    fixtures. Tests with a whole stack run sequentially, because the cores do not suffice for two
    stacks."""

    def _split_scope(self, nodeid: str) -> str:
        return WHOLE_STACKS if nodeid.startswith(WHOLE_STACKS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> StacksInARow:
    """The scheduler of parallel tests."""
    return StacksInARow(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Keep pytest's summary last: clients whose broker is gone would continue to log errors."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
