"""Runs of one pipeline on a stack of its own, through the command line, and their results."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.codec import DecodeError
from schemas.protocol import VERDICTS
from services.definitions.domains import load_domain
from services.runtime.events import read_spans
from services.runtime.kafka import NoTopicError, assigned_consumer, end_offsets
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import CommandLine
from tests.end_to_end.workload_files import NEVER_LATE, changed_workload, patient_workload
from tests.listening import all_on_loopback
from tests.traffic import INPUTS

DEAD_LETTERS = """
    SELECT hex(value) AS value
    FROM tidegauge.dead_letter
    WHERE producer = 'runner' AND time >= fromUnixTimestamp64Milli({since_ms})
"""
Ends = dict[tuple[str, int], int]  # by topic and partition


@dataclass(frozen=True)
class Runs:
    """Runs of a pipeline; each must be valid, and no process of the stack may be reachable from
    other machines. file: a pipeline file, if it is not a built-in one."""

    command: CommandLine
    pipeline: str
    file: str = ""

    def exact(self, domain: str, workload: str = "smoke") -> list[str]:
        """The stages of a domain with outputs in a run, each once and with the right content. A
        busy machine makes them late."""
        cells = self._run(workload, domain)["stages"]
        verdicts = {name: Counter(cell["verdicts"]) for name, cell in cells.items()}
        return [
            name
            for name, counts in verdicts.items()
            if counts["exact"] + counts["late"] == sum(counts[each] for each in VERDICTS) > 0
        ]

    def committed(self, domain: str, *more: str) -> dict[str, Any]:
        """The stages of a run of a pipeline that writes in transactions. Readers of committed
        records see every output, and later than it is appended."""
        found = self._run(str(patient_workload(self.command.data)), domain, *more)["stages"]
        for stage, cell in found.items():
            latest, visible = (cell["latency_ms"][one] for one in ("latest", "visible"))
            assert visible["count"] == latest["count"] > 0, stage
            assert visible["p50"] > latest["p50"], stage
        return dict(found)

    def faulty(self, workload: Path, *more: str) -> dict[str, Any]:
        """The stages of a run of a workload of one's own, on traffic."""
        return dict(self._run(str(workload), "traffic", *more)["stages"])

    def dead_letters(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """For one run: values that the program reported as undecodable, and the undecodable values
        of the inputs, without those that it had not read at its end, as the report's lag says."""
        settings = ServiceSettings(data=self.command.data, base_port=self.command.base_port)
        before, began_ms = _input_ends(settings), now_ms()
        workload = changed_workload("undecodable", self.command.data / "some.toml", NEVER_LATE)
        found = self._run(str(workload), "traffic", "--warm-up", "3", "--duration", "10")
        unread = (found["lag_records"] or {"end": 0})["end"]
        planted = Counter(_no_records(settings, before))
        deadline_s = time.monotonic() + 20
        while True:
            told = self._told(began_ms)
            untold = planted - told
            if untold.total() <= unread:
                return told, planted - untold
            if time.monotonic() > deadline_s:
                return told, planted
            time.sleep(0.5)  # poll interval

    def _told(self, since_ms: int) -> Counter[bytes]:
        done = self.command("sql", DEAD_LETTERS.format(since_ms=since_ms), "--format", "json")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return Counter(bytes.fromhex(row["value"]) for row in rows)

    def killed(self, domain: str) -> dict[str, int]:
        """Verdicts, summed over all stages, of a run in which the program is killed once. Late and
        repeated outputs caused by the kill are printed and excluded."""
        cells = self.killed_verdicts(domain).values()
        return {one: sum(cell[one] for cell in cells) for one in ("missing", "wrong", "unexpected")}

    def killed_verdicts(self, domain: str, target: str = "driver") -> dict[str, dict[str, int]]:
        """All verdicts of such a run, by stage."""
        lengths = ("--rate", "100", "--warm-up", "3", "--duration", "20", "--kill", target)
        found = self._run(str(patient_workload(self.command.data)), domain, *lengths)
        (recovery,) = found["stages"]["ingest"]["recovery"]
        assert recovery["event"] == f"kill of the {target}"
        if target == "driver":
            (restart,) = found["restarts"]
            assert restart["outage_s"] > 0
        return {stage: cell["verdicts"] for stage, cell in found["stages"].items()}

    def _run(self, workload: str, domain: str, *more: str) -> Any:
        last = len(load_domain(domain).spec.stages) - 1
        path = self.command.data / "report.json"
        with all_on_loopback(self.command.all_processes):
            done, report = self.command.measured(
                *(path, workload, "--domain", domain, "--stages", f"0-{last}"),
                *("--pipeline", self.file or self.pipeline, *more),
            )
        said = done.stdout + done.stderr
        assert (report["valid"], report["domain"]) == (True, load_domain(domain).spec.name), said
        assert done.returncode == (0 if report["conclusion"]["clean"] else 1), said
        return report["pipelines"][self.pipeline]


def _input_ends(settings: ServiceSettings) -> Ends:
    """End offsets of the input topics of traffic that exist."""
    consumer = assigned_consumer(settings, "tests")
    found: Ends = {}
    for topic in INPUTS:
        with suppress(NoTopicError):
            found |= {(topic, at): end for at, end in enumerate(end_offsets(consumer, topic))}
    consumer.close()
    return found


def _no_records(settings: ServiceSettings, since: Ends) -> Iterator[bytes]:
    """Values of the inputs of traffic from these offsets on that the reference decoder rejects."""
    reference = load_domain("traffic").spec.codec
    spans = {place: (since.get(place, 0), end) for place, end in _input_ends(settings).items()}
    consumer = assigned_consumer(settings, "tests")
    for message in read_spans(consumer, spans):
        try:
            reference.decode(message.value())
        except DecodeError:
            yield message.value()
    consumer.close()


@contextmanager
def runs_of(pipeline: str, data: Path, base_port: int) -> Iterator[Runs]:
    """Runs on a stack that is up while the context lasts."""
    command = CommandLine(data, base_port)
    up = command("up", "--detach")
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        yield Runs(command, pipeline)
    finally:
        assert command("down").returncode == 0
