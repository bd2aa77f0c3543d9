"""An example of a system behind sockets, measured by:

    ./tidegauge run filters --domain flights --pipeline socket-python --transport tcp

It receives states of aircraft over TCP, UDP or ZeroMQ and answers over the network: the stages
`ingest` (the unchanged bytes), `parse` (the decoded state), `area` and `emergencies` (two filters)
of the domain flights. It depends on Tidegauge for the format of the records only; in another
language that is Avro with the files of domains/flights. See docs/sockets.md.
"""

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from schemas.codec import DecodeError, RecordSchemas, load_schema

# length of the rest; marker, tag, stream, topic, zero, sequence, send time, length of the key
HEAD, LENGTH, COUNT = struct.Struct(">I4s8sHBBQQH"), struct.Struct(">I"), struct.Struct(">q")
# of these: length, stream, topic, length of the key
PLACES = struct.Struct(">I12xHBx16xH")
HEAD_BYTES = HEAD.size - LENGTH.size
Frame = tuple[int, int, bytes, bytes]  # stream, topic, key, value
END, HELLO, PROBES = 255, 254, 63
MARKER, TAG = b"TGF1", bytes.fromhex(os.environ["TIDEGAUGE_SOCKET_TAG"])
STAGES = os.environ["TIDEGAUGE_STAGES"].split(",")
NUMBERS = {stage: number for number, stage in enumerate(STAGES)}
MOST_WAITING = 256 * 1024  # bytes of results; our end takes messages of ZeroMQ up to 1 MiB
RECORDS = {
    "parse": "flights_parsed",
    "area": "flights_area",
    "emergencies": "flights_emergency",
}
DECODED = {stage: record for stage, record in RECORDS.items() if stage in NUMBERS}

records = RecordSchemas(load_schema(path) for path in Path("domains/flights").glob("*.avsc"))
columns = {
    record: [field["name"] for field in json.loads(records.schema_json(record))["fields"]]
    for record in RECORDS.values()
}


def transport(name: str) -> str:
    return os.environ[f"TIDEGAUGE_SOCKET_{name}"]


def address(name: str) -> tuple[str, int]:
    host, _, port = os.environ[f"TIDEGAUGE_SOCKET_{name}"].rpartition(":")
    return host, int(port)


def frames(transport: str, place: tuple[str, int]) -> Iterator[list[Frame]]:
    """The frames that have arrived, many at a time; none if all that came was read."""
    if transport == "zeromq":
        import zmq

        pull = zmq.Context.instance().socket(zmq.PULL)
        pull.setsockopt(zmq.RCVHWM, 16)
        pull.bind(f"tcp://{place[0]}:{place[1]}")
        while True:
            yield whole(pull.recv())[0]
    elif transport == "udp":
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
        datagrams.bind(place)
        while True:
            some = [datagrams.recv(65_536)]
            with suppress(BlockingIOError):
                while len(some) < 200:
                    some.append(datagrams.recv(65_536, socket.MSG_DONTWAIT))
            yield whole(b"".join(LENGTH.pack(len(each)) + each for each in some))[0]
    else:
        server = socket.create_server(place)
        while True:
            client, _ = server.accept()
            rest = b""
            while data := client.recv(256 * 1024):
                arrived, rest = whole(rest + data)
                yield arrived


def whole(data: bytes) -> tuple[list[Frame], bytes]:
    """The whole frames, each of which follows its length, and the rest."""
    some, at, unpack = [], 0, PLACES.unpack_from
    while at + HEAD.size <= len(data):
        length, stream, topic, key_bytes = unpack(data, at)
        key = at + HEAD.size
        value, end = key + key_bytes, at + LENGTH.size + length
        if end > len(data):
            break
        some.append((stream, topic, data[key:value], data[value:end]))
        at = end
    return some, data[at:]


class Answers:
    """Sends frames to the results' port, numbered by stage; all that wait with one system call,
    but over UDP one by one."""

    def __init__(self, transport: str, place: tuple[str, int]) -> None:
        self.transport = transport
        self.sent = [0] * len(STAGES)
        self.waiting = bytearray()
        if transport == "zeromq":
            import zmq

            self.socket = zmq.Context.instance().socket(zmq.PUSH)
            self.socket.setsockopt_string(zmq.PLAIN_USERNAME, "tidegauge")
            self.socket.setsockopt_string(zmq.PLAIN_PASSWORD, TAG.hex())
            self.socket.connect(f"tcp://{place[0]}:{place[1]}")
        elif transport == "udp":
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.connect(place)
        else:
            self.socket = socket.create_connection(place)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def result(self, stage: int, key: bytes, value: bytes) -> None:
        number = self.sent[stage]
        self.sent[stage] = number + 1
        length = HEAD_BYTES + len(key) + len(value)
        self.send(
            HEAD.pack(length, MARKER, TAG, stage, stage, 0, number, 0, len(key)) + key + value
        )

    def end(self, received: int) -> None:
        """Tell how many results there are of each stage, and how many records there were."""
        for stage, count in enumerate(self.sent):
            head = HEAD.pack(HEAD_BYTES + COUNT.size, MARKER, TAG, stage, END, 0, count, 0, 0)
            self.send(head + COUNT.pack(received))

    def send(self, frame: bytes) -> None:
        if self.transport == "udp":
            with suppress(ConnectionRefusedError):  # nobody receives any more
                self.socket.send(frame[LENGTH.size :])
            return
        if len(self.waiting) + len(frame) > MOST_WAITING:
            self.flush()
        self.waiting += frame

    def flush(self) -> None:
        if self.waiting:
            (self.socket.send if self.transport == "zeromq" else self.socket.sendall)(self.waiting)
            self.waiting.clear()


def results(value: bytes) -> Iterator[tuple[int, bytes]]:
    """The results of a record: the number of the stage, and the value."""
    if "ingest" in NUMBERS:
        yield NUMBERS["ingest"], value
    if not DECODED:
        return
    try:
        _name, state = records.decode(value)
    except DecodeError:
        return  # a real system stores undecodable records
    keeps = {
        "parse": True,
        "area": 45 <= state["latitude"] <= 56 and 2 <= state["longitude"] <= 18,
        "emergencies": state["squawk"] == "7700",
    }
    for stage, record in DECODED.items():
        if keeps[stage]:
            result = {name: state[name] for name in columns[record]}
            yield NUMBERS[stage], records.encode(record, result)


def main() -> None:
    answers = Answers(transport("ANSWERS"), address("OUTPUT"))
    received = 0  # records of the load
    for some in frames(transport("TRANSPORT"), address("INPUT")):
        for stream, topic, key, value in some:
            if topic == END:
                answers.end(received)
            elif topic != HELLO:
                received += stream != PROBES
                for stage, result in results(value):
                    answers.result(stage, key, result)
        answers.flush()


if __name__ == "__main__":
    main()
