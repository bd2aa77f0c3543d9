"""Macros and variables of Grafana queries, checked against the documentation of its data source."""

import pytest

from deploy.grafana.program.sql import LATENCIES
from services.runtime.grafana_macros import (
    ALL,
    BY_MINUTE_S,
    MacroError,
    TimeRange,
    expand,
    interval_for,
    names_used,
)

pytestmark = pytest.mark.unit
HOUR = TimeRange(1_767_225_600_000, 1_767_229_200_500)


def expanded(sql, **variables):
    return expand(sql, HOUR, 5, variables)


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        (
            "$__timeFilter(second)",
            "second >= toDateTime(1767225600) AND second <= toDateTime(1767229200)",
        ),
        (
            "$__timeFilter_ms(r.time)",
            "r.time >= fromUnixTimestamp64Milli(1767225600000)"
            " AND r.time <= fromUnixTimestamp64Milli(1767229200500)",
        ),
        (
            "$__timeInterval(second) AS time",
            "toStartOfInterval(toDateTime(second), INTERVAL 5 second) AS time",
        ),
        ("x / $__interval_s", "x / 5"),
        (
            "$__fromTime < a AND b < $__toTime",
            "toDateTime(1767225600) < a AND b < toDateTime(1767229200)",
        ),
        ("$__fromTime_ms", "fromUnixTimestamp64Milli(1767225600000)"),
        ("$__toTime_ms", "fromUnixTimestamp64Milli(1767229200500)"),
        ("${__from} to ${__to}", "1767225600000 to 1767229200500"),
        (
            "$__timeFilter(coalesce(a, f('(', b)))",
            "coalesce(a, f('(', b)) >= toDateTime(1767225600)"
            " AND coalesce(a, f('(', b)) <= toDateTime(1767229200)",
        ),
        ("SELECT 1", "SELECT 1"),
    ],
)
def test_a_macro_becomes_what_the_data_source_sends(written, sent):
    assert expanded(written) == sent


def test_the_interval_is_at_least_a_second():
    assert expand("$__interval_s", HOUR, 0, {}) == "1"


@pytest.mark.parametrize(
    ("written", "value", "sent"),
    [
        ("run_id = ${run:sqlstring}", "a-1", "run_id = 'a-1'"),
        ("stage IN (${run:sqlstring})", ["join", "parse"], "stage IN ('join','parse')"),
        ("${run:sqlstring}", "it's", "'it''s'"),
        ("${run:sqlstring}", "a\\", "'a\\\\'"),
        ("${run:csv}", ["a", "b"], "a,b"),
        ("quantile($run)", "0.99", "quantile(0.99)"),
        ("quantile(${run})", "0.99", "quantile(0.99)"),
        ("x IN ($run)", ["a", "b"], "x IN ('a','b')"),
    ],
)
def test_a_variable_becomes_its_values(written, value, sent):
    assert expanded(written, run=value) == sent


@pytest.mark.parametrize("everything", [ALL, [ALL], "", []])
def test_a_condition_falls_away_when_all_is_chosen(everything):
    written = "$__conditionalAll(stage IN (${stage:sqlstring}), $stage) AND 2=2"
    assert expanded(written, stage=everything) == "1=1 AND 2=2"


def test_a_condition_stays_when_something_is_chosen():
    written = "$__conditionalAll(stage IN (${stage:sqlstring}), $stage) AND 2=2"
    assert expanded(written, stage=["join"]) == "stage IN ('join') AND 2=2"


def test_conditions_of_several_variables_are_resolved_each_for_itself():
    written = (
        "$__conditionalAll(a IN (${a:sqlstring}), $a) AND $__conditionalAll(b = $b, ${b})"
        " AND $__timeFilter(t)"
    )
    assert expanded(written, a=ALL, b="3").startswith("1=1 AND b = 3 AND t >= toDateTime(")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("$nobody", r"No value is given for the variable \$nobody"),
        ("${all:sqlstring}", r"\$all is used outside"),
        ("${one:json}", "formats are sqlstring"),
        ("$__timeFilter", "needs one argument"),
        ("$__timeFilter(a, b)", "needs one argument"),
        ("$__conditionalAll()", "needs a condition and a variable"),
        ("$__surprise(a)", r"\$__surprise is unknown"),
        ("$__timeFilter(a", "is unclosed"),
        ("$__conditionalAll(a = 1)", "needs a condition and a variable"),
        ("$__timeFilter($__fromTime)", "inside another macro"),
    ],
)
def test_what_cannot_be_expanded_is_said(written, reason):
    with pytest.raises(MacroError, match=reason):
        expanded(written, all=ALL, one="1")


@pytest.mark.parametrize(
    ("span_s", "points", "least_s", "interval_s"),
    [(60, 600, 1, 1), (3600, 600, 1, 10), (3600, 600, 60, 60), (86_400, 600, 1, 300)],
)
def test_points_are_as_long_as_a_graph_needs(span_s, points, least_s, interval_s):
    assert interval_for(TimeRange(0, span_s * 1000), points, least_s) == interval_s


@pytest.mark.parametrize(("span_s", "interval_s"), [(21_599, 15), (21_600, 60), (80_000, 60)])
def test_points_are_a_minute_at_least_where_latencies_come_by_the_minute(span_s, interval_s):
    assert interval_for(TimeRange(0, span_s * 1000), 1_600) == interval_s
    assert LATENCIES.count(str(BY_MINUTE_S)) == 2


def test_the_variables_of_a_query_are_known():
    sql = "$__conditionalAll(a IN (${a:sqlstring}), $a) AND b = '$b' AND ${__from} < c"
    assert names_used(sql) == {"a", "b"}
