"""The printed report."""

import io
from typing import Any

import pytest
from rich.console import Console

from schemas.report import Report
from services.console.report import words
from services.console.report.tables import usage_rows
from services.console.report.terminal import show_report
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit

EXACT = {"exact": 1000, "wrong": 0, "missing": 0, "late": 0, "duplicate": 0, "unexpected": 0}


def a_stage(p50: int, cost: int | None = None, **verdicts: int) -> dict[str, Any]:
    figures = {"count": 1000, "min": 1, "p50": p50, "p90": 8, "p95": 9, "p99": 12, "p999": 20}
    return {
        "outputs": 1000,
        "records_per_second": 100.0,
        "verdicts": EXACT | verdicts,
        "latency_ms": {"latest": {**figures, "max": 25, "mean": 4.2}},
        "cost_ms": cost and {"stage_before": "parse", "p50": cost, "p99": cost},
    }


def a_report(**join: int) -> dict[str, Any]:
    return {
        "run_id": "20260101-000000-abcd",
        "workload": "latency",
        "valid": True,
        "invalid_reasons": [],
        "environment": {},
        "input": {
            "records": 12_000,
            "records_per_second": 400.0,
            "send_delay_ms": {"p50": 0.1, "p99": 0.4, "max": 2.0},
        },
        "pipelines": {
            "spark-realtime": {
                "stages": {"parse": a_stage(2), "join": a_stage(5, 3, **join)},
                "resources": {
                    "cpu_cores": 0.9,
                    "cpu_seconds": 27.0,
                    "memory_bytes_max": 10**9,
                    "heap_used_bytes_max": 250 * 10**6,
                    "core_seconds_per_million_records": 2250.0,
                },
            }
        },
        "services": {
            "kafka": {"cpu_cores": 0.0},
            "machine": {"cpu_cores": 1.5, "memory_bytes_max": 2 * 10**9},
        },
        "observing": {"cpu_cores": 0.3, "share": 0.2},
        "conclusion": {"clean": not join},
    }


def shown(report: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=120)
    show_report(console, Report.model_validate(report))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


def verdict(report: dict[str, Any]) -> tuple[str, str]:
    return words.verdict(Report.model_validate(report))


def warm_up_sentence(report: dict[str, Any]) -> str:
    return words.warm_up_sentence(Report.model_validate(report))


def test_a_clean_run_is_called_valid_in_one_sentence() -> None:
    assert verdict(a_report()) == (
        "VALID: every expected output was published once, exact and in time.",
        "good",
    )


@pytest.mark.parametrize(
    ("found", "but"),
    [
        ({"steady": False}, "But it was not steady: its figures were still changing."),
        ({"disturbed": True}, "But it was disturbed: its latencies are not due to the pipeline"),
        ({"steady": True, "disturbed": False}, ""),
        ({"steady": None, "disturbed": None}, ""),
    ],
)
def test_a_valid_run_that_was_not_steady_or_was_disturbed_is_qualified(
    found: dict[str, Any], but: str
) -> None:
    text, kind = verdict(a_report() | found)
    assert text.startswith("VALID: every expected output was published once, exact and in")
    assert (but in text, "But" in text) == (True, bool(but))
    assert kind == ("mixed" if but else "good")


def test_an_unclean_ledger_is_named_by_stage_and_verdict() -> None:
    assert verdict(a_report(missing=3, late=1))[0] == (
        "VALID, but the ledger is not clean: spark-realtime join has 3 missing, 1 late."
    )


def test_an_invalid_run_says_why() -> None:
    report = a_report() | {"valid": False, "invalid_reasons": ["The generator was late."]}
    assert verdict(report)[0] == "INVALID: The generator was late."


def warm_up(**found: Any) -> dict[str, Any]:
    """A report of a run checked for steadiness."""
    steady = found.pop("steady")
    empty = {"seconds": 10, "until_steady": False, "moving": [], "unknown": "", "of_machine": []}
    return a_report() | {"steady": steady, "warm_up": empty | found}


def test_a_run_that_was_steady_says_after_how_long() -> None:
    report = warm_up(steady=True, seconds=23, until_steady=True)
    assert warm_up_sentence(report) == "Steady in the measured phase, after 23 s of warm-up."
    assert "Steady in the measured phase, after 23 s of warm-up." in shown(report)


def test_a_run_on_a_machine_whose_performance_changed_says_so() -> None:
    report = warm_up(steady=True, of_machine=["a: CPU time rose by 75 in 16 s", "b", "c", "d"])
    assert warm_up_sentence(report) == (
        "Steady in the measured phase, after 10 s of warm-up. The machine's performance changed, "
        "as the generator's CPU time per record shows: a: CPU time rose by 75 in 16 s; b; c; and "
        "1 more."
    )


def test_a_run_that_was_not_steady_says_by_how_much_its_figures_still_move() -> None:
    moving = ["a join: p50 fell by 14 ms in 12 s, from 20 to 6 ms", "a: b", "a: c", "a: d", "a: e"]
    assert warm_up_sentence(warm_up(steady=False, moving=moving)) == (
        "NOT STEADY in the measured phase, after 10 s of warm-up; still changing: "
        "a join: p50 fell by 14 ms in 12 s, from 20 to 6 ms; a: b; a: c; and 2 more. "
        "Warm up with --warm-up auto."
    )
    auto = warm_up(steady=False, moving=["a: b"], seconds=180, until_steady=True)
    assert warm_up_sentence(auto).endswith("changing: a: b. Warm up for longer (--warm-up S).")
    slower = warm_up(steady=False, moving=["a: b"], of_machine=["a: CPU time rose by 75 in 16 s"])
    assert warm_up_sentence(slower).endswith(
        "still changing: a: b. The machine's performance changed, as the generator's CPU time per "
        "record shows: a: CPU time rose by 75 in 16 s."
    )


def test_a_run_of_which_too_little_is_known_says_so() -> None:
    report = warm_up(steady=None, unknown="there are too few seconds with outputs of a join")
    assert "Steadiness unknown: there are too few seconds with outputs of a join." in shown(report)
    assert warm_up_sentence(a_report() | {"steady": None, "warm_up": None}) == ""


def test_the_cost_of_a_stage_is_its_median_less_that_of_the_stage_it_reads() -> None:
    join = next(line for line in shown(a_report()).splitlines() if line.strip().startswith("join"))
    assert join.split() == ["join", "5", "9", "12", "25", "+3", "1000", "100", "1000", "clean"]


def test_stages_that_are_computed_from_the_inputs_have_no_cost() -> None:
    report = a_report()
    report["pipelines"]["spark-realtime"]["stages"]["join"]["cost_ms"] = None
    text = shown(report)
    assert "added" not in text
    join = next(line for line in text.splitlines() if line.strip().startswith("join"))
    assert join.split() == ["join", "5", "9", "12", "25", "1000", "100", "1000", "clean"]


SURE = {"p50": [4, 6], "p95": [9, 9], "p99": None, "mean": [4.07, 4.33]}


def sure_report() -> dict[str, Any]:
    report = a_report()
    join = report["pipelines"]["spark-realtime"]["stages"]["join"]
    join["latency_ms"]["latest"]["intervals"] = SURE
    return report


def test_how_sure_a_figure_is_stands_beside_it_where_that_is_known() -> None:
    text = shown(sure_report())
    join = next(line for line in text.splitlines() if line.strip().startswith("join"))
    assert join.split()[:7] == ["join", "5", "±1", "9", "±0", "12", "25"]
    assert (
        "±: 95 % confidence interval, from the variation between seconds of this run"
        in " ".join(text.split())
    )
    assert "±" not in shown(a_report())


def test_how_far_behind_pipelines_read_is_told_in_one_line() -> None:
    report = a_report()
    assert "Lag in records" not in shown(report)
    report["pipelines"]["spark-realtime"]["lag_records"] = {"max": 120, "end": 3}
    report["pipelines"]["other"] = {"stages": {}, "resources": {}, "lag_records": None}
    assert "Lag in records, maximum and at the end: spark-realtime 120 and 3." in shown(report)


def test_pressure_and_steal_of_the_machine_are_shown_beside_its_cores() -> None:
    pressed = {"cpu_pressure_share": 0.63, "steal_share": 0.05, "waiting_share": None}
    room = {"machine": pressed, "spark-realtime": {"waiting_share": 0.25}}
    text = shown(a_report() | {"environment": {"cores": 2}, "room": room})
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["machine"] == ["machine", "1.50", "63%", "2000"]
    assert rows["hypervisor"] == ["hypervisor", "(steal)", "0.10"]
    assert "hypervisor" not in shown(a_report() | {"room": {"machine": {"steal_share": 0.0}}})


def test_resources_are_shown_per_pipeline() -> None:
    line = next(li for li in shown(a_report()).splitlines() if "0.90" in li)
    assert line.split() == ["spark-realtime", "0.90", "1000", "250"]


@pytest.mark.parametrize(("times", "words"), [(1, "once"), (2, "2 times")])
def test_a_start_that_was_tried_again_is_told_with_its_reason(times: int, words: str) -> None:
    report = a_report()
    again = {"times": times, "reason": "a worker failed to connect back"}
    report["conclusion"]["starts_again"] = {"spark-realtime": again}
    text = shown(report)
    assert f"spark-realtime was started again {words} before the load" in text
    assert "a worker failed to connect back" in text


def test_a_restart_is_told_with_its_outage_and_what_it_cost() -> None:
    report = a_report(duplicate=3, late=40)
    report["pipelines"]["spark-realtime"]["restarts"] = [
        {"down_ms": 1, "outage_s": 13.1429, "late": 40, "duplicate": 3},
    ]
    text = shown(report)
    assert (
        "spark-realtime was killed and unavailable for 13.1 s. As a result 40 outputs were late "
        "and 3 were duplicates; none is missing.\n"
    ) in text
    assert verdict(report)[0] == (
        "VALID, but the ledger is not clean: spark-realtime join has 40 late, 3 duplicate. "
        "All of this is due to the restart; nothing was lost."
    )


@pytest.mark.parametrize("other", [{"late": 41}, {"missing": 1}, {"wrong": 1}])
def test_what_a_restart_does_not_explain_is_not_put_down_to_it(other: dict[str, int]) -> None:
    report = a_report(**other)
    report["pipelines"]["spark-realtime"]["restarts"] = [
        {"down_ms": 1, "outage_s": 13.1429, "late": 40, "duplicate": 3},
    ]
    assert "restart" not in verdict(report)[0]


def test_a_pipeline_that_did_not_come_back_is_told_with_what_is_missing() -> None:
    report = a_report(missing=7)
    report["pipelines"]["spark-realtime"]["restarts"] = [
        {"down_ms": 1, "outage_s": None, "late": 0, "duplicate": 0},
    ]
    sentence = "spark-realtime was killed and did not recover; of its outputs 7 are missing.\n"
    assert sentence in shown(report)


def test_what_others_used_is_beside_what_the_machine_used() -> None:
    text = shown(a_report())
    assert [line.split()[-1] for line in text.splitlines() if "other processes" in line] == ["0.60"]
    assert (
        "spark-realtime used 2250 core-seconds per million input records.\n"
        "Tidegauge itself used 0.30 cores, 20% of all CPU time used.\n"
    ) in text


def test_a_floor_that_was_to_be_measured_and_is_unknown_is_told() -> None:
    report = Report.model_validate(a_report() | {"run_id": "r", "floor": None})
    assert words.floor_sentence(report) == ""
    asked = report.model_copy(update={"floor_s": 10})
    assert words.floor_sentence(asked).startswith("Floor: unknown; the run r-floor ")


def test_expired_seconds_are_told() -> None:
    text = shown(a_report() | {"seconds_expired": True})
    assert "The latencies of single seconds of this run have expired" in text


def test_each_process_of_a_pipeline_has_a_row_below_it() -> None:
    used = {"cpu_cores": 1.5, "heap_used_bytes_min": 10**6, "heap_used_bytes_mean": 2.5e6}
    parts = {"java SparkSubmit": 1.25, "others": 0.25}
    used |= {"heap_used_bytes_max": 4 * 10**6, "cpu_cores_by_process": parts}
    used |= {"received_bytes_by_process": {"java SparkSubmit": 2e6, "others": 5e5}}
    used |= {"sent_bytes_by_process": {"java SparkSubmit": 1e6}}
    resources = {"a": used, "b": {}, "c": {"cpu_cores": 1}}
    pipelines = {name: {"resources": one} for name, one in resources.items()}
    found = usage_rows(report_of({"pipelines": pipelines}))
    assert found == [
        ("a", "all", "1.50", "1", "2", "4", "2.50", "1.00"),
        ("a", "java SparkSubmit", "1.25", "", "", "", "2.00", "1.00"),
        ("a", "others", "0.25", "", "", "", "0.50", ""),
        ("c", "all", "1.00", "", "", "", "", ""),
    ]
