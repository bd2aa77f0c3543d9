"""Charts as SVG."""

import xml.etree.ElementTree as ET

import pytest

from services.console.report.charts import ChartFrame, Line, amount, line_chart
from services.console.report.html import widths

pytestmark = pytest.mark.unit

FRAME = ChartFrame("A chart", "seconds", "ms", 10.0)


def drawn(chart: str) -> list[str]:
    """The path data of the curves, without the line pieces beside their names."""
    paths = [path.attrib["d"] for path in ET.fromstring(chart).iter("path")]
    return paths[: len(paths) // 2]


def test_a_curve_goes_from_place_to_place() -> None:
    # x: 0 to 10 s on 44 to 324; y: 0 to 100 * 1.05 on 216 to 12
    chart = line_chart(FRAME, [Line("join", ((0, 0), (5, 100), (10, 52.5)))])
    assert drawn(chart) == ["M44 216L184 21.7L324 114"]


def test_a_silence_is_a_gap_and_a_lone_point_a_short_stroke() -> None:
    chart = line_chart(FRAME, [Line("join", ((0, 0), (1, 0), (9, 0)), apart=3)])
    assert drawn(chart) == ["M44 216L72 216M294 216L298 216"]


def test_every_curve_has_its_name_at_its_end_and_a_look_of_its_own() -> None:
    chart = line_chart(FRAME, [Line(f"c{n}", ((0, n), (1, n)), n) for n in range(8)])
    looks = {
        (p.get("stroke"), p.get("stroke-dasharray")) for p in ET.fromstring(chart).iter("path")
    }
    assert len(looks) == 8
    assert all(f">c{n}<" in chart for n in range(8))


def test_a_chart_without_points_is_still_a_chart() -> None:
    assert ET.fromstring(line_chart(FRAME, [Line("join", ())])).tag == "svg"


def test_names_cannot_bring_markup_in() -> None:
    chart = line_chart(ChartFrame("<b>", "s", "<i>", 1), [Line("<script>", ((0, 0),))])
    assert [
        node.tag for node in ET.fromstring(chart).iter() if node.tag in ("b", "i", "script")
    ] == []


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.25, "0.25"), (1000, "1000"), (12_000, "12k"), (3.1e6, "3.1M")]
)
def test_amounts_are_short(value: float, text: str) -> None:
    assert amount(value) == text


def test_one_bad_output_in_a_million_can_be_seen_in_the_ledger() -> None:
    counts = dict.fromkeys(("wrong", "late", "duplicate", "unexpected"), 0)
    found = widths({"exact": 999_999, "missing": 1, **counts}, 400)
    assert found == {"exact": 397, "missing": 3}
