"""The command line of a pipeline's program."""

from pathlib import Path

import pytest

from services.runner.processes import command_of, environment, with_concurrent_collector
from services.runtime.engines import load_engine
from services.runtime.installed import Installed

pytestmark = pytest.mark.unit


def test_figures_to_be_cited_have_a_jvm_that_collects_as_on_a_server() -> None:
    engine = load_engine("kafka-streams")
    usual = command_of(engine, {"heap_mb": 512})
    cited = with_concurrent_collector(Installed(engine, Path("x"))).engine
    assert "-XX:+UseSerialGC" in usual
    assert command_of(cited, {"heap_mb": 512}) == [
        "-XX:+UseG1GC" if word == "-XX:+UseSerialGC" else word for word in usual
    ]


def test_a_program_that_starts_a_jvm_itself_is_told_the_collector() -> None:
    place = Installed(load_engine("flink"), Path("x"))
    cited = with_concurrent_collector(place)
    assert command_of(cited.engine, {}) == command_of(place.engine, {})
    assert environment(cited, {})["TIDEGAUGE_COLLECTOR"] == "-XX:+UseG1GC"
    assert "TIDEGAUGE_COLLECTOR" not in environment(place, {"TIDEGAUGE_COLLECTOR": "-XX:+UseZGC"})
