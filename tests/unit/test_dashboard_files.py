"""The dashboards in deploy/grafana match the output of their generator and Grafana's rules.

The rules are those of Grafana's dashboard-linter that apply to an SQL data source, and those of
docs/decisions/0601.
"""

import json
import re

import pytest
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.program.__main__ import ALERTS, DASHBOARDS, as_model, files

pytestmark = pytest.mark.unit
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.rglob("*.json"))}
PANELS = [
    pytest.param(found, panel, id=f"{name}: {panel['title']}")
    for name, found in FILES.items()
    for panel in found["panels"]
]
EVERY = pytest.mark.parametrize("found", FILES.values(), ids=FILES.keys())


def variables(found):
    return {each["name"]: each for each in found["templating"]["list"]}


def queries(found):
    """(SQL, data source) of every query of a dashboard."""
    targets = [target for panel in found["panels"] for target in panel["targets"]]
    targets += [each["target"] for each in found["annotations"]["list"]]
    targets += [each["query"] for each in variables(found).values() if each["type"] == "query"]
    return [(target["rawSql"], target["datasource"]) for target in targets]


def test_the_committed_files_are_current():
    """Update with: python -m deploy.grafana.program"""
    written = dict(files())
    assert {*DASHBOARDS.rglob("*.json"), ALERTS} == set(written)
    for path, text in written.items():
        assert path.read_text() == text, path.name


def test_uids_and_titles_are_fixed_and_differ():
    assert {found["uid"] for found in FILES.values()} == {f"tidegauge-{name}" for name in FILES}
    assert len({found["title"] for found in FILES.values()}) == len(FILES)


@EVERY
def test_a_dashboard_reads_back_as_it_was_written(found):
    register_default_plugins()
    assert as_model(Dashboard.from_json(found)) == found


@EVERY
def test_the_data_source_is_chosen_by_one_variable(found):
    chosen = [each for each in variables(found).values() if each["type"] == "datasource"]
    assert [each["name"] for each in chosen] == ["datasource"]
    assert chosen[0]["query"] == "grafana-clickhouse-datasource"
    assert "__inputs" not in found
    expected = {"type": "grafana-clickhouse-datasource", "uid": "${datasource}"}
    for _sql, used in queries(found):
        assert used == expected
    for panel in found["panels"]:
        assert panel["datasource"] == expected


@EVERY
def test_a_dashboard_says_what_it_shows_and_leads_to_the_others(found):
    assert found["title"]
    assert found["description"]
    link, *own = found["links"]
    is_run = found["uid"] == "tidegauge-run"
    assert [each["title"] for each in own] == (["Time of the run"] if is_run else [])
    assert (link["type"], link["tags"]) == ("dashboards", ["tidegauge"])
    assert link["keepTime"]
    assert link["includeVars"]
    names = [each["name"] for each in found["annotations"]["list"]]
    is_watch = found["uid"] == "tidegauge-watch"
    events = ["Events"] if is_watch else ["Run phases", "Faults"]
    assert names == [*events, "Deployments", "Change points"]


@EVERY
def test_every_variable_is_named_used_and_bounded(found):
    links = (each["url"] for each in found["links"] if each["type"] == "link")
    text = " ".join([*(sql for sql, _source in queries(found)), *links])
    for name, variable in variables(found).items():
        assert variable["label"], name
        assert variable["description"], name
        if variable["type"] != "datasource":
            assert re.search(rf"\$\{{?{name}\b", text), name
        if variable["type"] == "query":
            assert variable["refresh"] == 2, "when the range of time changes"
            assert variable["multi"] == variable["includeAll"] == name.endswith("s")
        if variable.get("includeAll"):
            outside = re.sub(
                rf"\$__conditionalAll\([^$]*\$\{{{name}:\w+\}}\), \${name}\)", "", text
            )
            assert f"${{{name}" not in outside, f"{name} outside $__conditionalAll"


@EVERY
def test_panels_lie_side_by_side_and_not_on_each_other(found):
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in found["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _y in cells) < 24


@pytest.mark.parametrize(("found", "panel"), PANELS)
def test_a_panel_says_what_it_shows_in_which_unit_and_why_it_is_empty(found, panel):
    defaults = panel["fieldConfig"]["defaults"]
    assert panel["title"]
    assert len(panel["description"]) > 30
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert re.search(r"\.$|: \./tidegauge [\w -]+$", defaults["noValue"])
    assert panel["type"] in {"timeseries", "stat", "table", "barchart", "heatmap"}
    (target,) = panel["targets"]
    assert target["format"] == (0 if panel["type"] in {"timeseries", "heatmap"} else 1)
    assert f"/d/{found['uid']}" not in json.dumps(panel) or found["uid"] == "tidegauge-run"


@pytest.mark.parametrize(("found", "panel"), PANELS)
def test_a_line_connects_neither_two_runs_nor_a_run_and_itself_after_days(found, panel):
    """Only History has a point per run: there, lines connect the runs of a series."""
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    if panel["type"] != "timeseries" or custom["drawStyle"] == "bars":
        return
    if found["uid"] == "tidegauge-history":
        assert (custom["spanNulls"], custom["insertNulls"]) == (86_400_000, 86_400_000)
    else:
        longest_ms = 15_000 if panel["interval"] in ("1s", "2s") else 45_000
        assert (custom["spanNulls"], custom["insertNulls"]) == (False, longest_ms)


@pytest.mark.parametrize(("found", "panel"), PANELS)
def test_a_panel_is_bounded_by_time_by_a_run_or_by_a_limit(found, panel):
    sql = panel["targets"][0]["rawSql"]
    bounds = ("$__timeFilter", "$__toTime", "${run:sqlstring}", "LIMIT", "max(time)")
    assert any(bound in sql for bound in bounds)
    assert panel["type"] != "table" or "LIMIT" in sql or "GROUP BY" in sql or "run_id =" in sql


def test_a_link_to_a_dashboard_finds_it():
    text = " ".join(json.dumps(found) for found in FILES.values())
    uids = {found["uid"] for found in FILES.values()}
    assert set(re.findall(r"/d/([\w-]+)", text)) <= uids


def test_alert_rules_are_told_apart_and_explained():
    (group,) = json.loads(ALERTS.read_text())["groups"]
    rules = group["rules"]
    assert len({rule["uid"] for rule in rules}) == len(rules) == 8
    for rule in rules:
        assert rule["annotations"]["summary"].endswith(".")
        assert [part["refId"] for part in rule["data"]] == ["A", "C"]
        assert "$" not in json.dumps(rule["labels"]) + rule["title"]
