"""Which service each process belongs to."""

import json
import os

import pytest

from services.collector.processes import StackFile, StackService, descendants
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
