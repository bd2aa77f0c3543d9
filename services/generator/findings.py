"""What people should know of a load after it, in sentences. Pure."""

from schemas.protocol import Load


def findings(load: Load, max_delay_us: int, trouble: str = "") -> tuple[str, ...]:
    """The largest send delay, and for every burst within which time all of it left at the latest.

    trouble: the client's last error. The last record of a burst is due within its time, so it left
    at most the largest delay later.
    """
    late_ms = max(0, max_delay_us) / 1000
    said = [f"The largest send delay was {late_ms:.1f} ms."]
    for burst in _bursts(load):
        said.append(
            f"Bursts of {burst.burst_records} records within {burst.burst_ms} ms left within "
            f"{burst.burst_ms + late_ms:.1f} ms at most: {late_ms:.1f} ms late."
        )
    if trouble:
        said.append(f"The Kafka client's last trouble: {trouble}.")
    return tuple(said)


def _bursts(load: Load) -> list[Load]:
    inside = [burst for part in load.parts for burst in _bursts(part)]
    return [load, *inside] if load.burst_records else inside
