"""The scalability of a pipeline on the page of a run: measured rates, the law, a table. Pure."""

from typing import Any

from services.console.page.charts import Curve, Frame, line_chart
from services.console.page.markup import Markup, element, wide_table
from services.console.scaling import scaling_header, scaling_rows

MEASURED_STYLE, LAW_STYLE, BOUND_STYLE = 5, 3, 0


def scaling_section(found: dict[str, Any]) -> Markup:
    """found: the key `scalability` of a report."""
    return element(
        "section",
        element("h2", f"{found['pipeline']} by workers"),
        *(element("p", sentence) for sentence in found["said"]),
        element("div", _figure(found), class_="charts"),
        wide_table(scaling_header(found), scaling_rows(found)),
    )


def _figure(found: dict[str, Any]) -> Markup:
    title = "Sustainable rate by workers"
    rates = [(one["workers"], one["rate_per_second"]) for one in found["points"]]
    measured = {
        name: tuple((float(n), rate[name]) for n, rate in rates if rate and rate[name] is not None)
        for name in ("low", "high")
    }
    law = {
        name: tuple(
            (float(one["workers"]), one["rate_per_second"][name]) for one in found["predicted"]
        )
        for name in ("value", "low", "high")
    }
    curves = [
        Curve("sustained", measured["low"], MEASURED_STYLE),
        Curve("too high", measured["high"], MEASURED_STYLE),
        Curve("law", law["value"], LAW_STYLE),
        Curve("from", law["low"], BOUND_STYLE),
        Curve("to", law["high"], BOUND_STYLE),
    ]
    most = max((x for curve in curves for x, _y in curve.points), default=1.0)
    last = max(found["evidence"], default=0)
    shade = (float(last), most, "no evidence") if last < most else None
    frame = Frame(f"{title}: {found['pipeline']}", "workers", "per s", most, shade=shade)
    return element("figure", element("h3", title), line_chart(frame, curves))
