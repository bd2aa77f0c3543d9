"""The commands to the services on `control.runs`: one model for each.

    events.send(Prepare(run_id="r1", plan=plan))

    match decode(message.value()):
        case Prepare(plan=plan): ...
        case Malformed(name="prepare", reason=reason): ...

On the wire a command is a `control_command` record whose body is the JSON of the model's content.
A run is: RequestRun (console to conductor) → Prepare (conductor to all) → every service answers
`ready` → Start (with absolute times, so that all agree on the phases) → Measure with earlier times,
if the warm-up ends once all is steady → the generator answers `load_finished` → Drain → the
evaluator answers `drained` → Stop → pipelines answer `stopped` → the conductor publishes
`concluded`. Answers are the events of `results.lifecycle` (schemas/events.py).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from pydantic import Field, ValidationError

from schemas import catalogue, codec
from schemas.model import Message
from schemas.protocol import PhasePlan, RunPlan, RunRequest
from schemas.suite import Suite
from schemas.validation_errors import first_mistake


class Command(Message):
    """Base of all commands. run_id: the run that it is about. command_id, issued_at (epoch
    milliseconds) and producer are set when it is sent."""

    HEAD: ClassVar = ("run_id", "command_id", "issued_at", "producer")
    TOPIC: ClassVar = catalogue.CONTROL
    name: ClassVar[str]
    content_is_optional: ClassVar = False  # it is obeyed even if its content is malformed

    run_id: str = ""
    command_id: str = ""
    issued_at: int = 0
    producer: str = ""

    def record(self, producer: str, issued_at: int) -> dict[str, Any]:
        """The fields of its `control_command` record, with a new id."""
        return {
            "command_id": str(uuid.uuid4()),
            "run_id": self.run_id,
            "issued_at": issued_at,
            "producer": producer,
            "command": self.name,
            "body": self.content(),
        }


class RequestRun(Command):
    """To the conductor: carry out a run."""

    name = "run"
    WHOLE = "request"
    request: RunRequest


class CancelRun(Command):
    """To the conductor: end a run early."""

    name = "cancel"
    content_is_optional = True
    reason: str = ""


class Prepare(Command):
    """To all: prepare a run and answer `ready`."""

    name = "prepare"
    WHOLE = "plan"
    plan: RunPlan


class Start(Command):
    """To all: the load starts at these times."""

    name = "start"
    WHOLE = "phases"
    phases: PhasePlan


class Measure(Command):
    """To all, before the warm-up ends: it is shortened to these times."""

    name = "measure"
    WHOLE = "phases"
    phases: PhasePlan


class Drain(Command):
    """To the evaluators: the load has ended at these offsets, by input topic and partition. They
    answer `drained`."""

    name = "drain"
    end_offsets: dict[str, tuple[int, ...]]


class Stop(Command):
    """To all: the run has ended. keep_pipelines: the next run has the same pipelines and stages;
    its `prepare` finds them warm within keep_s."""

    name = "stop"
    content_is_optional = True
    reason: str = ""
    keep_s: float = Field(60, gt=0, le=7200)
    keep_pipelines: bool = False


class RunSuite(Command):
    """To the conductor: carry out the runs of a suite without end, one after the other."""

    name = "suite"
    WHOLE = "suite"
    suite: Suite


class FindChanges(Command):
    """From a watcher to the conductor: search for change points, now that this run of a watch is
    concluded."""

    name = "changes"


AnyCommand = (
    RequestRun | CancelRun | Prepare | Start | Measure | Drain | Stop | RunSuite | FindChanges
)
COMMANDS: dict[str, type[Command]] = {kind.name: kind for kind in get_args(AnyCommand)}


@dataclass(frozen=True)
class Malformed:
    """A command whose content does not fit its model. reason: why, without a full stop."""

    name: str
    run_id: str
    command_id: str
    reason: str


def decode(value: bytes | None) -> Command | Malformed:
    """The command in a record of `control.runs`. Raises codec.DecodeError if it is none."""
    return from_record(codec.decode_as("control_command", value))


def from_record(record: Mapping[str, Any]) -> Command | Malformed:
    """The same, from the fields of the record."""
    kind = COMMANDS.get(record["command"])
    if kind is None:
        raise codec.DecodeError(f"{record['command'][:50]!r} is not a known command")
    head = {name: record[name] for name in Command.HEAD}
    try:
        return kind.parse(head, record["body"])
    except ValidationError as error:
        if kind.content_is_optional:
            return kind(**head)
        name, reason = record["command"], first_mistake(error)
        return Malformed(name, record["run_id"], record["command_id"], reason)
