"""Which service each process belongs to."""

import json
import os

import pytest

from services.collector.processes import StackFile, StackService, descendants, program_of
from services.runtime.program import pipeline_of

pytestmark = pytest.mark.unit

OWN = StackService(name="collector", pid=os.getpid())


@pytest.mark.parametrize(
    ("command_line", "pipeline"),
    [
        (["python", "-m", "x", "/d/runs/20260101-r1/spark-realtime.plan.json"], "spark-realtime"),
        (["./engine", "/d/runs/r1/p1.plan.json", "more"], "p1"),
        (["vi", "/d/p1.plan.json"], ""),
        (["vi", "/d/runs/r1/plan.json"], ""),
        (["java", "-cp", "x"], ""),
        ([], ""),
    ],
)
def test_a_pipeline_is_known_by_its_plan_on_the_command_line(command_line, pipeline):
    assert pipeline_of(command_line) == pipeline


@pytest.mark.parametrize(
    ("command_line", "program"),
    [
        ("/usr/bin/java -Xmx1g -cp a.jar:/b.jar -Dx=y org.spark.SparkSubmit x", "java SparkSubmit"),
        ("java --class-path a.jar --add-modules m org.TaskManagerRunner", "java TaskManagerRunner"),
        ("java -Xmx1g -jar /opt/engine-1.0.jar plan.json", "java engine-1.0.jar"),
        ("java -version", "java"),
        ("/bin/python3.11 -u -X dev -m pyspark.daemon pyspark.worker", "python pyspark.daemon"),
        ("python /opt/engine/program.py --password x", "python program.py"),
        ("python -c print(1)", "python -c"),
        ("./engine /d/runs/r1/p1.plan.json", "engine"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_process_is_named_by_its_program_without_arguments(command_line, program):
    assert program_of(command_line.split()) == program


def test_a_name_that_is_no_text_becomes_one():
    """psutil decodes as the file system does: a surrogate for each byte that is not UTF-8."""
    assert program_of([os.fsdecode(b"\xff'\"evil"), "30"]) == "?'\"evil"


def test_parents_come_before_their_children():
    assert descendants([1], {1: 0, 2: 1, 3: 2, 9: 0}) == [(1, 1), (1, 2), (1, 3)]


def test_a_service_below_another_keeps_its_own_tree():
    found = descendants([1, 2], {1: 0, 2: 1, 3: 2, 4: 1})
    assert sorted(found) == [(1, 1), (1, 4), (2, 2), (2, 3)]


def test_without_a_stack_file_there_is_the_collector_alone(tmp_path):
    assert StackFile(tmp_path / "stack.json").services() == (OWN,)


def test_the_stack_file_is_read_again_when_it_changes_and_kept_while_it_is_wrong(tmp_path):
    path = tmp_path / "stack.json"
    stack = StackFile(path)
    kafka = {"name": "kafka", "pid": 7, "birth": "b/1", "state": "ready"}
    path.write_text(json.dumps({"services": [kafka], "more": 1}))
    expected = StackService(name="kafka", pid=7, birth="b/1")
    assert stack.services() == (expected, OWN)
    path.write_text('{"services": [{"na')
    assert stack.services() == (expected, OWN)
    path.write_text(json.dumps({"services": []}))
    assert stack.services() == (OWN,)


def test_the_collector_in_the_stack_file_is_not_added_again(tmp_path):
    path = tmp_path / "stack.json"
    path.write_text(json.dumps({"services": [{"name": "collector", "pid": 5}]}))
    assert StackFile(path).services() == (StackService(name="collector", pid=5),)
