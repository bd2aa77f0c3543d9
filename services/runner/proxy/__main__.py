"""The proxy of one pipeline: passes on what its Kafka clients and the brokers send each other, and
publishes which offsets of the input topics were handed to the pipeline, and when.

    python -m services.runner.proxy SOCKET PIPELINE

SOCKET: number of an inherited socket that listens on loopback, for the pipeline's bootstrap
address. PIPELINE: by which others find the process. Standard input has JSON lines (`Orders`): the
first when it starts, others when the run changes. The proxy ends with its standard input.

A time is that of the proxy's clock when it passes on the last byte of an answer.

Signals disturb the network: SIGUSR1 ends all connections and refuses new ones, SIGUSR2 delays every
answer, each until SIGCONT; between SIGSTOP and SIGCONT nothing passes.
"""

import asyncio
import signal
import socket
import sys
from collections import defaultdict, deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import TopicCollection

from schemas import catalogue
from services.runner.proxy.process import LOOPBACK, Orders, listening_socket
from services.runner.proxy.wire import Answers, Handed, ProtocolError, Requests
from services.runtime.events import Events, open_events
from services.runtime.kafka import KAFKA_TIMEOUT_S, admin_client
from services.runtime.logs import configure_logs, get_log
from services.runtime.process import now_ms
from services.runtime.settings import ServiceSettings, load_settings

SERVICE: Final = "proxy"
PUBLISH_MS: Final = 500
CONNECT_S: Final = 10.0
MOST_BROKERS: Final = 64
BUFFER: Final = memoryview(bytearray(1 << 18))
BUFFERED_BYTES: Final = 1 << 20  # of one direction, before reading from the other end pauses
MOST_CONNECTIONS: Final = 2_000
MOST_DELAYED: Final = 256  # parts of answers of a connection, each at most what is read at once
OTHER_END, DELAYED = "the other end", "delayed answers"  # for what an end waits
Address = tuple[str, int]

log = get_log()


@dataclass
class _Partition:
    """What was handed over of a partition since the last event. last: the highest offset that ever
    was; first: whether there was none before. offsets, times_ms: the highest offset after each
    millisecond in which it rose."""

    last: int = -1
    first: bool = False
    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    answers: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, handed: Handed, at_ms: int) -> None:
        self.answers += 1
        self.records += handed.records
        self.bytes += handed.bytes
        if handed.last_offset <= self.last:
            return
        self.first = self.first or self.last < 0
        self.last = handed.last_offset
        if self.times_ms and self.times_ms[-1] == at_ms:
            self.offsets[-1] = self.last
        else:
            self.offsets.append(self.last)
            self.times_ms.append(at_ms)

    def take(self) -> dict[str, object]:
        """The fields of an event, all counts since the last one."""
        fields: dict[str, object] = {
            "first": self.first,
            "answers": self.answers,
            "records": self.records,
            "bytes": self.bytes,
            "last_offsets": self.offsets,
            "handed_ms": self.times_ms,
        }
        self.first, self.offsets, self.times_ms = False, [], []
        self.answers = self.records = self.bytes = 0
        return fields


class HandedOffsets:
    """Offsets of the input topics that were handed over. names: by the id of a topic, its name."""

    def __init__(self, topics: Iterable[str], names: dict[bytes, str]) -> None:
        self._names = names | {name.encode(): name for name in topics}
        self._partitions: dict[tuple[str, int], _Partition] = defaultdict(_Partition)

    def add(self, handed: list[Handed], at_ms: int) -> None:
        """Note what one answer or several held."""
        for each in handed:
            key = each.topic if isinstance(each.topic, bytes) else each.topic.encode()
            name = self._names.get(key)
            if name is not None:
                self._partitions[name, each.partition].add(each, at_ms)

    def publish(self, events: Events, orders: Orders, until_ms: int) -> None:
        """Publish what was handed over, and that it is all up to a time."""
        head = {"pipeline": orders.pipeline, "until": until_ms}
        for (topic, number), partition in self._partitions.items():
            if partition.answers:
                place = head | {"topic": topic, "partition": number}
                fields = place | partition.take()
                events.publish_figures(catalogue.FETCHES, orders.run_id, **fields)
        none = _Partition().take()
        whole = head | {"topic": "", "partition": -1} | none
        events.publish_figures(catalogue.FETCHES, orders.run_id, **whole)


class ClientProxy:
    """Listens for a pipeline's clients, one socket for each broker."""

    def __init__(
        self, bootstrap: list[Address], socket_: socket.socket, noted: HandedOffsets
    ) -> None:
        self._noted = noted
        self._listening: dict[Address, int] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self.delay_s = 0.0  # of answers
        self._is_cut = False
        self._clients: set[_Client] = set()
        if len(bootstrap) == 1:
            self._listening[bootstrap[0]] = socket_.getsockname()[1]
        self._start(socket_, bootstrap)

    def address_of(self, host: str, port: int) -> Address:
        """Where the pipeline reaches a broker. Raises ProtocolError if there are too many."""
        known = self._listening.get((host, port))
        if known is None:
            if len(self._listening) >= MOST_BROKERS:
                raise ProtocolError(f"more than {MOST_BROKERS} brokers")
            opened = listening_socket()
            known = self._listening[host, port] = opened.getsockname()[1]
            self._start(opened, [(host, port)])
        return LOOPBACK, known

    def _start(self, opened: socket.socket, brokers: list[Address]) -> None:
        loop = asyncio.get_running_loop()
        self.run(loop.create_server(lambda: _Client(self, brokers), sock=opened))

    async def connected(self, brokers: list[Address], client: "_Client") -> "_Broker":
        """A connection to the first broker that accepts one. Raises OSError."""
        failed: OSError = ConnectionError("no broker")
        for host, port in brokers:
            try:
                connecting = asyncio.get_running_loop().create_connection(
                    lambda: _Broker(client), host, port
                )
                return (await asyncio.wait_for(connecting, CONNECT_S))[1]
            except OSError as error:
                failed = error
        raise failed

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._is_cut = True
        for client in [*self._clients]:
            client.transport.abort()

    def restore(self) -> None:
        """Accept connections, and pass on answers at once."""
        self._is_cut, self.delay_s = False, 0.0

    def admits(self, client: "_Client") -> bool:
        """Whether a connection may be made; notes it until `forget`."""
        self._clients.add(client)
        return not self._is_cut and len(self._clients) <= MOST_CONNECTIONS

    def forget(self, client: "_Client") -> None:
        """A connection has ended."""
        self._clients.discard(client)

    def note(self, handed: list[Handed]) -> None:
        """Note what is passed on now."""
        self._noted.add(handed, now_ms())

    def run(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine as a task, which is kept until it has ended."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _End(asyncio.BufferedProtocol):
    """One end of a connection through the proxy; other: its other end, once there is one. All ends
    read into one buffer, one after another: a new one for each read costs more than all else."""

    transport: asyncio.Transport
    other: "_End | None" = None

    def __init__(self) -> None:
        self._waits_for: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(BUFFERED_BYTES)
        own: socket.socket = transport.get_extra_info("socket")
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.other is not None:
            self.other.transport.close()  # after what was written

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(BUFFER[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the other end."""
        raise NotImplementedError

    def wait_for(self, reason: str) -> None:
        """Read nothing until each reason to wait is over."""
        self._waits_for.add(reason)
        self.transport.pause_reading()

    def go_on(self, reason: str) -> None:
        """A reason to wait is over, if there was one."""
        self._waits_for.discard(reason)
        if not self._waits_for and not self.transport.is_closing():
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.wait_for(OTHER_END)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.go_on(OTHER_END)

    def refuse(self, problem: ProtocolError) -> None:
        """End a connection that does not carry what is known."""
        log.error("connection_refused", reason=str(problem))
        self.transport.abort()


class _Client(_End):
    """The end of the pipeline's client."""

    def __init__(self, proxy: ClientProxy, brokers: list[Address]) -> None:
        super().__init__()
        self.proxy = proxy
        self.answers = Answers(proxy.address_of)
        self._brokers = brokers
        self._requests = Requests(self.answers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.proxy.admits(self):
            self.transport.abort()
            return
        self.wait_for(OTHER_END)
        self.proxy.run(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.proxy.forget(self)

    async def _connect(self) -> None:
        try:
            broker = await self.proxy.connected(self._brokers, self)
        except OSError as error:
            log.warning("broker_unreachable", reason=str(error))
            self.transport.close()
            return
        if self.transport.is_closing():
            broker.transport.close()
            return
        self.other = broker
        self.go_on(OTHER_END)

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        try:
            self.other.transport.write(self._requests.feed(data))
        except ProtocolError as problem:
            self.refuse(problem)


class _Broker(_End):
    """The end of a broker."""

    def __init__(self, client: _Client) -> None:
        super().__init__()
        self.other: _Client = client
        self._delayed: deque[bytes] = deque()

    def data_received(self, data: bytes) -> None:
        delay_s = self.other.proxy.delay_s
        if not delay_s and not self._delayed:
            self._pass_on(data)
            return
        self._delayed.append(data)
        asyncio.get_running_loop().call_later(delay_s, self._pass_on_next)
        if len(self._delayed) >= MOST_DELAYED:
            self.wait_for(DELAYED)

    def _pass_on_next(self) -> None:
        data = self._delayed.popleft()  # in their order, whichever timer it is
        if len(self._delayed) < MOST_DELAYED:
            self.go_on(DELAYED)
        if not self.other.transport.is_closing():
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        answers = self.other.answers
        try:
            passed_on = answers.feed(data)
        except ProtocolError as problem:
            self.refuse(problem)
            return
        handed = answers.take_handed()
        if handed:
            self.other.proxy.note(handed)
        if passed_on:
            self.other.transport.write(passed_on)


def addresses(bootstrap: str) -> list[Address]:
    """Hosts and ports of a list of bootstrap servers."""
    pairs = (each.strip().rpartition(":") for each in bootstrap.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def topic_names(settings: ServiceSettings, topics: Iterable[str]) -> dict[bytes, str]:
    """Names of topics by the 16 bytes of their ids. Raises KafkaException."""
    admin = admin_client(settings, SERVICE)
    described = admin.describe_topics(TopicCollection([*topics]), request_timeout=KAFKA_TIMEOUT_S)
    result = {}
    for name, future in described.items():
        topic_id = future.result(KAFKA_TIMEOUT_S).topic_id
        bits = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
        result[b"".join((each & (1 << 64) - 1).to_bytes(8) for each in bits)] = name
    return result


async def serve(settings: ServiceSettings, opened: socket.socket) -> None:
    """Serve until standard input ends or SIGTERM."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    orders = Orders.model_validate_json(await lines.readline())
    events = open_events(settings, SERVICE)
    noted = HandedOffsets(orders.topics, topic_names(settings, orders.topics))
    proxy = ClientProxy(addresses(settings.open_bootstrap), opened, noted)
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, proxy.cut)
    loop.add_signal_handler(signal.SIGUSR2, setattr, proxy, "delay_s", orders.slow_ms / 1000)
    loop.add_signal_handler(signal.SIGCONT, proxy.restore)
    following: asyncio.Task[bytes] = loop.create_task(lines.readline())
    ending = loop.create_task(ended.wait())
    while not ending.done():
        left_s = (PUBLISH_MS + 1 - now_ms() % PUBLISH_MS) / 1000
        await asyncio.wait((following, ending), timeout=left_s, return_when="FIRST_COMPLETED")
        # A whole multiple, so that the counts of an event are of one second.
        noted.publish(events, orders, now_ms() // PUBLISH_MS * PUBLISH_MS)
        if following.done():
            line = following.result()
            if not line:
                break
            orders = Orders.model_validate_json(line)
            following = loop.create_task(lines.readline())
    noted.publish(events, orders, now_ms())
    events.flush()


def main() -> None:
    """Serve the socket named on the command line."""
    settings = load_settings(ServiceSettings)
    configure_logs(SERVICE, settings.log_level)
    with socket.socket(fileno=int(sys.argv[1])) as opened:
        asyncio.run(serve(settings, opened))


if __name__ == "__main__":
    main()
