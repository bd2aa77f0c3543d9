"""Charts of ranges: a dot, a line, crosses for another source, and a name per row."""

import re

import pytest

from services.console.report import charts
from services.console.report.charts import Range, height_of, range_picture

pytestmark = pytest.mark.unit

GROUPS = [[Range("slow", 100, 1000, reference=(50,)), Range("fast", 1, 5)]]


def test_the_dot_is_at_the_low_value_and_the_line_goes_to_the_high_one():
    text = str(range_picture("Latency", "ms", GROUPS).in_page())
    slow, fast = (float(x) for x in re.findall(r'<circle cx="([\d.]+)"', text))
    start, end = (float(x) for x in re.findall(r'd="M([\d.]+) [\d.]+L([\d.]+)', text)[0])
    assert fast < slow == start < end
    assert text.count('class="cross"') == 2
    assert ">slow<" in text
    assert ">fast<" in text


def test_the_picture_grows_with_its_rows():
    assert height_of(GROUPS) == 8 + 36 + 2 * 17 + 7
    assert height_of([*GROUPS, *GROUPS]) == height_of(GROUPS) + 2 * 17 + 7


def test_a_picture_that_is_a_file_is_readable_on_dark_pages_too():
    text = str(charts.file(10, 20, "A picture", charts.dot(1, 2, 3, "#000000")))
    assert text.startswith("<svg")
    assert 'xmlns="http://www.w3.org/2000/svg"' in text
    assert "prefers-color-scheme:dark" in text
