"""Resolves thresholds with `baseline` in a suite: against a named run, or the medians of the last
good runs."""

from analysis.thresholds import resolved
from schemas.protocol import RunRequest
from schemas.threshold import parse_threshold
from schemas.validation_errors import DefinitionError
from services.readmodel.history import last_good_runs, past_figures


def with_baseline(request: RunRequest, baseline: str, url: str) -> RunRequest:
    """The request with numbers in its thresholds in place of a baseline's figures. These thresholds
    are dropped if there is no baseline yet: this run may become it.

    baseline: a run id, or empty for the last good runs. Raises DefinitionError if they lack
    required figures, and QueryError.
    """
    thresholds = [parse_threshold(line) for line in request.workload.thresholds]
    if not any(one.of_baseline for one in thresholds):
        return request
    run_ids = [baseline] if baseline else last_good_runs(request, url)
    if run_ids:
        origin = run_ids[0] if len(run_ids) == 1 else f"the median of {len(run_ids)} runs"
        figures = past_figures(url, run_ids)
        measured = {one.name: request.stages_of(one) for one in request.pipelines}
        try:
            found = resolved(thresholds, figures, origin, measured)
        except ValueError as error:
            raise DefinitionError(f"baseline {origin}: {error}.") from error
    else:
        found = tuple(one for one in thresholds if not one.of_baseline)
    workload = request.workload.model_copy(update={"thresholds": tuple(one.text for one in found)})
    return request.model_copy(update={"workload": workload})
