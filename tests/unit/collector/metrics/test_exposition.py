"""Prometheus's text format is parsed to samples, or rejected with a reason."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.collector.sources import NoAnswerError, Sample, read_exposition

pytestmark = pytest.mark.unit

PAGE = """
# HELP http_requests_total The number of requests.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400"}    3 1395066363000
# TYPE temperature gauge
temperature{room="a \\"b\\", c"} -7.5
no_type 1e3
# TYPE latency summary
latency{quantile="0.5"} 0.25
latency_sum 10
latency_count 4
# TYPE size histogram
size_bucket{le="+Inf"} 6
size_sum 12
size_count 6
"""


def read(text, *wanted, most=100):
    return read_exposition(text, wanted or ("*",), most)


def test_a_page_becomes_its_samples():
    assert read(PAGE) == [
        Sample("http_requests_total", {"method": "post", "code": "200"}, "counter", 1027.0),
        Sample("http_requests_total", {"method": "post", "code": "400"}, "counter", 3.0),
        Sample("temperature", {"room": 'a "b", c'}, "gauge", -7.5),
        Sample("no_type", {}, "untyped", 1000.0),
        Sample("latency", {"quantile": "0.5"}, "gauge", 0.25),
        Sample("latency_sum", {}, "counter", 10.0),
        Sample("latency_count", {}, "counter", 4.0),
        Sample("size_bucket", {"le": "+Inf"}, "counter", 6.0),
        Sample("size_sum", {}, "counter", 12.0),
        Sample("size_count", {}, "counter", 6.0),
    ]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["temperature"], ["temperature"]),
        (["size_*"], ["size_bucket", "size_sum", "size_count"]),
        (["latency_s?m", "no_type"], ["no_type", "latency_sum"]),
        (["temp"], []),
        (["TEMPERATURE"], []),
    ],
)
def test_only_metrics_that_are_wanted_are_read_and_keep_their_kind(wanted, names):
    found = read(PAGE, *wanted)
    assert [sample.name for sample in found] == names
    assert all(sample in read(PAGE) for sample in found)


def test_what_is_not_wanted_need_not_be_readable_nor_short():
    broken = f'other{{a="{"x" * 10_000}"}} 1\nother{{ nonsense\n'
    assert read(broken + "kept 1", "kept") == [Sample("kept", {}, "untyped", 1.0)]


@pytest.mark.parametrize("number", ["NaN", "+Inf", "-Inf", "1" * 400, "1e999"])
def test_a_value_that_is_no_finite_number_is_no_sample(number):
    assert read(f"a {number}\nb 2") == [Sample("b", {}, "untyped", 2.0)]


def test_a_counter_is_called_total():
    assert read("# TYPE a counter\na 1") == [Sample("a_total", {}, "counter", 1.0)]


def test_a_name_in_quotes_is_left_out():
    assert read('{"my.name", a="b"} 1\nb 2') == [Sample("b", {}, "untyped", 2.0)]


def test_a_page_without_metrics_is_empty():
    assert read("") == read("\n# a comment\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "<html><body>Not found</body></html>",
        "a",
        "a one",
        "a{b=c} 1",
        'a{b="c} 1',
        'a{b="c"',
        'a{b="c",b="d"} 1',
        "# TYPE a",
        "# TYPE a no_such_kind\na 1",
        '{"error": "no"}\n]',
    ],
)
def test_what_is_not_in_the_format_is_refused_as_a_whole(text):
    with pytest.raises(NoAnswerError, match=r"^its answer is not in Prometheus's text format$"):
        read("fine 1\n" + text)


def test_as_many_series_as_allowed_are_read_and_one_more_is_refused():
    lines = [f'a{{n="{number}"}} 1' for number in range(10)]
    assert len(read("\n".join(lines), most=10)) == 10
    with pytest.raises(NoAnswerError, match=r"^it has more than 9 series; ask for fewer metrics$"):
        read("\n".join(lines), most=9)


def test_a_line_that_is_too_long_is_refused():
    with pytest.raises(NoAnswerError, match=r"^a line has more than 8192 characters$"):
        read(f'a{{b="{"x" * 8192}"}} 1')


@given(st.one_of(st.text(), st.text(alphabet='a_:{}="\\#, \n\t1.eN+-TYPE')))
def test_any_text_is_samples_or_a_reason(text):
    with suppress(NoAnswerError):  # any other error fails the test
        for sample in read(text):
            assert math.isfinite(sample.value)
            assert sample.kind in ("counter", "gauge", "untyped")


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.text(max_size=9), max_size=3),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_labels_and_values_come_back_as_they_were(labels, value):
    escaped = {
        name: text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        for name, text in labels.items()
    }
    inside = ",".join(f'{name}="{text}"' for name, text in escaped.items())
    assert read(f"m{{{inside}}} {value!r}") == [Sample("m", labels, "untyped", value)]
