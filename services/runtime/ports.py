"""Port numbers of a stack, consecutive from its base port. Imports nothing: see probe.py."""

DEFAULT_BASE_PORT = 17070
PORT_OFFSETS = {
    "kafka": 0,
    "kafka_controller": 1,
    "store": 2,
    "evaluator": 3,
    "generator": 4,
    "runner": 5,
    "collector": 6,
    "conductor": 7,
    "kafka_metrics": 8,
    "kafka_internal": 9,
    "gateway": 10,
    "gateway_frames": 11,
    "watcher": 12,
    "system_frames": 13,
    "result_frames": 14,
}
# Linux uses ports of this range for outgoing connections.
EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def ephemeral_hint(base_port: int, path: str = EPHEMERAL_RANGE) -> str:
    """A warning if ports of a stack are in the ephemeral range; empty if they are not.

    Outgoing connections of any program can occupy a port of that range.
    """
    try:
        with open(path) as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):  # not Linux
        return ""
    if base_port > last or base_port + max(PORT_OFFSETS.values()) < first:
        return ""
    return (
        f"base port {base_port} is in the range {first} to {last}, which the system uses for"
        " outgoing connections"
    )
