"""The page of a study contains the measured values and the paper's, and blank cells for missing
ones."""

from dataclasses import replace

import pytest

from services.console.studies.article import html, markdown
from services.console.studies.content import MeasuredCell, Standing, article, scores_of
from tests.unit.console.studies.reports import cell, experiment, report, study

pytestmark = pytest.mark.unit


def measured(run_id: str, p50: float, p99: float, valid: bool = True, clean: bool = True):
    found = report(valid, clean, parse=cell(p50, p99), join=cell(p50 + 1, p99 + 1))
    return MeasuredCell(run_id, "p", valid, found)


def cells(**more):
    fast = measured("run-1", 2, 6)
    return {("latency", "Fast", "parse"): fast, ("latency", "Fast", "join"): fast} | more


def page(found, **standing):
    return article(study(), Standing("small", **standing), found)


def section(found, title):
    return next(one for one in page(found).sections if one.title == title)


def test_a_row_has_figures_of_both_and_the_run():
    table = section(cells(), "Latency")
    assert table.header == (
        *("system", "stage", "p50, ms", "paper", "p99, ms", "run", "paper: where"),
    )
    assert table.rows == (
        ("Fast", "parse", "2", "1", "6", "run-1", "§5"),
        ("Fast", "join", "3", "", "7", "run-1", ""),
    )


def test_runs_of_several_machines_are_counted():
    one, two = measured("run-1", 2, 6), measured("run-2", 3, 7)
    other = two.report.model_copy(update={"environment": {"processor": "6502"}})
    both = {
        ("latency", "Fast", "parse"): one,
        ("latency", "Fast", "join"): one,
        ("latency", "Slow", "parse"): replace(two, report=other),
    }
    _method, *machines = section(both, "How it was measured").words
    counted = [words.partition(",")[0] for words in machines]
    assert counted == ["1 run: Machine: Z80", "1 run: Machine: 6502"]


def test_a_figure_of_several_faults_has_their_range():
    def of(outages):
        recovered = [
            {
                "event": "kill of the driver",
                "normal_ms": 10.0,
                "highest_median_ms": 900,
                "high_for_s": high,
                "silent_s": 4,
                "outage_s": out,
            }
            for high, out in outages
        ]
        found = report(parse=cell(3, 9, recovery=recovered, verdicts={"missing": 0}))
        return MeasuredCell("run-1", "p", valid=True, report=found)

    changes = {"stages": ["parse"], "figures": ["outage_s", "normal_again_s", "missing"]}
    kills = study(experiments=[experiment(**changes, paper_values=[])], scores=[])

    def texts(*outages):
        key = ("latency", "Fast", "parse")
        sections = article(kills, Standing("small"), {key: of(outages)}).sections
        table = next(one for one in sections if one.title == "Latency")
        assert any("medians of the run's faults" in text for text in table.words)
        assert table.header[2:5] == ("outage, s", "latency normal after, s", "lost")
        return table.rows[0][2:5]

    assert texts((8, 4.5), (12, 9.25), (9, 5.125)) == ("5.12 (4.5 to 9.25)", "9 (8 to 12)", "0")
    assert texts((8, 4.5)) == ("4.5", "8", "0")
    assert texts((8, 4.5), (None, None), (9, 5.125))[0] == "5.12 (4.5 to never)"
    assert texts((None, None), (None, None), (9, 5.125)) == (
        "never (5.12 to never)",
        "never (9 to never)",
        "0",
    )


def test_the_paper_s_figures_are_there_without_a_run_and_invalid_ones_are_blank():
    assert section({}, "Latency").rows == (("Fast", "parse", "", "1", "", "", "§5"),)
    bad = measured("run-2", 2, 6, valid=False)
    found = {("latency", "Fast", "parse"): bad}
    assert section(found, "Latency").rows == (
        ("Fast", "parse", "", "1", "", "run-2 INVALID", "§5"),
    )
    assert section(found, "Runs that are not clean").words == (
        "latency, Fast, run run-2 is INVALID: The generator was late.",
    )


@pytest.mark.parametrize("doubt", [{"steady": False}, {"disturbed": True}])
def test_figures_of_runs_that_were_not_steady_or_were_disturbed_are_marked(doubt):
    fast = measured("run-1", 2, 6)
    fast = replace(fast, report=fast.report.model_copy(update=doubt))
    found = {("latency", "Fast", "parse"): fast, ("latency", "Slow", "parse"): measured("2", 3, 7)}
    table = section(found, "Latency")
    assert [row[2] for row in table.rows] == ["2 ¹", "3"]
    assert table.words[-1] == "¹ Figures of a run that was not steady or was disturbed."
    (picture,) = table.pictures.values()
    assert "parse: Fast ¹" in str(picture.in_page())
    scores = section(found, "Scores")
    assert scores.rows[0][3:] == ("2 ¹ (paper 4)", "1")
    assert scores.words[-1] == table.words[-1]
    assert not any("¹" in words for words in section(cells(), "Latency").words)


def test_a_run_that_gave_nothing_and_one_that_is_not_clean_are_told():
    found = {
        ("latency", "Fast", "parse"): MeasuredCell("run-3", "p", False, None, "It was refused."),
        ("latency", "Slow", "parse"): measured("run-4", 5, 50, clean=False),
    }
    assert section(found, "Runs that are not clean").words == (
        "latency, Fast, run run-3 gave no figure: It was refused.",
        "latency, Slow, run run-4 is valid, but not every output was exact and in time.",
    )


def test_scores_rise_with_the_number_of_systems_that_are_worse():
    found = {
        ("latency", "Fast", "parse"): measured("1", 1, 6),
        ("latency", "Slow", "parse"): measured("2", 1, 900),
        ("latency", "Same", "parse"): measured("3", 1, 6),
        ("latency", "Bad", "parse"): measured("4", 1, 1, valid=False),
    }
    (score,) = study().scores
    asked = ["Fast", "Slow", "Same", "Bad", "Gone"]
    assert scores_of(score, asked, found) == {"Fast": 2, "Slow": 1, "Same": 2}
    higher = score.model_copy(update={"better": "higher"})
    assert scores_of(higher, ["Fast", "Slow"], found) == {"Fast": 1, "Slow": 2}


def test_scores_stand_beside_those_of_the_paper():
    rows = section(cells(), "Scores").rows
    assert rows == (("Latency", "all", "p99, ms of parse", "1 (paper 4)", ""),)


def test_what_is_left_out_and_what_is_to_do_is_said():
    found = page({}, left_out={"Slow": "It is gone."}, versions={"Slow": "9.1"}, to_do=3)
    assert "3 runs remain; the same command resumes." in found.words
    systems = next(one for one in found.sections if one.title == "Systems")
    assert systems.rows[1] == ("Slow", "spark-microbatch", "9.1", "", "It is gone.")


def test_html_stands_alone_and_markdown_says_the_same():
    found = page(cells())
    text = str(html(found))
    assert 'http-equiv="Content-Security-Policy" content="default-src &#x27;none&#x27;' in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "<svg" in text
    assert '<td class="words">run-1</td>' in text
    assert "| Fast | parse | 2 | 1 | 6 | run-1 | §5 |" in markdown(found, "s-small")
    assert "Machine: Z80, 2 cores, 8 GB" in markdown(found, "s-small")
    (name,) = found.pictures("s-small")
    assert f"![Latency]({name})" in markdown(found, "s-small")


def test_curves_of_runs_of_one_stage_each_are_a_chart_for_each_stage():
    def run(run_id, stage, p50):
        curves = {
            stage: {"output_rate": [(0, 9.0)], "latency_by_rate": [(100, p50), (900, 70.0)]},
            "": {"heap_mb": [(0, 50.0), (3, 70.0)]},
        }
        found = report(True, True, **{stage: cell(p50, 9)})
        return MeasuredCell(run_id, "p", valid=True, report=found, curves=curves)

    names = ["output_rate", "heap_mb", "latency_by_rate"]
    drawn = experiment(stages=["parse", "join"], curves=names, paper_values=[])
    apart = {
        ("latency", "Fast", "parse"): run("run-1", "parse", 2.0),
        ("latency", "Fast", "join"): run("run-2", "join", 3.0),
    }
    pictures = article(study(experiments=[drawn]), Standing("small"), apart).pictures("s").values()
    assert [each.label for each in pictures] == [
        "Latency",
        "Latency: parse: outputs per second",
        "Latency: join: outputs per second",
        "Latency: parse: used heap",
        "Latency: join: used heap",
        "Latency: parse: median latency by rate",
        "Latency: join: median latency by rate",
    ]
    assert ">records/s<" in str([*pictures][-1].as_file())


def test_a_figure_that_neither_a_run_nor_the_paper_has_is_no_column():
    figures = ["p50_ms", "heap_mean_mb", "scheduler_delay_p50_ms", "cpu_cores", "p99_ms"]
    found = study(experiments=[experiment(stages=["parse"], figures=figures)])
    table = article(found, Standing("small"), cells()).sections[1]
    assert table.header == (
        *("system", "stage", "p50, ms", "paper", "used heap mean, MB", "p99, ms"),
        *("run", "paper: where"),
    )
    assert table.rows == (("Fast", "parse", "2", "1", "70", "6", "run-1", "§5"),)


def test_curves_are_a_chart_of_the_latencies_of_each_system_and_one_of_all_for_each_other():
    latencies = {"event_time": [(0, 2.0), (9, 800.0)], "processing_time": [(0, 1.0), (9, 2.0)]}
    curves = {"parse": latencies, "": {"pull_rate": [(0, 400.0), (9, 200.0)]}}
    fast = replace(measured("run-1", 2, 6), curves=curves)
    slow = measured("run-2", 3, 7)
    drawn = experiment(
        stages=["parse"],
        curves=["event_time", "processing_time", "pull_rate"],
        paper_values=[],
    )
    both = {
        ("latency", "Fast", "parse"): fast,
        ("latency", "Slow", "parse"): replace(slow, curves={"": {"pull_rate": [(0, 5.0)]}}),
    }
    found = article(study(experiments=[drawn]), Standing("small"), both)
    pictures = found.pictures("s-small")
    assert {name: each.label for name, each in pictures.items()} == {
        "s-small-latency-1.svg": "Latency",
        "s-small-latency-2.svg": "Latency: Fast, median of each second",
        "s-small-latency-3.svg": "Latency: records handed over per second",
    }
    page = markdown(found, "s-small")
    assert "Fast, median of each second:\n\n![Latency: Fast, median" in page
    assert "<h3>Records handed over per second</h3>" in str(html(found))
    for label in ("event time", "processing time"):
        assert f">{label}<" in str(pictures["s-small-latency-2.svg"].as_file())
    for system in ("Fast", "Slow"):
        assert f">{system}<" in str(pictures["s-small-latency-3.svg"].as_file())
    one = experiment(stages=["parse"], curves=["event_time"], paper_values=[])
    (_ranges, alone) = (
        article(study(experiments=[one]), Standing("small"), both).pictures("s").values()
    )
    assert alone.label == "Latency: event time, median of each second"
    assert ">Fast<" in str(alone.in_page())
    invalid = {place: replace(each, valid=False) for place, each in both.items()}
    assert not article(study(experiments=[drawn]), Standing("small"), invalid).pictures("s-small")
