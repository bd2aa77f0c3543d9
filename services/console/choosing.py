"""What a run consists of: the workload with the command line's options, and the pipelines."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from schemas.protocol import Interleaving, Workload
from schemas.validation_errors import first_mistake, sentence
from schemas.workload import KillTarget
from services.runtime.definitions import (
    DEFAULT_PIPELINE,
    DefinitionError,
    changed,
    load_workload,
)
from services.runtime.domains import Domain, load_domain, load_workload_of

INTERLEAVED_PAIRS = 20
FLOOR_S = 10
_OPTIONS = {
    "thresholds": "--threshold",
    "rate_per_second": "--rate",
    "measure_s": "--duration",
    "warm_up_s": "--warm-up",
}


def chosen_workload(name: str, domain: str | None) -> tuple[Domain, Workload]:
    """The workload by name or path, and its domain. domain: name or path of another domain to use.
    Raises DefinitionError."""
    if domain is None:
        workload = load_workload(name)
        return load_domain(workload.domain), workload
    found = load_domain(domain)
    return found, load_workload_of(found, name)


def with_options(
    workload: Workload,
    rate: float | None,
    duration_s: int | None,
    warm_up_s: int | str | None,
    *,
    scale: float | None = None,
    input_path: Path | None = None,
    wire_format: str | None = None,
    transport: str | None = None,
    kill: KillTarget | None = None,
    thresholds: Sequence[str] = (),
    floor: bool = False,
) -> Workload:
    """The workload with the command line's options applied. Raises DefinitionError."""
    if rate is not None and not 0 < rate < float("inf"):
        raise DefinitionError("--rate must be greater than 0 and finite.")
    if rate is not None and workload.load.parts:
        raise DefinitionError(
            f"--rate: the load of {workload.name} has several parts and no single rate; use "
            "--scale, or a workload of your own."
        )
    try:
        found = changed(workload, rate, duration_s, warm_up_s, scale)
        if floor and not found.floor_s:
            found = found.model_copy(update={"floor_s": FLOOR_S})
        if thresholds:
            lines = [*found.thresholds, *thresholds]
            found = Workload.model_validate(found.model_dump() | {"thresholds": lines})
        if wire_format is not None:
            content = found.model_dump()["content"] | {"format": wire_format}
            found = Workload.model_validate(found.model_dump() | {"content": content})
        if transport is not None:
            found = Workload.model_validate(found.model_dump() | {"transport": transport})
        if input_path is not None:
            found = _with_input(found, input_path)
        return found if kill is None else _with_kill(found, kill)
    except ValidationError as error:
        raise DefinitionError(f"workload {workload.name}: {_mistake(error)}.") from error


def _mistake(error: ValidationError) -> str:
    """The first error, with the option of its field if there is one."""
    first = error.errors()[0]
    for name in (one for one in first["loc"] if one in _OPTIONS):
        return f"{_OPTIONS[name]}: {sentence(first)}"
    return first_mistake(error)


def _with_input(workload: Workload, path: Path) -> Workload:
    if not path.is_file():
        raise DefinitionError(f"--input: {path} is not a file.")
    fields = workload.model_dump()
    fields["content"] |= {"source": "file", "path": str(path.resolve())}
    return Workload.model_validate(fields)


def _with_kill(workload: Workload, target: KillTarget) -> Workload:
    """Kill the given target at the workload's first kill time, or after a third of the
    measure phase."""
    at_s = workload.kills[0].at_s if workload.kills else workload.phases.measure_s // 3
    fields = workload.model_dump() | {"kills": [{"target": target, "at_s": at_s}]}
    return Workload.model_validate(fields)


def long_enough(workload: Workload, turns: Interleaving) -> Workload:
    """The workload, measured for at least INTERLEAVED_PAIRS pairs of blocks."""
    least_s = 2 * INTERLEAVED_PAIRS * turns.block_s
    phases = workload.phases
    longer = phases.model_copy(update={"measure_s": max(least_s, phases.measure_s)})
    return workload.model_copy(update={"phases": longer})


def chosen_pipelines(given: str | None, workload: Workload) -> Sequence[str]:
    """Names of the pipelines: those given, or else the workload's, or else the default."""
    if given:
        return tuple(dict.fromkeys(given.split(",")))
    return workload.pipelines or (DEFAULT_PIPELINE,)
