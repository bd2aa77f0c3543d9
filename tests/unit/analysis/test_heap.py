"""Whether the heap of its JVM limited a pipeline."""

import pytest

from analysis.room import HeapSample, heap, heap_sentence, limited_pipelines, size_in_words

pytestmark = pytest.mark.unit

GIB = 2**30


def samples(
    gc_s: float | None, used: float | None = 0.5, cpu_s: float = 1.0, count: int = 10
) -> list[HeapSample]:
    """Samples of a second each. used: share of a heap of 1 GiB."""
    used_bytes = None if used is None else round(used * GIB)
    return [HeapSample(1.0, cpu_s, gc_s, used_bytes, GIB)] * count


def test_more_than_a_tenth_of_the_processor_time_in_collections_is_a_heap_that_is_too_small() -> (
    None
):
    assert heap(samples(0.34)) == {
        "max_bytes": GIB,
        "used_share": 0.5,
        "gc_share": pytest.approx(0.34),
        "limited": True,
    }


@pytest.mark.parametrize(
    ("gc_s", "used", "limited"),
    [
        (0.09, 0.5, False),
        (0.11, 0.5, True),
        (0.01, 0.89, False),
        (0.01, 0.91, True),
        (0.11, None, True),
        (0.0, None, False),
    ],
)
def test_either_sign_is_enough(gc_s: float, used: float | None, limited: bool) -> None:
    found = heap(samples(gc_s, used))
    assert found is not None
    assert found["limited"] is limited


def test_the_heap_must_stay_full_in_most_samples() -> None:
    full, free = samples(0.0, 0.95, count=4), samples(0.0, 0.4, count=6)
    found = heap([*full, *free])
    assert found is not None
    assert found["used_share"] == pytest.approx(0.4)
    assert not found["limited"]


def test_collections_of_a_pipeline_that_hardly_runs_are_no_limit() -> None:
    found = heap(samples(0.006, cpu_s=0.03))
    assert found is not None
    assert found["gc_share"] == pytest.approx(0.2)
    assert not found["limited"]


def test_a_program_that_is_no_jvm_has_no_heap() -> None:
    assert heap(samples(None)) is None
    assert heap([]) is None


def test_the_pipeline_the_size_and_the_sign_are_told() -> None:
    collecting, full, fine = heap(samples(0.34)), heap(samples(0.02, 0.95)), heap(samples(0.02))
    assert collecting is not None
    assert full is not None
    assert fine is not None
    found = {"flink": collecting, "storm": full, "spark-realtime": fine}
    assert limited_pipelines(found) == ["flink", "storm"]
    assert heap_sentence(found) == (
        "flink was limited by its heap of 1 GiB:"
        " garbage collection took 34% of its processor time."
        " storm was limited by its heap of 1 GiB: 95% of it were in use after collections."
    )
    assert heap_sentence({"spark-realtime": fine}) == ""


@pytest.mark.parametrize(
    ("size_bytes", "said"),
    [(256 * 2**20, "256 MiB"), (GIB, "1 GiB"), (1536 * 2**20, "1.5 GiB"), (None, "")],
)
def test_sizes_are_in_the_unit_of_the_setting(size_bytes: int | None, said: str) -> None:
    assert size_in_words(size_bytes) == said
