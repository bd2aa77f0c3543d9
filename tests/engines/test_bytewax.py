"""Bytewax: exact in both domains, and when its program is killed."""

from collections.abc import Iterator

import pytest

from services.runtime.domains import load_domain
from tests.engines.runs import Runs, runs_of

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

BASE_PORT = 22_470


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of("bytewax", tmp_path_factory.mktemp("bytewax"), BASE_PORT) as runs:
        yield runs


def test_it_publishes_every_stage_of_traffic(runs: Runs) -> None:
    assert runs.exact("traffic") == list(load_domain("traffic").spec.stage_names)


def test_it_publishes_every_stage_of_gem_packs(runs: Runs) -> None:
    assert runs.exact("gem_packs") == list(load_domain("gem_packs").spec.stage_names)


def test_a_killed_program_goes_on_where_it_was(runs: Runs) -> None:
    assert runs.killed("traffic") == {"missing": 0, "wrong": 0, "unexpected": 0}
