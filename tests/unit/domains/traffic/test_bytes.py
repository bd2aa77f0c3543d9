"""A seed gives the same bytes in every version: runs can be repeated years later."""

import hashlib

import pytest

from schemas.load import RampUp, Replay
from services.generator.runs import probe_set
from tests.unit.generator.made import a_load, a_plan, messages_of

pytestmark = pytest.mark.unit

FAULTS = {"late": 0.1, "late_ms": 300, "duplicate": 0.1, "undecodable": 0.05, "impossible": 0.1}
MANY_KEYS = {"distribution": "zipf", "sites": 50, "exponent": 1.2}
NORMAL_KEYS = {"distribution": "normal", "sites": 50, "spread": 0.2}
REPLAY = Replay(speed=60)

# Generated with revision f3903cb, in which traffic was the only domain.
BYTES = [
    ("as in the data", 400, 4, {}, "cb4ffc1a613bcaec779960a2efc8ee8a"),
    ("an odd rate", 401.5, 3, {}, "e371f380d559356031ef7c2b64c68c17"),
    ("several slices a second", 60_000, 1, {}, "2dcc4b10de2ae87b7c886a9cd4b5e3fb"),
    (
        "lanes_per_site",
        500,
        3,
        {"content": {"lanes_per_site": 7}},
        "83723841973af05cab8627e10b738cae",
    ),
    (
        "uniform keys",
        500,
        3,
        {"content": {"keys": {"distribution": "uniform", "sites": 20}}},
        "eb4ad3a58488becb065d2aec2a7b08d4",
    ),
    (
        "normal keys",
        500,
        3,
        {"content": {"keys": NORMAL_KEYS}, "seed": 9},
        "715a140e5f60777bb081f0a9f830d914",
    ),
    (
        "zipf keys",
        500,
        3,
        {"content": {"keys": MANY_KEYS}, "seed": 3},
        "56087bc2af411d37e532f750b4f5307e",
    ),
    (
        "a single key",
        500,
        3,
        {"content": {"keys": {"distribution": "single"}}},
        "04aafd314246f3aafc205e501c7102ce",
    ),
    ("second_ms", 400, 3, {"content": {"second_ms": 50}}, "6a5fc68fad240c652379bb3256205d80"),
    ("a replay", Replay(speed=120), 3, {}, "2c7e7e5a8793f27daf6245c8c3123943"),
    (
        "a replay with copies and faults",
        REPLAY,
        3,
        {"content": {"copies": 3}, "faults": FAULTS, "seed": 5},
        "7bd35da5b4d4b38ee9ae168358c48901",
    ),
    ("JSON", 400, 3, {"content": {"format": "json"}}, "be91326ba1d6e2a9710cb31c58d498ac"),
    (
        "JSON with faults",
        400,
        3,
        {"content": {"format": "json"}, "faults": FAULTS, "seed": 7},
        "1aa463d2da936e775a2ec8b55233534a",
    ),
    ("faults", 400, 4, {"faults": FAULTS, "seed": 42}, "bfbf0806cc7c18d37cc542a0345ec6d7"),
    (
        "a ramp",
        RampUp(from_rate_per_second=10, rate_per_second=900, for_s=2),
        3,
        {},
        "7b99ef80457b192f129fa60391a28b9c",
    ),
    (
        "the first of two shards, with faults",
        500,
        3,
        {"shard": (0, 2), "faults": FAULTS, "seed": 11},
        "a67a66c86c5461a80c96365575971b87",
    ),
    (
        "the second of two shards, with faults",
        500,
        3,
        {"shard": (1, 2), "faults": FAULTS, "seed": 11},
        "b26830cf596a8dad7d319dc6e0a03384",
    ),
]
NOW_US = 1_700_000_000_750_000


def digest(messages):
    found = hashlib.sha256()
    for topic, key, value, due_us in messages:
        parts = (topic.encode(), len(key), key, len(value), value, due_us)
        found.update(b"%s|%d|%s|%d|%s|%d\n" % parts)
    return found.hexdigest()[:32]


@pytest.mark.parametrize(("what", "load", "seconds", "fields", "expected"), BYTES)
def test_a_load_has_the_bytes_that_it_always_had(what, load, seconds, fields, expected):
    assert digest(messages_of(a_load(load, seconds, **fields), 25_000)) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "3681b287edd3be1cf4402984e6530810"),
        ({"content": {"format": "json"}}, "cc48a73926aa6c00db38ac85d38a7384"),
    ],
)
def test_a_probe_set_has_the_bytes_that_it_always_had(fields, expected):
    probes = probe_set(a_plan(2, windows={}, **fields), 7, NOW_US)
    assert digest((*message, 0) for message in probes) == expected
