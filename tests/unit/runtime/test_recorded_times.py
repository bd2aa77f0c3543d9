"""Times in recordings: a number is never read in a wrong unit."""

from datetime import UTC, date, datetime

import pytest

from services.definitions.recordings import time_us

NOON_US = 1_767_268_800_000_000  # 2026-01-01T12:00:00Z


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        ("1767268800000", ""),
        (1_767_268_800_000, ""),
        (1_767_268_800_000.0, ""),
        ("1767268800", "s"),
        ("1767268800.000", "s"),
        (1_767_268_800, "s"),
        (str(NOON_US), "us"),
        (NOON_US * 1000, "ns"),
        (" 2026-01-01T12:00:00Z ", ""),
        ("2026-01-01 12:00:00", "s"),
        ("2026-01-01T13:00+01:00", ""),
        ("20260101T120000Z", ""),
        (datetime(2026, 1, 1, 12), ""),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), ""),
    ],
)
def test_one_time_written_in_several_ways(given, unit):
    assert time_us(given, "at", unit) == NOON_US


def test_fractions_of_a_second_are_exact_to_the_microsecond():
    assert time_us("1767268800.250001", "at", "s") == NOON_US + 250_001
    assert time_us("1767268800123.4", "at") == NOON_US + 123_400
    assert time_us("1767268800000000999", "at", "ns") == NOON_US
    assert time_us("2026-01-01T12:00:00.250", "at") == NOON_US + 250_000


def test_a_unit_that_is_given_also_reads_times_since_a_start():
    assert time_us("15", "at", "s") == 15_000_000
    assert time_us("0", "at", "ms") == 0


def test_a_day_is_its_midnight():
    assert time_us(date(2026, 1, 1), "at") == NOON_US - 12 * 3_600_000_000
    assert time_us("2026-01-01", "at") == NOON_US - 12 * 3_600_000_000


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("1767268800", r"looks like seconds since 1970 \(2026-01-01\); .*--time-unit s "),
        (1_767_268_800, "looks like seconds"),
        ("1767268800.25", "looks like seconds"),
        (1_767_268_800.25, "looks like seconds"),
        (str(NOON_US), r"looks like microseconds since 1970 \(2026-01-01\); .*--time-unit us "),
        (str(NOON_US * 1000), "looks like nanoseconds .*--time-unit ns "),
        ("46023.5", r"looks like a day of a spreadsheet \(2026-01-01\)"),
        (46_023, "looks like a day of a spreadsheet"),
        ("20260101", r"looks like a date without separators \(2026-01-01\)"),
        ("20260101120000", "looks like a date without separators"),
        ("202601011200", "looks like a date without separators"),
        ("15", "whose unit is not clear"),
        ("0", "whose unit is not clear"),
        ("1.76727E+12", "a rounded number"),
        ("1,76727E+12", "a rounded number"),
        ("01.02.2026 13:00", "not a time; write it as 2026-02-01T13:00:00Z"),
        ("2/1/2026 1:00 PM", "not a time"),
        ("2026-02-01 13:00:00 UTC", "not a time"),
        ("1767268800,25", "not a time"),
        ("NULL", "not a time"),
        (True, "not a time"),
        (float("nan"), "not a time"),
        ("2500-01-01", "not in the years 1900 to 2199"),
    ],
)
def test_what_could_be_another_time_is_refused_with_what_it_looks_like(given, why):
    with pytest.raises(ValueError, match=why):
        time_us(given, "at")


def test_a_number_of_another_unit_than_the_given_one_is_refused():
    with pytest.raises(ValueError, match="as seconds; it looks like milliseconds"):
        time_us("1767268800000", "at", "s")
