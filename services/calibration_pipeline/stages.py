"""What a calibration pipeline makes of one input record: the outputs of its stages, with their
number (see calibration_faults), and the spoilt version of each. Pure.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from schemas import catalogue, codec, json_format
from schemas.model import Stage
from services.calibration_pipeline.faults import window_number

Fields = dict[str, Any]
REPORT_S = 1
MAX_OPEN_WINDOWS = 200_000
FLOW, SPEED = "flow_vehicles_per_hour", "speed_km_per_hour"


@dataclass(frozen=True)
class Made:
    """One output. latest_ms: LogAppendTime of its latest input; row and wrong: its fields and one
    of them that is not right, where it has any."""

    stage: Stage
    number: int
    latest_ms: int
    value: bytes
    record: str = ""
    row: Fields = field(default_factory=dict)
    wrong: Fields = field(default_factory=dict)
    wire_format: str = "avro"

    @property
    def spoilt(self) -> bytes:
        """The same output with one wrong value, encoded. Few are asked for it."""
        if not self.wrong:
            return self.value
        encode = json_format.encode_json if self.wire_format == "json" else codec.encode
        return encode(self.record, self.row | self.wrong)


@dataclass
class _Window:
    latest_ms: int = 0
    flows: list[int] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)


class Stages:
    """The stages of one pipeline. Keeps windows that are not complete, the newest 200,000.

    wire_format: of the inputs, `avro` or `json`; window_s: length of a window of stage 3, seconds.
    """

    def __init__(
        self, stages: tuple[Stage, ...], wire_format: str = "avro", window_s: int = REPORT_S
    ) -> None:
        self._stages = stages
        self._wire_format = wire_format
        self._window_ms = 1000 * window_s
        self._windows: OrderedDict[tuple[str, str, int], _Window] = OrderedDict()

    def outputs(self, topic: str, value: bytes | None, appended_ms: int) -> list[Made]:
        """What is due after one more input. What does not decode is only copied."""
        try:
            name, fields = self._decoded(topic, value)
        except codec.DecodeError:
            copied = value if "ingest" in self._stages else None
            return [] if copied is None else [Made("ingest", -1, appended_ms, copied)]
        assert value is not None
        made = []
        number = fields["sequence"]
        if "ingest" in self._stages:
            wrong = {"accuracy_percent": -1}
            kept = (name, fields, wrong, self._wire_format)
            made.append(Made("ingest", number, appended_ms, value, *kept))
        if "parse" in self._stages:
            parsed = {FLOW: None, SPEED: None, **fields}
            del parsed["scheduled_at"]
            made.append(_made("parse", number, appended_ms, parsed, {"accuracy_percent": -1}))
        if "tumbling" in self._stages:
            made += self._tumbling(fields, appended_ms)
        return made

    def _decoded(self, topic: str, value: bytes | None) -> tuple[str, Fields]:
        name = catalogue.record_of(topic)
        if self._wire_format == "json":
            return name, json_format.decode_json(name, value)
        return name, codec.decode_as(name, value)

    def _tumbling(self, fields: Fields, appended_ms: int) -> list[Made]:
        site = fields["measurement_id"]
        start_ms = fields["observed_at"] // self._window_ms * self._window_ms
        key = (fields["run_id"], site, start_ms)
        window = self._windows.setdefault(key, _Window())
        window.latest_ms = max(window.latest_ms, appended_ms)
        if FLOW in fields:
            window.flows.append(fields[FLOW])
        else:
            window.speeds.append(fields[SPEED])
        due = fields["num_lanes"] * (self._window_ms // (1000 * REPORT_S))
        if not len(window.flows) == len(window.speeds) == due:
            if len(self._windows) > MAX_OPEN_WINDOWS:
                self._windows.popitem(last=False)
            return []
        del self._windows[key]
        total = sum(window.flows)
        row = {
            "run_id": fields["run_id"],
            "measurement_id": site,
            "window_start": start_ms,
            "window_end": start_ms + self._window_ms,
            "lanes": fields["num_lanes"],
            "accumulated_flow_vehicles_per_hour": total,
            "average_speed_km_per_hour": sum(window.speeds) / len(window.speeds),
        }
        number = -1 if fields["sequence"] < 0 else window_number(site, start_ms)
        spoilt = {"accumulated_flow_vehicles_per_hour": total + 1}
        return [_made("tumbling", number, window.latest_ms, row, spoilt)]


def _made(stage: Stage, number: int, latest_ms: int, row: Fields, wrong: Fields) -> Made:
    record = f"output_{stage}"
    return Made(stage, number, latest_ms, codec.encode(record, row), record, row, wrong)
