"""Event times in every format."""

import pytest

from services.watcher.decoding import UndecodableError
from services.watcher.extracting import microseconds

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "written", "expected"),
    [
        (1_700_000_000_123, "ms", 1_700_000_000_123_000),
        ("1700000000123", "ms", 1_700_000_000_123_000),
        (b"1700000000123", "ms", 1_700_000_000_123_000),
        (1_700_000_000, "s", 1_700_000_000_000_000),
        (1_700_000_000.25, "s", 1_700_000_000_250_000),
        (1_700_000_000_123_456, "us", 1_700_000_000_123_456),
        (-1.5, "us", -2),
        ("2023-11-14T22:13:20Z", "iso", 1_700_000_000_000_000),
        ("2023-11-14T23:13:20.123+01:00", "iso", 1_700_000_000_123_000),
        ("2023-11-14 22:13:20.000001", "iso", 1_700_000_000_000_001),
    ],
)
def test_a_time_is_microseconds_since_1970(value, written, expected):
    assert microseconds(value, written) == expected


@pytest.mark.parametrize(
    ("value", "written", "why"),
    [
        (None, "ms", "not a number"),
        (True, "ms", "not a number"),
        ("soon", "s", "not a number"),
        (float("nan"), "s", "not a number"),
        (float("inf"), "s", "too far"),
        ("1e99999", "ms", "too far"),
        (1 << 70, "us", "too far"),
        (1_700_000_000_123, "iso", "ISO"),
        ("tomorrow", "iso", "ISO"),
    ],
)
def test_what_is_no_time_is_refused(value, written, why):
    with pytest.raises(UndecodableError, match=why):
        microseconds(value, written)
