"""DStreams: exact in every domain, except for stages that wait for event time."""

from collections.abc import Iterator

import pytest

from tests.engines.runs import Runs, runs_of

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def dstreams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of("dstreams", tmp_path_factory.mktemp("dstreams"), 22_070) as found:
        yield found


@pytest.mark.parametrize(
    ("domain", "stages"),
    [
        ("traffic", ["ingest", "parse", "join", "tumbling", "sliding"]),
        (
            "gem_packs",
            ["ingest", "parse", "conversions", "highest", "enriched", "offers", "dear"],
        ),
        ("flights", ["ingest", "parse", "area", "emergencies", "departures"]),
    ],
)
def test_it_publishes_what_needs_no_event_time(
    dstreams: Runs, domain: str, stages: list[str]
) -> None:
    assert dstreams.exact(domain) == stages


def test_a_value_that_is_no_record_becomes_a_dead_letter(dstreams: Runs) -> None:
    told, planted = dstreams.dead_letters()
    assert planted.total() > 5
    assert told == planted
