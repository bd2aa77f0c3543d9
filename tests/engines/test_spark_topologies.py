"""Spark's topologies chained and via-topics: exact outputs, and the stage that each cost is
measured against."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.protocol import VERDICTS
from services.definitions.domains import load_domain
from tests.end_to_end.command import CommandLine

pytestmark = pytest.mark.engines

BASE_PORT = 21_770
CHAINED, VIA_TOPICS = "spark-microbatch-chained", "spark-realtime-via-topics"
TRAFFIC = load_domain("traffic").spec.stage_names


@pytest.fixture(scope="module")
def tidegauge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    command = CommandLine(tmp_path_factory.mktemp("topologies"), BASE_PORT)
    up = command("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    yield command
    assert command("down").returncode == 0


def run(tidegauge: CommandLine, pipeline: str, *arguments: str) -> Any:
    """The pipeline's part of the report of a clean run of half a minute."""
    path = tidegauge.data / "report.json"
    done = tidegauge("run", "smoke", "--pipeline", pipeline, "--report", str(path), *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())["pipelines"][pipeline]


def exact(found: Any) -> list[str]:
    """The stages with outputs, all of which must be exact."""
    counts = {stage: cell["verdicts"] for stage, cell in found["stages"].items()}
    assert all(set(one) == set(VERDICTS) for one in counts.values())
    return [stage for stage, one in counts.items() if one["exact"] == sum(one.values()) > 0]


def stages_before(found: Any) -> dict[str, str | None]:
    """By stage, the stage that its cost is measured against."""
    cells = found["stages"].items()
    return {stage: cell["cost_ms"] and cell["cost_ms"]["stage_before"] for stage, cell in cells}


def test_a_chain_publishes_every_stage_of_traffic_with_the_window_behind_the_join(
    tidegauge: CommandLine,
) -> None:
    found = run(tidegauge, CHAINED, "--stages", "0-4")
    assert found["topology"] == "chained"
    assert tuple(exact(found)) == TRAFFIC
    assert stages_before(found) == {
        "ingest": None,
        "parse": "ingest",
        "join": "parse",
        "tumbling": "join",
        "sliding": "tumbling",
    }


def test_via_topics_every_stage_of_traffic_reads_the_topic_of_the_one_before(
    tidegauge: CommandLine,
) -> None:
    found = run(tidegauge, VIA_TOPICS, "--stages", "3,4")
    assert found["topology"] == "via-topics"
    # Upstream stages of these stages are published as well.
    assert exact(found) == ["ingest", "parse", "tumbling", "sliding"]
    assert stages_before(found) == {
        "ingest": None,
        "parse": "ingest",
        "tumbling": "parse",
        "sliding": "tumbling",
    }


@pytest.mark.parametrize(
    ("pipeline", "asked", "stages"),
    [
        # Lookup, join, filter and windows, chained: query 3.
        (CHAINED, "7-9", ("offers", "dear", "dear_average")),
        (VIA_TOPICS, "0-9", ("ingest", "parse", "enriched")),
    ],
)
def test_the_same_pipelines_publish_what_they_can_of_another_domain(
    tidegauge: CommandLine, pipeline: str, asked: str, stages: tuple[str, ...]
) -> None:
    found = run(tidegauge, pipeline, "--domain", "gem_packs", "--stages", asked)
    assert tuple(exact(found)) == stages


def test_records_in_json_go_via_topics(tidegauge: CommandLine) -> None:
    found = run(tidegauge, VIA_TOPICS, "--stages", "2", "--format", "json")
    assert exact(found) == ["ingest", "parse", "join"]
