"""Comparability: comparable figures, other differences, and doubts about a difference."""

from dataclasses import replace
from typing import Any

import pytest

from analysis.comparability import Facts, differed, left_out, needed_of
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit
ENVIRONMENT = {
    "processor": "Xeon",
    "cores": 2,
    "memory_bytes": 16e9,
    "tidegauge": "1a2b",
    "packages": {"pyspark": "4.3.0"},
}


def facts(run_id: str, *, rate: float = 400, version: str = "", **report: Any) -> Facts:
    workload = {
        "name": "latency",
        "summary": "-",
        "load": {"shape": "constant", "rate_per_second": rate},
        "phases": {"warm_up_s": 10, "measure_s": 30},
    }
    pipeline = {"name": "p", "summary": "One.", "engine": "spark", "heap_mb": 512}
    found = {
        "run_id": run_id,
        "domain": "traffic",
        "valid": True,
        "environment": ENVIRONMENT,
        "pipelines": {},
        "conclusion": {"warm_up": {"seconds": 10, "moving": ["p join: p50 went from 20 to 6 ms"]}},
    }
    found |= report
    request = {
        "workload": workload,
        "pipelines": [pipeline],
        "stages": ["join"],
        "domain": {"name": found["domain"]},
        "environment": found["environment"],
    }
    return Facts(report_of(found), request, {"p": version} if version else {})


def concluded(run: Facts, **conclusion: Any) -> Facts:
    """The same run with another conclusion."""
    changed = report_of(run.report.as_json() | {"conclusion": conclusion})
    return replace(run, report=changed)


def test_a_run_at_another_rate_or_on_another_machine_is_left_out_by_name() -> None:
    runs = [
        facts("a"),
        facts("b"),
        facts("c", rate=64_000),
        facts("d", environment=ENVIRONMENT | {"cores": 8}),
        facts("e", domain="gem_packs"),
    ]
    assert left_out(runs) == {
        "c": "c is left out: rate 64000 records/s, not 400 records/s.",
        "d": "d is left out: cores 8, not 2.",
        "e": "e is left out: domain gem_packs, not traffic.",
    }


def test_a_run_in_which_something_was_killed_or_came_late_or_in_turns_is_left_out() -> None:
    killed, late, searched, in_turns = (facts(name) for name in "bcde")
    killed.request["workload"]["kills"] = [{"target": "driver", "at_s": 5}]
    late.request["workload"]["pipelines_start_s"] = 20
    searched.request["workload"]["search"] = {"policy": "steady-latency"}
    in_turns.request["interleaved"] = {"block_s": 10, "order": ["p", "q"]}
    plain = facts("f")
    plain.request["workload"] |= {"kills": [], "pipelines_start_s": 0, "search": None}
    assert left_out([facts("a"), killed, late, searched, in_turns, plain]) == {
        "b": "b is left out: kills at_s 5, target driver, not none.",
        "c": "c is left out: start of the pipelines 20, not none.",
        "d": "d is left out: rate found by a search, not 400 records/s; "
        "search policy steady-latency, not none.",
        "e": "e is left out: turns block_s 10, not none.",
    }


def test_topics_with_other_partitions_are_named() -> None:
    usual, wider = facts("a"), facts("b")
    wider.request["workload"]["partitions"] = 8
    found = differed([usual.circumstances("p")], [wider.circumstances("p")])
    assert found == ["partitions default and 8"]


@pytest.mark.parametrize(
    ("phases", "compilers"),
    [
        ({"warm_up_s": 59}, "for a short warm-up"),
        ({"warm_up_s": "auto"}, "for optimised code"),
        ({"warm_up_s": 60}, "for a long warm-up"),
        ({"warm_up_s": 10, "optimised": True}, "for optimised code"),
    ],
)
def test_how_the_jvms_compile_is_a_circumstance(phases: dict[str, Any], compilers: str) -> None:
    run = facts("a")
    run.request["workload"]["phases"] |= phases
    assert run.circumstances("p")["compilers"] == compilers


def test_the_profile_of_a_citation_is_named() -> None:
    usual, cited = facts("a"), facts("b")
    cited.request["profile"] = "citation"
    found = differed([usual.circumstances("p")], [cited.circumstances("p")])
    assert found == ["profile none and citation"]


def test_what_else_differed_is_named_unless_it_is_not_known_of_every_run() -> None:
    cold = facts("a", steady=False, version="4.2.0")
    warm = facts("b", steady=True, version="4.3.0", environment=ENVIRONMENT | {"java": "25"})
    warm.request["pipelines"][0]["heap_mb"] = 1024
    warm = concluded(warm, warm_up={"seconds": 60})
    found = differed([cold.circumstances("p")], [warm.circumstances("p")])
    assert found == [
        "heap_mb 512 and 1024",
        "version of the engine 4.2.0 and 4.3.0",
        "warm-up 10 s and 60 s",
        "steady no and yes",
    ]
    both = [cold.circumstances("p"), warm.circumstances("p")]
    assert "heap_mb 512 or 1024 and 512" in differed(both, [cold.circumstances("p")])
    assert differed([cold.circumstances("p")], [cold.circumstances("p")]) == []


def test_searches_whose_runs_had_other_rates_say_so() -> None:
    runs = [facts("a"), facts("b"), facts("c")]
    for number, rate in enumerate((873.0, 900.5)):
        runs[number] = concluded(runs[number], search={"verified_at_per_second": rate})
    first, second, none = ([run.circumstances("p")] for run in runs)
    assert differed(first, second) == ["rate after the search 873 records/s and 900.5 records/s"]
    assert not any("search" in one for one in differed(first, none))


def test_runs_that_were_not_steady_or_disturbed_are_doubtful_and_what_is_needed_is_said() -> None:
    late = {"said": "9 late seconds are the machine's"}
    runs = [
        facts("a", steady=False),
        facts("b", disturbed=True, late=late),
        facts("c", valid=False),
    ]
    assert [doubt for run in runs for doubt in run.doubts()] == [
        "a was not steady (p join: p50 went from 20 to 6 ms)",
        "b was disturbed (9 late seconds are the machine's)",
        "c is not valid",
    ]
    assert needed_of([run.report for run in runs]) == (
        "Needed: a longer warm-up (--warm-up auto) and a quiet machine and valid runs."
    )


@pytest.mark.parametrize(("missing", "is_doubted"), [(0, False), (1, False), (2, True)])
def test_a_run_with_missing_outputs_is_doubted(missing: int, is_doubted: bool) -> None:
    verdicts = {"exact": 1_000, "missing": missing, "duplicate": 5}
    found = facts("a", pipelines={"p": {"stages": {"join": {"verdicts": verdicts}}}}).doubts()
    said = ["a: missing outputs of p join, which have no latency: 2"]
    assert found == (said if is_doubted else [])


def test_a_run_of_which_nothing_is_known_is_not_doubted() -> None:
    known = facts("a", steady=True, disturbed=False)
    assert known.doubts() == facts("b").doubts() == []
    assert needed_of([known.report]) == ""
