"""The report of a re-evaluation about counts that differ."""

import pytest

from schemas import catalogue
from services.evaluator.run.reevaluation import MAX_LINES, PastRun, is_explained, show
from services.runtime.counting import CountDifference
from tests.unit.evaluator.records import MEASURE_END_MS, MEASURE_MS, PHASES, a_plan

pytestmark = pytest.mark.unit

PAST = PastRun(a_plan(), PHASES, prepared_ms=0, stopped_ms=MEASURE_END_MS)
COUNTED = {catalogue.VERDICTS: 7}


def judged(phase, second=MEASURE_MS):
    """One more exact output of a phase than was published."""
    address = {"pipeline": "p", "stage": "join", "phase": phase, "second": second}
    return CountDifference(catalogue.VERDICTS, address, "exact", 1)


def read(second):
    """One record less in a second than was published."""
    address = {"topic": "traffic.flow", "pipeline": "", "stage": "", "second": second}
    return CountDifference(catalogue.THROUGHPUT, address, "records", -1)


def test_a_run_whose_counts_all_come_out_again_is_equal(capsys):
    assert show(PAST, [], COUNTED) == 0
    assert capsys.readouterr().out.endswith("EQUAL to the live result.\n")


@pytest.mark.parametrize("phase", ["warm_up", "measure"])
def test_one_other_count_of_what_was_judged_makes_it_different(capsys, phase):
    assert show(PAST, [judged(phase)], COUNTED) == 1
    said = capsys.readouterr().out
    assert f"  results.verdicts p join {phase} {MEASURE_MS}: exact +1\n" in said
    assert said.endswith("DIFFERENT from the live result.\n")


def test_other_counts_of_the_cool_down_are_told_and_change_nothing(capsys):
    assert show(PAST, [judged("cool_down"), read(MEASURE_END_MS)], COUNTED) == 0
    said = capsys.readouterr().out
    assert "2 counts of the cool-down differ" in said
    assert said.endswith("EQUAL to the live result.\n")


def test_what_is_explained_excuses_nothing_else(capsys):
    assert show(PAST, [judged("cool_down"), judged("measure")], COUNTED) == 1
    said = capsys.readouterr().out
    assert "1 counts of the cool-down differ" in said
    assert said.endswith("DIFFERENT from the live result.\n")


def test_records_that_were_read_belong_to_the_cool_down_from_the_end_of_the_measured_phase():
    assert not is_explained(read(MEASURE_END_MS - 1_000), PHASES)
    assert is_explained(read(MEASURE_END_MS), PHASES)


def test_only_the_first_of_many_differences_are_shown(capsys):
    many = [judged("measure", MEASURE_MS + n) for n in range(MAX_LINES + 3)]
    assert show(PAST, many, COUNTED) == 1
    said = capsys.readouterr().out
    assert said.count("exact +1") == MAX_LINES
    assert "… and 3 more" in said
