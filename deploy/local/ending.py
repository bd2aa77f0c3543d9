"""Stops a recorded stack completely, dependents first."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from deploy.local.parts import Part
from deploy.local.processes import end, is_alive, marked, marks_of, wait_until
from deploy.local.state import STARTING, STOPPING, ServiceState, StackState, StateFile

UNKNOWN_PART_TIMEOUT_S = 10.0
OWNER_GRACE_S = 10.0


def end_stack(file: StateFile, found: StackState, parts: Sequence[Part]) -> None:
    """Stop all processes of a recorded stack, then remove the record. Raises NotEndedError if some
    remain.

    It is first recorded as stopping, so that its owner does not treat the exits as crashes. If
    nothing can be written, the record is removed first, which the owner understands too. The
    processes are ended even if the folder is gone or read-only.
    """
    try:
        file.write(replace(found, phase=STOPPING))
    except OSError:
        with suppress(OSError):
            file.remove()
    end_processes(found, parts)
    with suppress(FileNotFoundError):
        file.remove()
    _end_owner(found)


def end_processes(found: StackState, parts: Sequence[Part]) -> None:
    """Stop all processes of a stack. Raises NotEndedError if some remain."""
    known = {part.name: part for part in parts}
    for batch in stop_order(found.services, known):
        timeouts = [known[s.name].stop_timeout_s for s in batch if s.name in known]
        timeout_s = max(timeouts, default=UNKNOWN_PART_TIMEOUT_S)
        end([service.identity for service in batch], found.stack_id, timeout_s)
    end(marked(found.stack_id), found.stack_id, 0)


def end_unrecorded(data: Path) -> bool:
    """Stop processes of stacks of a folder without a record of them: the folder was removed, or
    another version wrote the record. Returns whether there were any. Raises NotEndedError."""
    found = marks_of(data)
    for mark in found:
        end(marked(mark), mark, UNKNOWN_PART_TIMEOUT_S)
    return bool(found)


def interrupt_start(found: StackState | None) -> None:
    """Interrupt a detached process that is still starting its stack.

    It holds the lock, so `down` would otherwise wait for the end of the start.
    """
    if found and found.detached and found.phase == STARTING and found.owner.pid != os.getpid():
        end([found.owner], "", OWNER_GRACE_S)


def stop_order(
    services: Iterable[ServiceState], parts: Mapping[str, Part]
) -> Iterator[list[ServiceState]]:
    """Batches of services, each after everything that depends on it."""
    left = list(services)
    while left:
        needed = {name for s in left if s.name in parts for name in parts[s.name].after}
        batch = [service for service in left if service.name not in needed] or left
        yield batch
        left = [service for service in left if service not in batch]


def _end_owner(found: StackState) -> None:
    """Wait for a detached owner to notice that its stack is gone and exit, else end it."""
    if not found.detached or found.owner.pid == os.getpid():
        return
    wait_until(lambda: not is_alive(found.owner), OWNER_GRACE_S)
    if is_alive(found.owner):
        end([found.owner], "", 1)
