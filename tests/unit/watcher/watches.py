"""Watches with lists in place of a bus and a cluster; the fixtures are in conftest.py."""

import json

from schemas import catalogue
from services.definitions.watches import keep_watch
from services.runtime.figure_metrics import FigureCounts
from services.watcher import process
from services.watcher.cluster import BrokerClocks, bounds_of
from services.watcher.group_lag import GroupLagReader, NextRecords
from services.watcher.position import PublishedSince
from services.watcher.watching import WatchPace
from tests.unit.watcher.records import a_watch, message

RELATION = {"deadline_ms": 10, "give_up_ms": 20, "remember_ms": 50}


class Bus:
    """Records published events: topic, run id and fields."""

    def __init__(self):
        self.events, self.failed, self.commands = [], 0, []
        self.counts = FigureCounts()

    def send(self, command):
        self.commands.append((command.name, command.run_id))

    def publish(self, event, *, flush=True):
        record = event.record("watcher", 0)
        self.publish_figures(event.TOPIC, record.pop("run_id"), **record)

    def publish_figures(self, topic, run_id, /, **fields):
        self.events.append((topic, run_id, fields))
        self.counts.add(topic, fields)

    def flush(self, _timeout_s=0):
        return 0

    def conclusions(self):
        return {
            run_id: json.loads(fields["detail"])["watch"]["inputs"]
            for topic, run_id, fields in self.events
            if topic == catalogue.CONCLUSIONS
        }


class Empty:
    """A consumer of partitions without records."""

    def get_watermark_offsets(self, _place, _timeout_s):
        return 0, 0


class Reader:
    """Reads each record once. end_ms: up to which time all is read."""

    def __init__(self):
        self.troubles, self.clocks, self.consumer = [], BrokerClocks(), Empty()
        self.is_full, self.positions = False, {}
        self.records, self.end_ms = [], None

    def bounds(self, places):
        return bounds_of(self.consumer, places)

    def leaders(self):
        return self.clocks.leaders()

    def difference_ms(self):
        return self.clocks.difference_ms()

    def places(self):
        return [("in", 0), ("out", 0)]

    def begin(self, positions, topics=None):
        self.positions, self.topics = dict(positions), topics

    def compacted(self):
        return frozenset()

    def saved_topics(self):
        return {"ids": {"in": "one"}, "gone": ["out"]}

    def ends(self):
        return dict(self.positions)

    def read(self, _most, _timeout_s):
        taken, self.records = self.records, []
        return [("in", taken)] if taken else []

    @property
    def kept(self):
        return self.positions

    def visible_ms(self, _topic, _messages):
        return None

    def take_aborted(self):
        return {}

    def close(self):
        pass

    def read_until(self, place, offset, _time_ms, _newest_ms):
        self.positions[place] = offset + 1

    def frontier_ms(self):
        return self.end_ms


class Context(process.WatchContext):
    """A context with lists in place of a bus and a cluster. published: what the bus has of the
    process before, or the error of reading it. reader: the type of readers. end_ms: up to which
    time new readers have read. watches: those that were opened."""

    def __init__(self, settings, bus):
        super().__init__(settings)
        self.pace, self.results = WatchPace(step_s=0.01), self
        self.bus, self.published_since, self.reader = bus, PublishedSince(), Reader
        self.end_ms, self.watches, self.shown = None, [], []
        self.at_s(1)

    def at_s(self, seconds):
        """Set the time at which processes start."""
        self.clock = lambda: 1000 * seconds

    def open_reader(self, watch):
        self.watches.append(watch)
        reader = self.reader()
        reader.end_ms = self.end_ms
        return reader, GroupLagReader(None, NextRecords(None), watch.groups)

    def open_events(self, _producer):
        return self.bus

    def show(self, watching):
        self.shown.append(watching.shown())

    def environment(self):
        return {}

    def ends(self):
        return []

    def published(self, _producer, _since):
        if isinstance(self.published_since, Exception):
            raise self.published_since
        return self.published_since


def shop(**fields):
    return a_watch(begin="earliest", relation=RELATION, **fields)


def watched(watch, context, records=3):
    """A watch that has started and read some records."""
    keep_watch(context.settings.data, watch)
    watching = process.open_watching(watch, context)
    watching.reader.records = [
        message("in", None, b"%d" % n, 5_000 + n, offset=n) for n in range(records)
    ]
    watching.reader.end_ms = 10_000
    watching.step()
    return watching
