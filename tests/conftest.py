"""Property tests draw the same examples each time: what fails here fails anywhere, however busy the
machine is. `HYPOTHESIS_PROFILE=explore` draws others."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", parent=settings.get_profile("same"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """The closing line is the last one: clients whose broker has gone would go on complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
