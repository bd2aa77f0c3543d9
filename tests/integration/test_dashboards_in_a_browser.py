"""Every dashboard file in a headless browser, with the recorded run: all panels are drawn, without
errors.

TIDEGAUGE_SCREENSHOTS names a folder for the screenshots; by default it is a temporary one.
"""

import json
import os
import urllib.request
from pathlib import Path

import pytest

from services.runtime.grafana_macros import TimeRange
from services.runtime.settings import ServiceSettings
from services.store.engines.chdb_engine import ChdbEngine
from services.store.engines.schema import ddl_statements
from services.store.settings import StoreSettings
from tests.benchmarks._results import NEW_YEAR_MS, latency_events, run_events
from tests.integration.dashboard_queries import chosen, dashboards, panel_queries
from tests.integration.kafka_broker import free_base_port
from tests.integration.recorded_run import (
    an_input_of_another_load,
    conclusions,
    lost_frames,
    phase_ms,
    recorded,
    run_of,
    troubles,
    with_processes,
)
from tests.integration.service_process import running_service
from tests.integration.store_engine import project
from tests.integration.store_process import until_ready
from tests.integration.watched_run import watch_events

pytestmark = pytest.mark.integration
DASHBOARDS = dashboards()
DAY_MS = 86_400_000
HISTORY_RUNS, HISTORY_SECONDS = 30, 3
# A time range without data, and a month with a run per day.
STATES = {
    "empty": (NEW_YEAR_MS - 200 * DAY_MS, NEW_YEAR_MS - 199 * DAY_MS),
    "history": (NEW_YEAR_MS - DAY_MS, NEW_YEAR_MS + HISTORY_RUNS * DAY_MS),
}
SPAN_OF_RUN = """
    formatDateTime(requested_at, '%Y-%m-%dT%H:%i:%S', 'UTC'),
    formatDateTime(concluded_at + INTERVAL 5 SECOND, '%Y-%m-%dT%H:%i:%S', 'UTC')"""
SAID = """
    [...document.querySelectorAll(".panel")].map((panel) => [
      Number(panel.dataset.panel), panel.dataset.state,
      panel.querySelector(".message").textContent])"""
SETTLED = "document.documentElement?.dataset.state === 'settled'"
NOT_DRAWN = """
    [...document.querySelectorAll(".panel")]
      .filter((panel) => panel.dataset.state !== "drawn")
      .map((panel) => `${panel.querySelector("h2").textContent}: ${panel.innerText}`)"""
# Once annotations are off, a canvas with fewer than ten coloured points shows at most axes.
ANNOTATIONS_OFF = """
    document.querySelectorAll("[data-key^='annotation ']").forEach((box) => box.click())"""
BLANK = """
    [...document.querySelectorAll("canvas")].filter((canvas) => {
      const { width, height } = canvas;
      const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
      let coloured = 0;
      for (let i = 0; i < data.length; i += 4) {
        const [red, green, blue] = data.subarray(i, i + 3);
        if (Math.max(red, green, blue) - Math.min(red, green, blue) > 40) coloured += 1;
      }
      return coloured < 10;
    }).map((canvas) => canvas.closest(".panel").querySelector("h2").textContent)"""


@pytest.fixture(scope="module")
def recording():
    return with_processes(recorded())


@pytest.fixture(scope="module")
def site(recording, tmp_path_factory):
    """Address of a store that contains the recorded run with some faults in its middle."""
    settings = ServiceSettings(base_port=free_base_port(), data=tmp_path_factory.mktemp("store"))
    engine = ChdbEngine(StoreSettings(data=settings.data))
    engine.execute(ddl_statements())
    start_ms, end_ms = phase_ms(recording, "measure")
    run_id, middle_ms = run_of(recording), (start_ms + end_ms) // 2
    trouble = [*troubles(run_id, middle_ms), *conclusions(run_id, middle_ms)]
    trouble += lost_frames(run_id, middle_ms)
    project(engine, [*recording, *trouble, an_input_of_another_load(middle_ms), *history()])
    project(engine, watch_events(middle_ms))
    engine.close()
    with running_service(settings, "store", TIDEGAUGE_OFFLINE="true") as process:
        until_ready(settings, process)
        yield f"http://127.0.0.1:{settings.port('store')}"


def history():
    """A run per day for a month."""
    for number in range(HISTORY_RUNS):
        start_ms = NEW_YEAR_MS + number * DAY_MS
        yield from run_events(number, HISTORY_SECONDS, start_ms)
        yield from latency_events(number, HISTORY_SECONDS, start_ms)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    named = os.environ.get("TIDEGAUGE_SCREENSHOTS")
    return Path(named) if named else tmp_path_factory.mktemp("pictures")


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["title"])
def test_every_panel_is_drawn_and_nothing_is_complained_of(
    dashboard, site, recording, browser, pictures
):
    start_ms, end_ms = phase_ms(recording, "measure")
    # Wider than the run, to include earlier events; high enough for every panel.
    times = f"from={start_ms - 3_000_000}&to={end_ms + 600_000}&refresh="
    browser.look(1280, 4000)
    browser.complaints.clear()
    browser.open(f"{site}/dashboards/d/{dashboard['uid']}?{times}")
    browser.wait_until(SETTLED)
    panels = browser.evaluate("document.querySelectorAll('.panel').length")
    assert panels == sum(panel["type"] != "row" for panel in dashboard["panels"])
    assert browser.evaluate(NOT_DRAWN) == []
    assert (
        browser.evaluate("document.querySelectorAll('.remark:not([hidden]), .failed').length") == 0
    )
    for name, width, dark in (("light", 1280, False), ("dark", 1280, True), ("phone", 390, False)):
        browser.look(width, 3000, dark=dark, phone=width == 390)
        browser.wait_until(f"innerWidth <= {width}")
        browser.wait_until(SETTLED)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        picture = pictures / f"{dashboard['uid']}-{name}.png"
        browser.screenshot(picture)
        assert picture.stat().st_size > 20_000
    browser.look(1280, 4000)
    browser.evaluate(ANNOTATIONS_OFF)
    browser.wait_until(SETTLED)
    assert browser.evaluate(BLANK) == []
    assert browser.complaints == []


def states_by_sql(dashboard, when, site):
    """Whether each panel has anything to draw, by number: rows, or a non-null value for a single
    figure."""

    def ask(sql):
        asked = urllib.request.Request(f"{site}/?default_format=JSON", sql.encode())
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)["data"]

    values, found = chosen(dashboard, when, ask), {}
    for panel in dashboard["panels"]:
        own = panel_queries({"title": "", "panels": [panel]}, when, values)
        rows = [row for query in own for row in ask(query.sql)]
        if panel["type"] == "stat":
            rows = [row for row in rows if any(value is not None for value in row.values())]
        if panel["type"] != "row":
            found[panel["id"]] = "drawn" if rows else "empty"
    return found


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["title"])
def test_without_data_a_panel_says_why_and_over_a_month_it_is_drawn(
    dashboard, state, site, browser, pictures
):
    from_ms, to_ms = STATES[state]
    browser.look(1280, 4000)
    browser.complaints.clear()
    browser.open(f"{site}/dashboards/d/{dashboard['uid']}?from={from_ms}&to={to_ms}&refresh=")
    browser.wait_until(SETTLED)
    why = {
        panel["id"]: panel["fieldConfig"]["defaults"]["noValue"] for panel in dashboard["panels"]
    }
    said = browser.evaluate(SAID)
    due = states_by_sql(dashboard, TimeRange(from_ms, to_ms), site)
    assert {number: found for number, found, _message in said} == due
    for number, found, message in said:
        if found == "empty":
            assert message == why[number]
    for name, dark in (("light", False), ("dark", True)):
        browser.look(1280, 3000, dark=dark)
        browser.wait_until(SETTLED)
        browser.screenshot(pictures / f"{dashboard['uid']}-{state}-{name}.png")
    assert browser.complaints == []


@pytest.mark.parametrize("uid", ["tidegauge-history", "tidegauge-overview"])
def test_a_month_opens_on_what_has_data(uid, site, browser):
    """History selects a workload and a stage with measurements."""
    from_ms, to_ms = STATES["history"]
    browser.look(1280, 4000)
    browser.open(f"{site}/dashboards/d/{uid}?from={from_ms}&to={to_ms}&refresh=")
    browser.wait_until(SETTLED)
    assert [found for _number, found, _message in browser.evaluate(SAID)].count("drawn") >= 4


TIMES = """
    [...document.querySelectorAll("input[type=datetime-local]")].map((input) => input.value)"""
TO_RUN = """
    [...document.querySelectorAll("nav a")].find((link) => link.textContent === "Run").search"""


def test_run_shows_the_time_of_its_run_until_another_is_chosen(site, recording, browser):
    rows = f"SELECT {SPAN_OF_RUN} FROM tidegauge.runs WHERE run_id = '{run_of(recording)}'"
    asked = urllib.request.Request(f"{site}/?default_format=JSONCompact", rows.encode())
    with urllib.request.urlopen(asked, timeout=60) as answer:
        ((begin, end),) = json.load(answer)["data"]
    browser.look(1280, 4000)
    browser.open(f"{site}/dashboards/d/tidegauge-overview?from=now-2y&to=now&refresh=")
    browser.wait_until(SETTLED)
    search = browser.evaluate(TO_RUN)
    assert "from=" not in search
    browser.open(f"{site}/dashboards/d/tidegauge-run?var-run={run_of(recording)}&refresh=")
    browser.wait_until(SETTLED)
    assert browser.evaluate(TIMES) == [begin, end]
    assert [found for _number, found, _message in browser.evaluate(SAID)].count("drawn") >= 12
    assert "from=" not in browser.evaluate("location.search")
    browser.evaluate("document.querySelector('[data-key=wider]').click()")
    browser.wait_until(f"location.search.includes('from=') && {SETTLED}")
    assert browser.evaluate(TIMES)[0] < begin


def test_what_is_typed_into_the_range_of_time_outlives_a_refresh(site, browser):
    typed, field = "2026-01-01T00:00:01", "document.querySelector('input[type=datetime-local]')"
    links = "document.querySelector('nav[aria-label=Dashboards]')"
    browser.open(f"{site}/dashboards/d/tidegauge-overview?refresh=5s")
    browser.wait_until(SETTLED)
    browser.evaluate("document.querySelector('[data-name=range]').open = true")
    browser.evaluate(f"{field}.focus()")
    browser.evaluate(f"{field}.value = '{typed}'")
    browser.evaluate(f"{links}.dataset.drawn = 'before'")
    browser.wait_until(f"{links} && !{links}.dataset.drawn")
    assert browser.evaluate(f"[{field}.value, {field} === document.activeElement]") == [typed, True]
    assert browser.evaluate("document.querySelectorAll('nav[aria-label=Dashboards]').length") == 1


LIMITED = """
    [...document.querySelectorAll(".panel")]
      .filter((panel) => panel.querySelector(".legend")?.innerText.includes("limit "))
      .map((panel) => panel.querySelector("h2").textContent)"""


@pytest.mark.parametrize("name", ["live", "run", "history"])
def test_a_limit_is_drawn_beside_the_percentile_that_it_limits(name, site, recording, browser):
    start_ms, end_ms = phase_ms(recording, "measure")
    browser.look(1280, 4000)
    times = f"from={start_ms - 60_000}&to={end_ms + 60_000}&refresh="
    browser.open(f"{site}/dashboards/d/tidegauge-{name}?{times}")
    browser.wait_until(SETTLED)
    (title,) = browser.evaluate(LIMITED)
    assert title.startswith("Latency p99 ")
