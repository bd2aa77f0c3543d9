"""The recorded sample: what each lane of each site observed in each source minute."""

import csv
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SAMPLE_PATH = Path(__file__).parent / "data" / "ndw_traffic_2017-03-15.csv"


@dataclass(frozen=True)
class Sample:
    """Observations as arrays; L lanes, M source minutes.

    Per lane, lanes of a site adjacent and complete: measurement_ids, lanes, num_lanes, latitudes,
    longitudes. Per minute and lane, shape (M, L): periods_s, accuracies_percent,
    flows_vehicles_per_hour, speeds_km_per_hour.
    """

    measurement_ids: tuple[str, ...]
    lanes: tuple[str, ...]
    num_lanes: NDArray[np.int32]
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    periods_s: NDArray[np.int32]
    accuracies_percent: NDArray[np.int32]
    flows_vehicles_per_hour: NDArray[np.int32]
    speeds_km_per_hour: NDArray[np.float64]

    @property
    def minutes(self) -> int:
        """Number of source minutes."""
        return len(self.periods_s)

    @property
    def site_lanes(self) -> tuple[int, ...]:
        """Number of lanes of each site, in order."""
        counts: dict[str, int] = defaultdict(int)
        for measurement_id in self.measurement_ids:
            counts[measurement_id] += 1
        return tuple(counts.values())


def read_sample(path: Path = SAMPLE_PATH) -> Sample:
    """Read a sample. Raises ValueError when a lane lacks a minute or a site lacks a lane."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    by_minute: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by_minute[row["observed_at"]].append(row)
    minutes = [
        sorted(by_minute[at], key=lambda r: (r["measurement_id"], r["lane"]))
        for at in sorted(by_minute)
    ]
    first = minutes[0]
    _check(path, first, minutes)
    return Sample(
        measurement_ids=tuple(row["measurement_id"] for row in first),
        lanes=tuple(row["lane"] for row in first),
        num_lanes=np.array([row["num_lanes"] for row in first], np.int32),
        latitudes=np.array([row["latitude"] for row in first], np.float64),
        longitudes=np.array([row["longitude"] for row in first], np.float64),
        periods_s=_integers(minutes, "period_s"),
        accuracies_percent=_integers(minutes, "accuracy_percent"),
        flows_vehicles_per_hour=_integers(minutes, "flow_vehicles_per_hour"),
        speeds_km_per_hour=np.array([[r["speed_km_per_hour"] for r in m] for m in minutes], float),
    )


def _integers(minutes: list[list[dict[str, str]]], column: str) -> NDArray[np.int32]:
    return np.array([[row[column] for row in minute] for minute in minutes], np.int32)


def _check(path: Path, first: list[dict[str, str]], minutes: list[list[dict[str, str]]]) -> None:
    lanes = [(row["measurement_id"], row["lane"]) for row in first]
    for minute in minutes:
        if [(row["measurement_id"], row["lane"]) for row in minute] != lanes:
            raise ValueError(f"{path}: minute {minute[0]['observed_at']} has other lanes")
    for row in first:
        present = sum(1 for measurement_id, _ in lanes if measurement_id == row["measurement_id"])
        if present != int(row["num_lanes"]):
            raise ValueError(f"{path}: site {row['measurement_id']} has {present} lanes")
