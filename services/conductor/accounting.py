"""Accounts for a run during which the conductor was killed: nobody else will conclude it."""

from typing import Any

import structlog

from schemas.protocol import Stop
from services.conductor.conclusion import Conclusion
from services.conductor.past import Past
from services.conductor.search.telling import told_result
from services.runtime.events import Events

log = structlog.get_logger()
KILLED = "The conductor was ended while the run was going on."


def account_for(past: Past, events: Events) -> None:
    """Conclude a run and the steps of its search as not valid, and stop what was started for them,
    unless they are concluded. What was measured stays, and what a search had found."""
    account_for_steps(past, events)
    if past.conclusion is not None:
        if not past.is_announced:
            past.conclusion.announce(events, past.run_id)
        return
    unmeasured: dict[str, Any] = {"clean": False, "verdicts": {}}
    if past.request is not None and past.request.workload.search is not None:
        unmeasured["search"] = told_result(past.request, past.so_far)
        if not past.has_result:
            kind, result = "sustainable_throughput", unmeasured["search"]
            events.conclusion(kind, past.run_id, (KILLED,), result)
    _end(past.run_id, unmeasured, events)


def account_for_steps(past: Past, events: Events) -> None:
    """The same for the steps of its search only."""
    for step in past.open_steps:
        _end(step, {"clean": False, "verdicts": {}}, events)


def _end(run_id: str, detail: dict[str, Any], events: Events) -> None:
    events.command("stop", run_id, Stop(reason=KILLED))
    Conclusion(False, (KILLED,), detail).tell(events, run_id)
    log.warning("accounted_for", run_id=run_id)
