"""The Kafka protocol as far as the proxy needs it: where frames begin, which offsets an answer to a
fetch holds, and the addresses of brokers in three answers, which are replaced.

    answers = Answers(address_of)
    requests = Requests(answers)
    to_broker = requests.feed(data)     # of the client; unchanged
    to_client = answers.feed(data)      # of the broker; unchanged but for addresses
    handed = answers.take_handed()      # by the answers that are complete with that

All other bytes pass as they are. Records are skipped, not read: of each batch only its header is.
Layouts are those of Kafka's message definitions (clients/src/main/resources/common/message).
"""

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

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
MAX_REWRITTEN_BYTES = 16 << 20  # of an answer that is held until it is complete
MAX_PENDING = 10_000  # requests of a connection without answer
MAX_NAME_BYTES = 1_024
_FRAME_HEAD = 8  # size, correlation id
_BATCH_HEAD = 27  # base offset to last offset delta
_BATCH_PREFIX = 12  # base offset and length: what the length does not count
_CONTROL = 0x20

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


Parser = Generator[int, bytes, list[Handed]]
"""Yields how many bytes it needs next, or as a negative number how many it skips; it is sent the
bytes that it needed."""


class Answers:
    """Bytes from a broker to a client. address_of: what a client is told instead of a broker's host
    and port."""

    def __init__(self, address_of: AddressOf) -> None:
        self._address_of = address_of
        self._handed: list[Handed] = []
        self._pending: deque[tuple[int, int, int]] = deque()  # correlation id, API, version
        self._head = bytearray()
        self._left = 0  # bytes of the current frame that have not been fed
        self._held: bytearray | None = None  # of a frame whose addresses are replaced
        self._api = (0, 0)
        self._fetch: _Fed | None = None

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
                taken = data[at : at + _FRAME_HEAD - len(self._head)]
                self._head += taken
                at += len(taken)
                if len(self._head) == _FRAME_HEAD:
                    out.append(self._begin())
                continue
            part = data[at : at + self._left]
            at += len(part)
            self._left -= len(part)
            out.append(self._within(part))
        return b"".join(out)

    def _begin(self) -> bytes:
        """Begin the frame whose head has been read; returns what is passed on of that."""
        size = int.from_bytes(self._head[:4], signed=True)
        if not 4 <= size <= MAX_FRAME_BYTES:
            raise ProtocolError(f"an answer of {size} bytes")
        head, self._head = bytes(self._head), bytearray()
        self._left = size - 4
        self._api = self._answered(int.from_bytes(head[4:], signed=True))
        api, version = self._api
        self._held, self._fetch = None, None
        if api == FETCH and version <= NEWEST[FETCH]:
            self._fetch = _Fed(_fetch_answer(version, self._left))
        elif api in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, API_VERSIONS):
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
        if self._fetch is not None:
            self._fetch.feed(part)
            if not self._left:
                self._handed += self._fetch.handed
        return part

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
        self._head = bytearray()
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
            taken = data[at : at + 12 - len(self._head)]
            self._head += taken
            at += len(taken)
            if len(self._head) == 12:
                size = int.from_bytes(self._head[:4], signed=True)
                if not 8 <= size <= MAX_FRAME_BYTES:
                    raise ProtocolError(f"a request of {size} bytes")
                api, version = (int.from_bytes(self._head[n : n + 2]) for n in (4, 6))
                self._answers.expect(int.from_bytes(self._head[8:], signed=True), api, version)
                self._left = size - 8
                self._head.clear()
        return data


class _Fed:
    """A parser that is fed bytes as they come."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._got = bytearray()
        self.handed: list[Handed] = []
        self._wants = 0
        self._step(None)

    def feed(self, part: bytes) -> None:
        """Parse some bytes."""
        at = 0
        while at < len(part) and self._wants:
            if self._wants < 0:
                skipped = min(-self._wants, len(part) - at)
                self._wants += skipped
                at += skipped
                if not self._wants:
                    self._step(b"")
                continue
            taken = part[at : at + self._wants - len(self._got)]
            self._got += taken
            at += len(taken)
            if len(self._got) == self._wants:
                got = bytes(self._got)
                self._got.clear()
                self._step(got)

    def _step(self, got: bytes | None) -> None:
        try:
            while True:
                self._wants = next(self._parser) if got is None else self._parser.send(got)
                if self._wants:
                    return
                got = b""
        except StopIteration as ended:
            self._wants, self.handed = 0, ended.value


def _fetch_answer(version: int, left: int) -> Parser:
    """The offsets in the body of an answer to a fetch. left: its size in bytes."""
    flexible = version >= FLEXIBLE[FETCH]
    if left < 4:
        return []
    if flexible:
        yield from _tags()
    if version >= 1:
        yield -4  # throttle time
    if version >= 7:
        yield -6  # error, session
    handed: list[Handed] = []
    for _ in range((yield from _length(flexible))):
        topic: str | bytes
        if version >= NAMED_BY_ID:
            topic = yield 16
        else:
            topic = yield from _string(flexible)
        for _ in range((yield from _length(flexible))):
            part = yield from _partition(version, flexible, topic)
            if part is not None:
                handed.append(part)
        if flexible:
            yield from _tags()
    return handed


def _partition(
    version: int, flexible: bool, topic: str | bytes
) -> Generator[int, bytes, Handed | None]:
    """One partition of an answer to a fetch."""
    partition = int.from_bytes((yield 4), signed=True)
    yield -10  # error, high watermark
    yield -(8 * (version >= 4) + 8 * (version >= 5))  # last stable offset, first offset
    if version >= 4:
        for _ in range((yield from _length(flexible))):
            yield -16  # producer, first offset of an aborted transaction
            if flexible:
                yield from _tags()
    if version >= 11:
        yield -4  # preferred replica
    left = yield from _length(flexible)
    last_offset, records, size = -1, 0, 0
    while left >= _BATCH_HEAD:
        head = yield _BATCH_HEAD
        left -= _BATCH_HEAD
        rest = int.from_bytes(head[8:12], signed=True) - (_BATCH_HEAD - _BATCH_PREFIX)
        if head[16] != 2 or not 0 <= rest <= left:
            break  # the rest is a part of a batch, which no client can read
        last_offset = int.from_bytes(head[:8], signed=True)
        delta = int.from_bytes(head[23:27], signed=True)
        last_offset += delta
        if not head[22] & _CONTROL:
            records += delta + 1
        size += rest + _BATCH_HEAD
        yield -rest
        left -= rest
    yield -left
    if flexible:
        yield from _tags()
    if last_offset < 0:
        return None
    return Handed(topic, partition, last_offset, records, size)


def _uvarint() -> Generator[int, bytes, int]:
    value = 0
    for shift in range(0, 35, 7):
        (byte,) = yield 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ProtocolError("a number of more than five bytes")


def _length(flexible: bool) -> Generator[int, bytes, int]:
    """A length, 0 for null."""
    if flexible:
        value = yield from _uvarint()
        value -= 1
    else:
        value = int.from_bytes((yield 4), signed=True)
    if value > MAX_FRAME_BYTES:
        raise ProtocolError(f"a length of {value}")
    return max(0, value)


def _string(flexible: bool) -> Generator[int, bytes, str]:
    size = (yield from _uvarint()) - 1 if flexible else int.from_bytes((yield 2), signed=True)
    if size > MAX_NAME_BYTES:
        raise ProtocolError(f"a name of {size} bytes")
    return (yield size).decode(errors="replace") if size > 0 else ""


def _tags() -> Generator[int, bytes, None]:
    for _ in range((yield from _uvarint())):
        yield from _uvarint()
        yield -(yield from _uvarint())


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

    def number(self, size: int) -> int:
        """A signed number of so many bytes."""
        return int.from_bytes(self.take(size), signed=True)

    def uvarint(self) -> int:
        """A number of variable length."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
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
        if self.flexible:
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
