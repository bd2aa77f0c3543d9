"""Concludes a run that was interrupted by a kill of the conductor."""

from typing import Any

import structlog

from schemas.commands import Stop
from schemas.events import RateJudged
from services.conductor.recovered_run import RecoveredRun
from services.conductor.run_verdict import RunVerdict
from services.conductor.search.search_events import result_detail
from services.runtime.events import Events

log = structlog.get_logger()
KILLED = "The conductor exited during the run."


def conclude_orphan(past: RecoveredRun, events: Events) -> None:
    """Conclude a run, its floor and its search steps as not valid unless they are concluded, and
    stop what was started for them. Published results and search results are kept."""
    conclude_steps(past, events)
    if past.conclusion is not None:
        if not past.is_announced:
            past.conclusion.announce(events, past.run_id)
        return
    unmeasured: dict[str, Any] = {"clean": False, "verdicts": {}}
    if past.request is not None and past.request.workload.search is not None:
        unmeasured["search"] = result_detail(past.request, past.so_far)
        if not past.has_result:
            result = unmeasured["search"]
            events.publish(RateJudged(run_id=past.run_id, invalid_reasons=(KILLED,), **result))
    _end(past.run_id, unmeasured, events)


def conclude_steps(past: RecoveredRun, events: Events) -> None:
    """The same, only for its floor and its search steps."""
    for step in past.open_steps:
        _end(step, {"clean": False, "verdicts": {}}, events)


def _end(run_id: str, detail: dict[str, Any], events: Events) -> None:
    events.send(Stop(run_id=run_id, reason=KILLED))
    RunVerdict(False, (KILLED,), detail).tell(events, run_id)
    log.warning("accounted_for", run_id=run_id)
