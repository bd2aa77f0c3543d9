"""Property tests draw the same examples each time: what fails here fails anywhere, however busy the
machine is. `HYPOTHESIS_PROFILE=explore` draws others."""

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
    """Where two processes share the tests: those of one module stay together, as they share what it
    starts, and those with a whole stack follow each other, as two stacks at once have too few
    cores."""

    def _split_scope(self, nodeid: str) -> str:
        return WHOLE_STACKS if nodeid.startswith(WHOLE_STACKS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> StacksInARow:
    """How tests are shared."""
    return StacksInARow(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """The closing line is the last one: clients whose broker has gone would go on complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
