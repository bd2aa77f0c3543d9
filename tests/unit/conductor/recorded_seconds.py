"""Seconds of real runs, and runs composed of them.

`data/recorded_seconds.jsonl.xz` has one run per line, from its events on the bus: the number of
records sent in each second of the load (results.generator), the cores used by the pipeline and by
its compilers (results.resources; null if not known), and the number of outputs of each stage by
latency in milliseconds (results.latency, `latest`). steady: the range of seconds at one level.
"""

import json
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from schemas.events import FigureColumns
from schemas.protocol import RunRequest
from services.conductor.warming import Warming
from tests.unit.requests import a_request, an_event

RECORDED: Final = Path(__file__).with_name("data") / "recorded_seconds.jsonl.xz"
PIPELINE: Final = "spark-realtime"
TOGETHER_S: Final = 5  # number of seconds drawn together


@dataclass(frozen=True)
class Second:
    """Outputs of a second: pairs of a latency in milliseconds and the number of outputs."""

    sent: int
    cores: float | None
    jit: float | None
    latencies: dict[str, list[tuple[int, int]]]

    def later(self, by_ms: float) -> "Second":
        """The same with every output delayed by `by_ms`."""
        moved = {
            stage: [(value + round(by_ms), count) for value, count in counts]
            for stage, counts in self.latencies.items()
        }
        return Second(self.sent, self.cores, self.jit, moved)


@dataclass(frozen=True)
class Recorded:
    """A run. steady: its seconds at one level."""

    name: str
    seconds: list[Second]
    steady: list[Second]

    def drawn(self, length_s: int, random: Random) -> list[Second]:
        """`length_s` seconds at one level: randomly drawn pieces of the run."""
        found: list[Second] = []
        while len(found) < length_s:
            at = random.randrange(len(self.steady) - TOGETHER_S)
            found += self.steady[at : at + TOGETHER_S]
        return found[:length_s]


def recorded() -> list[Recorded]:
    """All recorded runs."""
    lines = lzma.decompress(RECORDED.read_bytes()).decode().splitlines()
    return [_run(json.loads(line)) for line in lines]


def _run(line: dict[str, Any]) -> Recorded:
    seconds = [
        Second(sent, cores, jit, {stage: of[at] for stage, of in line["latencies"].items()})
        for at, (sent, cores, jit) in enumerate(
            zip(line["sent"], line["cores"], line["jit"], strict=True)
        )
    ]
    begin, end = line["steady"]
    return Recorded(line["run"], seconds, seconds[begin:end])


def replayed(seconds: Iterable[Second]) -> Warming:
    """The conductor's state after it received these seconds over the bus, the first as second 0."""
    seconds = list(seconds)
    warming = Warming(_request(tuple(seconds[0].latencies)))
    for at, second in enumerate(seconds):
        for topic, event in _events(at, second):
            warming.add(FigureColumns(topic, event))
    return warming


def _request(stages: tuple[str, ...]) -> RunRequest:
    return a_request().model_copy(update={"stages": stages})


def _events(at: int, second: Second) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "results.generator", an_event(second=1000 * at, acknowledged=second.sent)
    if second.cores is not None:
        used = {"cpu_seconds": second.cores, "jit_seconds": second.jit, "interval_s": 1.0}
        sample = an_event(service="p", pipeline=PIPELINE, **used)
        yield "results.resources", sample | {"time": 1000 * at + 1000}
    for stage, counts in second.latencies.items():
        if counts:
            values, numbers = zip(*counts, strict=True)
            yield (
                "results.latency",
                an_event(pipeline=PIPELINE, stage=stage, definition="latest", second=1000 * at,
                         latencies_ms=list(values), counts=list(numbers)),
            )  # fmt: skip
