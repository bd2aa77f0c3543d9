"""The baseline of `run --baseline`: an earlier report or run, for thresholds and for comparison."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.thresholds import resolved
from schemas.protocol import Workload
from schemas.threshold import parse_threshold
from services.console.report import build_report
from services.runtime.clickhouse import QueryError
from services.runtime.definitions import DefinitionError

Report = dict[str, Any]


def is_file(given: str) -> bool:
    """Whether a baseline is a file; otherwise it is a run id."""
    return bool(Path(given).suffix) or "/" in given or Path(given).exists()


def read_baseline(given: str, url: str) -> Report:
    """The report of a baseline. given: a JSON report file or a run id. Raises DefinitionError, and
    QueryError for an unknown run."""
    if not is_file(given):
        return _usable(given, build_report(url, given))
    try:
        found = json.loads(Path(given).read_bytes())
    except (OSError, ValueError) as error:
        raise DefinitionError(f"--baseline: {given} is no report in JSON: {error}.") from error
    if not isinstance(found, dict) or not {"input", "pipelines", "valid"} <= set(found):
        raise DefinitionError(f"--baseline: {given} is no report in JSON.")
    return _usable(given, found)


def _usable(given: str, report: Report) -> Report:
    if not report["valid"]:
        raise DefinitionError(f"--baseline: the run in {given} is not valid.")
    return report


def with_baseline(workload: Workload, pipelines: Sequence[str], given: str, url: str) -> Workload:
    """The workload with the baseline's figures substituted into its thresholds. given: as of
    `read_baseline`, or empty. Raises DefinitionError and QueryError."""
    thresholds = [parse_threshold(line) for line in workload.thresholds]
    report = read_baseline(given, url) if given else None
    if not any(one.of_baseline for one in thresholds):
        return workload
    try:
        found = resolved(thresholds, report, given, pipelines)
    except ValueError as error:
        raise DefinitionError(f"--threshold: {error}.") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DefinitionError(f"--baseline: {given} is no report in JSON.") from error
    return workload.model_copy(update={"thresholds": tuple(one.text for one in found)})


def against_baseline(report: Report, given: str, url: str) -> Report:
    """The report with the key `baseline`: the comparison (analysis/baseline.py). If the baseline is
    no longer readable, it has only `said`."""
    from analysis.baseline import compared  # slow: imports numpy

    try:
        return report | {"baseline": compared(report, read_baseline(given, url), given)}
    except (DefinitionError, QueryError) as error:
        return report | {"baseline": {"passed": None, "rows": [], "said": f"Not compared: {error}"}}
    except (KeyError, TypeError, AttributeError):
        said = f"Not compared: {given} lacks figures of a report."
        return report | {"baseline": {"passed": None, "rows": [], "said": said}}
