"""Records sent over the network, with the real broker, gateway and generator: the reported counts
match the topics."""

import json
import resource
import socket
import threading
import time
from contextlib import suppress

import psutil
import pytest

from schemas import catalogue, frame
from schemas.catalogue import domain_topics
from schemas.commands import Prepare, Start, Stop
from schemas.events import Failed, LoadFinished, Ready
from schemas.frame import LENGTH, MAX_FRAME_BYTES
from services.definitions.domains import load_domain
from services.gateway.way_in import MAX_KEPT
from services.runtime.events import open_events, read_spans
from services.runtime.frame_receivers import LIMITS, READ_BYTES
from services.runtime.kafka import admin_client, assigned_consumer, end_offsets, ensure_topics
from tests.integration.runs import BRIEF, next_phases, readers, run_plan
from tests.integration.service_process import has_event, running_service, started

pytestmark = pytest.mark.integration

FLIGHTS = load_domain("flights")
(STATES,) = FLIGHTS.spec.topics
RATE = 2_000
SENT = RATE * BRIEF.total_s


class Dropping:
    """Forwards datagrams, except every n-th record. seen: records received; dropped: records not
    forwarded."""

    def __init__(self, one_in, to_port):
        self.seen = self.dropped = 0
        self._one_in, self._to = one_in, ("127.0.0.1", to_port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        while True:
            data = self._socket.recv(65_536)
            is_record = frame.decode(data).topic not in (frame.END, frame.HELLO)
            self.seen += is_record
            if is_record and self.seen % self._one_in == 0:
                self.dropped += 1
            else:
                out.sendto(data, self._to)


@pytest.fixture(scope="module")
def gateway_process(broker):
    with (
        running_service(broker, "gateway", TIDEGAUGE_INSTANCE="the-gateway") as process,
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
    ):
        lifecycle.until("", started("the-gateway"))
        ensure_topics(admin_client(broker, "tests"), domain_topics(FLIGHTS.spec, 2))
        yield psutil.Process(process.pid)


@pytest.fixture
def gateway(broker, gateway_process):
    return broker


def way_in(settings, run_id, transport, meanwhile=lambda: None, **variables):
    """Reports of the gateway and the generator about a load, and the sequence numbers on the
    topic."""
    consumer = assigned_consumer(settings, "tests")
    before = end_offsets(consumer, STATES)
    instance = f"generator-of-{run_id}"
    fields = {"domain": "flights", "transport": transport, "phases": BRIEF}
    plan = run_plan(run_id, rate=RATE, **fields)
    bus = open_events(settings, "tests")
    with (
        running_service(settings, "generator", TIDEGAUGE_INSTANCE=instance, **variables),
        readers(settings, catalogue.LIFECYCLE) as (lifecycle,),
    ):
        lifecycle.until("", started(instance))
        bus.send(Prepare(run_id=run_id, plan=plan))
        both = lambda all_: sum(one["event"] == Ready.name for one in all_) == 2  # noqa: E731
        events = lifecycle.until(run_id, lambda all_: both(all_) or has_event("failed")(all_))
        assert both(events), events
        meanwhile()
        bus.send(Start(run_id=run_id, phases=next_phases(BRIEF)))
        told = lifecycle.until(
            run_id,
            lambda all_: has_event(LoadFinished.name)(all_) and has_event("way_in")(all_),
            deadline_s=120,
        )
        bus.send(Stop(run_id=run_id))
    found = {one["event"]: json.loads(one["detail"]) for one in told}
    spans = {
        (STATES, place): (begin, end)
        for place, (begin, end) in enumerate(
            zip(before, end_offsets(consumer, STATES), strict=True)
        )
    }
    records = [FLIGHTS.spec.codec.decode(m.value())[1] for m in read_spans(consumer, spans)]
    consumer.close()
    of_load = sorted(one["sequence"] for one in records if one["run_id"] == run_id)
    return found["way_in"], found[LoadFinished.name], of_load


@pytest.mark.parametrize("transport", ["tcp", "zeromq"])
def test_nothing_is_lost_on_the_way(gateway, transport):
    told, load, sequences = way_in(gateway, f"by-{transport}", transport)
    assert sequences == list(range(SENT))
    counts = {"sent": SENT, "received": SENT, "appended": SENT, "lost": 0, "duplicates": 0}
    assert {name: told[name] for name in counts} == counts
    assert (load["intended"], load["acknowledged"], load["failed"]) == (SENT, SENT, 0)
    assert 0 <= told["transit_us"]["p50"] <= told["transit_us"]["p99"] <= told["transit_us"]["max"]
    assert told["append_ms"]["p50"] is not None


def test_what_udp_loses_is_told_exactly(gateway):
    link = Dropping(1_000, gateway.port("gateway_frames"))
    told, load, sequences = way_in(
        gateway, "by-udp", "udp", TIDEGAUGE_GENERATOR_GATEWAY=f"127.0.0.1:{link.port}"
    )
    assert link.dropped > 0
    came = len(sequences)
    assert told["sent"] == SENT
    assert told["lost"] == SENT - came >= SENT - (link.seen - link.dropped)
    assert told["received"] == told["appended"] == came
    assert (load["acknowledged"], load["failed"]) == (came, SENT - came)


@pytest.fixture
def strangers():
    """Connections, which are closed at the end."""
    found = []
    yield found
    for one in found:
        one.close()


@pytest.fixture
def files():
    """Number of files that this process may open now."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


# What each connection sends, in rotation: nothing, a frame that is too long, garbage of a frame's
# length, and an incomplete frame.
STRANGERS = (b"", LENGTH.pack(MAX_FRAME_BYTES + 1), LENGTH.pack(100) + bytes(100), b"\0\0\0")
# The gateway accepts one more connection before rejecting it, and its Kafka clients reconnect.
SPARE_FILES = 8


@pytest.mark.parametrize("transport", ["tcp", "zeromq"])
def test_three_thousand_strangers_are_bounded_and_nothing_of_the_run_is_lost(
    gateway, gateway_process, files, strangers, transport
):
    count = min(3_000, files - 1_000)
    address, seen = ("127.0.0.1", gateway.port("gateway_frames")), []

    def look():
        seen.append((gateway_process.num_fds(), gateway_process.memory_info().rss))

    def crowd():
        look()
        for number in range(count):
            strangers.append(socket.create_connection(address, timeout=10))
            with suppress(BrokenPipeError, ConnectionResetError):
                strangers[-1].send(STRANGERS[number % len(STRANGERS)])
            if number % 500 == 0:
                look()
        # libzmq accepts connections before it reports them.
        end = time.monotonic() + 60
        while gateway_process.num_fds() > seen[0][0] + LIMITS.connections + SPARE_FILES:
            assert time.monotonic() < end, gateway_process.num_fds()
            time.sleep(0.05)
        look()

    run_id = f"with-thousands-by-{transport}"
    told, load, sequences = way_in(gateway, run_id, transport, crowd)
    assert len(strangers) == count
    assert sequences == list(range(SENT))
    assert (told["lost"], told["not_appended"], load["failed"]) == (0, 0, 0)
    # Silent connections and incomplete frames; over TCP, invalid frames are counted too.
    assert count // 2 - LIMITS.connections <= told["turned_away"] <= count
    if transport == "tcp":
        assert count - LIMITS.connections <= told["turned_away"] + told["refused"]
        assert max(files for files, _ in seen) <= seen[0][0] + LIMITS.connections + SPARE_FILES
    # Each holds at most a frame and one read.
    most_bytes = LIMITS.connections * (MAX_FRAME_BYTES + READ_BYTES)
    (files_before, memory_before), *crowded = seen
    assert max(memory for _, memory in crowded) <= memory_before + most_bytes
    with readers(gateway, catalogue.DEAD_LETTER) as (letters,):
        kept = letters.everything(run_id)
    # Frames incomplete at the time of the report are counted as refused later.
    refused = told["refused"]
    assert min(refused, MAX_KEPT) <= len(kept) <= min(refused + LIMITS.connections, MAX_KEPT)
    for one in strangers:
        one.close()
    # It has closed its port and released its memory.
    assert gateway_process.num_fds() <= files_before + SPARE_FILES
    assert gateway_process.memory_info().rss <= memory_before + 32 * 1024 * 1024


def test_without_a_gateway_the_run_fails_with_one_sentence(broker):
    with (
        running_service(
            broker,
            "generator",
            TIDEGAUGE_INSTANCE="alone",
            TIDEGAUGE_GENERATOR_GATEWAY="127.0.0.1:1",
        ),
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
    ):
        lifecycle.until("", started("alone"))
        ensure_topics(admin_client(broker, "tests"), domain_topics(FLIGHTS.spec, 2))
        plan = run_plan("alone", rate=10, domain="flights", transport="tcp")
        open_events(broker, "tests").send(Prepare(run_id="alone", plan=plan))
        failed = lifecycle.until("alone", has_event(Failed.name))
        reasons = [json.loads(e["detail"])["reason"] for e in failed if e["event"] == "failed"]
    assert any("no gateway answers at 127.0.0.1:1" in reason for reason in reasons)
