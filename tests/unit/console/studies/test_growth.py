"""Tables of what more workers or cores bring, and the law fitted to their rates."""

import pytest

from schemas.report import Report
from schemas.study import Growth
from services.console.studies.content import MeasuredCell, Standing, article
from tests.unit.console.studies.reports import experiment, study
from tests.unit.reports import report_of

pytestmark = pytest.mark.unit

FIELDS = {"title": "By size", "experiment": "latency", "stage": "parse"}
SIZES = {"One": 1, "Two": 2, "Four": 4}


def searched(low: float, high: float | None, cores: float = 16) -> Report:
    rate = {"rate_per_second": low, "interval_per_second": [low, high], "limited_by": "pipeline"}
    use = {"cpu_cores": 0.5, "memory_bytes_max": 1, "core_seconds_per_million_records": 20}
    return report_of(
        {
            "run_id": f"run-{low:g}",
            "valid": True,
            "invalid_reasons": [],
            "conclusion": {"clean": True, "search": rate},
            "environment": {"cores": cores},
            "pipelines": {"p": {"stages": {"parse": {"latency_ms": {}}}, "resources": use}},
            "services": {"machine": {"cpu_cores": 1.1}, "kafka": {"cpu_cores": 0.0}},
        }
    )


def growth(rates, **changes):
    systems = [{"name": name, "pipeline": "kafka-streams"} for name in ("Fast", *SIZES)]
    table = FIELDS | {"of": "workers", "sizes": SIZES} | changes
    rates_of = [experiment(paper_values=[])]
    made = study(systems=systems, experiments=rates_of, scores=[], growth=[table])
    cells = {
        ("latency", name, "parse"): MeasuredCell(found.run_id, "p", True, found)
        for name, found in rates.items()
    }
    sections = article(made, Standing("small"), cells).sections
    return next((each for each in sections if each.title == "By size"), None)


def planted(size, contention=0.1, coherency=0.01):
    more = size - 1
    return 1_000 * size / (1 + contention * more + coherency * size * more)


def test_rates_stand_beside_the_law_that_is_fitted_to_them():
    rates = {name: searched(planted(size), planted(size)) for name, size in SIZES.items()}
    section = growth(rates)
    assert section.header[:5] == (
        *("workers", "sustainable, records/s", "per worker", "of linear growth", "the law's rate"),
    )
    assert [row[:5] for row in section.rows] == [
        ("1", "1,000 (1,000 to 1,000)", "1,000", "100%", "1,000"),
        ("2", "1,786 (1,786 to 1,786)", "893", "89%", "1,786"),
        ("4", "2,817 (2,817 to 2,817)", "704", "70%", "2,817"),
    ]
    assert any("contention 10 % (10 to 10 %), coherency 1 %" in text for text in section.words)


def test_cores_are_multiples_of_the_least():
    sizes = {"One": 0.5, "Two": 1, "Four": 1.5}
    rates = {name: searched(1_000 * size, 1_100 * size, cores=2) for name, size in sizes.items()}
    section = growth(rates, of="cores", sizes=sizes)
    assert [row[:4] for row in section.rows] == [
        ("0.5", "500 (500 to 550)", "1,000", "100%"),
        ("1", "1,000 (1,000 to 1,100)", "1,000", "100%"),
        ("1.5", "1,500 (1,500 to 1,650)", "1,000", "100%"),
    ]
    assert section.words[0] == (
        "1 and 2 × 0.5 cores are evidence of how the pipeline scales: the machine had these cores, "
        "and the pipeline was the limit."
    )
    assert section.words[1].startswith("3 × 0.5 cores are not evidence: 1.4 of 2 cores were free")


def test_a_size_that_was_not_measured_has_no_row():
    two = {"One": searched(100, 110), "Four": searched(300, None)}
    section = growth(two)
    assert [row[:2] for row in section.rows] == [
        ("1", "100 (100 to 110)"),
        ("4", "300 (300 to no upper bound)"),
    ]
    assert any("no law is fitted" in text for text in section.words)
    assert growth({}) is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"of": "cores", "sizes": {"One": 1, "Two": 1.5}}, "sizes: 1.5 is not a multiple of 1"),
        ({"sizes": {"One": 1.5, "Two": 2}}, "sizes: 1.5 is not a multiple of 1"),
        ({"sizes": {"One": 1, "Two": 1}}, "sizes: each system needs another size"),
        ({"of": "cores", "sizes": {"One": 0, "Two": 1}}, "sizes: 0 cores are too few"),
    ],
)
def test_sizes_must_differ_and_be_countable(changes, says):
    with pytest.raises(ValueError, match=says):
        Growth.model_validate(FIELDS | {"of": "workers"} | changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"experiment": "none"}, "growth By size: there is no experiment 'none'"),
        ({"stage": "sliding"}, "growth By size: latency has no such stage"),
        ({"sizes": {"One": 1, "Nine": 9}}, "growth By size: there is no system 'Nine'"),
    ],
)
def test_it_names_what_the_study_has(changes, says):
    with pytest.raises(ValueError, match=says):
        growth({}, **changes)
