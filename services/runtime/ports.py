"""Which ports a stack has: consecutive ones from its base port. Imports nothing: see probe.py."""

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
}
# Linux takes ports of this range for outgoing connections.
EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def ephemeral_hint(base_port: int, path: str = EPHEMERAL_RANGE) -> str:
    """Why ports of a stack may be taken now and then; empty where its base port is a good one.

    Any program's outgoing connection can have a port of the range for as long as it lasts.
    """
    try:
        with open(path) as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):  # another system
        return ""
    if base_port > last or base_port + max(PORT_OFFSETS.values()) < first:
        return ""
    return (
        f"base port {base_port} is in the range {first} to {last}, of which the system takes ports"
        " for outgoing connections"
    )
