"""Several watches in threads of one process, with lists in place of a bus and clusters."""

import threading

import pytest

from services.definitions.watches import keep_watch, position_path
from services.runtime.settings import ServiceSettings
from services.watcher.hosting import ProducerShare, WatchHost
from services.watcher.seats import ENDED
from tests.unit.watcher.watches import Bus, Context, Reader, shop

pytestmark = [
    pytest.mark.unit,
    # Of a watch with a defect, which ends its thread.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
WAIT_S = 30


class Lines:
    """Lines that the watches have written."""

    def __init__(self):
        self.by_name, self._changed = {}, threading.Condition()

    def write(self, name, line):
        with self._changed:
            self.by_name[name] = line
            self._changed.notify_all()

    def of(self, *names):
        with self._changed:
            assert self._changed.wait_for(lambda: {*names} <= self.by_name.keys(), WAIT_S)
        return [self.by_name[name] for name in names]


class Broken(Reader):
    """A reader that fails. error: with what."""

    error = ValueError("the schema is gone")

    def read(self, _most, _timeout_s):
        raise self.error


class Defective(Broken):
    error = KeyError("state")


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def host(tmp_path, lines):
    """Watches whose readers are those that their names say."""
    readers = {"broken": Broken, "defective": Defective}

    class Mine(Context):
        def open_reader(self, watch):
            self.reader = readers.get(watch.name, Reader)
            return super().open_reader(watch)

    result = WatchHost(lambda: Mine(ServiceSettings(data=tmp_path), Bus()), lines.write)
    yield result
    result.close(WAIT_S)


def keep(folder, *names):
    for name in names:
        keep_watch(folder, shop(name=name))


def test_a_watch_that_ends_with_an_error_ends_alone(tmp_path, host, lines):
    keep(tmp_path, "broken", "well")
    host.obey("watch well\n")
    host.obey("watch broken\n")
    assert lines.of("broken") == [ENDED + b"the schema is gone"]
    assert "well" not in lines.by_name
    host.obey("stop well\n")
    assert lines.of("well") == [ENDED]
    assert position_path(tmp_path, "well").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_ends_one_watch_and_says_so(tmp_path, host, lines):
    keep(tmp_path, "defective", "well")
    host.obey("watch well\n")
    host.obey("watch defective\n")
    assert lines.of("defective") == [ENDED + b"it was ended by a defect; see the watcher's log"]
    assert "well" not in lines.by_name


def test_a_watch_that_has_ended_can_begin_again(tmp_path, host, lines):
    keep(tmp_path, "w")
    for _ in range(2):
        host.obey("watch w\n")
        host.obey("stop w\n")
        assert lines.of("w") == [ENDED]
        lines.by_name.clear()
    host.obey("stop w\n")
    host.obey("stop unknown\n")
    assert lines.by_name == {}


def test_all_watches_are_stopped_together(tmp_path, host, lines):
    names = [f"w-{number}" for number in range(20)]
    keep(tmp_path, *names)
    for name in names:
        host.obey(f"watch {name}\n")
    host.close(WAIT_S)
    assert lines.of(*names) == [ENDED] * 20


class Producer:
    """Keeps records until they are acknowledged, the oldest first, one in each poll."""

    def __init__(self):
        self.queued, self.is_full, self.is_silent = [], False, False

    def produce(self, topic, value, key, *, on_delivery):
        if self.is_full:
            raise BufferError
        self.queued.append(on_delivery)

    def poll(self, _timeout_s):
        if self.queued and not self.is_silent:
            self.queued.pop(0)(None, None)
        return 0


def test_a_watch_waits_for_its_own_records_alone():
    producer, delivered = Producer(), []
    one, other = ProducerShare(producer), ProducerShare(producer)
    for each in (other, one, one, other):
        each.produce("topic", b"", b"", on_delivery=lambda *_, each=each: delivered.append(each))
    assert one.flush(WAIT_S) == 0
    assert delivered == [other, one, one]
    assert len(producer.queued) == 1
    producer.is_silent = True
    assert other.flush(0.01) == 1


def test_a_record_that_the_queue_did_not_take_is_not_waited_for():
    producer = Producer()
    producer.is_full = True
    own = ProducerShare(producer)
    with pytest.raises(BufferError):
        own.produce("topic", b"", b"", on_delivery=print)
    assert own.flush(WAIT_S) == 0
