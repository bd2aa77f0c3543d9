"""A recording of aircraft in the format of OpenSky's API, and what a replay of it must lead to,
computed from the file by a scan of its own."""

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from schemas import catalogue
from services.definitions.domains import load_domain
from services.runtime.events import read_spans
from services.runtime.kafka import assigned_consumer, end_offsets
from services.runtime.settings import ServiceSettings
from tests.end_to_end.command import CommandLine

BEGIN_S = 1_700_000_000
STAGES = ("ingest", "parse", "area", "emergencies")
# Values of a state, in their order.
_NAMES = (
    *("icao24", "callsign", "origin_country", "time_position", "last_contact", "longitude"),
    *("latitude", "baro_altitude", "on_ground", "velocity", "true_track", "vertical_rate"),
    *("sensors", "geo_altitude", "squawk", "spi", "position_source"),
)
_NEEDED = ("icao24", "time_position", "last_contact", "longitude", "latitude", "velocity")
_WITHOUT = {
    "callsign": "",
    "origin_country": "unknown",
    "baro_altitude": 0.0,
    "on_ground": False,
    "true_track": 0.0,
    "vertical_rate": 0.0,
    "geo_altitude": 0.0,
    "squawk": "",
    "spi": False,
    "position_source": 0,
}
Fields = dict[str, Any]
_WORKLOAD = """
name = "recorded"
summary = "-"
domain = "flights"
stages = ["ingest", "parse", "area", "emergencies"]
keep_up_s = 2
load = {{ shape = "replay", speed = {speed} }}
phases = {{ warm_up_s = 1, measure_s = {measure_s}, cool_down_s = 3 }}
judgement = {{ deadline_ms = 60_000, give_up_ms = 90_000 }}
validity = {{ max_send_delay_p99_ms = 60_000 }}
"""


def write_recording(path: Path, seconds: int, states_per_second: int, seed: int = 1) -> None:
    """An answer a line, a second apart, with usable states and a tenth more that are not. Every
    twentieth state is the repetition of one of the second before; values that may be missing
    sometimes are; answers and states have fields that nobody knows."""
    random, before = Random(seed), list[list[Any]]()
    with path.open("w") as file:
        for second in range(seconds):
            states = [
                before[number] if before and number % 20 == 7 else _state(random, second)
                for number in range(states_per_second)
            ]
            before = states
            lost = [_unusable(random, second) for _ in range(states_per_second // 10)]
            answer = {"time": BEGIN_S + second, "source": {"receivers": 3}, "states": states + lost}
            file.write(json.dumps(answer) + "\n")


def _state(random: Random, second: int) -> list[Any]:
    def or_none(value: Any) -> Any:
        return None if random.random() < 0.1 else value

    state = [
        f"{random.randrange(2_000):06x}",
        or_none(f"DLH{random.randrange(1_000)}  "),
        or_none(random.choice(["Germany", "Côte d'Ivoire", "United States"])),
        BEGIN_S + second,
        BEGIN_S + second + 1,
        round(random.uniform(-20, 40), 4),
        round(random.uniform(30, 70), 4),
        or_none(random.uniform(0, 12_000)),
        random.random() < 0.1,
        round(random.uniform(0, 260), 2),
        or_none(random.uniform(0, 360)),
        or_none(0),
        None,
        or_none(random.uniform(0, 12_000)),
        or_none(random.choice(["7700", "1000", "2000"])),
        False,
        random.randrange(4),
    ]
    return state + [3, "unknown"][: random.randrange(3)]  # the category, and a value after it


def _unusable(random: Random, second: int) -> list[Any]:
    state = _state(random, second)
    state[_NAMES.index(random.choice(_NEEDED))] = None
    return state


def usable_states(path: Path) -> list[Fields]:
    """The states of the file that can be used, by the time of their positions and, within a second,
    as in the file: columns as the stage `parse` has them, but for the event time."""
    found = []
    with path.open() as file:
        for line in file:
            for values in json.loads(line)["states"]:
                state = dict(zip(_NAMES, values, strict=False))
                if all(state[name] is not None for name in _NEEDED):
                    found.append(state)
    found.sort(key=lambda state: state["time_position"])
    return [_parsed(state) for state in found]


def _parsed(state: Fields) -> Fields:
    parsed = {name: value for name, value in state.items() if name not in ("sensors", "category")}
    parsed |= {name: value for name, value in _WITHOUT.items() if parsed[name] is None}
    del parsed["time_position"]
    parsed["last_contact"] *= 1_000
    north, east = (5 * math.floor(parsed[name] / 5) for name in ("latitude", "longitude"))
    cell = f"{'S' if north < 0 else 'N'}{abs(north):02d}{'W' if east < 0 else 'E'}{abs(east):03d}"
    return parsed | {"departure": "ZZZZ", "cell": cell}


def is_due(stage: str, state: Fields) -> bool:
    """Whether a stage has a result for a state."""
    if stage == "area":
        return bool(45 <= state["latitude"] <= 56 and 2 <= state["longitude"] <= 18)
    return stage != "emergencies" or bool(state["squawk"] == "7700")


class Replayed(NamedTuple):
    """Results of a stage of a run. due: numbers of the states that have one; came: how often each
    came; wrong: those with other contents than the file has."""

    due: set[int]
    came: Counter[int]
    wrong: list[int]


def replayed(
    settings: ServiceSettings, run_id: str, pipeline: str, stage: str, states: list[Fields]
) -> Replayed:
    """What a run has published of a stage, against the states of the file, sent once."""
    came, wrong = Counter[int](), []
    for fields in _published(settings, catalogue.output_topic(pipeline, stage)):
        if fields["run_id"] != run_id:
            continue
        number = fields["sequence"]
        came[number] += 1
        # Event time is that of the run; the copy has the time at which it was scheduled.
        own = {name: fields[name] for name in fields if name in states[0]}
        if number >= len(states) or own != {name: states[number][name] for name in own}:
            wrong.append(number)
    due = {number for number, state in enumerate(states) if is_due(stage, state)}
    return Replayed(due, came, wrong)


def _published(settings: ServiceSettings, topic: str) -> Iterator[Fields]:
    codec = load_domain("flights").spec.codec
    consumer = assigned_consumer(settings, "tests")
    ends = {(topic, at): end for at, end in enumerate(end_offsets(consumer, topic))}
    for message in read_spans(consumer, {place: (0, end) for place, end in ends.items()}):
        yield codec.decode(message.value())[1]
    consumer.close()


def assert_each_once(
    tidegauge: CommandLine, folder: Path, pipeline: str, transport: str, load_s: int
) -> None:
    """Replay the recording in `folder` once and compare what a pipeline published of each stage
    with the file. Only UDP may lose something: loss is then the difference of counts."""
    recording, workload = folder / "states.json", folder / "recorded.toml"
    states = usable_states(recording)
    speed = len({state["last_contact"] for state in states}) / load_s
    workload.write_text(_WORKLOAD.format(speed=speed, measure_s=load_s - 4))
    done, report = tidegauge.measured(
        *(folder / "report.json", str(workload), "--input", str(recording)),
        *("--pipeline", pipeline, "--transport", transport),
    )
    assert report["valid"], done.stdout + done.stderr
    settings = ServiceSettings(data=tidegauge.data, base_port=tidegauge.base_port)
    for stage in STAGES:
        due, came, wrong = replayed(settings, report["run_id"], pipeline, stage, states)
        assert wrong == [], (stage, wrong[:5])
        assert set(came.values()) == {1}, stage
        assert set(came) <= due, stage
        missing = len(due) - len(came)
        assert transport == "udp" or not missing, (stage, missing)
        loss = report["pipelines"][pipeline]["stages"][stage]["loss"]
        if transport == "kafka":
            assert loss is None
        elif stage in ("ingest", "parse") or not missing:  # else nobody knows what was lost before
            assert (loss["due"], loss["received"], loss["lost"]) == (len(due), len(came), missing)
