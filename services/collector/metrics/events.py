"""Fields of `results.metrics` events, from the answer of a source. Pure."""

from collections.abc import Iterator
from typing import Any, Final

from services.collector.metrics.samples import Sample
from services.collector.metrics.watching import Answer

# A Kafka record is at most 1 MiB; a character is at most 4 bytes.
MAX_CHARACTERS: Final = 150_000
CHARACTERS_BESIDES: Final = 40  # for the numbers and lengths of one sample


def fields_of(answer: Answer) -> Iterator[dict[str, Any]]:
    """Fields of one event, or of several if one would be too large."""
    begin = 0
    while begin < len(answer.samples):
        end = _end(answer.samples, begin)
        samples = answer.samples[begin:end]
        yield {
            "time": answer.time_ms,
            "source": answer.source,
            "interval_s": answer.interval_s,
            "names": [sample.name for sample in samples],
            "labels": [dict(sample.labels) for sample in samples],
            "kinds": [sample.kind for sample in samples],
            "values": [sample.value for sample in samples],
            "increases": list(answer.increases[begin:end]),
        }
        begin = end


def _end(samples: tuple[Sample, ...], begin: int) -> int:
    """End of the event that begins with this sample; it contains at least one."""
    characters = 0
    for number in range(begin, len(samples)):
        characters += _characters(samples[number])
        if characters > MAX_CHARACTERS and number > begin:
            return number
    return len(samples)


def _characters(sample: Sample) -> int:
    labels = sum(len(name) + len(value) for name, value in sample.labels.items())
    return CHARACTERS_BESIDES + len(sample.name) + labels
