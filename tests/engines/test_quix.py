"""Quix Streams: exact in both domains, and when its program is killed."""

from collections.abc import Iterator

import pytest

from services.runtime.domains import load_domain
from tests.engines.runs import Runs, runs_of

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

BASE_PORT = 22_570


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of("quix", tmp_path_factory.mktemp("quix"), BASE_PORT) as runs:
        yield runs


def test_it_publishes_every_stage_of_traffic(runs: Runs) -> None:
    assert runs.exact("traffic") == list(load_domain("traffic").spec.stage_names)


def test_it_publishes_the_stages_of_gem_packs_that_event_time_does_not_close(runs: Runs) -> None:
    published = ["ingest", "parse", "conversions", "enriched", "offers", "dear"]
    assert runs.exact("gem_packs") == published


def test_a_killed_program_goes_on_where_it_was(runs: Runs) -> None:
    assert runs.killed("traffic") == {"missing": 0, "wrong": 0, "unexpected": 0}
