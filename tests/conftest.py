"""Property tests draw the same examples each time: what fails here fails anywhere, however busy the
machine is. `HYPOTHESIS_PROFILE=explore` draws others."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
WHOLE_STACKS = ("end_to_end",)

settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where two processes share the tests: those of one module stay together, as they share what it
    starts, and those with a whole stack follow each other, as two stacks at once have too few
    cores."""
    for item in items:
        path = item.path.relative_to(HERE)
        group = path.parts[0] if path.parts[0] in WHOLE_STACKS else str(path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """The closing line is the last one: clients whose broker has gone would go on complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
