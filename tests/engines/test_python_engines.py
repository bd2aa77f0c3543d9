"""The Python engines: exact in every domain, and after a kill of a program that resumes."""

from collections.abc import Iterator

import pytest

from services.definitions.domains import load_domain
from tests.engines.runs import Runs, runs_of

pytestmark = pytest.mark.engines

BASE_PORT = 22_470
TRAFFIC = list(load_domain("traffic").spec.stage_names)
GEM_PACKS = list(load_domain("gem_packs").spec.stage_names)
FLIGHTS = list(load_domain("flights").spec.stage_names)
# Stages that do not close windows by event time.
NOT_CLOSED = ["ingest", "parse", "conversions", "highest", "enriched", "offers", "dear"]
PUBLISHED = {"bytewax": GEM_PACKS, "quix": NOT_CLOSED, "faust": GEM_PACKS, "pathway": NOT_CLOSED}
RESUME = {"bytewax", "quix"}


@pytest.fixture(scope="module", params=PUBLISHED)
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    with runs_of(request.param, tmp_path_factory.mktemp(request.param), BASE_PORT) as runs:
        yield runs


def test_it_publishes_every_stage_of_traffic(runs: Runs) -> None:
    assert runs.exact("traffic") == TRAFFIC


def test_it_publishes_the_stages_of_gem_packs_that_it_can(runs: Runs) -> None:
    assert runs.exact("gem_packs") == PUBLISHED[runs.pipeline]


def test_it_publishes_the_stages_of_flights_that_it_can(runs: Runs) -> None:
    closes = PUBLISHED[runs.pipeline] == GEM_PACKS
    assert runs.exact("flights") == (FLIGHTS if closes else FLIGHTS[:5])


def test_a_value_that_is_no_record_becomes_a_dead_letter(runs: Runs) -> None:
    told, planted = runs.dead_letters()
    assert planted.total() > 5
    assert told == planted


def test_a_killed_program_goes_on_where_it_was(runs: Runs) -> None:
    if runs.pipeline not in RESUME:
        pytest.skip(f"{runs.pipeline} does not go on: its engine.toml says why")
    assert runs.killed("traffic") == {"missing": 0, "wrong": 0, "unexpected": 0}
