"""Parts that lead a run start at once and wait; a run begins while others are still starting."""

from dataclasses import replace

import pytest

from deploy.local.stack import Stack, StackError
from deploy.local.startup import log_path

pytestmark = pytest.mark.integration


def test_what_leads_a_run_starts_at_once_and_is_told_when_the_others_are_ready(
    settings, double
) -> None:
    parts = (
        double("store"),
        double("conductor", after=("store",)),
        double("evaluator", after=("conductor",)),
    )
    said: list[str] = []
    stack = Stack(settings, parts)
    stack.up(said.append, lambda: said.append("a run begins"))
    try:
        assert [line.split(" after ")[0] for line in said] == [
            "starting store",
            "starting conductor",
            "store is ready",
            "conductor is ready",
            "a run begins",
            "starting evaluator",
            "evaluator is ready",
        ]
        assert "told b'\\n'" in log_path(settings.data, "conductor").read_text()
        assert "told" not in log_path(settings.data, "store").read_text()
    finally:
        stack.close()


def test_a_stack_whose_first_part_ends_leaves_nothing_that_waits_for_it(settings, double) -> None:
    stack = Stack(settings, (double("store", "ends"), double("conductor", after=("store",))))
    with pytest.raises(StackError, match="store exited"):
        stack.up()


def test_a_part_that_is_started_again_waits_for_nobody(settings, double) -> None:
    part = replace(double("conductor"), leads=True)
    stack = Stack(settings, (part,))
    stack.up()
    try:
        assert "told" not in log_path(settings.data, "conductor").read_text()
    finally:
        stack.close()
