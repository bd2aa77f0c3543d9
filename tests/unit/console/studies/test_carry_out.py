"""Which runs of a study are done, in which order, and when it stops."""

import pytest
from rich.console import Console

from deploy.local.install import InstallError
from schemas.validation_errors import DefinitionError
from services.console.run_command import BusyError
from services.console.studies.carry_out import Note, StudyMeans, carry_out, open_notebook, plan_of
from services.readmodel.history import SearchedRate
from services.runtime.settings import ServiceSettings
from tests.unit.console.studies.reports import experiment, study

pytestmark = pytest.mark.unit


class Stack:
    """A stack that records its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def up(self, _say) -> None:
        self.asked.append("up")

    def close(self, _say) -> None:
        self.asked.append("close")

    def check(self) -> None:
        pass


@pytest.fixture
def stack():
    return Stack()


def means(stack, do, install=lambda *_given: None):
    return StudyMeans(lambda _settings, _parts: stack, install, do)


def carried_out(tmp_path, stack, valid, install=lambda *_given: None, **limits):
    """Carry out the study with runs of the given validity, in order; returns the runs."""
    answers = iter(valid)

    def done(run, *_rest):
        stack.asked.append(run.system.name)
        return Note(f"run-{len(stack.asked)}", valid=next(answers))

    notebook = open_notebook(tmp_path, "s", "small")
    plan = plan_of(study(limits={"small": limits, "full": {}}), "small")
    settings, console = ServiceSettings(data=tmp_path), Console(quiet=True, markup=False)
    given = means(stack, done, install)
    left_out = carry_out(plan, notebook, settings, console, console.print, means=given)
    return left_out, stack.asked


def test_invalid_runs_are_done_again_after_all_others(tmp_path, stack):
    _left_out, asked = carried_out(tmp_path, stack, [False, True, True], tries=2)
    assert asked == ["up", "Fast", "Slow", "Fast", "close"]


def test_a_run_that_stays_invalid_is_given_up(tmp_path, stack):
    _left_out, asked = carried_out(tmp_path, stack, [False, True, False], tries=2)
    assert asked == ["up", "Fast", "Slow", "Fast", "close"]


def test_a_run_that_is_going_on_ends_the_study_and_counts_as_no_try(tmp_path, stack):
    def busy(*_arguments):
        raise BusyError("The run was refused: run R is going on.")

    notebook = open_notebook(tmp_path, "s", "small")
    plan, settings = plan_of(study(), "small"), ServiceSettings(data=tmp_path)
    with pytest.raises(BusyError):
        carry_out(plan, notebook, settings, Console(quiet=True), print, means=means(stack, busy))
    assert stack.asked == ["up", "close"]
    assert notebook.notes == {}


def test_nothing_is_started_where_all_is_done(tmp_path, stack):
    carried_out(tmp_path, stack, [True, True])
    stack.asked.clear()
    assert carried_out(tmp_path, stack, []) == ({}, [])


def test_no_run_begins_when_the_time_is_over(tmp_path, stack):
    _left_out, asked = carried_out(tmp_path, stack, [True], minutes=1e-9)
    assert asked == ["up", "close"]


def test_an_engine_that_cannot_be_installed_is_left_out(tmp_path, stack):
    def refuse(*_arguments):
        raise InstallError("the engine spark is not installed: no [/network]")

    left_out, asked = carried_out(tmp_path, stack, [], refuse)
    assert asked == []
    assert left_out == {
        "Fast": "the engine spark is not installed: no [/network].",
        "Slow": "the engine spark is not installed: no [/network].",
    }


def test_a_share_is_of_the_rate_that_the_search_of_the_other_experiment_gave(tmp_path, stack):
    half = {"workload": {"sustainable_share": 0.5}}
    of_800 = SearchedRate(800.0, 900.0)
    rates, shares = (
        experiment(name="rates"),
        experiment(name="half", workload="overload", rate_of="rates", scales={"small": half}),
    )
    plan = plan_of(study(experiments=[rates, shares], scores=[]), "small")
    done = []

    def do(run, *_rest):
        done.append((run.experiment.name, run.system.name, run.rate))
        is_rate = (run.experiment.name, run.system.name) == ("rates", "Fast")
        rates = (of_800.sustained, of_800.not_sustained) if is_rate else (None, None)
        return Note("r", True, "", *rates)

    notebook, settings = open_notebook(tmp_path, "s", "small"), ServiceSettings(data=tmp_path)
    carry_out(plan, notebook, settings, Console(quiet=True), print, means=means(stack, do))
    assert done == [("rates", "Fast", None), ("rates", "Slow", None), ("half", "Fast", of_800)]
    failed = notebook.chosen(plan.runs[3].key)
    assert failed.failed == "The experiment rates gave no rate for Slow."


def test_a_share_needs_an_earlier_experiment_and_a_workload_with_one():
    with pytest.raises(ValueError, match="experiment latency: no experiment before it is 'rates'"):
        study(experiments=[experiment(rate_of="rates"), experiment(name="rates")], scores=[])
    without = [experiment(name="rates"), experiment(name="half", rate_of="rates")]
    with pytest.raises(DefinitionError, match="half: rate_of needs a sustainable_share"):
        plan_of(study(experiments=without, scores=[]), "small")
