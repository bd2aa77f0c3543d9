"""How much goes over loopback without loss, from the generator's end to a system behind sockets.

The generator's end makes frames of prepared records and sends them: to a process that only reads
(`sent`), and through the example examples/socket/system.py, which publishes the records unchanged,
to our end for results (`looped`). Over TCP and ZeroMQ the receiver slows the sender, so that the
highest rate is the one that comes about; over UDP the rate is halved until nothing is lost, then
raised in steps of a fifth until something is. Sizes are those of a record: a state of an aircraft
has about 170 bytes. `stamped` is the rate to the reading process with a reading of the clock for
each batch, relative to the rate without. Gbit/s are of frames.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from schemas.frame import END, HELLO, Frame, encode
from services.generator.frame_batch import frames_of
from services.generator.links import AT_ONCE, Link, ZeromqLink, open_system_link
from services.runtime.settings import ROOT
from tests.benchmarks._measured import Measured, averaged, ratio
from tests.integration.kafka_broker import free_base_port

ROUNDS = int(os.environ.get("TIDEGAUGE_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("TIDEGAUGE_BENCH_SECONDS", "2"))
TRANSPORTS, SIZES = ("tcp", "zeromq", "udp"), (170, 1_000, 8_000)
TAG, KEY = b"linkmark", b"a1b2c3"
POLL_S = 0.01
FIRST_RATE, FACTOR, STEPS = 400_000.0, 1.2, 8
PATIENCE_S = 20.0


def measure(say: Callable[[str], None], _scratch: Path) -> Measured:
    """Gbit/s for each transport and size, and what the clock costs."""
    found = Measured()
    for transport in TRANSPORTS:
        for size in SIZES:
            for way, is_looped in (("sent", False), ("looped", True)):
                rates = [highest(transport, size, is_looped=is_looped) for _ in range(ROUNDS)]
                name = f"{transport}_{size}_bytes_{way}_gbit_per_second"
                found.figures.update(averaged(name, rates))
                say(f"{name}: {', '.join(f'{rate:.3f}' for rate in rates)}")
    pairs = [
        [sent("tcp", SIZES[0], stamped=each)[1] for each in (True, False)] for _ in range(ROUNDS)
    ]
    found.ratios.update(ratio("stamped", *zip(*pairs, strict=True)))
    return found


def highest(transport: str, size: int, *, is_looped: bool) -> float:
    """The highest rate without loss, Gbit/s."""
    if transport != "udp":
        lost, rate = sent(transport, size, is_looped=is_looped)
        assert not lost, f"{lost} frames were lost over {transport}"
        return rate
    rate, best = FIRST_RATE, 0.0
    for _ in range(STEPS):
        lost, gbit = sent(transport, size, is_looped=is_looped, rate_per_second=rate)
        if lost and best:
            break
        best = best if lost else gbit
        rate = rate / 2 if lost else rate * FACTOR
    return best


def sent(
    transport: str,
    size: int,
    *,
    is_looped: bool = False,
    rate_per_second: float = 0.0,
    stamped: bool = True,
) -> tuple[int, float]:
    """Frames lost, and Gbit/s until the last one arrived. rate_per_second: 0 for no limit."""
    port = free_base_port()
    hello = encode(Frame(TAG, 0, HELLO, 0, 0))
    with receiving(transport, port, is_looped=is_looped) as process:
        place = "127.0.0.1", port
        is_ours = transport == "zeromq" and not is_looped  # it asks for a login
        link: Link
        if is_ours:
            link = ZeromqLink(place, TAG, are_packed=True)
        else:
            link = open_system_link(transport, place, hello)
        count, began_s = push(link, size, rate_per_second, stamped=stamped)
        assert process.stdout is not None
        result = json.loads(process.stdout.readline())
        link.close()
    frame_bytes = len(encode(Frame(TAG, 0, 0, 0, 0, KEY, bytes(size))))
    gbit = 8e-9 * frame_bytes * result["received"] / (result["last_s"] - began_s)
    return count - result["received"], gbit


def push(link: Link, size: int, rate_per_second: float, *, stamped: bool) -> tuple[int, float]:
    """Send for SECONDS, then the end; frames sent, and when the first was."""
    values = pa.array([bytes(size)] * AT_ONCE, pa.binary())
    records = pa.array([KEY] * AT_ONCE, pa.binary()), values
    until_s = time.monotonic() + PATIENCE_S
    for step in (lambda: link.send(encode(Frame(TAG, 0, 0, 0, 1, KEY, bytes(size)))), link.flush):
        while not step():
            assert time.monotonic() < until_s, "nothing answers"
            time.sleep(POLL_S)
    count, began_s = 1, time.monotonic()
    while (now_s := time.monotonic()) < began_s + SECONDS:
        if rate_per_second and count > rate_per_second * (now_s - began_s):
            continue
        stamp_ns = time.monotonic_ns() if stamped else 1
        frames = frames_of(records, TAG, (0, 0), count, stamp_ns)
        done = 0
        while done < len(frames) and time.monotonic() < until_s:
            if done:
                done += link.send(frames.frame(done))
            else:
                done = link.send_all(frames)
        count += done
    end = encode(Frame(TAG, 0, END, count, 0))
    while not link.flush() and time.monotonic() < until_s:
        continue
    for _ in range(5):
        while not link.send(end) and time.monotonic() < until_s:
            continue
        while not link.flush() and time.monotonic() < until_s:
            continue
        time.sleep(0.02)
    return count, began_s


@contextmanager
def receiving(transport: str, port: int, *, is_looped: bool) -> "Iterator[subprocess.Popen[bytes]]":
    """The process that receives, which prints what came; with the example before it."""
    results = port + 1 if is_looped else port
    ours = [sys.executable, "-m", "tests.benchmarks._link_end", transport, str(results)]
    with subprocess.Popen(ours, cwd=ROOT, stdout=subprocess.PIPE) as end:
        assert end.stdout is not None
        assert end.stdout.readline() == b"open\n"
        system = _system(transport, port) if is_looped else None
        try:
            yield end
        finally:
            for each in (system, end):
                if each is not None:
                    each.kill()
                    each.wait()


def _system(transport: str, port: int) -> "subprocess.Popen[bytes]":
    variables = {
        "TIDEGAUGE_SOCKET_TRANSPORT": transport,
        "TIDEGAUGE_SOCKET_INPUT": f"127.0.0.1:{port}",
        "TIDEGAUGE_SOCKET_ANSWERS": transport,
        "TIDEGAUGE_SOCKET_OUTPUT": f"127.0.0.1:{port + 1}",
        "TIDEGAUGE_SOCKET_TAG": TAG.hex(),
        "TIDEGAUGE_STAGES": "ingest",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        [sys.executable, "examples/socket/system.py"], cwd=ROOT, env=os.environ | variables
    )
    until_s = time.monotonic() + PATIENCE_S
    kind = socket.SOCK_DGRAM if transport == "udp" else socket.SOCK_STREAM
    while time.monotonic() < until_s and not _is_bound(port, kind):
        time.sleep(POLL_S)
    return process


def _is_bound(port: int, kind: socket.SocketKind) -> bool:
    with socket.socket(socket.AF_INET, kind) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
