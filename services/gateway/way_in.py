"""The network input of one run: frames become records of its input topics.

One thread receives and appends. It stops reading while Kafka accepts no more records, so transports
with backpressure pass it on to the sender.

Frames are counted by stream and sequence. A frame is lost if it was sent and never arrived. A frame
that arrives twice counts once.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaException, Producer

from schemas.frame import HELLO, Frame, FrameError, checked
from schemas.percentiles import quantile
from services.runtime.frame_counts import LEVELS, Arrivals
from services.runtime.frame_receivers import KEPT_BYTES, Receiver, Refusal

WAIT_S = 0.05
FULL_WAIT_S = 0.005
QUIET_S = 1.0  # after the announced end; without a frame for this time, the rest is lost
FLUSH_S = 10.0
MAX_KEPT = 1_000  # refused data kept per run
Refused = Callable[[Refusal], None]


class WayIn:
    """Receives the frames of a run. tag: prefix of its frames. refused: called with each of the
    first MAX_KEPT refusals. flush_s: how long it waits for Kafka at the end."""

    def __init__(
        self,
        tag: bytes,
        topics: Sequence[str],
        receiver: Receiver,
        producer: Producer,
        refused: Refused,
        *,
        flush_s: float = FLUSH_S,
    ) -> None:
        self._flush_s = flush_s
        self.arrivals = Arrivals()
        self.error = ""
        self.ended = threading.Event()
        self._tag = tag
        self._topics = topics
        self._receiver = receiver
        self._producer = producer
        self._refused = refused
        self._appended = 0
        self._not_appended = 0
        self._append_ms: Counter[int] = Counter()
        self._waiting: deque[tuple[Frame, int]] = deque()
        self._newest_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="way-in", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop receiving, append the frames received so far or count them as not appended, and
        close the port."""
        self._stop.set()
        self._thread.join(timeout=2 * self._flush_s)

    @property
    def figures(self) -> dict[str, Any]:
        """Arrival counts for the report. transit_us: from the sender to the gateway; append_ms:
        from the gateway to the broker's LogAppendTime."""
        return {
            "sent": self.arrivals.sent,
            "received": self.arrivals.received,
            "appended": self._appended,
            "lost": self.arrivals.lost,
            "not_appended": self._not_appended,
            "duplicates": self.arrivals.duplicates,
            "refused": self.arrivals.refused,
            "turned_away": self._receiver.turned_away,
            "transit_us": self.arrivals.transit_us,
            "append_ms": {name: quantile(self._append_ms, level) for name, level in LEVELS.items()},
        }

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._producer.poll(0)
                if self._append_waiting():
                    self._take(WAIT_S)
                else:
                    self._receiver.keep_bounds()
                if not self.ended.is_set() and self._is_over():
                    self._producer.flush(self._flush_s)
                    self.ended.set()
        except (KafkaException, OSError) as error:
            self.error = str(error)
        finally:
            self._append_rest()
            self._producer.flush(self._flush_s)
            self._receiver.close()
            self.ended.set()

    def _is_over(self) -> bool:
        all_came = self.arrivals.received >= self.arrivals.sent
        is_quiet = time.monotonic() - self._newest_s > QUIET_S
        return self.arrivals.ended and not self._waiting and (all_came or is_quiet)

    def _take(self, timeout_s: float) -> None:
        for data, received_ns in self._receiver.receive(timeout_s):
            if isinstance(data, Refusal):
                self._refuse(data)
                continue
            try:
                frame = checked(data, self._tag, len(self._topics))
            except FrameError as error:
                self._refuse(Refusal(data[:KEPT_BYTES], str(error)))
                continue
            if frame.topic == HELLO:
                continue
            self._newest_s = time.monotonic()
            if self.arrivals.add(frame, received_ns):
                self._waiting.append((frame, received_ns))
        self._append_waiting()

    def _refuse(self, what: Refusal) -> None:
        self.arrivals.refused += 1
        if self.arrivals.refused <= MAX_KEPT:
            self._refused(what)

    def _append_waiting(self) -> bool:
        """Hand received frames to the producer; True if it accepted all of them."""
        while self._waiting:
            frame, received_ns = self._waiting[0]
            try:
                self._producer.produce(
                    self._topics[frame.topic],
                    frame.value,
                    frame.key,
                    on_delivery=lambda error, message, at_ns=received_ns: self._delivered(
                        error, message, at_ns
                    ),
                )
            except BufferError:
                self._producer.poll(FULL_WAIT_S)
                return False
            self._waiting.popleft()
        return True

    def _append_rest(self) -> None:
        """Append the frames that still wait, and count those that Kafka does not take in time."""
        deadline_s = time.monotonic() + self._flush_s
        while not self._append_waiting() and time.monotonic() < deadline_s:
            pass  # it has waited for room
        self._not_appended += len(self._waiting)

    def _delivered(self, error: Any, message: Any, received_ns: int) -> None:
        if error is not None:
            self._not_appended += 1
            return
        self._appended += 1
        self._append_ms[max(0, message.timestamp()[1] - received_ns // 1_000_000)] += 1
