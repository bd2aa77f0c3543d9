"""Find the processes of the services and read what they use (psutil).

A scan asks the whole process table who is whose child, so it is done every few seconds; a sample
reads the known processes only. A process once found stays its service's until it ends, also when
its parent dies first.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from services.collector.accounting import Identity, Owner, ProcessSample, Usage
from services.collector.stack import StackService

PIPELINE_SERVICE = "spark_pipeline"
PIPELINE_OPTION = "--pipeline"
CREATE_TIME_TOLERANCE_S = 1.0
MACHINE = Owner("machine")
LOADAVG = Path("/proc/loadavg")


@dataclass(frozen=True)
class _Member:
    process: psutil.Process
    parent: Identity | None
    owner: Owner


def pipeline_named(command_line: Sequence[str]) -> str:
    """The NAME of `--pipeline NAME` or `--pipeline=NAME` in a command line, or empty."""
    for position, argument in enumerate(command_line):
        if argument == PIPELINE_OPTION and position + 1 < len(command_line):
            return command_line[position + 1]
        if argument.startswith(PIPELINE_OPTION + "="):
            return argument.removeprefix(PIPELINE_OPTION + "=")
    return ""


def descendants(roots: Iterable[int], parents: dict[int, int]) -> list[tuple[int, int]]:
    """Pairs of root and process, parents before children; a root's own tree leaves out others'.

    parents: parent id by process id. Roots need not be in it.
    """
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: list[tuple[int, int]] = []
    seen = set(roots)
    for root in sorted(seen):
        waiting = [root]
        while waiting:
            pid = waiting.pop()
            found.append((root, pid))
            below = [child for child in children.get(pid, ()) if child not in seen]
            seen.update(below)
            waiting += below
    return found


class Processes:
    """The processes of a stack."""

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}

    def scan(self, services: Iterable[StackService]) -> None:
        """Find the processes of the services as they are now."""
        for pid, member in list(self._members.items()):
            if not member.process.is_running():
                del self._members[pid]
        table = _process_table()
        roots = {s.pid: s for s in services if _is_the_one(s, table.get(s.pid))}
        parents = {pid: _parent_id(process) for pid, process in table.items()}
        for root, pid in descendants(roots, parents):
            self._take_in(table.get(pid), parents.get(pid, 0), roots[root].name, pid == root)

    def sample(self) -> list[ProcessSample]:
        """What every known process that still runs has used."""
        samples = []
        for pid, member in list(self._members.items()):
            try:
                samples.append(_read(member))
            except psutil.NoSuchProcess:
                del self._members[pid]
            except psutil.AccessDenied:
                continue
        return samples

    def _take_in(
        self, process: psutil.Process | None, parent: int, service: str, is_root: bool
    ) -> None:
        if process is None:
            return
        above = None if is_root else self._members.get(parent)
        known = self._members.get(process.pid)
        pipeline = known.owner.pipeline if known else above.owner.pipeline if above else ""
        try:
            # Looked at again while empty: a process just forked still shows its parent's command.
            if service == PIPELINE_SERVICE and not is_root and not pipeline:
                pipeline = pipeline_named(process.cmdline())
            identity = _identity(above.process) if above else None
            process.create_time()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return
        kept = known.process if known else process
        self._members[process.pid] = _Member(kept, identity, Owner(service, pipeline))


def _process_table() -> dict[int, psutil.Process]:
    return {process.pid: process for process in psutil.process_iter()}


def _parent_id(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


def _is_the_one(service: StackService, process: psutil.Process | None) -> bool:
    """Whether a process is the one that the deployment started, not a later one with its id."""
    if process is None or service.create_time is None:
        return process is not None
    try:
        created_s = float(process.create_time())
    except psutil.Error:
        return False
    return abs(created_s - service.create_time) <= CREATE_TIME_TOLERANCE_S


def _identity(process: psutil.Process) -> Identity:
    return process.pid, float(process.create_time())


def _read(member: _Member) -> ProcessSample:
    process = member.process
    with process.oneshot():
        cpu = process.cpu_times()
        return ProcessSample(
            identity=_identity(process),
            parent=member.parent,
            owner=member.owner,
            cpu_s=cpu.user + cpu.system,
            ended_children_cpu_s=cpu.children_user + cpu.children_system,
            memory_bytes=process.memory_info().rss,
            threads=process.num_threads(),
        )


def read_machine() -> ProcessSample:
    """The whole machine as if it were one process born at its boot.

    Its processor time is what all processors spent on anything: not idle, not waiting for disks,
    not taken away by a hypervisor. Its memory is what is not available to new processes.
    """
    cpu = psutil.cpu_times()
    memory = psutil.virtual_memory()
    busy_s = cpu.user + cpu.system + sum(getattr(cpu, n, 0.0) for n in ("nice", "irq", "softirq"))
    return ProcessSample(
        identity=(-1, 0.0),
        parent=None,
        owner=MACHINE,
        cpu_s=busy_s,
        ended_children_cpu_s=0.0,
        memory_bytes=memory.total - memory.available,
        threads=_machine_threads(),
    )


def machine_usage(usage: Usage) -> Usage:
    """The machine's usage with the number of its processes."""
    return Usage(usage.cpu_s, usage.memory_bytes, len(psutil.pids()), usage.threads)


def _machine_threads() -> int:
    """Threads of the machine where the system says (Linux: `running/all` in loadavg), else 0."""
    try:
        return int(LOADAVG.read_text().split()[3].split("/")[1])
    except (OSError, IndexError, ValueError):
        return 0
