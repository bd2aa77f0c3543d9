"""The Kafka protocol as far as the proxy needs it: where frames begin, which offsets an answer to a
fetch holds, and the addresses of brokers in three answers, which are replaced.

    answers = Answers(address_of)
    requests = Requests(answers)
    to_broker = requests.feed(data)     # of the client; unchanged
    to_client = answers.feed(data)      # of the broker; unchanged but for addresses
    handed = answers.take_handed()      # by the answers that are complete with that

All other bytes pass as they are. Of record batches only the headers are read.
Layouts are those of Kafka's message definitions (clients/src/main/resources/common/message).
"""

import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from services.runtime.record_batches import BatchFormatError, batches

FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS, DESCRIBE_CLUSTER = 1, 3, 10, 18, 60
# Newest versions whose layout is known here. An answer to ApiVersions offers no newer ones.
NEWEST: Final = {FETCH: 17, METADATA: 13, FIND_COORDINATOR: 6, DESCRIBE_CLUSTER: 2}
# First versions with compact lengths and tagged fields.
FLEXIBLE: Final = {
    FETCH: 12,
    METADATA: 9,
    FIND_COORDINATOR: 3,
    API_VERSIONS: 3,
    DESCRIBE_CLUSTER: 0,
}
NAMED_BY_ID: Final = 13  # first version of a fetch that names topics by their ids
MAX_FRAME_BYTES = 1 << 30
SMALL_BYTES = 1 << 18
MAX_FETCHED_BYTES = 256 << 20  # of an answer to a fetch, which is kept until it is complete
MAX_REWRITTEN_BYTES = 16 << 20  # of an answer that is held until it is complete
MAX_PENDING = 10_000  # requests of a connection without answer
TOPIC_ID_BYTES = 16
_ANSWER: Final = struct.Struct(">ii")  # size, correlation id
_REQUEST: Final = struct.Struct(">ihhi")  # size, API, version, correlation id

AddressOf = Callable[[str, int], tuple[str, int]]


class ProtocolError(Exception):
    """What a connection carries is not the Kafka protocol as it is known here."""


@dataclass(frozen=True)
class Handed:
    """Offsets of one partition in an answer: up to `last_offset`. topic: its name, or the 16 bytes
    of its id. records and bytes: of whole batches, with those before the offset asked for."""

    topic: str | bytes
    partition: int
    last_offset: int
    records: int
    bytes: int


class Answers:
    """Bytes from a broker to a client. address_of: what a client is told instead of a broker's host
    and port."""

    def __init__(self, address_of: AddressOf) -> None:
        self._address_of = address_of
        self._handed: list[Handed] = []
        self._pending: deque[tuple[int, int, int]] = deque()  # correlation id, API, version
        self._head = b""
        self._left = 0  # bytes of the current frame that have not been fed
        self._held: bytearray | None = None  # of a frame whose addresses are replaced
        self._api = (0, 0)
        self._fetched: list[bytes] | None = None  # parts of an answer to a fetch
        self._is_small = False

    def expect(self, correlation_id: int, api: int, version: int) -> None:
        """Note a request. Raises ProtocolError if too many have no answer."""
        if len(self._pending) >= MAX_PENDING:
            raise ProtocolError("too many requests without an answer")
        self._pending.append((correlation_id, api, version))

    def take_handed(self) -> list[Handed]:
        """What the answers held whose last byte was fed since the last call."""
        taken, self._handed = self._handed, []
        return taken

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on. Raises ProtocolError."""
        out: list[bytes] = []
        at = 0
        while at < len(data):
            if not self._left:
                part = data[at : at + _ANSWER.size - len(self._head)]
                at += len(part)
                self._head += part
                if len(self._head) == _ANSWER.size:
                    out.append(self._begin())
                continue
            part = data[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            out.append(self._within(part))
        return b"".join(out)

    def _begin(self) -> bytes:
        """Begin the frame whose head has been read; returns what is passed on of that."""
        head, self._head = self._head, b""
        size, correlation_id = _ANSWER.unpack(head)
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise ProtocolError(f"an answer of {size} bytes")
        self._left = size - 4
        self._api = self._answered(correlation_id)
        api, version = self._api
        self._held, self._fetched = None, None
        if api == FETCH and version <= NEWEST[FETCH]:
            if size > MAX_FETCHED_BYTES:
                raise ProtocolError(f"an answer to a fetch of {size} bytes")
            self._fetched, self._is_small = [head], size <= SMALL_BYTES
            return b"" if self._is_small and self._left else head
        if api in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, API_VERSIONS):
            if size > MAX_REWRITTEN_BYTES:
                raise ProtocolError(f"an answer with addresses of {size} bytes")
            self._held = bytearray(head[4:])
        if self._held is None:
            return head
        return b"" if self._left else self._end()

    def _answered(self, correlation_id: int) -> tuple[int, int]:
        """API and version of the request that an answer belongs to. Requests before it have no
        answer, as those to produce without acknowledgement."""
        while self._pending:
            known, api, version = self._pending.popleft()
            if known == correlation_id:
                return api, version
        raise ProtocolError("an answer to no request")

    def _within(self, part: bytes) -> bytes:
        if self._held is not None:
            self._held += part
            return b"" if self._left else self._end()
        if self._fetched is None:
            return part
        return self._within_fetch(self._fetched, part)

    def _within_fetch(self, parts: list[bytes], part: bytes) -> bytes:
        """A small answer is passed on as a whole, since its client waits for that, and a broker
        sends head and records apart; of a large one each part."""
        parts.append(part)
        if self._left:
            return b"" if self._is_small else part
        whole = b"".join(parts)
        self._handed += _fetch_answer(whole, self._api[1])
        self._fetched = None
        return whole if self._is_small else part

    def _end(self) -> bytes:
        """The whole frame that was held, with other addresses."""
        assert self._held is not None
        body = _rewritten(bytes(self._held), *self._api, self._address_of)
        self._held = None
        return len(body).to_bytes(4) + body


class Requests:
    """Bytes from a client to a broker: notes which answers follow."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._head = b""
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """The same bytes. Raises ProtocolError."""
        at = 0
        while at < len(data):
            if self._left:
                skipped = min(self._left, len(data) - at)
                self._left -= skipped
                at += skipped
                continue
            part = data[at : at + _REQUEST.size - len(self._head)]
            at += len(part)
            self._head += part
            if len(self._head) == _REQUEST.size:
                size, api, version, correlation_id = _REQUEST.unpack(self._head)
                if not 8 <= size <= MAX_FRAME_BYTES:
                    raise ProtocolError(f"a request of {size} bytes")
                self._answers.expect(correlation_id, api, version)
                self._left, self._head = size - 8, b""
        return data


def _fetch_answer(frame: bytes, version: int) -> list[Handed]:
    """What the frame of an answer to a fetch holds. Raises ProtocolError."""
    reader = _Reader(frame, version >= FLEXIBLE[FETCH], _ANSWER.size)
    handed: list[Handed] = []
    try:
        reader.tags()
        reader.at += 4 * (version >= 1) + 6 * (version >= 7)  # throttle time; error, session
        for _ in range(reader.length()):
            named = version < NAMED_BY_ID
            topic = (reader.string() or "") if named else reader.take(TOPIC_ID_BYTES)
            for _ in range(reader.length()):
                part = _partition(reader, version, topic)
                if part is not None:
                    handed.append(part)
            reader.tags()
    except (IndexError, ValueError) as error:
        raise ProtocolError("an answer to a fetch that ends early") from error
    return handed


def _partition(reader: "_Reader", version: int, topic: str | bytes) -> Handed | None:
    """One partition of an answer to a fetch; None without a whole batch."""
    partition = reader.number(4)
    reader.at += 10 + 8 * (version >= 4) + 8 * (version >= 5)  # error; offsets of the log
    if version >= 4:
        for _ in range(reader.length()):
            reader.at += 16  # producer and first offset of an aborted transaction
            reader.tags()
    reader.at += 4 * (version >= 11)  # preferred replica
    last_offset, records, size = -1, 0, 0
    with suppress(BatchFormatError):  # an older format, whose offsets remain unknown
        for batch in batches(reader.view(reader.length())):
            last_offset = batch.next_offset - 1
            records += batch.records if batch.commits is None else 0
            size += batch.size
    reader.tags()
    return None if last_offset < 0 else Handed(topic, partition, last_offset, records, size)


def _rewritten(frame: bytes, api: int, version: int, address_of: AddressOf) -> bytes:
    """A frame, from its correlation id on, with other addresses; the same if its layout is
    unknown. Raises ProtocolError if it does not have its layout."""
    try:
        if api == API_VERSIONS:
            return _limited(frame, version)
        if version > NEWEST[api]:
            return frame
        return _with_addresses(_Reader(frame, version >= FLEXIBLE[api]), api, version, address_of)
    except (IndexError, ValueError) as error:
        raise ProtocolError("an answer with addresses that ends early") from error


class _Reader:
    """A position in a frame. flexible: whether lengths are compact and there are tagged fields."""

    def __init__(self, frame: bytes, flexible: bool, at: int = 4) -> None:
        self.frame = frame
        self.flexible = flexible
        self.at = at

    def take(self, size: int) -> bytes:
        """The next bytes. Raises ValueError if there are fewer."""
        taken = self.frame[self.at : self.at + size]
        if len(taken) != size:
            raise ValueError(size)
        self.at += size
        return taken

    def view(self, size: int) -> memoryview:
        """The next bytes without a copy. Raises ValueError if there are fewer."""
        viewed = memoryview(self.frame)[self.at : self.at + size]
        if len(viewed) != size:
            raise ValueError(size)
        self.at += size
        return viewed

    def number(self, size: int) -> int:
        """A signed number of so many bytes."""
        return int.from_bytes(self.take(size), signed=True)

    def uvarint(self) -> int:
        """A number of variable length."""
        value = shift = 0
        while True:
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError(shift)

    def length(self) -> int:
        """The length of an array, 0 for null."""
        return max(0, self.uvarint() - 1 if self.flexible else self.number(4))

    def string(self) -> str | None:
        """A string or null."""
        size = self.uvarint() - 1 if self.flexible else self.number(2)
        return self.take(size).decode(errors="replace") if size >= 0 else None

    def tags(self) -> None:
        """Skip tagged fields, if there are any."""
        if not self.flexible:
            return
        if self.frame[self.at] == 0:  # as most are
            self.at += 1
            return
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())


def _text(value: str, flexible: bool) -> bytes:
    """A string as it is written."""
    raw = value.encode()
    return (_uvarint_of(len(raw) + 1) if flexible else len(raw).to_bytes(2)) + raw


def _uvarint_of(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _with_addresses(reader: _Reader, api: int, version: int, address_of: AddressOf) -> bytes:
    """A frame of METADATA, FIND_COORDINATOR or DESCRIBE_CLUSTER."""
    out: list[bytes] = []
    copied = 0

    def replace_address() -> None:
        nonlocal copied
        out.append(reader.frame[copied : reader.at])
        host, port = reader.string(), reader.number(4)
        if host:  # without one there is no broker
            host, port = address_of(host, port)
        out.append(_text(host or "", reader.flexible) + port.to_bytes(4, signed=True))
        copied = reader.at

    reader.tags()
    if api == FIND_COORDINATOR and version < 4:
        reader.take(4 * (version >= 1) + 2)  # throttle time, error
        if version >= 1:
            reader.string()  # what was wrong
        reader.take(4)  # node
        replace_address()
        return b"".join([*out, reader.frame[copied:]])
    if api == METADATA:
        reader.take(4 * (version >= 3))  # throttle time
    elif api == FIND_COORDINATOR:
        reader.take(4)  # throttle time
    else:
        reader.take(6)  # throttle time, error
        reader.string()  # what was wrong
        reader.take(version >= 1)  # kind of endpoint
        reader.string()  # cluster
        reader.take(4)  # controller
    for _ in range(reader.length()):
        if api == FIND_COORDINATOR:
            reader.string()  # key
        reader.take(4)  # node
        replace_address()
        if api == FIND_COORDINATOR:
            reader.take(2)  # error
            reader.string()  # what was wrong
        elif version >= 1 or api == DESCRIBE_CLUSTER:
            reader.string()  # rack
        if api == DESCRIBE_CLUSTER and version >= 2:
            reader.take(1)  # whether it is fenced
        reader.tags()
    return b"".join([*out, reader.frame[copied:]])


def _limited(frame: bytes, version: int) -> bytes:
    """An answer to ApiVersions that offers no version newer than the layouts known here."""
    reader = _Reader(frame, version >= FLEXIBLE[API_VERSIONS])
    if reader.number(2) == 35:  # UNSUPPORTED_VERSION: the rest is written as version 0
        reader.flexible = False
    result = bytearray(frame)
    for _ in range(reader.length()):
        api, _oldest, newest = (reader.number(2) for _ in range(3))
        if newest > NEWEST.get(api, newest):
            result[reader.at - 2 : reader.at] = NEWEST[api].to_bytes(2)
        reader.tags()
    return bytes(result)
