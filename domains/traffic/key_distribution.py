"""Site and lane of each record of a second of event time. Pure.

A second with n records has (n + 1) // 2 lanes. Each lane gives two records, flow and then speed,
lane by lane and site by site. If n is odd, the last lane has no speed record, so one window stays
incomplete. A workload without incomplete windows uses an even number per second.

There are three key distributions, selected by the workload's content:
- as in the data: whole copies of the recorded sites, then sites of one more copy, chosen so that
  their lanes fill the rest; every site of a second is therefore present with every lane;
- the same number of lanes for every site;
- weighted: the number of lanes of a site follows its weight.

The first copy of a site has its own name, later ones a suffix: `SITE#0001`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.fault_rules import fractions
from schemas.records import Int64s

from .content import Content, Keys
from .recording import Recording

RESTS_KEPT = 4  # a constant rate alternates between two record counts


@dataclass(frozen=True)
class Places:
    """Lanes: source: lane of the recording whose values are used; site: number of the site, over
    all copies; lane: number of the lane's name; num_lanes: lanes of the site."""

    source: Int64s
    site: Int64s
    lane: Int64s
    num_lanes: NDArray[np.int32]


class KeyDistribution(Protocol):
    """The lane of each position within a second."""

    def places(self, second: int, records: int, positions: Int64s) -> Places:
        """The lanes at `positions` (0 to (records + 1) // 2 - 1) of a second of `records`."""


def key_distribution_of(recording: Recording, content: Content, seed: int) -> KeyDistribution:
    """The key distribution of a workload's content."""
    if content.lanes_per_site is not None:
        return EqualKeys(recording, content.lanes_per_site)
    if content.keys.distribution != "data":
        return WeightedKeys(recording, content.keys, seed)
    return RecordedKeys(recording)


class RecordedKeys:
    """Every site with its own lanes. Lane names are those of the recording, by its lanes."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._rest = lru_cache(RESTS_KEPT)(self._lay_out_rest)

    def places(self, second: int, records: int, positions: Int64s) -> Places:  # noqa: ARG002
        recording = self._recording
        width = len(recording.lane_names)
        copies, rest = divmod(records // 2, width)
        copy, source = np.divmod(positions, width)
        sources, num_lanes = self._rest(rest)
        inside = positions - copies * width
        partial = (inside >= 0) & (inside < rest)
        lanes = recording.num_lanes[source]
        source[partial] = sources[inside[partial]]
        copy[partial] = copies
        lanes[partial] = num_lanes[inside[partial]]
        spare = inside == rest  # in an odd second: a lane of one more copy, alone at its site
        source[spare], copy[spare], lanes[spare] = 0, copies + 1, 1
        site = copy * len(recording.site_names) + recording.site_of_lane[source]
        return Places(source, site, source, lanes)

    def _lay_out_rest(self, lanes: int) -> tuple[Int64s, NDArray[np.int32]]:
        """Lanes of the recording in the incomplete copy, and the lane counts of their sites."""
        recording = self._recording
        parts = fill_with_sites(recording.site_lanes.tolist(), lanes)
        sources = [np.arange(width) + recording.first_lanes[site] for site, width in parts]
        there = [np.full(width, width, np.int32) for _, width in parts]
        return (
            np.concatenate([np.zeros(0, np.int64), *sources]),
            np.concatenate([np.zeros(0, np.int32), *there]),
        )


def fill_with_sites(site_lanes: Sequence[int], lanes: int) -> tuple[tuple[int, int], ...]:
    """Sites, ascending, and the number of lanes to use of each, `lanes` in total.

    Whole sites are used first, in the order of the recording. If none fits the remainder, the first
    free site provides the missing lanes as if it had no others.
    """
    chosen = []
    for site, width in enumerate(site_lanes):
        if width <= lanes:
            chosen.append((site, width))
            lanes -= width
    if lanes:
        taken = {site for site, _ in chosen}
        free = min(site for site in range(len(site_lanes)) if site not in taken)
        chosen.append((free, lanes))
    return tuple(chosen)


class EqualKeys:
    """`lanes_per_site` lanes at every site; the last site of a second has the remainder."""

    def __init__(self, recording: Recording, lanes_per_site: int) -> None:
        self._lanes = len(recording.lane_names)
        self._per_site = lanes_per_site

    def places(self, second: int, records: int, positions: Int64s) -> Places:  # noqa: ARG002
        site, lane = np.divmod(positions, self._per_site)
        left = (records + 1) // 2 - site * self._per_site
        num_lanes = np.minimum(left, self._per_site).astype(np.int32)
        return Places(positions % self._lanes, site, lane, num_lanes)


class WeightedKeys:
    """Lanes in proportion to weights.

    Of m lanes, site i gets those whose number p has (p + φ) / m between the sums of the weights
    before i and up to i. φ is a fraction drawn from the seed for every second. Counts are therefore
    accurate to one lane in every second, and exact in the long run even for sites with less than
    one lane per second.
    """

    def __init__(self, recording: Recording, keys: Keys, seed: int) -> None:
        self._lanes = len(recording.lane_names)
        summed = np.cumsum(weights(keys))
        self._until = summed / summed[-1]
        self._seed = seed
        self._ends = lru_cache(1)(self._lay_out)

    def places(self, second: int, records: int, positions: Int64s) -> Places:
        ends = self._ends(second, (records + 1) // 2)
        starts = np.concatenate(([0], ends[:-1]))
        site = np.searchsorted(ends, positions, side="right")
        num_lanes = (ends - starts)[site].astype(np.int32)
        return Places(positions % self._lanes, site, positions - starts[site], num_lanes)

    def _lay_out(self, second: int, lanes: int) -> Int64s:
        """For each site, the position after its last lane."""
        shift = float(fractions(self._seed, np.array([second], np.int64))[0])
        ends = np.clip(np.ceil(self._until * lanes - shift), 0, lanes).astype(np.int64)
        ends[-1] = lanes
        return np.asarray(ends, np.int64)


def weights(keys: Keys) -> NDArray[np.float64]:
    """The weight of each site; see Keys."""
    numbers = np.arange(1, keys.sites + 1, dtype=np.float64)
    if keys.distribution == "single":
        return np.ones(1)
    if keys.distribution == "zipf":
        return np.asarray(numbers**-keys.exponent, np.float64)
    if keys.distribution == "normal":
        away = (numbers - (keys.sites + 1) / 2) / (keys.spread * keys.sites)
        return np.asarray(np.exp(-0.5 * away**2), np.float64)
    return np.ones(keys.sites)
