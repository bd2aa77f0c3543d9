"""Frames that carry records over the network from the generator to the gateway.

A frame is a head of HEAD_BYTES, the key of the record, and its value. Over UDP a frame is a
datagram, over ZeroMQ a message; over TCP it is preceded by its length, 4 bytes, and so it is in the
messages of ZeroMQ that a system behind sockets gets and sends: they have one or several whole
frames. All numbers are big-endian.

    4 bytes  MARKER
    8 bytes  tag of the run (`tag_of`), so that a frame of another run is refused
    2 bytes  stream: which of several generators
    1 byte   topic: index of the input in the domain; END, HELLO: no record
    1 byte   0
    8 bytes  sequence of the frame in its stream, from 0; of END: number of frames in the stream
    8 bytes  send time, nanoseconds since the epoch by the sender's clock
    2 bytes  length of the key

Of a system behind sockets (docs/sockets.md) the send time is of the machine's monotonic clock. Its
results are frames too: stream and topic are the index of the stage among those published, and an
END of each stream may have in its value the number of records received (8 bytes).

A TCP connection begins with HELLO, so that the gateway can tell it from unrelated ones. A client of
ZeroMQ logs in with the mechanism PLAIN as ZEROMQ_USER; the password is the tag in hexadecimal.
"""

import struct
from hashlib import blake2b
from typing import NamedTuple

MARKER = b"TGF1"
END, HELLO = 255, 254
PROBES = 63  # stream of the records sent before a load
# Header of records on Kafka: when the frame of an input was sent, or the frame of an output
# received, 8 bytes, big-endian: nanoseconds of the machine's monotonic clock.
STAMP_HEADER, STAMP = "tidegauge_ns", struct.Struct(">q")
ZEROMQ_USER = "tidegauge"
MAX_STREAMS = 64
MAX_FRAME_BYTES = 1024 * 1024
MAX_DATAGRAM_BYTES = 65_507  # maximum payload of a UDP datagram over IPv4
_HEAD = struct.Struct(">4s8sHBBQQH")
HEAD_BYTES = _HEAD.size
LENGTH = struct.Struct(">I")


class FrameError(ValueError):
    """Bytes are not a frame; the text is the reason for the dead letter."""


class Frame(NamedTuple):
    """A record and its send time. key, value: empty for END and HELLO."""

    tag: bytes
    stream: int
    topic: int
    sequence: int
    sent_ns: int
    key: bytes = b""
    value: bytes = b""


def tag_of(run_id: str, secret: str) -> bytes:
    """Prefix of the frames of a run, 8 bytes. secret: shared by sender and gateway, so that nobody
    else can make frames of a run, whose id is public."""
    return blake2b(run_id.encode(), digest_size=8, key=secret.encode()[:64]).digest()


def encode(frame: Frame) -> bytes:
    """The bytes of a frame. Raises struct.error for numbers out of range."""
    head = _HEAD.pack(
        MARKER,
        frame.tag,
        frame.stream,
        frame.topic,
        0,
        frame.sequence,
        frame.sent_ns,
        len(frame.key),
    )
    return head + frame.key + frame.value


def decode(data: bytes) -> Frame:
    """Parse a whole frame. Raises FrameError."""
    if len(data) < HEAD_BYTES:
        raise FrameError(f"{len(data)} bytes are fewer than a frame header has")
    if len(data) > MAX_FRAME_BYTES:
        raise FrameError(f"{len(data)} bytes exceed the limit of a frame")
    marker, tag, stream, topic, zero, sequence, sent_ns, key_bytes = _HEAD.unpack_from(data)
    if marker != MARKER or zero:
        raise FrameError("its header is invalid")
    begin = HEAD_BYTES + key_bytes
    if begin > len(data):
        raise FrameError("its key is longer than the frame")
    return Frame(tag, stream, topic, sequence, sent_ns, data[HEAD_BYTES:begin], data[begin:])


def checked(data: bytes, tag: bytes, topics: int) -> Frame:
    """Parse a whole frame of the run with this tag, which has this number of topics. Raises
    FrameError."""
    frame = decode(data)
    if frame.tag != tag:
        raise FrameError("it belongs to another run")
    if frame.topic >= topics and frame.topic not in (END, HELLO):
        raise FrameError(f"the domain has no input number {frame.topic}")
    return frame
