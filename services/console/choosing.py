"""What a run consists of: the workload with the command line's options, and the pipelines."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from schemas.protocol import Interleaving, Workload
from schemas.validation_errors import DefinitionError, first_mistake, first_sentence
from schemas.workload import KillTarget
from services.definitions.pipelines import DEFAULT_PIPELINE
from services.definitions.workloads import changed

INTERLEAVED_PAIRS = 20
FLOOR_S = 10
_OPTIONS = {
    "thresholds": "--threshold",
    "rate_per_second": "--rate",
    "measure_s": "--duration",
    "warm_up_s": "--warm-up",
}


@dataclass(frozen=True)
class Overrides:
    """What a command changes of a workload; None changes nothing. rate: records per second.
    duration: of the measured phase, seconds. warm_up: seconds, or `auto`. thresholds: further
    ones."""

    rate: float | None = None
    duration: int | None = None
    warm_up: int | str | None = None
    scale: float | None = None
    input: Path | None = None
    time_unit: str | None = None
    format: str | None = None
    transport: str | None = None
    kill: KillTarget | None = None
    thresholds: Sequence[str] = ()
    floor: bool = False


def with_overrides(workload: Workload, given: Overrides) -> Workload:
    """The workload as the command changes it. Raises DefinitionError."""
    if given.rate is not None and not 0 < given.rate < float("inf"):
        raise DefinitionError("--rate must be greater than 0 and finite.")
    if given.rate is not None and workload.load.parts:
        raise DefinitionError(
            f"--rate: the load of {workload.name} has several parts and no single rate; use "
            "--scale, or a workload of your own."
        )
    if given.input is not None and not given.input.is_file():
        raise DefinitionError(f"--input: {given.input} is not a file.")
    try:
        found = changed(workload, given.rate, given.duration, given.warm_up, given.scale)
        fields = found.model_dump()
        if given.floor and not found.floor_s:
            fields["floor_s"] = FLOOR_S
        if given.format is not None:
            fields["content"]["format"] = given.format
        if given.input is not None:
            fields["content"] |= {"source": "file", "path": str(given.input.resolve())}
        if given.time_unit is not None:
            fields["content"]["time_unit"] = given.time_unit
        if given.transport is not None:
            fields["transport"] = given.transport
        if given.kill is not None:
            at_s = found.kills[0].at_s if found.kills else found.phases.measure_s // 3
            fields["kills"] = [{"target": given.kill, "at_s": at_s}]
        fields["thresholds"] = [*found.thresholds, *given.thresholds]
        return Workload.model_validate(fields)
    except ValidationError as error:
        raise DefinitionError(f"workload {workload.name}: {_mistake(error)}.") from error


def _mistake(error: ValidationError) -> str:
    """The first error, with the option of its field if there is one."""
    first = error.errors()[0]
    for name in (one for one in first["loc"] if one in _OPTIONS):
        return f"{_OPTIONS[name]}: {first_sentence(error)}"
    return first_mistake(error)


def long_enough(workload: Workload, turns: Interleaving) -> Workload:
    """The workload, measured for at least INTERLEAVED_PAIRS pairs of blocks."""
    least_s = 2 * INTERLEAVED_PAIRS * turns.block_s
    phases = workload.phases
    longer = phases.model_copy(update={"measure_s": max(least_s, phases.measure_s)})
    return workload.model_copy(update={"phases": longer})


def chosen_pipelines(given: str | None, workload: Workload) -> Sequence[str]:
    """Names of the pipelines: those given, or else the workload's, or else the default."""
    if given is not None:
        return tuple(dict.fromkeys(given.split(",")))
    return workload.pipelines or (DEFAULT_PIPELINE,)
