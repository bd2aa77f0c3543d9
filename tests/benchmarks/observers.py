"""The cost of observing: processor time and context switches of every part of a stack while a run
is measured, at 400 records/s with the stages of traffic.

The stack is that of a single run, without gateway and watcher. The pipeline is a plain loop in
Python (`floor`, which has no sliding windows), so that the measured pipeline does not load the
machine. A disturbed run also has figures, and the disturbance is reported. Figures are means over
blocks of BLOCK_S of the measured phase, with their 95 % interval. Context switches
are those of all threads. `observers` is the sum of the parts that only observe, plus the generator;
the console is the command `run`, which supervises the stack. The ratios compare the CPU time of the
pipeline, in the same blocks, with that of the observers and of the broker.

Settings, by environment variable: TIDEGAUGE_BENCH_PIPELINES (one name), TIDEGAUGE_BENCH_RATE,
TIDEGAUGE_BENCH_STAGES (like 0-4), TIDEGAUGE_BENCH_SECONDS (measured), TIDEGAUGE_BENCH_WARM_UP.
"""

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from deploy.local.state import RUNNING, StateFile
from schemas import catalogue
from schemas.events import PhaseStarted
from services.runtime.events import Bus
from services.runtime.process import now_ms
from services.runtime.settings import ROOT, ServiceSettings
from tests.benchmarks._measured import Measured, averaged, margin, ratio
from tests.integration.kafka_broker import free_base_port

PIPELINE = os.environ.get("TIDEGAUGE_BENCH_PIPELINES", "floor")
RATE = os.environ.get("TIDEGAUGE_BENCH_RATE", "400")
STAGES = os.environ.get("TIDEGAUGE_BENCH_STAGES", "0-4")
SECONDS = int(os.environ.get("TIDEGAUGE_BENCH_SECONDS", "60"))
WARM_UP_S = int(os.environ.get("TIDEGAUGE_BENCH_WARM_UP", "15"))
BLOCK_S = 5
START_S = 120
VALID, NOT_VALID = 0, 1  # exit codes of `run`
OBSERVERS = ("generator", "evaluator", "collector", "conductor", "store")
SWITCHES = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """Cumulative usage of a part, and its current state. switches: by thread."""

    cpu_s: float
    switches: Mapping[str, int]
    memory_mb: float


Samples = dict[str, Sample]


def measure(say: Callable[[str], None], scratch: Path) -> Measured:
    """One run, observed from outside."""
    settings = ServiceSettings(data=scratch, base_port=free_base_port())
    blocks: list[tuple[float, Samples, Samples]] = []
    with running(settings, say) as process:
        phase_end_ms = until_measured(settings, process)
        before_s, before = time.monotonic(), samples(settings.data)
        while now_ms() + 1000 * BLOCK_S < phase_end_ms:
            time.sleep(BLOCK_S)
            now_s, now = time.monotonic(), samples(settings.data)
            blocks.append((now_s - before_s, before, now))
            before_s, before = now_s, now
    figures: dict[str, float] = {}
    found = by_figure(blocks)
    for name, values in found.items():
        figures |= averaged(name, values)
        say(f"{name}: {figures[name]:.3f} ±{margin(values):.3f}")
    figures |= {f"{part}_memory_mb": one.memory_mb for part, one in blocks[-1][2].items()}
    pipeline, peers = found["pipeline_cores"], ("observers", "kafka")
    ratios = [ratio(f"pipeline_to_{one}", pipeline, found[f"{one}_cores"]) for one in peers]
    return Measured(figures, ratios[0] | ratios[1])


def by_figure(blocks: list[tuple[float, Samples, Samples]]) -> dict[str, list[float]]:
    """The values of every figure, one per block."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for seconds, before, now in blocks:
        block: defaultdict[str, float] = defaultdict(float)
        for part in now.keys() & before.keys():
            cores = (now[part].cpu_s - before[part].cpu_s) / seconds
            switches = switched(before[part].switches, now[part].switches) / seconds
            for name in (part, "observers") if part in OBSERVERS else (part,):
                block[f"{name}_cores"] += cores
                block[f"{name}_switches_per_second"] += switches
        for name, value in block.items():
            found[name].append(value)
    return dict(sorted(found.items()))


def switched(before: Mapping[str, int], now: Mapping[str, int]) -> int:
    """Increase of the threads' context switches; those of threads that have ended are not known."""
    return sum(count - before.get(thread, 0) for thread, count in now.items())


def samples(data: Path) -> Samples:
    """Current samples of every part of the stack, its pipeline and its console."""
    state = StateFile(data).read()
    assert state is not None, "the stack has ended"
    found = {one.name: sample([psutil.Process(one.pid)]) for one in state.services}
    runner = next(one.pid for one in state.services if one.name == "runner")
    pipeline = sample(psutil.Process(runner).children(recursive=True))
    return found | {"pipeline": pipeline, "console": sample([psutil.Process(state.owner.pid)])}


def sample(processes: list[psutil.Process]) -> Sample:
    """The sum over some processes."""
    cpu_s = memory = 0.0
    switches: dict[str, int] = {}
    for process in processes:
        times = process.cpu_times()
        cpu_s += times.user + times.system
        memory += process.memory_info().rss / MEBIBYTE
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            with suppress(OSError):  # the process has ended
                lines = (thread / "status").read_text().splitlines()
                fields = (line.partition(":") for line in lines)
                counts = [int(value) for name, _, value in fields if name in SWITCHES]
                switches[thread.name] = sum(counts)
    return Sample(cpu_s, switches, memory)


@contextmanager
def running(
    settings: ServiceSettings, say: Callable[[str], None]
) -> Iterator["subprocess.Popen[bytes]"]:
    """A run on a separate stack; it must be concluded, valid or not."""
    command = [str(ROOT / "tidegauge"), "run", "latency", "--pipeline", PIPELINE]
    command += ["--stages", STAGES, "--rate", RATE, "--warm-up", str(WARM_UP_S)]
    variables = {"TIDEGAUGE_DATA": str(settings.data), "TIDEGAUGE_BASE_PORT": settings.base_port}
    log = log_of(settings)
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--duration", str(SECONDS)],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
        code = process.wait(START_S)
        assert code in (VALID, NOT_VALID), log.read_text()
        if code == NOT_VALID:
            say(f"the run was not valid or not clean: {log.read_text().strip().splitlines()[-1]}")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(START_S)
        log.unlink()


def log_of(settings: ServiceSettings) -> Path:
    """What the run of a stack prints."""
    return settings.data.with_name(f"{settings.data.name}.log")


def until_measured(settings: ServiceSettings, run: "subprocess.Popen[bytes]") -> int:
    """Wait until a run's measure phase begins; returns its end, epoch milliseconds."""
    deadline_s = time.monotonic() + START_S
    while (state := StateFile(settings.data).read()) is None or state.phase != RUNNING:
        assert run.poll() is None, f"the run has ended: {log_of(settings).read_text().strip()}"
        assert time.monotonic() < deadline_s, "the stack does not start"
        time.sleep(0.2)
    bus = Bus(settings, "bench", (catalogue.LIFECYCLE,))
    try:
        while time.monotonic() < deadline_s + WARM_UP_S:
            for event in bus.poll(1.0):
                if isinstance(event, PhaseStarted) and event.phase == "measure":
                    assert event.end_ms is not None
                    return event.end_ms
    finally:
        bus.close()
    raise TimeoutError("nothing is measured")
