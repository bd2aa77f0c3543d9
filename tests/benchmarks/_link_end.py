"""The receiving process of the benchmark `link`: `sink` only reads whole frames and counts them,
`results` is the end that receives results of a system behind sockets.

    python -m tests.benchmarks._link_end sink|results TRANSPORT PORT
"""

import json
import sys
import time

from schemas.frame import END, FrameError, checked
from services.runtime.frame_receivers import Arrivals, Refusal, open_receiver
from tests.benchmarks.link import TAG

QUIET_S, PATIENCE_S = 1.0, 30.0


def main() -> None:
    """Receive until the end was announced and nothing comes any more."""
    way, transport, port = sys.argv[1:]
    receiver = open_receiver(transport, "127.0.0.1", int(port), TAG, time.monotonic_ns)
    print("open", flush=True)
    arrivals, count, last_s, announced = Arrivals(timed=False), 0, time.monotonic(), -1
    while time.monotonic() - last_s < PATIENCE_S:
        for data, _received_ns in receiver.receive(0.05):
            if isinstance(data, Refusal):
                continue
            if way == "sink":
                if data[14] == END:
                    announced = int.from_bytes(data[16:24], "big")
                elif data[14] == 0:
                    count, last_s = count + 1, time.monotonic()
                continue
            try:
                frame = checked(data, TAG, 1)
            except FrameError:
                continue
            if frame.topic == END:
                announced = int.from_bytes(frame.value, "big")
            elif arrivals.add(frame, 0):
                count, last_s = count + 1, time.monotonic()
        is_over = announced >= 0 and (count >= announced or time.monotonic() - last_s > QUIET_S)
        if is_over:
            break
    print(json.dumps({"received": count, "last_s": last_s}), flush=True)


if __name__ == "__main__":
    main()
