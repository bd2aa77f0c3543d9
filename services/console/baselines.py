"""The baseline of `run --baseline`: an earlier report or run, for thresholds and for comparison."""

import json
import math
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.thresholds import resolved
from schemas.protocol import Workload
from schemas.threshold import parse_threshold
from services.console.report import build_whole_report
from services.runtime.definitions import DefinitionError

Report = dict[str, Any]
NEEDED = {"input", "pipelines", "valid", "run_id"}
WRONG = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)


class Baseline:
    """A JSON report file or the id of a run. url: of the store with that run."""

    def __init__(self, given: str, url: str) -> None:
        self.given = given
        self.is_file = bool(Path(given).suffix) or "/" in given or Path(given).exists()
        self._url = url

    def check(self) -> None:
        """Refuse a wrong file before anything starts. A run is only in the store that starts."""
        if self.is_file:
            _ = self.report

    @cached_property
    def report(self) -> Report:
        """The report, read once. Raises DefinitionError, and QueryError for an unknown run."""
        found = self._read() if self.is_file else build_whole_report(self._url, self.given)
        if not found["valid"]:
            raise DefinitionError(f"--baseline: the run in {self.given} is not valid.")
        return found

    def _read(self) -> Report:
        from analysis.baseline import compared  # slow: imports numpy

        try:
            found: Report = json.loads(
                Path(self.given).read_bytes(), parse_float=_finite, parse_constant=_finite
            )
            if missing := NEEDED - set(found):
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            same = found | {"identity": {"run": "the same"}}
            compared(same, same, self.given)  # raises for figures of another type
        except OSError as error:
            raise DefinitionError(
                f"--baseline: {self.given} cannot be read: {error.strerror}."
            ) from error
        except (RecursionError, *WRONG) as error:
            raise DefinitionError(
                f"--baseline: {self.given} is not a JSON report: {error}."
            ) from error
        return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def check_baseline(workload: Workload, baseline: Baseline | None) -> None:
    """Raise DefinitionError for a threshold on a baseline that the command does not name."""
    for one in map(parse_threshold, workload.thresholds):
        if one.of_baseline and baseline is None:
            raise DefinitionError(f"The threshold {one.text!r} needs --baseline.")


def with_baseline(
    workload: Workload, measured: Mapping[str, Collection[str]], baseline: Baseline | None
) -> Workload:
    """The workload with the baseline's figures substituted into its thresholds. measured: the
    stages of each pipeline. Raises DefinitionError and QueryError."""
    thresholds = [parse_threshold(line) for line in workload.thresholds]
    report = baseline.report if baseline else None
    if not any(one.of_baseline for one in thresholds):
        return workload
    given = baseline.given if baseline else ""
    try:
        found = resolved(thresholds, report, given, measured)
    except ValueError as error:
        raise DefinitionError(f"--threshold: {error}.") from error
    except WRONG as error:
        raise DefinitionError(f"--baseline: {given} is not a JSON report.") from error
    return workload.model_copy(update={"thresholds": tuple(one.text for one in found)})


def against_baseline(report: Report, baseline: Baseline) -> Report:
    """The report with the key `baseline`: the comparison (analysis/baseline.py)."""
    from analysis.baseline import compared  # slow: imports numpy

    return report | {"baseline": compared(report, baseline.report, baseline.given)}
