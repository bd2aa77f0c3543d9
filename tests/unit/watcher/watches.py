"""Watches with lists in place of a bus and a cluster; the fixtures are in conftest.py."""

import json

from schemas import catalogue
from services.definitions.watches import keep_watch
from services.watcher import process
from services.watcher.cluster import BrokerClocks
from tests.unit.watcher.records import a_watch, message

RELATION = {"deadline_ms": 10, "give_up_ms": 20, "remember_ms": 50}


class Bus:
    """Records published events: topic, run id and fields."""

    def __init__(self):
        self.events, self.failed, self.commands = [], 0, []

    def send(self, command):
        self.commands.append((command.name, command.run_id))

    def publish(self, event, *, flush=True):
        record = event.record("watcher", 0)
        self.publish_figures(event.TOPIC, record.pop("run_id"), **record)

    def publish_figures(self, topic, run_id, /, **fields):
        self.events.append((topic, run_id, fields))

    def flush(self, _timeout_s=0):
        return 0

    def conclusions(self):
        return {
            run_id: json.loads(fields["detail"])["watch"]["inputs"]
            for topic, run_id, fields in self.events
            if topic == catalogue.CONCLUSIONS
        }


class Reader:
    """Reads each record once."""

    def __init__(self, *_):
        self.troubles, self.clocks, self.consumer = [], BrokerClocks(), None
        self.is_full, self.positions = False, {}
        self.records, self.end_ms = [], None

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

    def read_until(self, place, offset, _time_ms, _newest_ms):
        self.positions[place] = offset + 1

    def frontier_ms(self):
        return self.end_ms


def shop(**fields):
    return a_watch(begin="earliest", relation=RELATION, **fields)


def watched(watch, settings, records=3):
    """A watch that has started and read some records."""
    keep_watch(settings.data, watch)
    watching = process.open_watching(watch, settings)
    watching.reader.records = [
        message("in", None, b"%d" % n, 5_000 + n, offset=n) for n in range(records)
    ]
    watching.reader.end_ms = 10_000
    watching.step()
    return watching
