"""The heap of a JVM, from counters as each collector reports them for -Xmx200m."""

import struct

import pytest

from services.collector.jvm import FREQUENCY, read

pytestmark = pytest.mark.unit

EDEN, FIRST = "sun.gc.generation.0.space.0", "sun.gc.generation"
HEAP_BYTES = 209_715_200


@pytest.mark.parametrize(
    ("collector", "young", "eden", "old", "expected"),
    [
        ("Serial", 69_861_376, 55_967_744, 139_853_824, HEAP_BYTES),
        ("Parallel", 69_730_304, 68_681_728, 139_984_896, HEAP_BYTES),
        ("G1 of Java 17", 209_715_224, 209_715_208, 209_715_208, HEAP_BYTES + 24),
        ("G1 of Java 25", 209_715_200, 209_715_200, 209_715_200, HEAP_BYTES),
        ("Shenandoah", 0, 0, 209_715_200, HEAP_BYTES),
        ("generational Z", 209_715_200, 209_715_200, 209_715_200, HEAP_BYTES),
    ],
)
def test_the_maximum_is_that_of_the_whole_heap(
    collector: str, young: int, eden: int, old: int, expected: int
) -> None:
    values = {
        FREQUENCY: 1_000_000_000,
        f"{FIRST}.0.maxCapacity": young,
        f"{EDEN}.maxCapacity": eden,
        f"{FIRST}.1.maxCapacity": old,
    }
    data = struct.pack(f"<{len(values)}q", *values.values())
    sample = read(data, {name: 8 * place for place, name in enumerate(values)})
    assert sample is not None, collector
    assert sample.heap_max_bytes == expected
