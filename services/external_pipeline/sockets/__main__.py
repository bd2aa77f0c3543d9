"""A system behind sockets: `python -m services.external_pipeline.sockets PLAN`.

Starts the command of the pipeline's file, as for `external`, and receives its results as frames,
which it appends to the output topics with the time of reception (docs/sockets.md). The generator
sends the records. Both times are of the machine's monotonic clock, which all processes share.

    TIDEGAUGE_SOCKET_TRANSPORT   of the records: tcp, udp or zeromq
    TIDEGAUGE_SOCKET_INPUT       host:port at which the program receives records
    TIDEGAUGE_SOCKET_ANSWERS     of the results: tcp, udp or zeromq
    TIDEGAUGE_SOCKET_OUTPUT      host:port to which it sends results
    TIDEGAUGE_SOCKET_TAG         of the frames of the run, hexadecimal
    TIDEGAUGE_SOCKET_INPUTS      inputs of the domain by their number in a frame: `states`
    TIDEGAUGE_STAGES             stages by their number in a frame: `parse,area`

The variables of `external` are there, too.
"""

import os
import sys
import time
from pathlib import Path
from subprocess import Popen
from threading import Event

import numpy as np
from confluent_kafka import KafkaException, Producer

from schemas.engine import EnginePlan, ResultsLine, SocketPlan
from schemas.frame import END, HELLO, STAMP, STAMP_HEADER, Frame, decode
from services.external_pipeline.__main__ import (
    EXIT_FAILED,
    EXIT_STOPPED,
    kill,
    start,
    stop_program,
    variables,
)
from services.runtime.frame_batches import CheckedFrames, checked_frames
from services.runtime.frame_counts import Arrivals
from services.runtime.frame_receivers import Receiver, Refusal, open_receiver
from services.runtime.process import stop_on_signals
from services.runtime.program import end_with_parent, read_plan

WAIT_S = 0.05
FULL_WAIT_S = 0.005
QUIET_S = 1.0  # without a result for this time after the announced end, the rest is lost
FLUSH_S = 10.0
QUEUE_RECORDS = 100_000
LINGER_MS = 2


class ReceivedResults:
    """The results of a run: frames become records of its output topics. A stream is a stage."""

    def __init__(
        self, plan: EnginePlan, sockets: SocketPlan, receiver: Receiver, producer: Producer
    ) -> None:
        self._stages = tuple(plan.outputs)
        self._topics = tuple(plan.outputs.values())
        self._tag = bytes.fromhex(sockets.tag)
        self._receiver = receiver
        self._arrivals = Arrivals(timed=False)
        self._frames_received: int | None = None
        self._newest_s = time.monotonic()
        self._said: ResultsLine | None = None
        self._producer = producer

    def take(self, timeout_s: float) -> None:
        """Append the results that have arrived; waits for the first. Raises KafkaException."""
        self._producer.poll(0)
        for received in self._receiver.receive_all(timeout_s):
            if isinstance(received, Refusal):
                self._arrivals.refused += 1
                continue
            frames = checked_frames(received, self._tag, len(self._topics))
            self._arrivals.refused += frames.refused
            self._take(frames.where(frames.heads["topic"] != HELLO), received.received_ns)

    def _take(self, frames: CheckedFrames, received_ns: int) -> None:
        if not len(frames):
            return
        self._newest_s = time.monotonic()
        is_of_stage = frames.heads["stream"] < len(self._topics)
        self._arrivals.refused += len(frames) - int(is_of_stage.sum())
        is_end = frames.heads["topic"] == END
        for number in np.flatnonzero(is_of_stage & is_end).tolist():
            self._end(decode(frames.frame(number)), received_ns)
        results = frames.where(is_of_stage & ~is_end)
        if len(results):
            self._append(results.where(self._arrivals.add_all(results.heads)), received_ns)

    def _end(self, frame: Frame, received_ns: int) -> None:
        """Note the announced numbers of results and records."""
        if len(frame.value) == STAMP.size:
            self._frames_received = max(0, STAMP.unpack(frame.value)[0])
        self._arrivals.add(frame, received_ns)

    def _append(self, results: CheckedFrames, received_ns: int) -> None:
        produce, topics = self._producer.produce, self._topics
        headers: list[tuple[str, str | bytes | None]] = [(STAMP_HEADER, STAMP.pack(received_ns))]
        streams = results.heads["stream"].tolist()
        for stream, (key, value) in zip(streams, results.records(), strict=True):
            while True:
                try:
                    produce(topics[stream], value, key, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(FULL_WAIT_S)
                    self._receiver.keep_bounds()

    def news(self) -> ResultsLine | None:
        """The counts, once they are complete or nothing arrives any more; None if there is nothing
        new."""
        counts = {
            stage: self._arrivals.of_stream(number) for number, stage in enumerate(self._stages)
        }
        if all(sent is None for sent, _ in counts.values()):
            return None
        is_whole = all(sent is not None and sent <= came for sent, came in counts.values())
        if not is_whole and time.monotonic() - self._newest_s < QUIET_S:
            return None
        line = self.line()
        if line == self._said:
            return None
        self._said = line
        return line

    def line(self) -> ResultsLine:
        """The counts so far."""
        counts = {
            stage: self._arrivals.of_stream(number) for number, stage in enumerate(self._stages)
        }
        return ResultsLine(
            event="results",
            frames_received=self._frames_received,
            sent={stage: sent for stage, (sent, _) in counts.items()},
            received={stage: came for stage, (_, came) in counts.items()},
            duplicates=self._arrivals.duplicates,
            refused=self._arrivals.refused,
        )

    def close(self) -> None:
        """Close the port and append what was received."""
        self._receiver.close()
        self._producer.flush(FLUSH_S)


def producer_of(plan: EnginePlan) -> Producer:
    """The client that appends the results."""
    return Producer(
        {
            "bootstrap.servers": plan.bootstrap,
            "client.id": "socket-results",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            **plan.properties,
        }
    )


def main() -> int:
    """Run the program and receive its results until told to stop; 1 with an error line if it
    ends earlier."""
    plan = read_plan()
    stop = stop_on_signals()
    sockets = plan.socket
    if sockets is None:
        print(f"{plan.pipeline.name}: the plan has no sockets", file=sys.stderr)
        return EXIT_FAILED
    command = plan.pipeline.settings.get("command", ())
    assert isinstance(command, tuple)
    tag, port = bytes.fromhex(sockets.tag), sockets.results_port
    try:
        receiver = open_receiver(
            sockets.answers, sockets.host, port, tag, time.monotonic_ns, are_packed=True
        )
    except OSError as error:
        place = f"{sockets.host}:{port}"
        print(
            f"{plan.pipeline.name}: results cannot be received at {place}: {error}", file=sys.stderr
        )
        return EXIT_FAILED
    results = ReceivedResults(plan, sockets, receiver, producer_of(plan))
    try:
        environment = dict(os.environ) | variables(plan, Path(sys.argv[-1])) | of_sockets(plan)
        process = start(command, environment) if command else None
    except OSError as error:
        print(f"{plan.pipeline.name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    end_with_parent(lambda: kill(process))
    say(b'{"event": "ready"}')
    try:
        return receive(results, process, stop)
    except KafkaException as error:
        print(f"{plan.pipeline.name}: results cannot be appended: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        results.close()
        if process is not None:
            stop_program(process)


def of_sockets(plan: EnginePlan) -> dict[str, str]:
    """The environment variables of a program behind sockets."""
    sockets = plan.socket
    assert sockets is not None
    return {
        "TIDEGAUGE_SOCKET_TRANSPORT": sockets.transport,
        "TIDEGAUGE_SOCKET_INPUT": f"{sockets.host}:{sockets.system_port}",
        "TIDEGAUGE_SOCKET_ANSWERS": sockets.answers,
        "TIDEGAUGE_SOCKET_OUTPUT": f"{sockets.host}:{sockets.results_port}",
        "TIDEGAUGE_SOCKET_TAG": sockets.tag,
        "TIDEGAUGE_SOCKET_INPUTS": ",".join(each.name for each in plan.domain.inputs),
    }


def receive(results: ReceivedResults, process: "Popen[bytes] | None", stop: Event) -> int:
    """Receive results until `stop` or the program ends; returns the exit code. Raises
    KafkaException."""
    while not stop.is_set():
        results.take(WAIT_S)
        line = results.news()
        if line is not None:
            say(line.model_dump_json().encode())
        if process is not None and process.poll() is not None:
            # Log nothing more: the program's last log line gives the cause.
            return process.returncode or EXIT_FAILED
    return EXIT_STOPPED


def say(line: bytes) -> None:
    """Write a contract line in one call: the program writes to the same output."""
    os.write(sys.stdout.fileno(), line + b"\n")


if __name__ == "__main__":
    sys.exit(main())
