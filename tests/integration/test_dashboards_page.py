"""`/dashboards/` in a browser, and under malicious requests."""

import base64
import json
import time
import urllib.error
import urllib.request

import pytest

from services.runtime.settings import ServiceSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.odd_dashboard import DASHBOARD
from tests.integration.service_process import running_service
from tests.integration.store_process import until_ready

pytestmark = pytest.mark.integration
ASKED = {"dashboard": "odd", "panel": 1, "from_ms": 0, "to_ms": 1000, "variables": {"size": "big"}}
JSON = {"Content-Type": "application/json"}
SETTLED = "document.documentElement?.dataset.state === 'settled'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a valid and a broken dashboard file."""
    made = tmp_path_factory.mktemp("dashboards")
    (made / "odd.json").write_text(json.dumps(DASHBOARD))
    (made / "broken.json").write_text("{")
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory, folder):
    """Address of a store that serves the folder with an empty projection."""
    settings = ServiceSettings(base_port=free_base_port(), data=tmp_path_factory.mktemp("store"))
    with running_service(
        settings, "store", TIDEGAUGE_OFFLINE="true", TIDEGAUGE_DASHBOARDS_DIR=str(folder)
    ) as process:
        until_ready(settings, process)
        yield f"http://127.0.0.1:{settings.port('store')}"


@pytest.fixture
def page(browser, site):
    """The dashboard in a large window, fully loaded; no console errors may remain at the end."""
    browser.look(1400, 2600)
    browser.complaints.clear()
    browser.open(f"{site}/dashboards/d/odd?from=1767225600000&to=1767225660000")
    browser.wait_until(SETTLED)
    yield browser
    assert [each for each in browser.complaints if "Failed to load resource" not in each] == []


def answer(site, path, data=None, **headers):
    """Status, headers and body of a request."""
    body = json.dumps(data).encode() if isinstance(data, dict) else data
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    request = urllib.request.Request(f"{site}/dashboards{path}", body, JSON | named)
    try:
        with urllib.request.urlopen(request, timeout=30) as found:
            return found.status, found.headers, found.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def text_of(page, number):
    return page.evaluate(f"document.querySelector('[data-panel=\"{number}\"]').innerText")


def state_of(page, number):
    return page.evaluate(f"document.querySelector('[data-panel=\"{number}\"]').dataset.state")


def test_the_answer_to_a_query_is_clickhouses_with_the_sql_that_was_asked(site):
    status, _, body = answer(site, "/api/query", ASKED | {"variables": {"size": "large"}})
    found = json.loads(body)
    assert status == 200
    assert found["sql"] == "SELECT 42 AS answer, length('large') AS letters"
    assert found["result"]["data"] == [[42, 5]]
    assert found["interval_s"] == 1


@pytest.mark.parametrize(
    ("path", "data", "headers", "status", "said"),
    [
        ("/api/query", ASKED, {}, 400, b"'big' is not a value of"),
        ("/api/query", ASKED | {"panel": 10}, {}, 403, b"Only SELECT"),
        ("/api/query", ASKED | {"panel": 8}, {}, 404, b"nosuch"),
        ("/api/query", ASKED | {"sql": "SELECT 1"}, {}, 400, b"There is no such field"),
        ("/api/query", ASKED | {"dashboard": "other"}, {}, 400, b"no dashboard"),
        ("/api/query", b"x" * 70_000, {}, 400, b"longer than 65536"),
        ("/api/query", ASKED, {"Content_Type": "text/plain"}, 415, b"must be JSON"),
        ("/api/query", ASKED, {"Host": "evil.example"}, 403, b"not accept this Host"),
        ("/api/query", ASKED, {"Origin": "http://evil.example"}, 403, b"this Origin"),
        ("/api/query", ASKED, {"Sec_Fetch_Site": "cross-site"}, 403, b"Pages of other origins"),
        ("/api/query", None, {}, 405, b"must be sent by POST"),
        ("/api/dashboards", {}, {}, 405, b"does not accept POST"),
        ("/api/dashboards/other", None, {}, 404, b"no dashboard"),
        ("/", None, {"Host": "evil.example"}, 403, b"not accept this Host"),
        ("/page/../../settings.py", None, {}, 404, b"nothing at this address"),
        ("/page/vendor/SHA256SUMS", None, {}, 404, b"nothing at this address"),
    ],
)
def test_what_may_not_be_asked_is_refused(site, path, data, headers, status, said):
    found, _, body = answer(site, path, data, **headers)
    assert (found, said in body) == (status, True), body


def test_the_page_lets_nothing_in_from_elsewhere_and_is_kept_by_the_browser(site):
    status, headers, body = answer(site, "/d/odd")
    assert status == 200
    assert b"<script" in body
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert answer(site, "/d/odd", If_None_Match=headers["ETag"])[0] == 304


def test_a_link_on_another_site_may_lead_to_the_page_but_no_frame_may_hold_it(site):
    site_of_other = {"Sec_Fetch_Site": "cross-site"}
    assert answer(site, "/d/odd", **site_of_other, Sec_Fetch_Dest="document")[0] == 200
    assert answer(site, "/d/odd", **site_of_other, Sec_Fetch_Dest="iframe")[0] == 403
    assert answer(site, "/api/dashboards", **site_of_other, Sec_Fetch_Dest="document")[0] == 403


def test_where_reading_needs_a_password_the_browser_asks_for_it(tmp_path, folder):
    settings = ServiceSettings(base_port=free_base_port(), data=tmp_path)
    environment = {"TIDEGAUGE_OFFLINE": "true", "TIDEGAUGE_ANONYMOUS_READS": "false"}
    with running_service(settings, "store", **environment) as process:
        until_ready(settings, process)
        site = f"http://127.0.0.1:{settings.port('store')}"
        status, headers, _ = answer(site, "/")
        assert (status, headers["WWW-Authenticate"][:5]) == (401, "Basic")
        password = (tmp_path / "secrets" / "clickhouse-reader").read_text().strip()
        token = base64.b64encode(f"reader:{password}".encode()).decode()
        assert answer(site, "/", Authorization=f"Basic {token}")[0] == 200


def test_every_kind_of_panel_is_drawn_from_its_own_query(page):
    assert [state_of(page, number) for number in (1, 2, 3, 4, 5, 6, 11, 12)] == ["drawn"] * 8
    assert "Figure of small" in text_of(page, 1)
    assert [line for line in text_of(page, 1).split() if line.isdecimal()] == ["42", "5"]
    assert "s0" in text_of(page, 2)
    assert "60" in text_of(page, 4)
    assert "low" in text_of(page, 5)
    assert "Bold of small" in text_of(page, 6)


def test_a_table_shows_units_texts_and_links_and_hides_what_is_hidden(page):
    words = text_of(page, 3).split()
    assert words[words.index("1.5") :][:2] == ["1.5", "s"]
    assert {"one", "large"} <= set(words)
    assert "hidden" not in words
    assert "<img" in words, "text of a result is text, never HTML"
    href = page.evaluate("document.querySelector('[data-panel=\"3\"] td a').href")
    assert href.endswith("/dashboards/d/odd?var-size=large&from=1&to=2")


def test_charts_have_colours_on_them(page):
    """At least a hundred points of every canvas are not grey."""
    coloured = """
        [...document.querySelectorAll("canvas")].map((canvas) => {
          const { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          let found = 0;
          for (let i = 0; i < data.length; i += 4) {
            const [red, green, blue] = data.subarray(i, i + 3);
            if (Math.max(red, green, blue) - Math.min(red, green, blue) > 40) found += 1;
          }
          return found;
        })"""
    page.evaluate("document.querySelector('[data-key=\"annotation Events\"]').click()")
    page.wait_until(SETTLED)
    counts = page.evaluate(coloured)
    assert len(counts) == 5
    assert min(counts) > 100, counts


def test_what_cannot_be_shown_is_said(page):
    assert state_of(page, 7) == "unsupported"
    assert "This viewer does not support panels of type “geomap”" in text_of(page, 7)
    assert state_of(page, 8) == "error"
    assert "nosuch" in text_of(page, 8)
    assert state_of(page, 9) == "empty"
    assert "None was there." in text_of(page, 9)
    assert "Only SELECT" in text_of(page, 10)
    assert "Not shown here: transformations." in text_of(page, 11)


def test_rows_of_one_bar_each_become_groups_of_bars(page):
    assert state_of(page, 13) == "drawn"
    assert [name in text_of(page, 13) for name in ("left", "right", "Not shown here")] == [
        True,
        True,
        False,
    ]


def test_a_choice_is_asked_for_and_stands_in_the_address(page):
    page.evaluate(
        "(() => { const box = document.querySelector('select[data-key=size]');"
        " box.value = 'large'; box.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until("document.querySelector('[data-panel=\"1\"]').innerText.includes('large')")
    page.wait_until(SETTLED)
    assert "var-size=large" in page.evaluate("location.search")
    assert "Bold of large" in text_of(page, 6)


def test_several_values_can_be_chosen(page):
    page.evaluate("document.querySelector('[data-key=\"stages parse\"]').click()")
    page.wait_until("document.querySelector('[data-panel=\"12\"]').dataset.state === 'empty'")
    assert "var-stages=parse" in page.evaluate("location.search")
    page.evaluate("document.querySelector('[data-key=\"stages join\"]').click()")
    page.wait_until("document.querySelector('[data-panel=\"12\"]').dataset.state === 'drawn'")


def test_links_to_dashboards_keep_time_and_choices(page):
    address = page.evaluate("document.querySelector('nav a').href")
    assert "from=1767225600000&to=1767225660000" in address
    assert "var-size=small" in address
    assert "datasource" not in address


def test_another_range_is_asked_when_it_is_picked(page):
    page.evaluate("[...document.querySelectorAll('.quick button')][1].click()")
    page.wait_until("location.search.includes('from=now-15m')")
    page.wait_until(SETTLED)
    assert "Last 15 minutes" in page.evaluate(
        "document.querySelector('[data-key=range]').innerText"
    )


def test_the_data_and_the_query_of_a_panel_can_be_read(page):
    page.evaluate("document.querySelector('[data-panel=\"1\"] .menu button').click()")
    text = page.evaluate("document.querySelector('dialog').innerText")
    assert "SELECT 42 AS answer, length('small') AS letters" in text
    page.evaluate("document.querySelector('dialog button').click()")
    page.wait_until("!document.querySelector('dialog')")


def test_everything_to_press_has_a_name_and_a_keyboard_gets_there(page):
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, select, input, a, summary')].filter((e) =>"
        " !(e.textContent || e.ariaLabel || e.title || e.closest('label')?.textContent))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []
    assert page.evaluate("[...document.querySelectorAll('[tabindex]')].every(e => e.tabIndex < 1)")


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_shows_it_without_scrolling_sideways(page, dark):
    page.look(390, 844, dark=dark, phone=True)
    page.wait_until("innerWidth <= 390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
    assert light is not dark


def test_all_dashboards_are_listed_and_a_broken_file_too(browser, site):
    browser.complaints.clear()
    browser.open(f"{site}/dashboards/")
    browser.wait_until(SETTLED)
    text = browser.evaluate("document.querySelector('main').innerText")
    assert "Odd" in text
    assert "broken.json is not a dashboard" in text
    assert browser.complaints == []


def imported(browser, site, module, expression):
    """The value of an expression in which `m` is a module of the page."""
    browser.open(f"{site}/dashboards/")
    browser.wait_until(SETTLED)
    path = f"/dashboards/page/{module}"
    return browser.evaluate(f"import({path!r}).then((m) => ({expression}))")


def test_numbers_are_written_in_their_unit(browser, site):
    cases = {
        "0, 'ms'": "0 ms",
        "7, 'ms'": "7 ms",
        "1500, 'ms'": "1.5 s",
        "90000, 'ms'": "1.5 min",
        "0.25, 's'": "250 ms",
        "-14, 'ms'": "−14 ms",
        "1536, 'bytes'": "1.5 KiB",
        "1500, 'decbytes'": "1.5 kB",
        "12345, 'short'": "12.3 K",
        "400, 'recps'": "400 rec/s",
        "0.999, 'percentunit'": "99.9%",
        "1, 'percentunit'": "100%",
        "0.9999999, 'percentunit'": "99.999%",
        "3, 'suffix:cores'": "3 cores",
        "2.5, ''": "2.5",
        "1 / 3, 'none', 3": "0.333",
        "null, 'ms'": "–",
        "1767225600000, 'dateTimeAsIso', null, {utc: true}": "2026-01-01 00:00:00",
    }
    calls = ", ".join(f"m.formatText({given})" for given in cases)
    assert imported(browser, site, "units.js", f"[{calls}]") == list(cases.values())


def test_times_are_read_as_grafana_writes_them(browser, site):
    now = 1_767_268_805_000  # 2026-01-01T12:00:05Z
    cases = {
        "now": now,
        "now-15m": now - 900_000,
        "now-1h/h": 1_767_265_200_000 if time.timezone % 3600 == 0 else None,
        "now-2w": now - 14 * 86_400_000,
        "1767225600000": 1_767_225_600_000,
        "2026-01-01T00:00:00Z": 1_767_225_600_000,
        "nonsense": None,
    }
    calls = ", ".join(f"m.resolveTime({text!r}, false, {now})" for text in cases)
    found = imported(browser, site, "time.js", f"[{calls}].map((x) => (isNaN(x) ? null : x))")
    assert found == list(cases.values())


def test_a_long_answer_becomes_one_series_per_label(browser, site):
    """A time without a value is a gap in the series."""
    answer = {
        "meta": [
            {"name": "time", "type": "DateTime"},
            {"name": "series", "type": "LowCardinality(String)"},
            {"name": "v", "type": "Nullable(Float64)"},
        ],
        "data": [
            ["2026-01-01T00:00:00Z", "a", 1],
            ["2026-01-01T00:00:01Z", "b", 2],
            ["2026-01-01T00:00:02Z", "a", None],
        ],
    }
    target = {"refId": "A", "queryType": "timeseries"}
    script = f"m.framesOf({json.dumps(target)}, {json.dumps(answer)})"
    (frame,) = imported(browser, site, "frames.js", script)
    times, first, second = frame["fields"]
    assert times["values"] == [1767225600000, 1767225601000, 1767225602000]
    assert (first["labels"], first["values"]) == ({"series": "a"}, [1, None, None])
    assert (second["labels"], second["values"]) == ({"series": "b"}, [None, 2, None])


def test_a_line_connects_what_grafana_connects(browser, site):
    """Nulls are bridged in gaps shorter than spanNulls; a gap longer than insertNulls is kept."""
    points = [[0, None], [1, 1], [2, None], [10, 2], [11, None], [12, None], [20, 3], [40, 4]]
    alone = [[0, None], [1, 1], [10, 2], [11, None], [12, None], [20, 3], [40, 4]]
    cases = {
        f"m.bridged({points}, 10)": alone,
        f"m.bridged({points}, false)": points,
        f"m.parted({alone}, 10, 1)": [*alone[:-1], [30, None], [40, 4]],
        f"m.parted({alone}, 10, 10)": alone,
    }
    calls = ", ".join(cases).replace("None", "null")
    assert imported(browser, site, "gaps.js", f"[{calls}]") == list(cases.values())


def test_a_colour_that_cannot_be_seen_is_made_darker_or_lighter(browser, site):
    """Yellow on white has a contrast of 1.3 and is changed; blue on white has 5.2 and is not."""
    browser.look(1400, 900)
    calls = "[m.readable('#f0e442', 2), m.readable('#0072b2', 2), m.readable('transparent')]"
    yellow, blue, other = imported(browser, site, "colours.js", calls)
    assert yellow < "#f0e442"
    assert (blue, other) == ("#0072b2", "transparent")
