"""What is said of the timestamps of a run. Pure."""

from typing import Final

from services.watcher.latencies import Latencies

REMEDY: Final = (
    "It has no figures, and which outputs are late is unknown. Set message.timestamp.type to "
    "LogAppendTime for the topics."
)


def mostly_negative(times: dict[str, set[str]], latencies: Latencies) -> str:
    """Why the timestamps do not measure latency if most of it would be negative; empty otherwise.
    times: timestamp types by topic; those of brokers alone are left as they are."""
    values, counts = latencies.columns()
    negative, every = int(counts[values < 0].sum()), int(counts.sum())
    is_create = any("CreateTime" in kinds for kinds in times.values())
    if not is_create or 2 * negative <= every:
        return ""
    return (
        f"{negative} of {every} latencies are negative, the lowest {values[0]} ms, so the clocks of"
        " the producers differ"
    )


def said_of_times(
    times: dict[str, set[str]], leaders: list[int], apart_ms: int | None, unmeasured: str = ""
) -> str:
    """Which clocks the times of a watch come from, in a sentence or two. times: timestamp types by
    topic; apart_ms: measured clock difference of the leaders; None if it was not measured;
    unmeasured: why these times do not measure latency, if they do not."""
    if unmeasured:
        return f"These timestamps cannot measure latency: {unmeasured}. {REMEDY}"
    by_producers = sorted(topic for topic, kinds in times.items() if "CreateTime" in kinds)
    if by_producers:
        return (
            f"The timestamps of {', '.join(by_producers)} are CreateTime from producers: latencies "
            "include the error of the producers' clocks."
        )
    if not any("LogAppendTime" in kinds for kinds in times.values()):
        return "No record with a timestamp was read."
    if len(leaders) < 2:
        return "All timestamps are LogAppendTime from one broker."
    apart = f"which seem {apart_ms} ms apart"
    if apart_ms is None:
        apart = "whose difference was not measured"
    return (
        f"All times are LogAppendTime, by the clocks of {len(leaders)} brokers, {apart}: a latency "
        "between two of them has that error."
    )
