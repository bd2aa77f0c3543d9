"""Parses Prometheus's text format. Pure.

Lines of unwanted metrics are dropped before parsing: a cAdvisor exports thousands, and parsing one
costs some 40 microseconds.
"""

import math
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from services.collector.metrics.samples import (
    COUNTER,
    GAUGE,
    UNTYPED,
    NoAnswerError,
    Sample,
)

MAX_LINE_CHARACTERS: Final = 8192
_NAME = re.compile(r"\s*([A-Za-z_:][A-Za-z0-9_:]*)")
# Samples of histograms and summaries are counters, except the quantiles of a summary.
_COUNTED: Final = ("_bucket", "_count", "_sum")


def read_exposition(text: str, wanted: Sequence[str], max_series: int) -> list[Sample]:
    """The samples of the metrics whose names match one of the patterns (`*` and `?`).

    Values that are not finite and quoted names are skipped. Counters are always named `…_total`,
    even if the target omits the suffix. Raises NoAnswerError for invalid text, for more than
    `max_series` samples and for a line of more than 8192 characters.
    """
    lines = list(_kept(text, re.compile("|".join(translate(each) for each in wanted))))
    if sum(not line.startswith("#") for line in lines) > max_series:
        raise NoAnswerError(f"it has more than {max_series} series; ask for fewer metrics")
    if any(len(line) > MAX_LINE_CHARACTERS for line in lines):
        raise NoAnswerError(f"a line has more than {MAX_LINE_CHARACTERS} characters")
    try:
        families = list(text_string_to_metric_families("\n".join(lines)))
    except Exception as error:  # the parser raises many kinds; all mean invalid text
        raise NoAnswerError("its answer is not in Prometheus's text format") from error
    return [sample for family in families for sample in _samples(family)]


def _kept(text: str, wanted: re.Pattern[str]) -> Iterator[str]:
    """Lines of wanted metrics, all TYPE lines, and malformed lines."""
    for line in text.split("\n"):
        stripped = line.strip()
        if not stripped or stripped.startswith(("# HELP", "{")):
            continue
        name = _NAME.match(stripped)
        if name is None or wanted.fullmatch(name[1]):
            yield stripped


def _samples(family: Metric) -> Iterator[Sample]:
    for name, labels, number, *_rest in family.samples:
        value = _finite(number)
        if value is not None:
            yield Sample(name, labels, _kind(family.type, name), value)


def _finite(number: float) -> float | None:
    try:
        value = float(number)
    except OverflowError:  # the parser makes integers of any length
        return None
    return value if math.isfinite(value) else None


def _kind(family: str, name: str) -> str:
    if family in ("histogram", "summary"):
        return COUNTER if name.endswith(_COUNTED) else GAUGE
    return {"counter": COUNTER, "gauge": GAUGE}.get(family, UNTYPED)
