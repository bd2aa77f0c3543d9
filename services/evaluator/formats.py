"""Which decoder reads the input topics of a workload."""

from collections.abc import Callable

from services.evaluator.decode import Decoded, Refused, decode
from services.evaluator.decode_json import decode_json_values

Decoder = Callable[[tuple[str, ...], list[bytes | None]], tuple[list[Decoded], list[Refused]]]


def input_decoder(wire_format: str) -> Decoder:
    """The decoder of input records, and of their raw copies, in `avro` or `json`."""
    return decode_json_values if wire_format == "json" else decode
