"""Finds the processes of the services and reads their resource use, and the machine's (psutil).

A scan reads the parents of all processes, so it runs every few seconds; a sample reads known
processes only. A process stays assigned to its service until it ends, even if its parent dies
first.

What the deployment has started is in `stack.json`.

The machine is sampled as if it were one process; its steal time was lost to other users of it.
Where a container, a quota or an affinity leaves only a part of the machine, that part counts as the
machine.
"""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PurePath
from typing import Any, Final

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from schemas import protocol
from services.collector.accounting import Counters, Gauges, Identity, Owner, ProcessSample
from services.collector.connections import ProcessTraffic, Traffic
from services.collector.jvm import JvmCounters, JvmSample
from services.runtime.limits import ProcessLimits, machine, processors, used_s
from services.runtime.process_identity import birth_of, parent_of
from services.runtime.program import pipeline_of, proxied_by

PIPELINE_SERVICE = "runner"
PROXY_SERVICE = "proxy"  # the runner's children that are no pipelines
JVM_STARTS_S = 120.0
NANOSECOND_S = 1e-9
MOST_THREADS = 4096  # threads read per process
LINE_BYTES = 128
# Options of a program whose value is the next word, and those whose value names what it runs.
JAVA_TAKES: Final = ("-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules")
PYTHON_TAKES: Final = ("-X", "-W", "--check-hash-based-pycs")
NAMES_PROGRAM: Final = ("-m", "-jar")
NAME_CHARACTERS: Final = 60
COMPILERS: Final = (b"C1 Compiler", b"C2 Compiler")  # how HotSpot's names of such threads begin
MACHINE = Owner(protocol.MACHINE)
LOADAVG = Path("/proc/loadavg")
PRESSURE = Path("/proc/pressure")
BLOCK_DEVICES = Path("/sys/block")
MICROSECOND_S = 1e-6
BUSY = ("user", "system", "nice", "irq", "softirq")


class StackService(BaseModel):
    """One service: its first process. birth: distinguishes it from others with its pid."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    pid: int
    birth: str | None = None


class _Stack(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    services: tuple[StackService, ...] = ()


class StackFile:
    """Reads the file when it changes. Without one there is only the collector."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._services: tuple[StackService, ...] = ()

    def services(self) -> tuple[StackService, ...]:
        """The current services. An incomplete or invalid file keeps the previous ones."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._services = _Stack.model_validate_json(self._path.read_bytes()).services
                self._seen = seen
        except FileNotFoundError:
            self._services, self._seen = (), None
        except (OSError, ValidationError):
            pass  # retried at the next sample
        if any(service.name == protocol.COLLECTOR for service in self._services):
            return self._services
        return (*self._services, StackService(name=protocol.COLLECTOR, pid=os.getpid()))


@dataclass(frozen=True)
class ThreadSeconds:
    """Since a process began, of all its threads that were read: waited for a processor while they
    were runnable, and processor time of the JIT compilers of a JVM."""

    waited: float
    compiled: float


class ThreadTimes:
    """Sums the times of the threads of one process.

    Linux counts them for each thread, in nanoseconds since the thread began: the first two numbers
    of /proc/PID/task/TID/schedstat, running and waiting. HotSpot names its threads. Its own counter
    of compilations has their duration, which contains waits for a core. Times after a thread's last
    read are lost.
    """

    def __init__(self, pid: int, proc: Path = Path("/proc")) -> None:
        self._tasks = str(proc / str(pid) / "task")  # str: a Path costs as much as the read
        self._first = str(pid)
        self._before: dict[str, tuple[int, int]] = {}
        self._compilers: dict[str, bool] = {}
        self._waited_ns = self._compiled_ns = 0

    def read(self, is_jvm: bool) -> ThreadSeconds | None:
        """Including ended threads that were read before; None if the system does not count."""
        try:
            threads = os.listdir(self._tasks)[:MOST_THREADS]
        except OSError:
            return None
        read = ((thread, _run_and_waited_ns(f"{self._tasks}/{thread}")) for thread in threads)
        now = {thread: times for thread, times in read if times is not None}
        if not now:
            return None
        for thread, times in now.items():
            before = self._before.get(thread, (0, 0))
            if times[0] < before[0] or times[1] < before[1]:  # another one with its number
                before = (0, 0)
                self._compilers.pop(thread, None)
            self._waited_ns += times[1] - before[1]
            if is_jvm and self._is_compiler(thread):
                self._compiled_ns += times[0] - before[0]
        self._before = now
        self._compilers = {each: known for each, known in self._compilers.items() if each in now}
        return ThreadSeconds(self._waited_ns * NANOSECOND_S, self._compiled_ns * NANOSECOND_S)

    def _is_compiler(self, thread: str) -> bool:
        """A new thread has the name of the first one until it has set its own."""
        known = self._compilers.get(thread)
        if known is None:
            name = _name_of(f"{self._tasks}/{thread}")
            known = name.startswith(COMPILERS)
            if known or name != _name_of(f"{self._tasks}/{self._first}"):
                self._compilers[thread] = known
        return known


def _run_and_waited_ns(task: str) -> tuple[int, int] | None:
    numbers = _line(f"{task}/schedstat").split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) > 1 else None


def _name_of(task: str) -> bytes:
    return _line(f"{task}/comm")


def _line(path: str) -> bytes:
    """Empty if the thread has ended, or the system does not have the file."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, LINE_BYTES)
    except OSError:
        return b""
    finally:
        os.close(file)


@dataclass(frozen=True)
class _Member:
    process: psutil.Process
    parent: Identity | None
    owner: Owner
    jvm: JvmCounters
    threads: ThreadTimes
    program: str = ""
    name: str = ""

    @property
    def is_engines(self) -> bool:
        """Whether it is a process of a pipeline's engine, not of its proxy."""
        return bool(self.owner.pipeline) and self.owner.service == PIPELINE_SERVICE


def descendants(roots: Iterable[int], parents: dict[int, int]) -> list[tuple[int, int]]:
    """Pairs of root and process, parents before children; excludes subtrees of other roots.

    parents: parent id by process id. Roots may be missing in it.
    """
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    result: list[tuple[int, int]] = []
    seen = set(roots)
    for root in sorted(seen):
        waiting = [root]
        while waiting:
            pid = waiting.pop()
            result.append((root, pid))
            below = [child for child in children.get(pid, ()) if child not in seen]
            seen.update(below)
            waiting += below
    return result


def program_of(command_line: Sequence[str]) -> str:
    """The program of a process for people, without its arguments: `java Main` of a JVM by its main
    class or jar, `python module` of Python by its module or script, else the name of the file.
    Empty for a process without a command line.

    >>> program_of(["/usr/bin/java", "-Xmx1g", "-cp", "a.jar:b.jar", "org.example.Main", "plan"])
    'java Main'
    """
    if not command_line:
        return ""
    name = PurePath(command_line[0]).name
    words = iter(command_line[1:])
    of = ""
    if name == "java":
        of = _first_word(words, JAVA_TAKES).rpartition("/")[2]
        of = of if of.endswith(".jar") else of.rpartition(".")[2]
    elif name.startswith("python"):
        name, of = "python", PurePath(_first_word(words, PYTHON_TAKES)).name
    return _in_utf_8(f"{name} {of}".rstrip()[:NAME_CHARACTERS])


def _in_utf_8(text: str) -> str:
    """The text with ? for each byte that is not UTF-8: a process may call itself anything."""
    return text.encode(errors="replace").decode()


def _first_word(words: Iterator[str], takes: Collection[str]) -> str:
    """The first word that is no option; of `-m`, `-c` and `-jar` the next one, or `-c` itself.
    takes: options whose value is the next word."""
    for word in words:
        if word == "-c":
            return word
        if word in NAMES_PROGRAM:
            return next(words, "")
        if word in takes:
            next(words, "")
        elif not word.startswith("-"):
            return word
    return ""


class StackProcesses:
    """The processes of a stack."""

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._traffic = ProcessTraffic()

    def scan(self, services: Iterable[StackService]) -> None:
        """Find the current processes of the services."""
        for pid, member in list(self._members.items()):
            if not member.process.is_running():
                del self._members[pid]
        table = _process_table()
        roots = {s.pid: s for s in services if _is_the_one(s, table.get(s.pid))}
        parents = {pid: _parent_id(pid) for pid in table}
        for root, pid in descendants(roots, parents):
            self._take_in(table.get(pid), parents.get(pid, 0), roots[root].name, pid == root)

    def sample(self) -> list[ProcessSample]:
        """Sample all known processes that still run."""
        samples = []
        traffic = self._traffic.totals([pid for pid, of in self._members.items() if of.is_engines])
        for pid, member in list(self._members.items()):
            try:
                samples.append(_read(member, traffic.get(pid)))
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
            # Read at each scan: a process just forked has its parent's command line, then none.
            program = ""
            if service == PIPELINE_SERVICE and not is_root:
                command_line = process.cmdline()
                pipeline = pipeline or pipeline_of(command_line)
                program = program_of(command_line) or _in_utf_8(process.name())
                service = PROXY_SERVICE if proxied_by(command_line) else service
            identity = _identity(above.process) if above else None
            process.create_time()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return
        kept = known.process if known else process
        jvm = known.jvm if known and _is_settled(known) else JvmCounters(process.pid)
        threads = known.threads if known else ThreadTimes(process.pid)
        owner = Owner(service, pipeline)
        name = self._name(process.pid, program, owner) if pipeline else ""
        self._members[process.pid] = _Member(kept, identity, owner, jvm, threads, program, name)

    def _name(self, pid: int, program: str, owner: Owner) -> str:
        """The program, with a number if another process of the pipeline has it: the least that is
        free. A process keeps its name until its program changes."""
        known = self._members.get(pid)
        if known and (known.owner, known.program) == (owner, program):
            return known.name
        taken = {each.name for each in self._members.values() if each.owner == owner}
        numbers = (f"{program} {number}" for number in count(2))
        return next(name for name in chain((program,), numbers) if name not in taken)


def _is_settled(known: _Member) -> bool:
    """Whether it is certain if a process is a JVM: its counter file appears shortly after it
    starts, or after a script execs it."""
    return known.jvm.is_known or time.time() - float(known.process.create_time()) > JVM_STARTS_S


def _process_table() -> dict[int, psutil.Process]:
    return {process.pid: process for process in psutil.process_iter()}


def _parent_id(pid: int) -> int:
    try:
        return parent_of(pid)
    except (psutil.Error, OSError):
        return 0


def _is_the_one(service: StackService, process: psutil.Process | None) -> bool:
    """Whether this is the process that the deployment started, not a later one with its pid."""
    if process is None or service.birth is None:
        return process is not None
    try:
        return birth_of(process.pid) == service.birth
    except psutil.Error:
        return False


def _identity(process: psutil.Process) -> Identity:
    return process.pid, float(process.create_time())


def _read(member: _Member, traffic: Traffic | None) -> ProcessSample:
    process, jvm = member.process, member.jvm.sample()
    threads = member.threads.read(is_jvm=jvm is not None)
    with process.oneshot():
        cpu = process.cpu_times()
        disk = _disk_bytes(process)
        return ProcessSample(
            identity=_identity(process),
            parent=member.parent,
            owner=member.owner,
            cpu_s=cpu.user + cpu.system,
            ended_children_cpu_s=cpu.children_user + cpu.children_system,
            memory_bytes=process.memory_info().rss,
            name=member.name,
            threads=process.num_threads(),
            counters=Counters(
                read_bytes=disk[0],
                written_bytes=disk[1],
                received_bytes=traffic.received if traffic else None,
                sent_bytes=traffic.sent if traffic else None,
                gc_seconds=jvm.gc_seconds if jvm else None,
                gc_count=jvm.gc_count if jvm else None,
                jit_seconds=_compiled_s(jvm, threads),
                run_queue_wait_seconds=threads.waited if threads else None,
            ),
            gauges=Gauges(
                open_files=_open_files(process),
                heap_used_bytes=jvm.heap_used_bytes if jvm else None,
                heap_capacity_bytes=jvm.heap_capacity_bytes if jvm else None,
                heap_max_bytes=jvm.heap_max_bytes if jvm else None,
            ),
        )


def _compiled_s(jvm: JvmSample | None, threads: ThreadSeconds | None) -> float | None:
    if jvm is None:
        return None
    return threads.compiled if threads else jvm.jit_seconds


def _disk_bytes(process: psutil.Process) -> tuple[int | None, int | None]:
    try:
        result = process.io_counters()
    except (psutil.AccessDenied, AttributeError):
        return None, None  # another user's process, or a system without counters
    return result.read_bytes, result.write_bytes


def _open_files(process: psutil.Process) -> int | None:
    try:
        return int(process.num_fds())
    except (psutil.AccessDenied, AttributeError):
        return None


def read_machine(allowed: ProcessLimits) -> ProcessSample:
    """The whole machine, or what is allowed of it, as if it were one process born at its boot.

    Its processor time is everything except idle, I/O wait and steal; that of a control group with
    a quota is its own, or 0 if it is not counted (`counts_use`). Its memory is what is not
    available to new processes.
    """
    busy_s, steal_s = _of_processors(allowed)
    if allowed.group is not None:
        busy_s = used_s(allowed.group) or 0.0
    return ProcessSample(
        # What is counted changes when the stack starts; that is no use of processors.
        identity=(-2 if allowed.group else -1, allowed.cores),
        parent=None,
        owner=MACHINE,
        cpu_s=busy_s,
        ended_children_cpu_s=0.0,
        memory_bytes=max(0, allowed.memory_bytes - allowed.free_bytes),
        threads=_threads(),
        counters=_counters(steal_s, _pressure_files(allowed)),
        gauges=Gauges(load_1m=psutil.getloadavg()[0], frequency_mhz=_frequency_mhz()),
    )


def counts_use(allowed: ProcessLimits) -> bool:
    """Whether the system counts the processor time of the allowed part of the machine."""
    return allowed.group is None or used_s(allowed.group) is not None


def stalled_s(text: str) -> float | None:
    """Seconds since boot in which some task was stalled, from a file of /proc/pressure."""
    for line in text.splitlines():
        kind, *pairs = line.split()
        for pair in pairs:
            name, _, value = pair.partition("=")
            if kind == "some" and name == "total" and value.isdecimal():
                return int(value) * MICROSECOND_S
    return None


def _of_processors(allowed: ProcessLimits) -> tuple[float, float | None]:
    """Busy and stolen time in seconds of the allowed processors. Of a quota, the stolen time is its
    part of the machine's."""
    if allowed.limited_by == "affinity":
        times = psutil.cpu_times(percpu=True)
        result = [times[n] for n in processors() if n < len(times)]
    else:
        result = [psutil.cpu_times()]
    busy_s = sum(getattr(each, name, 0.0) for each in result for name in BUSY)
    if not all(hasattr(each, "steal") for each in result):
        return busy_s, None
    part = allowed.cores / machine().cores if allowed.group else 1.0
    return busy_s, part * sum(each.steal for each in result)


def _pressure_files(allowed: ProcessLimits) -> dict[str, Path]:
    """Pressure of the allowed part of the machine if the system tells it, or else the machine's."""
    files = {name: PRESSURE / name for name in ("cpu", "io", "memory")}
    if allowed.group is not None:
        own = {name: allowed.group / f"{name}.pressure" for name in files}
        files |= {name: path for name, path in own.items() if path.exists()}
    return files


def _counters(steal_s: float | None, pressure: Mapping[str, Path]) -> Counters:
    disks, networks = _disks(), psutil.net_io_counters()
    return Counters(
        read_bytes=sum(disk.read_bytes for disk in disks) if disks else None,
        written_bytes=sum(disk.write_bytes for disk in disks) if disks else None,
        received_bytes=networks.bytes_recv if networks else None,
        sent_bytes=networks.bytes_sent if networks else None,
        steal_seconds=steal_s,
        cpu_pressure_seconds=_pressure_s(pressure["cpu"]),
        io_pressure_seconds=_pressure_s(pressure["io"]),
        memory_pressure_seconds=_pressure_s(pressure["memory"]),
    )


def _disks() -> list[Any]:
    """Counters of hardware devices; writes to volumes, RAID and loop devices are counted there.
    The machine's sum if no hardware device is known."""
    result = psutil.disk_io_counters(perdisk=True) or {}
    real = [
        disk
        for name, disk in result.items()
        if (BLOCK_DEVICES / name.replace("/", "!") / "device").exists()
    ]
    return real or [disk for disk in [psutil.disk_io_counters()] if disk]


def _pressure_s(path: Path) -> float | None:
    with suppress(OSError):
        return stalled_s(path.read_text())
    return None


def _frequency_mhz() -> float | None:
    """None if the system does not report it; psutil then has nothing, or a missing file."""
    with suppress(OSError, NotImplementedError):
        result = psutil.cpu_freq()
        return float(result.current) if result else None
    return None


def _threads() -> int:
    """Threads of the machine if reported (Linux: `running/all` in loadavg), else 0."""
    try:
        return int(LOADAVG.read_text().split()[3].split("/")[1])
    except (OSError, IndexError, ValueError):
        return 0
