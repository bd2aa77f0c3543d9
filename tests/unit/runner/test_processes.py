"""The command line of a pipeline's program."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.definitions.engines import Installed, load_engine
from services.definitions.pipelines import load_pipeline
from services.runner.processes import (
    command_of,
    environment,
    reap,
    start_process,
    with_concurrent_collector,
)

pytestmark = pytest.mark.unit


def test_figures_to_be_cited_have_a_jvm_that_collects_as_on_a_server() -> None:
    engine = load_engine("kafka-streams")
    usual = command_of(Installed(engine, Path("x")), {"heap_mb": 512})
    cited = with_concurrent_collector(Installed(engine, Path("x")))
    assert "-XX:+UseSerialGC" in usual
    assert command_of(cited, {"heap_mb": 512}) == [
        "-XX:+UseG1GC" if word == "-XX:+UseSerialGC" else word for word in usual
    ]


def test_a_program_that_starts_a_jvm_itself_is_told_the_collector() -> None:
    place = Installed(load_engine("flink-sql"), Path("x"))
    cited = with_concurrent_collector(place)
    assert command_of(cited, {}) == command_of(place, {})
    assert environment(cited, {})["TIDEGAUGE_COLLECTOR"] == "-XX:+UseG1GC"
    assert "TIDEGAUGE_COLLECTOR" not in environment(place, {"TIDEGAUGE_COLLECTOR": "-XX:+UseZGC"})


def test_an_engine_with_packages_of_its_own_never_runs_on_another_python() -> None:
    place = Installed(load_engine("faust"), Path("/engines/faust"))
    assert command_of(place, {})[0] == "/engines/faust/venv/bin/python"


def test_an_engine_without_packages_runs_on_the_python_of_the_path() -> None:
    faust = load_engine("faust")
    install = faust.spec.install.model_copy(update={"python": ""})
    engine = replace(faust, spec=faust.spec.model_copy(update={"install": install}))
    assert command_of(Installed(engine, Path("x")), {})[0] == "python"


def test_a_jvm_has_its_temporary_files_beside_its_plan_and_its_crash_report_beside_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >&2\n')
    java.chmod(0o700)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    streams = load_engine("kafka-streams")
    install = streams.spec.install.model_copy(update={"jars": "", "sources": ()})
    engine = replace(streams, spec=streams.spec.model_copy(update={"install": install}))
    plan, log = tmp_path / "run" / "mine.plan.json", tmp_path / "logs" / "pipeline-mine.log"
    plan.parent.mkdir()
    log.parent.mkdir()
    earlier, of_another = (
        log.parent / f"pipeline-{name}.crash.17.log" for name in ("mine", "mine-too")
    )
    earlier.touch()
    of_another.touch()
    started = start_process(
        load_pipeline("kafka-streams"), Installed(engine, tmp_path / "x"), plan, log
    )
    started.process.wait()
    reap(started)
    options = log.read_text().splitlines()
    assert f"-Djava.io.tmpdir={plan.parent}/mine.plan.tmp" in options
    assert (plan.parent / "mine.plan.tmp").is_dir()
    assert f"-XX:ErrorFile={log.parent}/pipeline-mine.crash.%p.log" in options
    assert not earlier.exists()
    assert of_another.exists()
    assert options[-2:] == ["tidegauge.KafkaStreamsEngine", str(plan)]


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_options_for_all_jvms_do_not_reach_even_an_engine_that_gets_every_variable(
    name: str,
) -> None:
    ours = {name: "-XX:+UseConcMarkSweepGC", "AWS_REGION": "eu-west-1"}
    found = environment(Installed(load_engine("spark"), Path("x")), ours)
    assert found["AWS_REGION"] == "eu-west-1"
    assert name not in found
