"""Faust: exact in both domains."""

from collections.abc import Iterator

import pytest

from services.runtime.domains import load_domain
from tests.engines.runs import Runs, runs_of

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

BASE_PORT = 22_670


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of("faust", tmp_path_factory.mktemp("faust"), BASE_PORT) as runs:
        yield runs


def test_it_publishes_every_stage_of_traffic(runs: Runs) -> None:
    assert runs.exact("traffic") == list(load_domain("traffic").spec.stage_names)


def test_it_publishes_every_stage_of_gem_packs(runs: Runs) -> None:
    assert runs.exact("gem_packs") == list(load_domain("gem_packs").spec.stage_names)
