"""The receiving process of the benchmark `link`: reads frames, checks and counts them and takes
keys and values out, as the end that receives results of a system behind sockets does.

    python -m tests.benchmarks._link_end TRANSPORT PORT
"""

import json
import signal
import sys
import time
from collections import deque

import numpy as np

from schemas.frame import END, decode
from services.runtime.frame_batches import checked_frames
from services.runtime.frame_counts import Arrivals
from services.runtime.frame_receivers import Refusal, open_receiver
from tests.benchmarks.link import TAG

QUIET_S, PATIENCE_S = 1.0, 30.0


def main() -> None:
    """Receive until the end was announced and nothing comes any more, and wait to be killed: a
    system that still answers would lose its connection."""
    transport, port = sys.argv[1], int(sys.argv[2])
    receiver = open_receiver(transport, "127.0.0.1", port, TAG, time.monotonic_ns, are_packed=True)
    print("open", flush=True)
    arrivals, count, last_s, announced = Arrivals(timed=False), 0, time.monotonic(), -1
    while time.monotonic() - last_s < PATIENCE_S:
        for received in receiver.receive_all(0.05):
            if isinstance(received, Refusal):
                continue
            frames = checked_frames(received, TAG, 1)
            for number in np.flatnonzero(frames.heads["topic"] == END).tolist():
                end = decode(frames.frame(number))
                # A system says how many records it received, the generator how many it sent.
                announced = int.from_bytes(end.value, "big") if end.value else end.sequence
            records = frames.where(frames.heads["topic"] == 0)
            if len(records):
                records = records.where(arrivals.add_all(records.heads))
                deque(records.records(), 0)
                count, last_s = count + len(records), time.monotonic()
        is_over = announced >= 0 and (count >= announced or time.monotonic() - last_s > QUIET_S)
        if is_over:
            break
    figures = {"received": count, "last_s": last_s, "cpu_s": time.process_time()}
    print(json.dumps(figures), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
