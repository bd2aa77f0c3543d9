"""Pathway: exact in both domains."""

from collections.abc import Iterator

import pytest

from services.runtime.domains import load_domain
from tests.engines.runs import Runs, runs_of

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]

BASE_PORT = 22_770


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of("pathway", tmp_path_factory.mktemp("pathway"), BASE_PORT) as runs:
        yield runs


def test_it_publishes_every_stage_of_traffic(runs: Runs) -> None:
    assert runs.exact("traffic") == list(load_domain("traffic").spec.stage_names)


def test_it_publishes_the_stages_of_gem_packs_that_event_time_does_not_close(runs: Runs) -> None:
    published = ["ingest", "parse", "conversions", "enriched", "offers", "dear"]
    assert runs.exact("gem_packs") == published
