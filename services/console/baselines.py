"""The baseline of `run --baseline`: an earlier report or run, for thresholds and for comparison."""

import json
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from analysis.comparability import apart, identity_of
from analysis.thresholds import resolved
from schemas.protocol import RunRequest, Workload
from schemas.report import Report
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError, first_mistake
from services.console.report.build import build_whole_report


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
        result = self._read() if self.is_file else build_whole_report(self._url, self.given)
        if not result.valid:
            raise DefinitionError(f"--baseline: the run in {self.given} is not valid.")
        return result

    def _read(self) -> Report:
        try:
            return Report.model_validate_json(Path(self.given).read_bytes())
        except OSError as error:
            raise DefinitionError(
                f"--baseline: {self.given} cannot be read: {error.strerror}."
            ) from error
        except ValidationError as error:
            raise DefinitionError(
                f"--baseline: {self.given} is not a JSON report: {first_mistake(error)}."
            ) from error


def check_baseline(workload: Workload, baseline: Baseline | None) -> None:
    """Raise DefinitionError for a threshold on a baseline that the command does not name."""
    for each in map(parse_threshold, workload.thresholds):
        if each.of_baseline and baseline is None:
            raise DefinitionError(f"The threshold {each.text!r} needs --baseline.")


def differences(request: RunRequest, baseline: Report) -> list[str]:
    """Why the run of a request will not be comparable with a baseline. The rate of a share of the
    sustainable one is not known yet."""
    identity = identity_of(json.loads(request.model_dump_json()))
    other = baseline.identity
    if request.workload.sustainable_share is not None:
        identity["rate"] = other.get("rate", "")
    return apart(identity, other)


def with_baseline(
    workload: Workload,
    measured: Mapping[str, Collection[str]],
    baseline: Baseline | None,
    request: RunRequest | None = None,
) -> Workload:
    """The workload with the baseline's figures substituted into its thresholds. measured: the
    stages of each pipeline. request: of a run; thresholds on a baseline that is not comparable with
    it get no number, so they fail. Raises DefinitionError and QueryError."""
    thresholds = [parse_threshold(line) for line in workload.thresholds]
    report = baseline.report if baseline else None
    if not any(threshold.of_baseline for threshold in thresholds):
        return workload
    given = baseline.given if baseline else ""
    try:
        reasons = differences(request, report) if request and report else ()
        figures = report.figures if report else None
        result = resolved(thresholds, figures, given, measured, reasons)
    except ValueError as error:
        raise DefinitionError(f"--threshold: {error}.") from error
    return workload.model_copy(update={"thresholds": tuple(each.text for each in result)})


def against_baseline(report: Report, baseline: Baseline, required: bool = False) -> Report:
    """The report with its comparison with the baseline. required: the command demands that it
    decides."""
    from analysis.baseline import compared  # slow: imports numpy

    comparison = compared(report, baseline.report, baseline.given)
    comparison = comparison.model_copy(update={"required": required})
    return report.model_copy(update={"baseline": comparison})
