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

# marker, tag, stream, topic, zero, sequence, send time, length of the key
HEAD, LENGTH, COUNT = struct.Struct(">4s8sHBBQQH"), struct.Struct(">I"), struct.Struct(">q")
END, HELLO, PROBES = 255, 254, 63
MARKER, TAG = b"TGF1", bytes.fromhex(os.environ["TIDEGAUGE_SOCKET_TAG"])
STAGES = os.environ["TIDEGAUGE_STAGES"].split(",")
RECORDS = {
    "parse": "flights_parsed",
    "area": "flights_area",
    "emergencies": "flights_emergency",
}

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


def frames(transport: str, place: tuple[str, int]) -> Iterator[list[bytes]]:
    """The frames that arrive, several at a time; none if all that came was read."""
    if transport == "zeromq":
        import zmq

        pull = zmq.Context.instance().socket(zmq.PULL)
        pull.bind(f"tcp://{place[0]}:{place[1]}")
        while True:
            yield [pull.recv()]
    elif transport == "udp":
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 * 1024 * 1024)
        datagrams.bind(place)
        while True:
            yield [datagrams.recv(65_536)]
    else:
        server = socket.create_server(place)
        while True:
            client, _ = server.accept()
            buffer = bytearray()
            while data := client.recv(256 * 1024):
                buffer += data
                yield list(whole(buffer))


def whole(buffer: bytearray) -> Iterator[bytes]:
    """The whole frames of a buffer, which keeps the rest."""
    at = 0
    while len(buffer) - at >= LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer, at)
        if len(buffer) - at - LENGTH.size < length:
            break
        yield bytes(buffer[at + LENGTH.size : at + LENGTH.size + length])
        at += LENGTH.size + length
    del buffer[:at]


class Answers:
    """Sends frames to the results' port, numbered by stage."""

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
        head = HEAD.pack(MARKER, TAG, stage, stage, 0, self.sent[stage], 0, len(key))
        self.sent[stage] += 1
        self.send(head + key + value)

    def end(self, received: int) -> None:
        """Tell how many results there are of each stage, and how many records there were."""
        for stage, count in enumerate(self.sent):
            head = HEAD.pack(MARKER, TAG, stage, END, 0, count, 0, 0)
            self.send(head + COUNT.pack(received))

    def send(self, frame: bytes) -> None:
        if self.transport == "tcp":
            self.waiting += LENGTH.pack(len(frame)) + frame
        else:
            with suppress(ConnectionRefusedError):  # of a datagram: nobody receives any more
                self.socket.send(frame)

    def flush(self) -> None:
        if self.waiting:
            self.socket.sendall(self.waiting)
            self.waiting.clear()


def results(value: bytes) -> Iterator[tuple[int, bytes]]:
    """The results of a record: the number of the stage, and the value."""
    if "ingest" in STAGES:
        yield STAGES.index("ingest"), value
    try:
        _name, state = records.decode(value)
    except DecodeError:
        return  # a real system stores undecodable records
    keeps = {
        "parse": True,
        "area": 45 <= state["latitude"] <= 56 and 2 <= state["longitude"] <= 18,
        "emergencies": state["squawk"] == "7700",
    }
    for stage, record in RECORDS.items():
        if stage in STAGES and keeps[stage]:
            result = {name: state[name] for name in columns[record]}
            yield STAGES.index(stage), records.encode(record, result)


def main() -> None:
    answers = Answers(transport("ANSWERS"), address("OUTPUT"))
    received = 0  # records of the load
    arriving = frames(transport("TRANSPORT"), address("INPUT"))
    for some in arriving:
        for frame in some:
            head = HEAD.unpack_from(frame)
            stream, topic, key_bytes = head[2], head[3], head[7]
            if topic == END:
                answers.end(received)
            elif topic != HELLO:
                received += stream != PROBES
                value = frame[HEAD.size + key_bytes :]
                for stage, result in results(value):
                    answers.result(stage, frame[HEAD.size : HEAD.size + key_bytes], result)
        answers.flush()


if __name__ == "__main__":
    main()
