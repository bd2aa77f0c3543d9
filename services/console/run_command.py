"""The verb `run`: one run from the request to the report."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException
from rich.console import Console

from schemas import catalogue
from schemas.commands import CancelRun, RequestRun
from schemas.events import BusEvent, Conclusion, ServiceStarted
from schemas.protocol import RunRequest
from services.console.progress import BUS, ProgressView, RunProgress, open_view
from services.console.terminal import is_quiet
from services.readmodel.runs import projected
from services.runtime.clickhouse import QueryError, store_url
from services.runtime.events import Bus, Events, open_events
from services.runtime.kafka import CONSOLE, said_by_kafka
from services.runtime.settings import ServiceSettings

SILENCE_LIMIT_S = 30.0
# Of all services, once the run has begun: a pipeline may be prepared for minutes, and a load may be
# nearly nothing.
SILENCE_OF_ALL_S = 3600.0
PROJECTION_TIMEOUT_S = 30.0
CONCLUSION_TIMEOUT_S = 60.0


class RunError(RuntimeError):
    """A run could not be carried out; the text is one sentence."""


class BusyError(RunError):
    """Another run is in progress."""


@dataclass(frozen=True)
class FollowedRun:
    """A requested run. bus: contains all events published since."""

    events: Events
    bus: Bus


def ask(request: RunRequest, settings: ServiceSettings) -> FollowedRun:
    """Request a run from a conductor that is ready."""
    events = open_events(settings, CONSOLE)
    asked = FollowedRun(events, Bus(settings, CONSOLE, BUS))
    events.send(RequestRun(run_id=request.run_id, request=request))
    return asked


def perform(
    request: RunRequest,
    settings: ServiceSettings,
    console: Console,
    check_stack: Callable[[], None],
    asked: FollowedRun | None = None,
) -> RunProgress:
    """Request the run unless that was done, show its progress, and return when it is concluded and
    projected.

    `check_stack` is called repeatedly and raises if a part of the stack has died. If the caller is
    interrupted, the run is cancelled and its conclusion awaited, so its results are kept. A second
    interruption ends that too. Raises RunError.
    """
    asked = asked or ask(request, settings)
    events, bus = asked.events, asked.bus
    progress = RunProgress(request)
    try:
        with open_view(console) as view:
            try:
                _follow(progress, bus, view, check_stack)
            except KeyboardInterrupt:
                if not is_quiet(console):
                    console.print(
                        "Interrupted; the results so far are kept. Ctrl-C again discards them."
                    )
                progress.interrupted = True
                events.send(CancelRun(run_id=request.run_id, reason="interrupted"))
                _follow(progress, bus, view, check_stack, CONCLUSION_TIMEOUT_S)
        _await_projection(settings, bus, check_stack)
    except BaseException:
        if not progress.done and not progress.interrupted:
            events.send(CancelRun(run_id=request.run_id, reason="cancelled"))
        raise
    finally:
        bus.close()
    return progress


def publish(
    conclusions: Sequence[Conclusion], settings: ServiceSettings, check_stack: Callable[[], None]
) -> None:
    """Publish conclusions about several runs, and wait until they are projected: the caller may
    stop the stack. Raises RunError."""
    if not conclusions:
        return
    try:
        with closing(Bus(settings, CONSOLE, BUS)) as bus:
            events = open_events(settings, CONSOLE)
            for conclusion in conclusions:
                events.publish(conclusion)
            if events.flush() or events.failed:
                raise RunError("The broker did not accept the results of several runs.")
            _await_projection(settings, bus, check_stack)
    except KafkaException as error:
        why = said_by_kafka(error)
        raise RunError(f"The results of several runs were not published: {why}.") from error


def _follow(
    progress: RunProgress,
    bus: Bus,
    view: ProgressView,
    check_stack: Callable[[], None],
    timeout_s: float = float("inf"),
) -> None:
    """A restarted conductor may have lost the command, so events from other services do not show
    that it will execute the run."""
    lost = taken = False
    began_s = heard_s = time.monotonic()
    while not progress.done:
        check_stack()
        result = bus.poll(0.25)
        for event in result:
            progress.add(event)
            taken = taken or event.run_id == progress.request.run_id
            lost = not taken and (lost or _is_new_conductor(event))
        view.show(progress)
        if result and not lost:
            heard_s = time.monotonic()
        silent_s = time.monotonic() - heard_s
        if not progress.phase and silent_s > SILENCE_LIMIT_S:
            why = "restarted and did not accept the run" if lost else "does not answer"
            raise RunError(f"The conductor {why}; see its log (conductor.log).")
        if silent_s > SILENCE_OF_ALL_S:
            raise RunError(f"No service has been heard of for {silent_s:.0f} s.")
        if time.monotonic() - began_s > timeout_s:
            raise RunError(f"The run was not concluded within {timeout_s:.0f} s.")
    if progress.refused:
        refused = BusyError if progress.going_on else RunError
        raise refused(f"The run was refused: {progress.refused}.")


def _is_new_conductor(event: BusEvent) -> bool:
    return isinstance(event, ServiceStarted) and event.producer == "conductor"


def _await_projection(settings: ServiceSettings, bus: Bus, check_stack: Callable[[], None]) -> None:
    """Wait until the store has projected everything that is on the bus now, so that the report is
    complete.

    A killed store is restarted meanwhile, so requests are repeated.
    """
    ends = bus.ends(catalogue.RESULTS)
    deadline_s = time.monotonic() + PROJECTION_TIMEOUT_S
    trouble = ""
    while True:
        check_stack()
        try:
            done = projected(store_url(settings))
            if all(done.get(place, 0) >= end for place, end in ends.items()):
                return
            trouble = "The store did not project all results within 30 s."
        except QueryError as error:
            trouble = f"The store does not answer: {error}"
        if time.monotonic() > deadline_s:
            raise RunError(trouble)
        bus.poll(0.2)
