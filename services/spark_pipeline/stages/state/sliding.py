"""Stage 4 with a state of its own."""

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from services.spark_pipeline.stages.parts import parts_of
from services.spark_pipeline.stages.state.memory import Memory, Place, complete_pairs
from services.spark_pipeline.stages.state.processor import with_memory

WINDOW_S = 3
SLIDE_S = 1
FIELDS = (
    "window_start_ms bigint, flow_change_short double, flow_change_long double, "
    "speed_change_short double, speed_change_long double"
)


def sliding(
    observations: DataFrame, keep_s: int, window_s: int = WINDOW_S, slide_s: int = SLIDE_S
) -> DataFrame:
    """Observations → rows of `output_sliding`, each once every part of its window is complete.

    A window consists of window_s / slide_s parts, at least 3, and each lane reports both kinds
    in every second. Raises ValueError when the window is not such a multiple.
    """
    changes = partial(windows, slide_ms=1000 * slide_s, parts=parts_of(window_s, slide_s))
    return with_memory(observations, changes, FIELDS, max(keep_s, window_s)).select(
        "run_id",
        "measurement_id",
        F.timestamp_millis("window_start_ms").alias("window_start"),
        F.timestamp_millis(F.col("window_start_ms") + 1000 * window_s).alias("window_end"),
        "flow_change_short",
        "flow_change_long",
        "speed_change_short",
        "speed_change_long",
    )


def windows(
    memory: Memory, paired: list[Place], slide_ms: int = 1000, parts: int = 3
) -> Iterator[tuple[object, ...]]:
    """The windows that the new pairs completed, with the columns of FIELDS."""
    touched = {time_ms - time_ms % slide_ms for time_ms, _ in paired}
    starts = {part_ms - slide_ms * place for part_ms in touched for place in range(parts)}
    for start_ms in sorted(starts):
        found = [
            complete_pairs(memory, start_ms + slide_ms * place, slide_ms) for place in range(parts)
        ]
        if all(found):
            flows = [sum(each.flow for each in pairs) for pairs in found[-3:]]
            speeds = [sum(each.speed for each in pairs) / len(pairs) for pairs in found[-3:]]
            yield (
                start_ms,
                *(relative_change(flows[2], old) for old in (flows[1], flows[0])),
                *(relative_change(speeds[2], old) for old in (speeds[1], speeds[0])),
            )


def relative_change(new: float, old: float) -> float | None:
    """(new - old) / old; None where old is 0."""
    return None if old == 0 else (new - old) / old
