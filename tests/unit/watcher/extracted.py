"""What is extracted from records, for tests."""

from schemas.watch import WatchedTopic
from services.watcher.extracting import Extractor
from services.watcher.records import hashes


def identities(topic, *messages):
    """Hashes of the records with an identity, and the reasons for the others."""
    found = Extractor(WatchedTopic.model_validate({"topic": "t", **topic}), None).extract(
        [*messages]
    )
    return found.hash.tolist(), {reason: one.count for reason, one in found.refused.items()}


def of(*texts):
    return hashes([text.encode() for text in texts]).tolist()


def not_concerned(topic, *messages):
    """Hashes of the records with an identity; kind and number of those that do not concern it, by
    reason."""
    found = Extractor(WatchedTopic.model_validate({"topic": "t", **topic}), None).extract(
        [*messages]
    )
    assert not found.refused
    return found.hash.tolist(), {why: (one.kind, one.count) for why, one in found.others.items()}


def windows(topic, *messages):
    """Identities, windows in microseconds, and reasons."""
    fields = {"topic": "t", **topic}
    found = Extractor(WatchedTopic.model_validate(fields), None).extract([*messages])
    return found.hash.tolist(), found.times_us, [*found.refused]


BY_VALUE = {"format": "json", "identity": ["value.id"]}
